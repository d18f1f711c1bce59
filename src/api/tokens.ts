/**
 * Bearer tokens. The file has a JSON object a line: name, role, SHA-256 of the token, and what limits it. A token is
 * 256 random bits, so a fast hash is enough and a look-up by hash leaks nothing; the token itself is shown once, when
 * it is made, and not stored.
 *
 * A changed file that cannot be read leaves the tokens before in force: a slip of an editor must not lock everybody out.
 */
import { hash, randomBytes } from 'node:crypto'
import { appendFileSync, readFileSync } from 'node:fs'
import { isIPv4 } from 'node:net'
import { z } from 'zod'
import type { Logger } from '../telemetry.ts'
import { refused } from './codec/errors.ts'
import { NETWORK_NAME } from './codec/fields.ts'
import { type Caller, ROLES, type Role } from './rights.ts'
import { onChange } from './watched-file.ts'

const PREFIX = 'ipl_'
const MOST_TOKENS = 10_000
const MOST_BYTES = 16 * 1024 * 1024
/** The actor of callers without tokens, in the log for ever: no token may take its name. */
const LOOPBACK_NAME = 'loopback'

const entry = z
  .strictObject({
    name: z
      .string()
      .regex(NETWORK_NAME, 'must be 1 to 63 of a-z, 0-9, dot, dash and underscore')
      .refine((name) => name !== LOOPBACK_NAME, `must not be ${LOOPBACK_NAME}`),
    role: z.enum(ROLES as readonly [Role, ...Role[]]),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/, 'must be 64 hexadecimal digits')
      .optional(),
    subject: z.string().min(1).max(1_000).optional(),
    networks: z
      .array(z.string().regex(NETWORK_NAME, 'is not a name of a network'))
      .min(1)
      .max(1_000)
      .optional(),
    node: z.string().min(1).max(253).optional(),
    created: z.iso.datetime(),
  })
  .refine((one) => (one.sha256 === undefined) !== (one.subject === undefined), {
    message: 'must have either sha256, of a token, or subject, of a certificate',
  })
  .refine((one) => one.role !== 'agent' || one.node !== undefined, {
    path: ['node'],
    message: 'is required for role agent',
  })

/** A line of the file: what a token or a certificate opens. */
type TokenEntry = Readonly<z.infer<typeof entry>>

/** The file, or a new entry, cannot be used; the message is a sentence for people. */
export class TokenFileError extends Error {
  override readonly name = 'TokenFileError'
}

export type Tokens = {
  /** True without a token file: every caller is admin, so only the loopback interface may be served. */
  readonly everyoneIsAdmin: boolean
  /** The caller of an `Authorization` header, or without one of a client's certificate. @throws Refused UNAUTHENTICATED */
  authenticate(authorization: string | undefined, subject?: string | null): Caller
  close(): void
}

/** @throws TokenFileError when the file cannot be used at start */
export function openTokens(file: string, log: Logger): Tokens {
  const stop = onChange([file], () => {
    try {
      callers = byKey(readTokens(file))
      log.info({ file, tokens: callers.size }, 'token file read again')
    } catch (error) {
      log.error({ file, err: error }, 'token file cannot be used; the tokens read before stay in force')
    }
  })
  let callers = byKey(readTokens(file))

  return {
    everyoneIsAdmin: false,
    authenticate(authorization, subject = null) {
      const certified = subject === null ? undefined : callers.get(subject)
      if (certified !== undefined && authorization === undefined) return certified
      if (authorization === undefined || authorization === '') {
        const known = subject === null ? '' : `no token is for certificates of ${subject}; `
        throw refused('UNAUTHENTICATED', `${known}send the header Authorization: Bearer <token>`)
      }
      const given = /^Bearer +([\x21-\x7e]{1,512})$/i.exec(authorization)?.[1]
      if (given === undefined)
        throw refused('UNAUTHENTICATED', 'the Authorization header must be: Bearer <token>')
      const caller = callers.get(hash('sha256', given, 'hex'))
      if (caller === undefined) throw refused('UNAUTHENTICATED', 'this token is unknown or was withdrawn')
      return caller
    },
    close: stop,
  }
}

