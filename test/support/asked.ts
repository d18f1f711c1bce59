/** Sources that are asked, declared with few words; closed after the tests of a file. */
import { afterAll } from 'vitest'
import type { Details, SourceDeclaration, SourceKind } from '../../src/core/event.ts'
import type { Owner } from '../../src/core/owner.ts'
import { type AskedSources, createAskedSources } from '../../src/sources/ask.ts'
import type { Secrets } from '../../src/sources/settings.ts'
import type { AskedSource } from '../../src/sources/source.ts'

export function declaration(
  kind: SourceKind,
  settings: Details,
  fields: Partial<SourceDeclaration> = {},
): SourceDeclaration {
  const ownerKinds = [{ docker: 'container', kubernetes: 'pod', http: 'vm', push: 'vm' }[kind]]
  return {
    id: 'source',
    kind,
    node: '',
    ownerKinds,
    families: [4, 6],
    intervalMs: 60_000,
    settings,
    ...fields,
  }
}

const opened: AskedSources[] = []
afterAll(() => Promise.all(opened.map((one) => one.close())))

export function useSource(declared: SourceDeclaration, secrets: Secrets = {}): AskedSource {
  const sources = createAskedSources({ [`default/${declared.id}`]: secrets })
  opened.push(sources)
  return sources.get('default', declared)
}

/** Without a uid: it gave a name only. */
export function owner(fields: Partial<Owner> & { readonly name: string }): Owner {
  return { kind: 'vm', uid: fields.name, incarnation: '', interface: 'eth0', ...fields }
}
