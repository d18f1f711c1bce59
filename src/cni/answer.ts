/**
 * What the plugin prints: results and errors as the CNI specification has them, in the version that the caller speaks.
 * https://www.cni.dev/docs/spec/
 */
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import type { Config } from './call.ts'
import { CniError, CODES, VERSIONS } from './cni-error.ts'

/** The answer to a call: what goes to stdout, and perhaps a line for stderr. */
export type Answer = { readonly exitCode: 0 | 1; readonly stdout: string; readonly note?: string }

export function failure(version: string, error: unknown): Answer {
  const { code, message } =
    error instanceof CniError ? error : { code: CODES.refused, message: `internal error: ${String(error)}` }
  const cniVersion = VERSIONS.includes(version) ? version : '1.0.0'
  return { exitCode: 1, stdout: JSON.stringify({ cniVersion, code, msg: message }) }
}

/** The answer of ADD. Before 1.0.0 each address has its family. */
export function addresses({ cniVersion, ipam }: Config, leases: readonly Lease[]): Answer {
  const ips = leases.map(({ address, subnet, gateway }) => ({
    ...(cniVersion.startsWith('0.') && { version: address.includes(':') ? '6' : '4' }),
    address: `${address}/${subnet.split('/')[1]}`,
    ...(gateway !== '' && { gateway }),
  }))
  const routes = [
    ...(ipam.routes ?? []),
    ...leases.flatMap(({ options }) =>
      (options?.routes ?? []).map((route) => ({
        dst: route.destination,
        ...(route.gateway !== '' && { gw: route.gateway }),
      })),
    ),
  ]
  const nameservers = [...new Set(leases.flatMap(({ options }) => options?.dns ?? []))]
  const dns = ipam.dns ?? (nameservers.length > 0 ? { nameservers } : {})
  return { exitCode: 0, stdout: JSON.stringify({ cniVersion, ips, routes, dns }) }
}
