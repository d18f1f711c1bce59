/** TLS of both ports, from files that are read again when they change; the subject of a client's certificate. */
import { readFileSync } from 'node:fs'
import type { Server } from 'node:http'
import type { Http2Server } from 'node:http2'
import { createSecureContext, type SecureContextOptions, TLSSocket } from 'node:tls'
import { StartRefused } from '../../config.ts'
import type { Logger } from '../../telemetry.ts'
import { onChange } from '../watched-file.ts'

export type TlsFiles = {
  readonly cert: string
  readonly key: string
  /** Of callers' certificates; undefined: none is asked for. */
  readonly clientCa?: string | undefined
  /** Who has no certificate of `clientCa` gets no connection. Else callers may have one, and one of another CA counts as none. */
  readonly clientRequired?: boolean
}

/** @throws StartRefused in a sentence, when the files cannot be used */
export function readTls({ cert, key, clientCa }: TlsFiles): SecureContextOptions {
  try {
    const read = {
      cert: readFileSync(cert),
      key: readFileSync(key),
      ...(clientCa !== undefined && { ca: readFileSync(clientCa) }),
    }
    createSecureContext(read)
    return read
  } catch (error) {
    const files = [cert, key, clientCa].filter((file) => file !== undefined).join(', ')
    throw new StartRefused(
      `TLS cannot be served (${(error as Error).message}): correct ${files}, or the IPLEDGER_TLS_… that name them.`,
      { cause: error },
    )
  }
}

/** New connections use what the files say within two seconds; files that cannot be used leave what was. */
export function keepTls(
  files: TlsFiles,
  servers: readonly (Server | Http2Server)[],
  log: Logger,
): () => void {
  const named = [files.cert, files.key, files.clientCa].filter((file) => file !== undefined)
  return onChange(named, () => {
    try {
      const context = readTls(files)
      for (const server of servers)
        (server as unknown as { setSecureContext(one: object): void }).setSecureContext(context)
      log.info({ files: named }, 'TLS files read again')
    } catch (error) {
      log.error({ files: named, err: error }, 'TLS files cannot be used; those read before stay in force')
    }
  })
}

const subjects = new WeakMap<object, string | null>()

/** Of a caller whose certificate one of the client CAs has signed: `CN=node-1,O=agents`, as it is in the certificate. */
export function subjectOf(socket: object | undefined): string | null {
  if (!(socket instanceof TLSSocket)) return null
  const known = subjects.get(socket)
  if (known !== undefined) return known
  const subject = socket.authorized
    ? (socket.getPeerX509Certificate()?.subject.split('\n').join(',') ?? null)
    : null
  subjects.set(socket, subject)
  return subject
}
