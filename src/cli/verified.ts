import { table } from './print.ts'

/** As the server answers it, or the database. */
export type NetworkVerified = {
  readonly network: string
  readonly complete: boolean
  readonly fromSeq: number | bigint
  readonly verifiedSeq: number | bigint
  readonly digest: string
  readonly head: number | bigint
  readonly findings: readonly { readonly what: string; readonly message: string }[]
  readonly omitted: number | bigint
}

/** For people: what was looked at, and what was found. The anchor is to be kept elsewhere. */
export function verifiedText(networks: readonly NetworkVerified[]): string {
  const summary = table(
    ['NETWORK', 'HEAD', 'FROM', 'UP TO', 'FINDINGS', 'ANCHOR'],
    networks.map((one) => [
      one.network,
      String(one.head),
      String(one.fromSeq),
      one.complete ? String(one.verifiedSeq) : `${one.verifiedSeq}, no time for more`,
      one.findings.length === 0 ? 'none' : String(one.findings.length + Number(one.omitted)),
      `${one.verifiedSeq}:${one.digest}`,
    ]),
  )
  const lines = networks.flatMap(({ network, findings, omitted, complete }) => [
    ...findings.map(({ what, message }) => `${network}: ${what}: ${message}`),
    ...(Number(omitted) === 0 ? [] : [`${network}: and ${omitted} more`]),
    ...(complete ? [] : [`${network}: not at its end; run "ipledger verify" beside the database`]),
  ])
  return [summary, ...(lines.length === 0 ? [] : ['', ...lines])].join('\n')
}
