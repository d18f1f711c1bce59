/** The process behind `floors.ts`. Its argument is the database, if it inserts a row. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import pg from 'pg'

const CONNECTIONS = 10
const INSERT =
  "insert into bench.one_row (network_id, name, address, at) values ($1, $2, '192.0.2.1', clock_timestamp())"

const [, , url] = process.argv
const pool = url === undefined ? null : new pg.Pool({ connectionString: url, max: CONNECTIONS })

async function answer(body: string): Promise<string> {
  const { network, owner } = JSON.parse(body) as { network: string; owner: { name: string } }
  await pool?.query(INSERT, [network, owner.name])
  return JSON.stringify({ leases: [{ leaseId: `${network}/${owner.name}`, owner, address: '192.0.2.1' }] })
}

const server = createServer((request, response) => {
  let body = ''
  request.setEncoding('utf8')
  request.on('data', (chunk: string) => {
    body += chunk
  })
  request.on('end', () => {
    const send = (status: number, text: string) => {
      response.writeHead(status, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(text),
      })
      response.end(text)
    }
    answer(body).then(
      (text) => send(200, text),
      (error) => send(500, String(error)),
    )
  })
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
process.on('disconnect', () => process.exit(0))
