// The loop of a runner: one JSON command per line in, one JSON answer per line out.
// compat_tests/README.md says which commands there are.

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

// The packages are in the cache of test tools; its folder is the first argument.
export const load = createRequire(join(process.argv[2], 'package.json'))

export class Failure extends Error {
  constructor (code, text) {
    super(text)
    this.code = code
  }
}

export const encode = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
export const decode = text => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))

// What a member has read since it was last asked, and what it has.
export class Seen {
  records = []
  assignment = []
  error = null

  look () {
    const found = { records: this.records, assignment: this.assignment, error: this.error }
    this.records = []
    return found
  }
}

// `commands` has a function per command, `join(command, seen)` answers a member with `commit` and `leave`,
// `asFailure` finds Kafka's number in an error.
export async function serve (commands, join, asFailure) {
  const members = new Map()
  const all = {
    ...commands,
    join: async command => {
      const seen = new Seen()
      members.set(command.member, { seen, member: await join(command, seen) })
    },
    members: async () => ({ names: [...members.keys()] }),
    look: async ({ member }) => members.get(member).seen.look(),
    commit: async ({ member, offsets }) => members.get(member).member.commit(offsets),
    leave: async ({ member }) => {
      const found = members.get(member)
      members.delete(member)
      await found.member.leave()
    }
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    let answer
    try {
      answer = { ok: (await all[command.do](command)) ?? {} }
    } catch (error) {
      console.error(command.do, error)
      const { code, message } = error instanceof Failure ? error : asFailure(error)
      answer = { error: { code, text: message } }
    }
    process.stdout.write(JSON.stringify(answer, (_, value) => (typeof value === 'bigint' ? Number(value) : value)) + '\n')
  }
  process.exit(0)
}

// Wait until `start` calls its first argument (done) or second (failed), or the time is over.
export function within (seconds, start) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(), seconds * 1000)
    start(
      () => { clearTimeout(timer); resolve() },
      error => { clearTimeout(timer); reject(error) }
    )
  })
}
