import { createClient, type IpledgerClient } from '../client/client.ts'
import { readConfig } from '../config.ts'

/** The server that IPLEDGER_URL and IPLEDGER_TOKEN name. */
export function connect(): IpledgerClient {
  const config = readConfig()
  return createClient({ url: config.clientUrl, token: config.clientToken })
}
