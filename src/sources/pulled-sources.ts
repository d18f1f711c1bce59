/**
 * Sources that ipledger asks (pulls), each opened once while its declaration stays. The rules for every kind are enforced here: a call
 * ends with its signal, an epoch is valid text, a list is bounded, and a source answers only about kinds of owner that it sees.
 */
import type { SourceDeclaration, SourceKind } from '../core/event.ts'
import { openDocker } from './docker.ts'
import { badText, NAME_BYTES } from './entries.ts'
import { openHttp } from './http.ts'
import { readSettings, type Secrets, type SettingsOf, type SourceSecrets } from './settings.ts'
import { type Listing, type LookUp, MOST_ENTRIES, type PulledSource, sentence } from './source.ts'

export class PulledSources {
  readonly #secrets: SourceSecrets
  readonly #opened = new Map<string, { readonly declaration: string; readonly source: PulledSource }>()

  constructor(secrets: SourceSecrets) {
    this.#secrets = secrets
  }

  /** One that cannot be opened fails when it is used. */
  get(network: string, declared: SourceDeclaration): PulledSource {
    const key = `${network}/${declared.id}`
    const { kind, node, ownerKinds, settings } = declared
    const declaration = JSON.stringify([kind, node, ownerKinds, settings])
    const known = this.#opened.get(key)
    if (known?.declaration === declaration) return known.source
    const source = guarded(declared, () => open(declared, this.#secrets[key]))
    this.#opened.set(key, { declaration, source })
    return source
  }
}

async function open(
  { kind, id, node, settings }: SourceDeclaration,
  secrets: Secrets | undefined,
): Promise<PulledSource> {
  switch (kind) {
    case 'push':
      throw new Error(`${id} reports by itself and cannot be asked`)
    case 'docker':
      return openDocker(node, settingsOf(kind, settings), secrets)
    case 'http':
      return openHttp(settingsOf(kind, settings), secrets)
    case 'kubernetes': {
      // Half a second and 80 MB: a process that asks no cluster does not load it.
      const { Kubernetes } = await import('./kubernetes.ts')
      return new Kubernetes(settingsOf(kind, settings), secrets)
    }
  }
}

function settingsOf<K extends SourceKind>(kind: K, settings: unknown): SettingsOf<K> {
  const read = readSettings(kind, settings)
  if ('reason' in read) throw new Error((read as { message: string }).message)
  return read
}

function guarded({ ownerKinds }: SourceDeclaration, openOne: () => Promise<PulledSource>): PulledSource {
  let opening: Promise<PulledSource> | undefined
  /** One that cannot be opened is opened again by the next use: a file may be there by then. */
  const use = <T>(signal: AbortSignal, work: (source: PulledSource) => Promise<T>): Promise<T> => {
    opening ??= openOne().catch((error: unknown) => {
      opening = undefined
      throw error
    })
    return endingWith(signal, opening.then(work))
  }
  return {
    list: async (signal) => checkListing(await use(signal, (source) => source.list(signal))),
    async lookUp(question, signal) {
      const { kind } = question.owner
      // A source that has no such workloads cannot say that one is gone (calico#5044).
      if (!ownerKinds.includes(kind)) return { answer: 'unknown', detail: `it sees nothing of kind ${kind}` }
      const found = await use(signal, (source) => source.lookUp(question, signal)).catch(
        (error: unknown): LookUp => ({ answer: 'error', detail: sentence(error) }),
      )
      return { ...found, detail: sentence(found.detail) }
    },
  }
}

/** The epoch is checked, because it is kept for ever and closes earlier ones. */
function checkListing({ epoch, complete, because, entries }: Listing): Listing {
  const wrong = epoch === '' ? 'epoch is missing' : badText('epoch', epoch, NAME_BYTES)
  if (wrong !== null) throw new Error(`its ${wrong}`)
  if (entries.length <= MOST_ENTRIES) return { epoch, complete, because: sentence(because), entries }
  // The entries that are kept still protect their addresses.
  const tooLong = `it lists more than ${MOST_ENTRIES} entries`
  return { epoch, complete: false, because: tooLong, entries: entries.slice(0, MOST_ENTRIES) }
}

/** Ends with the signal, even if a library does not. */
function endingWith<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(new Error('it did not answer in time'))
    if (signal.aborted) ended()
    signal.addEventListener('abort', ended, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', ended))
  })
}
