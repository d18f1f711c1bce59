/** Versions and error codes of the CNI specification. https://www.cni.dev/docs/spec/ */
export const VERSIONS = ['0.3.1', '0.4.0', '1.0.0', '1.1.0']

/** The specification's codes; from 100 on they are ours. */
export const CODES = {
  incompatibleVersion: 1,
  unknownContainer: 3,
  environment: 4,
  undecodable: 6,
  configuration: 7,
  tryAgain: 11,
  notAvailable: 50,
  refused: 100,
  /** CHECK: the attachment does not hold what it was given. */
  notHeld: 101,
  /** CHECK: the interface has not what it was given. */
  notConfigured: 102,
  /** Another host answered for the address. */
  inUse: 103,
} as const

export class CniError extends Error {
  override readonly name = 'CniError'
  readonly code: number
  constructor(code: keyof typeof CODES, message: string) {
    super(message)
    this.code = CODES[code]
  }
}