export function loopbackTokens(): Tokens {
  const caller: Caller = { name: LOOPBACK_NAME, role: 'admin', networks: null, node: null }
  return { everyoneIsAdmin: true, authenticate: () => caller, close: () => {} }
}

/** What a server without tokens may listen on. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'))
}

/** Writes the line of a new token, and returns the token. @throws TokenFileError */
export function createToken(
  wanted: Readonly<{
    file: string
    name: string
    role: Role
    networks?: readonly string[]
    node?: string
    /** Of a certificate that stands for the token. */
    subject?: string
  }>,
): string {
  const { file, name, role, networks, node, subject } = wanted
  const token = `${PREFIX}${randomBytes(32).toString('base64url')}`
  const made = entry.safeParse({
    name,
    role,
    ...(subject === undefined ? { sha256: hash('sha256', token, 'hex') } : { subject }),
    ...(networks?.length && { networks }),
    ...(node !== undefined && { node }),
    created: new Date().toISOString(),
  })
  if (!made.success) throw new TokenFileError(explain(made.error))
  const before = read(file, '')
  if (parseTokens(before, file).some((one) => one.name === name)) {
    throw new TokenFileError(`${file} has a token named ${name} already: remove its line to withdraw it.`)
  }
  // A single append, so that two that are made at once both land; an editor may have left the last line open.
  const separator = before === '' || before.endsWith('\n') ? '' : '\n'
  appendFileSync(file, `${separator}${JSON.stringify(made.data)}\n`, { mode: 0o600 })
  return token
}

/** @throws TokenFileError */
export function readTokens(file: string): readonly TokenEntry[] {
  return parseTokens(read(file), file)
}

function parseTokens(content: string, file: string): readonly TokenEntry[] {
  if (content.length > MOST_BYTES) throw new TokenFileError(`${file} is larger than ${MOST_BYTES} bytes.`)
  const tokens = new Map<string, TokenEntry>()
  for (const [index, line] of content.split('\n').entries()) {
    if (line.trim() === '') continue
    const where = `${file}, line ${index + 1}`
    const parsed = entry.safeParse(parseJson(line, where))
    if (!parsed.success) throw new TokenFileError(`${where}: ${explain(parsed.error)}`)
    const { name, subject } = parsed.data
    if (tokens.has(name)) throw new TokenFileError(`${where}: the name ${name} is there twice.`)
    if (subject !== undefined && [...tokens.values()].some((one) => one.subject === subject))
      throw new TokenFileError(`${where}: the subject ${subject} is there twice.`)
    if (tokens.size === MOST_TOKENS) throw new TokenFileError(`${file} has more than ${MOST_TOKENS} tokens.`)
    tokens.set(name, parsed.data)
  }
  return [...tokens.values()]
}

/** By the hash of a token, or the subject of a certificate. */
function byKey(tokens: readonly TokenEntry[]): ReadonlyMap<string, Caller> {
  return new Map(
    tokens.map(({ sha256, subject, name, role, networks, node }) => [
      sha256 ?? subject!,
      { name, role, networks: networks === undefined ? null : new Set(networks), node: node ?? null },
    ]),
  )
}

/** `absent`: what a file that is not there holds; undefined: it has to be there. */
function read(file: string, absent?: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' && absent !== undefined) return absent
    throw new TokenFileError(`Cannot read the token file: ${message}.`, { cause: error })
  }
}

function parseJson(line: string, where: string): unknown {
  try {
    return JSON.parse(line)
  } catch (error) {
    throw new TokenFileError(`${where}: not JSON.`, { cause: error })
  }
}

function explain(error: z.ZodError): string {
  return error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`).join('; ')
}
