/** A Docker Engine's API, over its socket or TCP. */
import { z } from 'zod'
import { type Answered, createGetJson, readAnswer } from './get-json.ts'
import { type DockerSettings, engineOf, type Secrets } from './settings.ts'

export const LARGEST_LIST = 64 * 1024 * 1024
const LARGEST_ANSWER = 4 * 1024 * 1024

const identity = z.object({ ID: z.string().min(1) })
const network = z.looseObject({
  Id: z.string().min(1),
  Name: z.string(),
  IPAM: z.object({ Driver: z.string().nullish() }).nullish(),
})
export type DockerNetwork = z.infer<typeof network>

export class Engine {
  readonly #settings: DockerSettings
  readonly #base: string
  readonly #options: { readonly socketPath?: string }
  readonly #getJson: ReturnType<typeof createGetJson>

  constructor(settings: DockerSettings, secrets: Secrets | undefined) {
    const engine = engineOf(settings)
    const isSocket = engine.startsWith('unix:')
    this.#settings = settings
    this.#base = isSocket ? 'http://docker' : engine
    this.#options = isSocket ? { socketPath: engine.slice('unix:'.length) } : {}
    this.#getJson = createGetJson(secrets)
  }

  answerTo(path: string, signal: AbortSignal, largest = LARGEST_ANSWER): Promise<Answered> {
    return this.#getJson(new URL(this.#base + path), largest, signal, this.#options)
  }

  async get<T>(what: z.ZodType<T>, path: string, signal: AbortSignal, largest?: number): Promise<T> {
    return readAnswer(what, await this.answerTo(path, signal, largest))
  }

  /** Of its data root. */
  async id(signal: AbortSignal): Promise<string> {
    return (await this.get(identity, '/info', signal)).ID
  }

  /** What is read of the network that the settings name, all of it from one engine. */
  async read<T>(
    signal: AbortSignal,
    work: (found: DockerNetwork) => T | Promise<T>,
  ): Promise<{ readonly id: string; readonly result: T }> {
    const { network: wanted } = this.#settings
    const id = await this.id(signal)
    const found = await this.get(network, `/networks/${wanted}`, signal, LARGEST_LIST)
    // The engine also accepts the beginning of an id.
    if (wanted !== found.Id && wanted !== found.Name)
      throw new Error(`the engine takes ${wanted} for the network ${found.Name}`)
    const result = await work(found)
    const after = await this.id(signal)
    // Engines that only speak the same API may have another id each time.
    if (id !== after) throw new Error(`the engine was ${id} and then ${after}`)
    return { id, result }
  }
}
