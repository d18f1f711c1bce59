/** Reports of many entries are decoded in slices: in every form they are the same list, and an error names its place. */
import { create, fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decoderOf } from '../../src/api/codec/decode-request.ts'
import { readingReport, SLICE_BYTES } from '../../src/api/codec/large-report.ts'
import {
  LivenessService,
  ReportSnapshotRequestSchema,
  SnapshotEntrySchema,
} from '../../src/gen/ipledger/v1/liveness_pb.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { clientOf } from './running.ts'

const decoder = decoderOf(ReportSnapshotRequestSchema)

function read(body: string | Uint8Array, isJson: boolean): { request: unknown; slices: number } {
  const reading = readingReport(Buffer.from(body), isJson)
  for (let slices = 1; ; slices += 1) {
    const { done, value } = reading.next()
    if (done) return { request: full(value), slices }
  }
}

/** Entries of JSON lack the fields that were not sent. */
function full({ entries, ...rest }: ReturnType<typeof decoder.fromJson>): unknown {
  return { ...rest, entries: entries.map((one) => create(SnapshotEntrySchema, one)) }
}

const entry = (index: number) => ({
  address: `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`,
  kind: 'pod',
  name: `default/w-${index} "[{\\`,
  uid: `u-${index}`,
  state: 'running',
})
const request = (count: number): JsonValue => ({
  network: 'default',
  source: 'eyes',
  epoch: 'e1',
  sequence: '1',
  entries: Array.from({ length: count }, (_, index) => entry(index)),
  complete: true,
})

describe('in slices it is the same request', () => {
  test.each([0, 1, 2, 5_000])('%i entries', (count) => {
    const json = request(count)
    const message = fromJson(ReportSnapshotRequestSchema, json)
    const whole = full(decoder.fromMessage(message))
    for (const indent of [0, 2]) {
      const { request, slices } = read(JSON.stringify(json, null, indent), true)
      expect(request).toEqual(whole)
      if (count === 5_000) expect(slices).toBeGreaterThan(5)
    }
    expect(read(toBinary(ReportSnapshotRequestSchema, message), false).request).toEqual(whole)
  })

  test('whatever text it has, in whatever order', () => {
    const field = fc.string({ unit: 'grapheme', maxLength: 12 }).filter((text) => text.isWellFormed())
    const one = fc.record({ address: field, name: field, state: field }, { requiredKeys: [] })
    const message = fc.record(
      { entries: fc.array(one, { maxLength: 5 }), source: field, unchanged: field, complete: fc.boolean() },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(message, fc.constantFrom(0, 1), fc.boolean(), (json, indent, isReversed) => {
        const given = isReversed ? Object.fromEntries(Object.entries(json).reverse()) : json
        const whole = decoder.fromMessage(fromJson(ReportSnapshotRequestSchema, given as JsonValue))
        expect(read(JSON.stringify(given, null, indent), true).request).toEqual(full(whole))
      }),
    )
  })
})

describe('an error names its place', () => {
  const around = (entries: string, more = '') => `{"source":"s","entries":[${entries}]${more}}`
  const BAD: readonly (readonly [name: string, body: string, field: string])[] = [
    ['no JSON', '{"entries":[{"address":"a"}', ''],
    ['an entry that is none', around('{"address":"a"},7'), 'entries[1]'],
    ['a field that there is not', around('{"adress":"a"}'), 'entries[0].adress'],
    ['a field of another kind', around('{"address":"a","name":7}'), 'entries[0].name'],
    ['no JSON in the list', around('{"address":"a"},{x}'), 'entries[0]'],
    ['two lists', around('{"address":"a"}', ',"entries":[]'), ''],
    ['a field beside it', around('', ',"sorce":"x"'), 'sorce'],
    ['an entry that is too long', around(`{"name":"${'x'.repeat(2 * SLICE_BYTES)}"}`), 'entries[0]'],
    ['much besides the entries', around('', `,"epoch":"${'x'.repeat(2 * SLICE_BYTES)}"`), ''],
    ['a name that is spelt in escapes', `{"entr\\u0069es":[${'{},'.repeat(SLICE_BYTES)}{}]}`, ''],
  ]
  test.each(BAD)('%s', (_name, body, field) => {
    expect(() => read(body, true)).toThrow(
      expect.objectContaining({
        refusal: expect.objectContaining({
          reason: 'INVALID_FIELD',
          metadata: expect.objectContaining({ field }),
        }),
      }),
    )
  })

  test('entries under a name in escapes are entries too', () => {
    const { request } = read('{"entr\\u0069es":[{"address":"a"}]}', true)
    expect(request).toMatchObject({ entries: [{ address: 'a' }] })
  })

  test('bytes that are no message', () => {
    expect(() => read(Buffer.from([0x42, 0xff, 0xff]), false)).toThrow()
  })
})

describe('served', async () => {
  const running = await useService()
  const call = (method: string, body: unknown) => post(running, `LivenessService/${method}`, body)
  await call('RegisterSource', { id: 'eyes', sight: { ownerKinds: ['pod'] } })
  await post(running, 'PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/14' })

  test('10,000 entries, in JSON and binary, while others are served', async () => {
    const begun = (await call('BeginSnapshot', { source: 'eyes' })).body
    const at = { sequence: begun.sequence, head: begun.head, begunAt: begun.begunAt }
    const json = { ...(request(10_000) as object), ...at }
    let served = 0
    let isDone = false
    const others = (async () => {
      for (; !isDone; served += 1) {
        const owner = { kind: 'pod', name: `other ${served}` }
        expect((await post(running, 'LeaseService/Reserve', { owner })).status).toBe(200)
      }
    })()
    const taken = await call('ReportSnapshot', json).finally(() => {
      isDone = true
    })
    await others
    expect(taken).toMatchObject({ status: 200, body: { complete: true, unreadable: 0, nextSequence: '2' } })
    expect(served).toBeGreaterThan(2)
    const client = clientOf(LivenessService, running, 'connect binary')
    const next = {
      sequence: taken.body.nextSequence,
      head: taken.body.nextHead,
      begunAt: taken.body.nextBegunAt,
    }
    const message = fromJson(ReportSnapshotRequestSchema, {
      ...(request(10_000) as object),
      ...next,
    } as JsonValue)
    expect((await client.reportSnapshot(create(ReportSnapshotRequestSchema, message))).digest).toBe(
      taken.body.digest,
    )
    const { body } = await call('ListSources', {})
    expect(body.sources[0]).toMatchObject({ size: 10_000, lastSequence: '2' })
  })

  test('what is too large, and where it is', async () => {
    const large = `{"source":"eyes","entries":[${'{},'.repeat(12_000_000)}{}]}`
    const refused = await call('ReportSnapshot', large).catch((error: Error) => error)
    if (!(refused instanceof Error)) expect(refused.message).toContain('33554432 bytes')
    const many = await call('ReportSnapshot', `{"source":"eyes","entries":[${'{},'.repeat(200_000)}{}]}`)
    expect(many).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'entries' } })
    const grpc = clientOf(LivenessService, running, 'grpc')
    const message = fromJson(ReportSnapshotRequestSchema, request(10_000))
    await expect(grpc.reportSnapshot(message)).rejects.toThrow('524288 bytes')
  })
})
