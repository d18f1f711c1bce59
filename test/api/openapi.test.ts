/** /openapi.json: every method is there, what it says of requests and answers is so, and a generator's types of it are of use. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import openapiTypes from 'openapi-typescript'
import { expect, test } from 'vitest'
import { SERVICES } from '../../src/api/rpc-server.ts'
import { ROOT } from '../support/root.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { REQUESTS, UNARY } from './requests.ts'

type Schema = {
  readonly $ref?: string
  readonly type?: string
  readonly enum?: readonly string[]
  readonly format?: string
  readonly pattern?: string
  readonly items?: Schema
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
}

const running = await useService()
type Document = {
  readonly paths: Readonly<Record<string, { readonly post: Operation }>>
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
}
type Body = { readonly content: Readonly<Record<string, { readonly schema: Schema }>> }
type Operation = {
  readonly summary: string
  readonly requestBody: Body
  readonly responses: Readonly<Record<string, Body>>
}
const { paths, components } = (await (await fetch(`${running.url}/openapi.json`)).json()) as Document

/** What of a value is not as its schema says, by path. */
function wrong(schema: Schema, value: unknown, path = ''): readonly string[] {
  if (schema.$ref !== undefined)
    return wrong(components.schemas[schema.$ref.replace('#/components/schemas/', '')]!, value, path)
  const told = `${path}: ${JSON.stringify(value)}`
  switch (schema.type) {
    case 'string': {
      const isRight =
        (typeof value === 'string' || schema.format === 'uint64') &&
        (schema.enum?.includes(String(value)) ?? true) &&
        new RegExp(schema.pattern ?? '').test(String(value))
      return isRight ? [] : [told]
    }
    case 'integer':
      return Number.isInteger(value) ? [] : [told]
    case 'boolean':
      return typeof value === 'boolean' ? [] : [told]
    case 'array':
      if (!Array.isArray(value)) return [told]
      return value.flatMap((item) => wrong(schema.items!, item, `${path}[]`))
    default: {
      if (typeof value !== 'object' || value === null) return [told]
      const { required = [], properties } = schema
      const missing = required.filter((name) => !(name in value)).map((name) => `${path}.${name} is missing`)
      if (properties === undefined) return missing
      const of = Object.entries(value).flatMap(([name, one]) => {
        const inner = properties[name]
        return inner === undefined ? [`${path}.${name} is unknown`] : wrong(inner, one, `${path}.${name}`)
      })
      return [...missing, ...of]
    }
  }
}

const bodies = (name: string) => {
  const [, { post: operation }] = Object.entries(paths).find(([path]) => path.endsWith(`/${name}`))!
  const schemaOf = (body: Body | undefined) => Object.values(body!.content)[0]!.schema
  const { requestBody, responses } = operation
  return {
    request: schemaOf(requestBody),
    answer: schemaOf(responses[200]),
    error: schemaOf(responses['4XX']),
  }
}

test('every method is there, with a summary and the comments of the proto', () => {
  const methods = SERVICES.flatMap(({ methods }) => methods)
  expect(Object.keys(paths).sort()).toEqual(
    methods.map(({ parent, name }) => `/${parent.typeName}/${name}`).sort(),
  )
  expect(Object.keys(paths['/ipledger.v1.LeaseService/WatchLeases']!.post.requestBody.content)).toEqual([
    'application/connect+json',
  ])
  expect(paths['/ipledger.v1.LeaseService/Reserve']!.post.summary).toBe(
    'Gives an attachment one address for each claim, all or nothing.',
  )
  expect(components.schemas.Lease!.properties!.fencingToken).toEqual({
    type: 'string',
    format: 'uint64',
    pattern: '^[0-9]+$',
    description: expect.stringContaining('greater than that of every earlier holder'),
  })
})

test('requests, answers and errors are as it says; a required field that is missing is refused', async () => {
  const pool = { network: 'default', name: 'web', cidr: '10.0.0.0/24', gateway: '10.0.0.1' }
  await post(running, 'PoolService/CreatePool', pool)
  const owner = { kind: 'pod', name: 'a', incarnation: '1', node: 'n1' }
  await post(running, 'LeaseService/Reserve', { network: 'default', owner, confirmed: true })
  await post(running, 'LeaseService/Quarantine', { network: 'default', address: '10.0.0.9', why: 'w' })
  let answered = 0
  let refused = 0
  for (const { name, parent } of UNARY) {
    const { request, answer, error } = bodies(name)
    for (const body of REQUESTS[name]!) {
      expect(wrong(request, body), name).toEqual([])
      const given = await post(running, `${parent.name}/${name}`, {
        ...body,
        ...('network' in body && { network: 'default' }),
      })
      const isAnswer = given.status === 200
      expect(wrong(isAnswer ? answer : error, given.body), name).toEqual([])
      if (isAnswer) answered++
      else refused++
    }
    const { required = [] } = components.schemas[request.$ref!.replace(/.*\//, '')] as Schema
    for (const field of required) {
      const { [field]: _, ...rest } = REQUESTS[name]![0] as Readonly<Record<string, unknown>>
      const { status, body } = await post(running, `${parent.name}/${name}`, rest)
      expect({ status, body }, `${name} without ${field}`).toMatchObject({
        status: 400,
        body: { code: 'invalid_argument', message: expect.stringContaining(`${field}`) },
      })
    }
  }
  expect(answered).toBeGreaterThan(15)
  expect(refused).toBeGreaterThan(3)
})

test('types that openapi-typescript makes of it compile, strictly, and find mistakes', {
  timeout: 60_000,
}, async () => {
  const directory = temporaryDirectory()
  writeFileSync(join(directory, 'api.d.ts'), await openapiTypes(new URL('src/gen/openapi.json', ROOT)))
  const compile = (caller: string) => {
    writeFileSync(
      join(directory, 'caller.ts'),
      `import type { components, paths } from './api.d.ts'\n${caller}`,
    )
    const flags = [
      '--noEmit',
      '--strict',
      '--exactOptionalPropertyTypes',
      '--allowImportingTsExtensions',
      '--ignoreConfig',
    ]
    const tsc = fileURLToPath(new URL('node_modules/typescript/bin/tsc', ROOT))
    try {
      return execFileSync(process.execPath, [tsc, ...flags, 'caller.ts'], { cwd: directory }).toString()
    } catch (error) {
      return String((error as { stdout: Buffer }).stdout)
    }
  }
  const reserve = `
    type Reserve = paths['/ipledger.v1.LeaseService/Reserve']['post']
    type Asked = Reserve['requestBody']['content']['application/json']
    type Answer = Reserve['responses'][200]['content']['application/json']`
  expect(
    compile(`${reserve}
      const asked: Asked = { owner: { kind: 'pod', name: 'a' }, claims: [{ pools: ['web'] }], confirmWithin: '30s' }
      const addresses = (answer: Answer): string[] => answer.leases.map((lease) => lease.address)
      const why = (error: components['schemas']['Error']): string => error.message
      console.log(asked, addresses, why)`),
  ).toBe('')
  expect(compile(`${reserve}\nexport const asked: Asked = { claims: [] }`)).toContain("'owner' is missing")
  expect(
    compile(`${reserve}\nexport const asked: Asked = { owner: { kind: 'pod' }, pool: 'web' }`),
  ).toContain("'pool'")
})
