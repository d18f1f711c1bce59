/** A process that reserves and releases on one network until it is killed: `write-forever.ts URL NETWORK POOL`. */
import { openLedger } from '../../src/ledger/open.ts'
import { claim, owner, release, reserve } from './commands.ts'

const [url, network, pool] = process.argv.slice(2) as [string, string, string]
const ledger = openLedger({ url, connections: 1 })

for (let life = 0; ; life += 1) {
  const reserved = await ledger.submit(
    reserve({ network, owner: owner({ name: `${process.pid}-${life}` }), claims: [claim({ pool })] }),
  )
  if (!reserved.ok) continue
  await ledger.submit(release(reserved.answer.leases[0]!.fencingToken, { network }))
}
