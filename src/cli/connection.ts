import { createClient, type IpledgerClient } from '../client/client.ts'
import { readConfig } from '../config.ts'

type FieldsOf<Request> = Request extends unknown ? keyof Request : never

/** The compiler lets a spread bring fields that a request does not have: `network update --version` was ignored so. */
type NoOthers<Request, Given> = Given & Readonly<Record<Exclude<keyof Given, FieldsOf<Request>>, never>>

type Exacting<Service> = {
  readonly [Method in keyof Service]: Service[Method] extends (
    request: infer Request,
    ...rest: infer Rest
  ) => infer Answer
    ? <Given extends Request>(request: NoOthers<Request, Given>, ...rest: Rest) => Answer
    : Service[Method]
}

/** As the SDK's, and a request says nothing that its method does not know. */
export type Connection = { readonly [Service in keyof IpledgerClient]: Exacting<IpledgerClient[Service]> }

/** The server that IPLEDGER_URL and IPLEDGER_TOKEN name. */
export function connect(): Connection {
  const config = readConfig()
  return createClient({ url: config.clientUrl, token: config.clientToken })
}
