import { VerifyNetworkResponseSchema } from '../gen/ipledger/v1/audit_pb.ts'
import { connect } from './connection.ts'
import { given } from './options.ts'
import { printAnswer, table } from './print.ts'

/** True when it came to its end and nothing was found. */
export async function askToVerify(options: Readonly<{ network?: string; json?: boolean }>): Promise<boolean> {
  const { network } = options
  const answer = await connect().audit.verifyNetwork(given({ network }))
  const { complete, findings } = answer
  printAnswer(options, VerifyNetworkResponseSchema, answer, (one) => {
    const count = BigInt(one.findings.length) + one.omitted
    return [
      table(
        ['NETWORK', 'HEAD', 'FROM', 'UP TO', 'FINDINGS'],
        [
          [
            one.network,
            String(one.head),
            String(one.fromSeq),
            one.complete ? String(one.verifiedSeq) : `${one.verifiedSeq}, no time for more`,
            count === 0n ? 'none' : String(count),
          ],
        ],
      ),
      ...(one.findings.length === 0 ? [] : ['']),
      ...one.findings.map(({ what, message }) => `${what}: ${message}`),
      ...(one.omitted === 0n ? [] : [`and ${one.omitted} more`]),
      ...(one.complete ? [] : ['', 'It did not come to its end: run "ipledger verify" beside the database.']),
    ].join('\n')
  })
  return complete && findings.length === 0
}
