// The client node-rdkafka, by the contract of ../README.md. It cannot list, describe or delete groups.

import { promisify } from 'node:util'

import rdkafka from 'node-rdkafka'

import { HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, main, printOffsets } from './contract.js'

const PATIENCE_MS = 60_000

class Client {
  constructor(bootstrap) {
    this.config = { 'bootstrap.servers': bootstrap }
  }

  async produce(topic, codec, idempotent, messages) {
    const producer = new rdkafka.Producer({
      ...this.config,
      'compression.type': codec,
      'enable.idempotence': idempotent,
    })
    await call(producer, 'connect', {})
    for (const { key, value } of messages) producer.produce(topic, null, value, key)
    await call(producer, 'flush', PATIENCE_MS)
    await call(producer, 'disconnect')
  }

  consumer(config) {
    return new rdkafka.KafkaConsumer({ ...this.config, ...config }, { 'auto.offset.reset': 'earliest' })
  }

  async consume(topic, group, reader) {
    const consumer = this.consumer({
      'group.id': group,
      'enable.auto.commit': false,
      'session.timeout.ms': SESSION_TIMEOUT_MS,
      'heartbeat.interval.ms': HEARTBEAT_INTERVAL_MS,
    })
    await call(consumer, 'connect', {})
    consumer.subscribe([topic])
    let running = true
    reader.finished.then(() => (running = false))
    while (running) {
      for (const message of await call(consumer, 'consume', 100)) {
        await reader.take(message.partition, message.offset, message.key, message.value, () =>
          consumer.commitMessageSync(message),
        )
      }
    }
    await call(consumer, 'disconnect')
  }

  async admin(method, ...args) {
    const admin = rdkafka.AdminClient.create(this.config)
    await call(admin, method, ...args)
    admin.disconnect()
  }

  createTopic(topic, partitions) {
    return this.admin('createTopic', { topic, num_partitions: partitions, replication_factor: 1 })
  }

  growTopic(topic, partitions) {
    return this.admin('createPartitions', topic, partitions)
  }

  deleteTopic(topic) {
    return this.admin('deleteTopic', topic)
  }

  async offsets(topic, millisecond) {
    const consumer = this.consumer({ 'group.id': 'unused' })
    await call(consumer, 'connect', {})
    const metadata = await call(consumer, 'getMetadata', { topic, timeout: PATIENCE_MS })
    const { partitions } = metadata.topics.find(({ name }) => name === topic)
    for (const { id } of partitions) {
      const { lowOffset, highOffset } = await call(consumer, 'queryWatermarkOffsets', topic, id, PATIENCE_MS)
      const times = [{ topic, partition: id, offset: millisecond }]
      const [at] = await call(consumer, 'offsetsForTimes', times, PATIENCE_MS)
      printOffsets(id, lowOffset, highOffset, at.offset)
    }
    await call(consumer, 'disconnect')
  }
}

/** Calls a method that takes a callback; what it is called back with. */
function call(object, method, ...args) {
  return promisify(object[method]).call(object, ...args)
}

await main((bootstrap) => new Client(bootstrap))
