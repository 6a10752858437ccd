// The client kafkajs, by the contract of ../README.md.

import * as zstd from '@bokuweb/zstd-wasm'
import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import lz4 from 'lz4-napi'

import { HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, main, printOffsets } from './contract.js'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs

// It has gzip itself, and takes the others from modules.
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

class Client {
  constructor(bootstrap) {
    this.kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.WARN })
  }

  async admin(act) {
    const admin = this.kafka.admin()
    await admin.connect()
    try {
      return await act(admin)
    } finally {
      await admin.disconnect()
    }
  }

  async produce(topic, codec, idempotent, messages) {
    const producer = this.kafka.producer({
      idempotent,
      allowAutoTopicCreation: false,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
    })
    await producer.connect()
    await producer.send({ topic, messages, compression: CODECS[codec] })
    await producer.disconnect()
  }

  async consume(topic, groupId, reader) {
    const consumer = this.kafka.consumer({
      groupId,
      sessionTimeout: SESSION_TIMEOUT_MS,
      heartbeatInterval: HEARTBEAT_INTERVAL_MS,
      maxWaitTimeInMs: 100,
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: ({ partition, message }) =>
        reader.take(partition, message.offset, message.key, message.value, () =>
          consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }]),
        ),
    })
    await reader.finished
    await consumer.disconnect()
  }

  createTopic(topic, numPartitions) {
    return this.admin((admin) => admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1 }] }))
  }

  growTopic(topic, count) {
    return this.admin((admin) => admin.createPartitions({ topicPartitions: [{ topic, count }] }))
  }

  deleteTopic(topic) {
    return this.admin((admin) => admin.deleteTopics({ topics: [topic] }))
  }

  offsets(topic, millisecond) {
    return this.admin(async (admin) => {
      const found = await admin.fetchTopicOffsets(topic)
      const times = await admin.fetchTopicOffsetsByTimestamp(topic, millisecond)
      for (const { partition, low, high } of found) {
        printOffsets(partition, low, high, times.find((time) => time.partition === partition).offset)
      }
    })
  }

  async listGroups() {
    const { groups } = await this.admin((admin) => admin.listGroups())
    return groups.map((group) => group.groupId)
  }

  async describeGroup(group) {
    const { groups } = await this.admin((admin) => admin.describeGroups([group]))
    return { state: groups[0].state, members: groups[0].members.length }
  }

  deleteGroup(group) {
    return this.admin((admin) => admin.deleteGroups([group]))
  }
}

await zstd.init()
await main((bootstrap) => new Client(bootstrap))
