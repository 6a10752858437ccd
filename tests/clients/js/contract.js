// Reads the command line and prints the results of a program of ../README.md.

export const SESSION_TIMEOUT_MS = 6000
export const HEARTBEAT_INTERVAL_MS = 500

function messages(count) {
  return Array.from({ length: count }, (_, number) => ({
    key: Buffer.from(`key ${number}`),
    value: Buffer.from(`value ${number} `.repeat(20)),
  }))
}

function print(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

/** Prints a record that was read. */
export function printRecord(partition, offset, key, value) {
  print({ partition, offset: Number(offset), key: key.toString(), value: value.toString() })
}

/** Prints the first and the next offset of a partition, and that of the first record at a time or later. */
export function printOffsets(partition, earliest, latest, at) {
  print({ partition, earliest: Number(earliest), latest: Number(latest), at: Number(at) })
}

/** Takes as many records as are wanted, or takes them until SIGTERM; `finished` is when it takes no more. */
export class Reader {
  constructor(count) {
    this.left = count
    this.finished = new Promise((resolve) => {
      this.finish = resolve
      process.once('SIGTERM', resolve)
    })
  }

  /** Prints a record and commits it. */
  async take(partition, offset, key, value, commit) {
    if (this.left === 0) return
    this.left -= 1
    printRecord(partition, offset, key, value)
    try {
      await commit()
    } catch (error) {
      // It is another member's by now, which reads it again.
      console.error('not committed:', error)
    }
    if (this.left === 0) this.finish()
  }
}

async function run(client, [command, ...args]) {
  switch (command) {
    case 'produce':
      return client.produce(args[0], args[1], args[2] === 'idempotent', messages(Number(args[3])))
    case 'consume':
      return client.consume(args[0], args[1], new Reader(Number(args[2])))
    case 'member':
      return client.consume(args[0], args[1], new Reader(Infinity))
    case 'create-topic':
      return client.createTopic(args[0], Number(args[1]))
    case 'grow-topic':
      return client.growTopic(args[0], Number(args[1]))
    case 'delete-topic':
      return client.deleteTopic(args[0])
    case 'offsets':
      return client.offsets(args[0], Number(args[1]))
    case 'list-groups':
      return (await client.listGroups()).forEach((group) => print({ group }))
    case 'describe-group':
      return print(await client.describeGroup(args[0]))
    case 'delete-group':
      return client.deleteGroup(args[0])
    default:
      throw new Error(`unknown command ${command}`)
  }
}

/** Runs the command that the program's arguments name, with the client that `connect` makes. */
export async function main(connect) {
  await run(connect(process.argv[2]), process.argv.slice(3))
}
