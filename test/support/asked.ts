/** Sources that are asked, declared with few words. */
import type { Details, SourceDeclaration, SourceKind } from '../../src/core/event.ts'
import type { Owner } from '../../src/core/owner.ts'
import { createAskedSources } from '../../src/sources/ask.ts'
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

export function useSource(declared: SourceDeclaration, secrets: Secrets = {}): AskedSource {
  return createAskedSources({ [`default/${declared.id}`]: secrets }).get('default', declared)
}

/** Without a uid: it gave a name only. */
export function owner(fields: Partial<Owner> & { readonly name: string }): Owner {
  return { kind: 'vm', uid: fields.name, incarnation: '', interface: 'eth0', ...fields }
}
