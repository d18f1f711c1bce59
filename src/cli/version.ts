/** `version`: what runs on both ends, and who one is there. */
import manifest from '../../package.json' with { type: 'json' }
import { ServerService } from '../gen/ipledger/v1/server_pb.ts'
import { ask } from './ask.ts'
import { sheet, time } from './print.ts'
import { verb } from './verb.ts'

const { getServer } = ServerService.method

export const versionCommand = verb('version', getServer, {
  about: 'versions of the command line, the server, its schema and its database; who you are',
  async run(request) {
    try {
      return await ask(getServer, request)
    } catch (error) {
      console.error(`command line  ${manifest.version}`)
      throw error
    }
  },
  show: ({ version, schema, time: at, database, caller }) =>
    sheet({
      commandLine: manifest.version,
      server: version,
      schema,
      serverTime: time(at),
      database: database && `${database.place} (${database.version.split(' ')[0]})`,
      you: caller && `${caller.name}, ${caller.role}`,
      node: caller?.node,
      networks: caller?.networks.join(', '),
    }),
})
