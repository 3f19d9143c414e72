// kafkajs under the runners' commands.

import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { decode, encode, Failure, load, serve, within } from './harness.mjs'

const kafkajs = load('kafkajs')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = load('kafkajs-snappy')
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zstdCompressSync(encoder.buffer),
  decompress: async buffer => zstdDecompressSync(buffer)
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  zstd: CompressionTypes.ZSTD
}
const READ_OPTIONS = {
  max_bytes: 'maxBytes',
  partition_max_bytes: 'maxBytesPerPartition',
  min_bytes: 'minBytes',
  max_wait_ms: 'maxWaitTimeInMs'
}
const logCreator = () => ({ log }) => console.error(log.message, log.error ?? '')

const client = bootstrap =>
  new Kafka({
    brokers: [bootstrap],
    logLevel: logLevel.WARN,
    logCreator,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 40 }
  })

function asFailure (error) {
  for (let each = error; each; each = each.cause ?? each.originalError ?? each.errors?.[0] ?? each.partitions?.[0]?.error) {
    if (Number.isInteger(each.code)) return { code: each.code, message: each.message }
  }
  return { code: -1, message: String(error) }
}

async function withAdmin (bootstrap, ask) {
  // Admin calls answer at once; what a case wants to see refused is not tried again.
  const admin = client(bootstrap).admin({ retry: { retries: 2 } })
  await admin.connect()
  try {
    return await ask(admin)
  } finally {
    await admin.disconnect()
  }
}

const record = (topic, partition, message) => ({
  topic,
  partition,
  offset: Number(message.offset),
  key: encode(message.key),
  value: encode(message.value),
  // It answers one value or a list of them for each name, so the order among names is lost.
  headers: Object.entries(message.headers ?? {}).flatMap(([name, value]) =>
    Array.isArray(value) ? value.map(each => [name, encode(each)]) : [[name, encode(value)]]),
  timestamp: Number(message.timestamp),
  log_append_time: null
})

