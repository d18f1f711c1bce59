/** The dashboards by their uids, and links from a row of one to another with what it is about. */
import { type DashboardLink, DashboardLinkType } from '@grafana/grafana-foundation-sdk/dashboard'

export const UIDS = {
  overview: 'ipledger-overview',
  pool: 'ipledger-pool',
  address: 'ipledger-address',
  sources: 'ipledger-sources',
  service: 'ipledger-service',
} as const

export type Target = keyof typeof UIDS

export const TAG = 'ipledger'

export type LinkTo = {
  readonly to: Target
  readonly title: string
  /** Variable of the target: a column of the row, or, as `$name`, the variable of that name of this dashboard. */
  readonly with: Readonly<Record<string, string>>
}

export type DataLink = { readonly title: string; readonly url: string; readonly targetBlank: false }

export function dataLink({ to, title, with: given }: LinkTo): DataLink {
  const variables = Object.entries(given).map(([name, from]) =>
    // A variable may have several values; so written it names itself.
    from === `$${name}` ? `\${${name}:queryparam}` : `var-${name}=\${__data.fields.${from}:percentencode}`,
  )
  return {
    title,
    url: `/d/${UIDS[to]}?${[...variables, `\${__url_time_range}`].join('&')}`,
    targetBlank: false,
  }
}

/** In every dashboard's head: the others, with the same time. */
export const SIBLINGS: DashboardLink = {
  title: 'ipledger',
  type: DashboardLinkType.Dashboards,
  icon: 'external link',
  tooltip: '',
  tags: [TAG],
  asDropdown: true,
  targetBlank: false,
  includeVars: true,
  keepTime: true,
}

/** What most rows are about: from a reap to its address to its owner. */
export const TO_ADDRESS: LinkTo = {
  to: 'address',
  title: 'The address: who held it, and why it is as it is',
  with: { network: 'network', address: 'address' },
}
export const TO_OWNER: LinkTo = {
  to: 'address',
  title: 'The owner: every address it held',
  with: { network: 'network', address: 'address', owner: 'owner' },
}
export const TO_LEASE: LinkTo = {
  to: 'address',
  title: 'The lease: its events',
  with: { network: 'network', address: 'address', lease: 'lease' },
}
export const TO_POOL: LinkTo = {
  to: 'pool',
  title: 'The pool',
  with: { network: 'network', pool: 'pool' },
}
export const TO_SOURCES: LinkTo = {
  to: 'sources',
  title: 'The source',
  with: { network: 'network', source: 'source' },
}
