// @platformatic/kafka under the runners' commands.

import { decode, encode, load, serve, within } from './harness.mjs'

const kafka = load('@platformatic/kafka')
const { Admin, Consumer, Producer, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } = kafka

const READ_OPTIONS = {
  max_bytes: 'maxBytes',
  partition_max_bytes: 'maxBytesPerPartition',
  min_bytes: 'minBytes',
  max_wait_ms: 'maxWaitTime'
}
const TIMES = { earliest: -2n, latest: -1n, max_timestamp: -3n }

const base = bootstrap => ({ clientId: 'cases', bootstrapBrokers: [bootstrap], retries: 40, retryDelay: 50 })

// The broker's number is in an error somewhere below the one that is thrown.
function asFailure (error) {
  const waiting = [error]
  while (waiting.length > 0) {
    const each = waiting.shift()
    if (Number.isInteger(each?.apiCode)) return { code: each.apiCode, message: each.message }
    if (each) waiting.push(...(each.errors ?? []), each.cause)
  }
  return { code: -1, message: String(error) }
}

async function withAdmin (bootstrap, ask) {
  const admin = new Admin({ ...base(bootstrap), retries: 2 })
  try {
    return await ask(admin)
  } finally {
    await admin.close()
  }
}

const record = message => ({
  topic: message.topic,
  partition: message.partition,
  offset: Number(message.offset),
  key: encode(message.key),
  value: encode(message.value),
  headers: [...message.headers].map(([name, value]) => [name.toString(), encode(value)]),
  timestamp: Number(message.timestamp),
  log_append_time: null
})

const commands = {
  async produce ({ bootstrap, topic, records, acks = -1, codec = 'none', idempotent = false }) {
    const producer = new Producer({ ...base(bootstrap), autocreateTopics: true })
    const messages = records.map(each => ({
      topic,
      partition: each.partition,
      key: decode(each.key) ?? undefined,
      value: decode(each.value) ?? undefined,
      headers: new Map(each.headers.map(([name, value]) => [Buffer.from(name), decode(value)])),
      timestamp: each.timestamp === null || each.timestamp === undefined ? undefined : BigInt(each.timestamp)
    }))
    try {
      const { offsets } = await producer.send({ messages, acks, compression: codec, idempotent })
      return { placed: places(messages, offsets ?? []) }
    } finally {
      await producer.close()
    }
  },

  // There is no consumer without a group, so this one has a group of its own.
  async read ({ bootstrap, topic, partition, offset, count, wait_s: seconds, options }) {
    const settings = Object.fromEntries(Object.entries(options ?? {}).map(([name, value]) => [READ_OPTIONS[name], value]))
    const groupId = `read-${topic}-${Date.now()}-${Math.floor(performance.now() * 1000)}`
    const consumer = new Consumer({ ...base(bootstrap), groupId, autocommit: false, maxWaitTime: 200, ...settings })
    const found = []
    try {
      const from = Number.isInteger(offset)
        ? { mode: 'manual', offsets: [{ topic, partition, offset: BigInt(offset) }] }
        : { mode: offset }
      const stream = await consumer.consume({ topics: [topic], ...from })
      await within(seconds, (done, failed) => {
        stream.on('error', failed)
        stream.on('data', message => {
          if (message.partition === partition) found.push(record(message))
          if (found.length >= count) done()
        })
      })
      await stream.close()
    } finally {
      await consumer.close(true)
    }
    return { records: found }
  },

  async offset ({ bootstrap, topic, partition, at }) {
    const timestamp = TIMES[at] ?? BigInt(at)
    const wanted = [{ name: topic, partitions: [{ partitionIndex: partition, timestamp }] }]
    const [found] = await withAdmin(bootstrap, admin => admin.listOffsets({ topics: wanted }))
    return { offset: Number(found.partitions[0].offset) }
  },

  async create_topic ({ bootstrap, topic, partitions, replicas, configs }) {
    const entries = Object.entries(configs ?? {}).map(([name, value]) => ({ name, value }))
    await withAdmin(bootstrap, admin => admin.createTopics({ topics: [topic], partitions, replicas, configs: entries }))
  },

  async delete_topic ({ bootstrap, topic }) {
    await withAdmin(bootstrap, admin => admin.deleteTopics({ topics: [topic] }))
  },

  async add_partitions ({ bootstrap, topic, total }) {
    await withAdmin(bootstrap, admin => admin.createPartitions({ topics: [{ name: topic, count: total, assignments: null }] }))
  },

  async topics ({ bootstrap }) {
    return { names: await withAdmin(bootstrap, admin => admin.listTopics()) }
  },

  async describe_topic ({ bootstrap, topic }) {
    const found = await withAdmin(bootstrap, admin => admin.metadata({ topics: [topic], forceUpdate: true }))
    return { partitions: found.topics.get(topic).partitionsCount }
  },

  async topic_configs ({ bootstrap, topic }) {
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: null }]
    const [found] = await withAdmin(bootstrap, admin => admin.describeConfigs({ resources }))
    return { values: Object.fromEntries(found.configs.map(each => [each.name, each.value])) }
  },

  async set_topic_config ({ bootstrap, topic, values }) {
    const configOperation = IncrementalAlterConfigOperationTypes.SET
    const configs = Object.entries(values).map(([name, value]) => ({ name, value, configOperation }))
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }]
    await withAdmin(bootstrap, admin => admin.incrementalAlterConfigs({ resources }))
  },

  async delete_records ({ bootstrap, topic, partition, before }) {
    const topics = [{ name: topic, partitions: [{ partition, offset: BigInt(before) }] }]
    const [found] = await withAdmin(bootstrap, admin => admin.deleteRecords({ topics }))
    return { low: Number(found.partitions[0].lowWatermark) }
  },

  async groups ({ bootstrap }) {
    return { names: [...(await withAdmin(bootstrap, admin => admin.listGroups())).keys()] }
  },

  async describe_group ({ bootstrap, group }) {
    const found = (await withAdmin(bootstrap, admin => admin.describeGroups({ groups: [group] }))).get(group)
    return { state: title(found.state), members: found.members.size }
  },

  async delete_group ({ bootstrap, group }) {
    await withAdmin(bootstrap, admin => admin.deleteGroups({ groups: [group] }))
  },

  async committed ({ bootstrap, group, topic, partition }) {
    const wanted = [{ groupId: group, topics: [{ name: topic, partitionIndexes: [partition] }] }]
    const [found] = await withAdmin(bootstrap, admin => admin.listConsumerGroupOffsets({ groups: wanted }))
    const place = found.topics[0].partitions[0]
    return { offset: Number(place.committedOffset), metadata: place.metadata }
  },

  async set_committed ({ bootstrap, group, topic, partition, offset }) {
    const topics = [{ name: topic, partitionOffsets: [{ partition, offset: BigInt(offset) }] }]
    await withAdmin(bootstrap, admin => admin.alterConsumerGroupOffsets({ groupId: group, topics }))
  }
}

