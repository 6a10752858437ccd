// The client @platformatic/kafka, by the contract of ../README.md.

import {
  Admin,
  Consumer,
  ListOffsetTimestamps,
  MessagesStreamFallbackModes,
  MessagesStreamModes,
  Producer,
} from '@platformatic/kafka'

import { HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, main, printOffsets } from './contract.js'

class Client {
  constructor(bootstrap) {
    this.options = { clientId: 'platformatic', bootstrapBrokers: [bootstrap] }
  }

  async admin(act) {
    const admin = new Admin(this.options)
    try {
      return await act(admin)
    } finally {
      await admin.close()
    }
  }

  async produce(topic, compression, idempotent, messages) {
    const producer = new Producer({ ...this.options, idempotent, compression })
    await producer.send({ messages: messages.map((message) => ({ topic, ...message })) })
    await producer.close()
  }

  async consume(topic, groupId, reader) {
    const consumer = new Consumer({
      ...this.options,
      groupId,
      sessionTimeout: SESSION_TIMEOUT_MS,
      heartbeatInterval: HEARTBEAT_INTERVAL_MS,
      maxWaitTime: 100,
    })
    const stream = await consumer.consume({
      topics: [topic],
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST,
      autocommit: false,
    })
    reader.finished.then(() => stream.close())
    for await (const message of stream) {
      await reader.take(message.partition, message.offset, message.key, message.value, () => message.commit())
    }
    await consumer.close()
  }

  createTopic(topic, partitions) {
    return this.admin((admin) => admin.createTopics({ topics: [topic], partitions, replicas: 1 }))
  }

  growTopic(name, count) {
    return this.admin((admin) => admin.createPartitions({ topics: [{ name, count }] }))
  }

  deleteTopic(topic) {
    return this.admin((admin) => admin.deleteTopics({ topics: [topic] }))
  }

  offsets(topic, millisecond) {
    return this.admin(async (admin) => {
      const metadata = await admin.metadata({ topics: [topic] })
      for (let partition = 0; partition < metadata.topics.get(topic).partitionsCount; partition++) {
        const found = []
        for (const time of [ListOffsetTimestamps.EARLIEST, ListOffsetTimestamps.LATEST, BigInt(millisecond)]) {
          const partitions = [{ partitionIndex: partition, timestamp: time }]
          const [listed] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
          found.push(listed.partitions[0].offset)
        }
        printOffsets(partition, ...found)
      }
    })
  }

  async listGroups() {
    return [...(await this.admin((admin) => admin.listGroups())).keys()]
  }

  async describeGroup(name) {
    const group = (await this.admin((admin) => admin.describeGroups({ groups: [name] }))).get(name)
    return { state: group.state, members: group.members.size }
  }

  deleteGroup(group) {
    return this.admin((admin) => admin.deleteGroups({ groups: [group] }))
  }
}

await main((bootstrap) => new Client(bootstrap))