const commands = {
  async produce ({ bootstrap, topic, records, acks = -1, codec = 'none', idempotent = false }) {
    const producer = client(bootstrap).producer({ idempotent, maxInFlightRequests: idempotent ? 1 : null, allowAutoTopicCreation: true })
    await producer.connect()
    try {
      const messages = records.map(each => ({
        partition: each.partition,
        key: decode(each.key),
        value: decode(each.value),
        headers: headers(each.headers),
        timestamp: each.timestamp === null || each.timestamp === undefined ? undefined : String(each.timestamp)
      }))
      const answers = await producer.send({ topic, acks, compression: CODECS[codec], messages })
      return { placed: places(messages, answers) }
    } finally {
      await producer.disconnect()
    }
  },

  // There is no consumer without a group, so this one has a group of its own and seeks.
  async read ({ bootstrap, topic, partition, offset, count, wait_s: seconds, options }) {
    const settings = Object.fromEntries(Object.entries(options ?? {}).map(([name, value]) => [READ_OPTIONS[name], value]))
    const groupId = `read-${topic}-${Date.now()}-${Math.floor(performance.now() * 1000)}`
    const consumer = client(bootstrap).consumer({ groupId, maxWaitTimeInMs: 200, ...settings })
    const found = []
    await consumer.connect()
    try {
      await consumer.subscribe({ topic, fromBeginning: offset !== 'latest' })
      await within(seconds, (done, failed) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error))
        consumer.run({
          autoCommit: false,
          eachMessage: async ({ partition: where, message }) => {
            if (where !== partition || (Number.isInteger(offset) && Number(message.offset) < offset)) return
            found.push(record(topic, where, message))
            if (found.length >= count) done()
          }
        }).catch(failed)
        if (Number.isInteger(offset)) consumer.seek({ topic, partition, offset: String(offset) })
      })
    } finally {
      await consumer.disconnect()
    }
    return { records: found }
  },

  async offset ({ bootstrap, topic, partition, at }) {
    return withAdmin(bootstrap, async admin => {
      if (Number.isInteger(at)) {
        const found = await admin.fetchTopicOffsetsByTimestamp(topic, at)
        return { offset: Number(found.find(each => each.partition === partition).offset) }
      }
      const found = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === partition)
      return { offset: Number(at === 'earliest' ? found.low : found.high) }
    })
  },

  async create_topic ({ bootstrap, topic, partitions, replicas, configs }) {
    const configEntries = Object.entries(configs ?? {}).map(([name, value]) => ({ name, value }))
    const created = await withAdmin(bootstrap, admin =>
      admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: replicas, configEntries }] }))
    if (!created) throw new Failure(36, 'it is there already') // false is how it says that
  },

  async delete_topic ({ bootstrap, topic }) {
    await withAdmin(bootstrap, admin => admin.deleteTopics({ topics: [topic] }))
  },

  async add_partitions ({ bootstrap, topic, total }) {
    await withAdmin(bootstrap, admin => admin.createPartitions({ topicPartitions: [{ topic, count: total }] }))
  },

  async topics ({ bootstrap }) {
    return { names: await withAdmin(bootstrap, admin => admin.listTopics()) }
  },

  async describe_topic ({ bootstrap, topic }) {
    const { topics } = await withAdmin(bootstrap, admin => admin.fetchTopicMetadata({ topics: [topic] }))
    return { partitions: topics[0].partitions.length }
  },

  async topic_configs ({ bootstrap, topic }) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const found = await withAdmin(bootstrap, admin => admin.describeConfigs({ resources, includeSynonyms: false }))
    return { values: Object.fromEntries(found.resources[0].configEntries.map(each => [each.configName, each.configValue])) }
  },

  async set_topic_config ({ bootstrap, topic, values }) {
    const configEntries = Object.entries(values).map(([name, value]) => ({ name, value }))
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }]
    await withAdmin(bootstrap, admin => admin.alterConfigs({ resources, validateOnly: false }))
  },

  async delete_records ({ bootstrap, topic, partition, before }) {
    return withAdmin(bootstrap, async admin => {
      await admin.fetchTopicOffsets(topic) // it looks for leaders in what it has asked before
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
      const found = await admin.fetchTopicOffsets(topic) // it does not tell what the broker answered
      return { low: Number(found.find(each => each.partition === partition).low) }
    })
  },

  async groups ({ bootstrap }) {
    const { groups } = await withAdmin(bootstrap, admin => admin.listGroups())
    return { names: groups.map(each => each.groupId) }
  },

  async describe_group ({ bootstrap, group }) {
    const { groups } = await withAdmin(bootstrap, admin => admin.describeGroups([group]))
    return { state: groups[0].state, members: groups[0].members.length }
  },

  async delete_group ({ bootstrap, group }) {
    try {
      await withAdmin(bootstrap, admin => admin.deleteGroups([group]))
    } catch (error) {
      throw new Failure(error.groups?.[0]?.errorCode ?? -1, error.message)
    }
  },

  async committed ({ bootstrap, group, topic, partition }) {
    const found = await withAdmin(bootstrap, admin => admin.fetchOffsets({ groupId: group, topics: [topic] }))
    const place = found[0].partitions.find(each => each.partition === partition)
    return { offset: Number(place.offset), metadata: place.metadata }
  },

  async set_committed ({ bootstrap, group, topic, partition, offset }) {
    await withAdmin(bootstrap, admin =>
      admin.setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(offset) }] }))
  }
}

function headers (pairs) {
  const made = {}
  for (const [name, value] of pairs) made[name] = [...(made[name] ?? []), decode(value)]
  return made
}

// It answers the first offset of each partition; the others follow in order.
function places (messages, answers) {
  const next = new Map(answers.map(each => [each.partition, Number(each.baseOffset ?? -1)]))
  return messages.map(({ partition }) => {
    const offset = next.get(partition) ?? -1
    if (offset >= 0) next.set(partition, offset + 1)
    return [partition, offset]
  })
}

async function join ({ bootstrap, group, topics, session_ms: sessionTimeout = 10_000, commit_each: commitEach }, seen) {
  const consumer = client(bootstrap).consumer({
    groupId: group, sessionTimeout, heartbeatInterval: 200, rebalanceTimeout: 10_000, maxWaitTimeInMs: 200
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    seen.assignment = Object.entries(payload.memberAssignment).flatMap(([topic, all]) => all.map(each => [topic, each]))
  })
  consumer.on(consumer.events.REBALANCING, () => { seen.assignment = [] })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) seen.error = { code: asFailure(payload.error).code, text: payload.error.message }
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    autoCommit: commitEach,
    autoCommitThreshold: 1,
    eachMessage: async ({ topic, partition, message }) => { seen.records.push(record(topic, partition, message)) }
  })
  return {
    commit: offsets => consumer.commitOffsets(offsets.map(([topic, partition, offset, metadata]) =>
      ({ topic, partition, offset: String(offset), metadata }))),
    leave: () => consumer.disconnect()
  }
}

await serve(commands, join, asFailure)
