/** A Docker Engine's API, over its socket or TCP. */
import { z } from 'zod'
import { ENDPOINT_KIND } from '../core/owner.ts'
import { type Answered, createGetJson, readAnswer } from './get-json.ts'
import { type DockerSettings, engineOf, type Secrets } from './settings.ts'
import type { draftOf, Listing } from './source.ts'

const LARGEST_ANSWER = 64 * 1024 * 1024
/** The driver's name is that of its socket. */
const OUR_DRIVER = /^ipledger/

const identity = z.object({ ID: z.string().min(1) })
const network = z.looseObject({
  Id: z.string().min(1),
  Name: z.string(),
  IPAM: z.object({ Driver: z.string().nullish() }).nullish(),
})
type DockerNetwork = z.infer<typeof network>
type Draft = ReturnType<typeof draftOf>

export type Engine = ReturnType<typeof openEngine>

export function openEngine(settings: DockerSettings, secrets: Secrets | undefined) {
  const getJson = createGetJson(secrets)
  const engine = engineOf(settings)
  const [base, options] = engine.startsWith('unix:')
    ? ['http://docker', { socketPath: engine.slice('unix:'.length) }]
    : [engine, {}]

  const answerTo = (path: string, signal: AbortSignal): Promise<Answered> =>
    getJson(new URL(base + path), LARGEST_ANSWER, signal, options)
  const get = async <T>(what: z.ZodType<T>, path: string, signal: AbortSignal): Promise<T> =>
    readAnswer(what, await answerTo(path, signal))
  /** Of its data root. */
  const identify = async (signal: AbortSignal) => (await get(identity, '/info', signal)).ID

  /** What is read of the network that the settings name, all of it from one engine. */
  async function list(signal: AbortSignal, read: (found: DockerNetwork) => Promise<Draft>): Promise<Listing> {
    const { network: wanted, kind } = settings
    const id = await identify(signal)
    const found = await get(network, `/networks/${wanted}`, signal)
    // The engine also accepts the beginning of an id.
    if (wanted !== found.Id && wanted !== found.Name)
      throw new Error(`the engine takes ${wanted} for the network ${found.Name}`)
    const driver = found.IPAM?.Driver ?? ''
    const isOurs = OUR_DRIVER.test(driver)
    // A source of containers would take each endpoint's lease for a conflict.
    if (isOurs !== (kind === ENDPOINT_KIND))
      throw new Error(
        `its IPAM driver is ${driver}: register a source with "kind": "${isOurs ? ENDPOINT_KIND : 'container'}"`,
      )
    const draft = await read(found)
    const after = await identify(signal)
    // Engines that only speak the same API may have another id each time.
    if (id !== after) throw new Error(`the engine was ${id} and then ${after}`)
    return draft.listing(id)
  }
  return { answerTo, get, identify, list }
}