const title = state => state.toLowerCase().replace(/(^|_)(.)/g, (_, __, letter) => letter.toUpperCase())

// It answers the first offset of each partition; the others follow in order.
function places (messages, offsets) {
  const next = new Map(offsets.map(each => [each.partition, Number(each.offset)]))
  return messages.map(({ partition }) => {
    const offset = next.get(partition) ?? -1
    if (offset >= 0) next.set(partition, offset + 1)
    return [partition, offset]
  })
}

async function join ({ bootstrap, group, topics, instance, session_ms: sessionTimeout = 10_000, commit_each: commitEach }, seen) {
  const consumer = new Consumer({
    ...base(bootstrap), groupId: group, sessionTimeout, heartbeatInterval: 500, rebalanceTimeout: 10_000,
    maxWaitTime: 200, autocommit: commitEach ? 100 : false, groupInstanceId: instance ?? undefined
  })
  consumer.on('consumer:group:join', ({ assignments }) => {
    seen.assignment = (assignments ?? []).flatMap(({ topic, partitions }) => partitions.map(each => [topic, each]))
  })
  consumer.on('consumer:group:rebalance', () => { seen.assignment = [] })
  const stream = await consumer.consume({ topics, mode: 'committed', fallbackMode: 'earliest' })
  stream.on('data', message => seen.records.push(record(message)))
  stream.on('error', error => { seen.error = { code: asFailure(error).code, text: error.message } })
  return {
    commit: offsets => consumer.commit({
      offsets: offsets.map(([topic, partition, offset]) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 }))
    }),
    leave: async () => {
      await stream.close()
      await consumer.close(true)
    }
  }
}

await serve(commands, join, asFailure)
