/**
 * Half of a surrogate pair has no UTF-8: on its way to the database it would become the replacement character, and two
 * strings one. JSON can spell it, so every string of every request is tried, wherever it stands.
 */

import { gzipSync } from 'node:zlib'
import { type DescMessage, ScalarType } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { text } from '../../src/api/codec/fields.ts'
import { post, readRefusal } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { REQUESTS, UNARY } from './requests.ts'

const running = await useService()

const HALF = '\ud800'
/** A request with one string spoilt, and the path of that string. */
type Spoilt = { readonly path: string; readonly body: unknown }

/** Every way to spoil a request; `seen` is told which fields of the message's type were met. */
function spoilt(desc: DescMessage, json: unknown, seen: Set<string>): readonly Spoilt[] {
  const whole = json as Readonly<Record<string, unknown>>
  return desc.fields.flatMap((field): readonly Spoilt[] => {
    const value = whole[field.jsonName]
    if (value === undefined) return []
    const put = (path: string, part: unknown): Spoilt => ({
      path: `${field.jsonName}${path}`,
      body: { ...whole, [field.jsonName]: part },
    })
    const mark = () => seen.add(`${desc.typeName}.${field.name}`)
    switch (field.fieldKind) {
      case 'scalar':
        if (field.scalar !== ScalarType.STRING) return []
        mark()
        return [put('', `x${HALF}y`)]
      case 'map':
        mark()
        return [
          put(`["a"]`, { a: HALF }),
          // A key that is half a pair, and one that begins well.
          ...[HALF, `a${HALF}`].map((key) => put(`[${JSON.stringify(key)}]`, { [key]: 'b' })),
        ]
      case 'message':
        if (isStruct(field.message)) {
          mark()
          return [put('', { a: HALF }), put('', { [HALF]: 'b' }), put('', { a: [{ b: `x${HALF}` }] })]
        }
        return spoilt(field.message, value, seen).map(({ path, body }) => put(`.${path}`, body))
      case 'list': {
        const items = value as readonly unknown[]
        const inItem = (index: number, path: string, body: unknown) =>
          put(`[${index}]${path}`, items.with(index, body))
        if (field.listKind === 'message')
          return items.flatMap((item, index) =>
            spoilt(field.message, item, seen).map(({ path, body }) => inItem(index, `.${path}`, body)),
          )
        if (field.listKind !== 'scalar' || field.scalar !== ScalarType.STRING) return []
        mark()
        return [inItem(0, '', HALF)]
      }
      default:
        return []
    }
  })
}

/** JSON in a message: it contains itself. */
function isStruct({ typeName }: DescMessage): boolean {
  return typeName === 'google.protobuf.Struct'
}

/** String fields of a message and of what it contains. */
function stringsOf(desc: DescMessage): readonly string[] {
  return desc.fields.flatMap((field): readonly string[] => {
    if (field.message !== undefined && isStruct(field.message)) return [`${desc.typeName}.${field.name}`]
    // Names of fields, which other tests look at.
    if (field.message?.typeName === 'google.protobuf.FieldMask') return []
    if (field.message !== undefined) return stringsOf(field.message)
    const isText = 'scalar' in field && field.scalar === ScalarType.STRING
    return isText || field.fieldKind === 'map' ? [`${desc.typeName}.${field.name}`] : []
  })
}

test.each(UNARY.map((method) => [method.name, method] as const))('%s', async (name, method) => {
  const seen = new Set<string>()
  const all = REQUESTS[name]!.flatMap((request) => spoilt(method.input, request, seen))
  for (const { path, body } of all) {
    const answer = await post(running, `${method.parent.name}/${name}`, body)
    expect(answer.status, path).toBe(400)
    expect(answer, path).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: path } })
  }
  expect([...seen].sort()).toEqual([...new Set(stringsOf(method.input))].sort())
})

test('a string that JSON did not bring is looked at all the same', () => {
  for (const half of [HALF, `a${HALF}`, `${HALF}b`, '\udc00', '\udc00\ud800', '🚀\ud83d'])
    expect(() => text(half, 'owner.name', 253), JSON.stringify(half)).toThrow('surrogate')
  for (const whole of ['', 'é', '日本', '🚀', 'a🚀b']) expect(text(whole, 'owner.name', 253)).toBe(whole)
})

describe('bytes that are no UTF-8', () => {
  const body = Buffer.concat([
    Buffer.from('{"owner":{"kind":"pod","name":"a'),
    Buffer.from([0xff]),
    Buffer.from('"},"claims":[{"pool":"web"}]}'),
  ])
  const send = (type: string, sent: Uint8Array, headers: Readonly<Record<string, string>> = {}) =>
    fetch(`${running.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': type, ...headers },
      body: sent,
    })

  test.each([
    ['plain', {}, body],
    ['compressed', { 'content-encoding': 'gzip' }, gzipSync(body)],
  ] as const)('%s JSON is refused', async (_how, headers, sent) => {
    const answer = await send('application/json', sent, headers)
    expect(answer.status).toBe(400)
    expect(readRefusal(await answer.json())).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: '' },
    })
  })

  test('gRPC-Web JSON is refused', async () => {
    const frame = Buffer.alloc(5)
    frame.writeUInt32BE(body.length, 1)
    const answer = await send('application/grpc-web+json', Buffer.concat([frame, body]))
    expect(await answer.text()).toContain('grpc-status: 3')
  })
})
