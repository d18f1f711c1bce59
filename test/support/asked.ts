/** Sources that are asked, declared with few words. */
import type { Details, SourceDeclaration, SourceKind } from '../../src/core/event.ts'
import type { Owner } from '../../src/core/owner.ts'
import { PulledSources } from '../../src/sources/pulled-sources.ts'
import type { Secrets } from '../../src/sources/settings.ts'
import type { PulledSource } from '../../src/sources/source.ts'

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

/** Allowed to be asked where its settings lead. */
export function useSource(
  declared: SourceDeclaration,
  secrets: Omit<Partial<Secrets>, 'origin'> = {},
): PulledSource {
  const origin = originOf(declared, secrets.kubeconfig)
  const all = origin === null ? {} : { [`default/${declared.id}`]: { origin, ...secrets } }
  return new PulledSources(all).get('default', declared)
}

function originOf({ settings }: SourceDeclaration, kubeconfig = ''): string | null {
  const { socketPath, host, port, tls, listUrl, server } = settings as Record<string, string | undefined>
  if (socketPath !== undefined) return `unix:${socketPath}`
  if (host !== undefined) return `${tls ? 'https' : 'http'}://${host}:${port}`
  const url = listUrl ?? server ?? /server"?: *"?([^\s",}]+)/.exec(kubeconfig)?.[1]
  return url === undefined ? null : new URL(url).origin
}

/** Of a cluster over plain HTTP, which the client asks only where the kubeconfig says so. */
export function kubeconfigOf(server: string): string {
  return JSON.stringify({
    'current-context': 'test',
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    clusters: [{ name: 'test', cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'test', user: { token: 'bearer-of-the-cluster' } }],
  })
}

/** Without a uid: it gave a name only. */
export function owner(fields: Partial<Owner> & { readonly name: string }): Owner {
  return { kind: 'vm', uid: fields.name, incarnation: '', interface: 'eth0', ...fields }
}
