/**
 * A plugin of `buf generate` that writes src/gen/openapi.json: what a caller with JSON over HTTP has to know, from the
 * descriptors and comments of proto/. Methods and messages only; rights, reasons and limits are in the comments. A field of a request
 * is required if its comment begins with that word.
 * (protoc-gen-connect-openapi does the same and needs a Go toolchain.)
 */
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescService,
  ScalarType,
} from '@bufbuild/protobuf'
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt'
import {
  createEcmaScriptPlugin,
  getComments,
  getSyntaxComments,
  runNodeJs,
  type Schema,
} from '@bufbuild/protoplugin'
import manifest from '../package.json' with { type: 'json' }

const PACKAGE = 'ipledger.v1'
const VERSION = 'v1'
const ERROR = 'Error'
const ABOUT = `ipledger hands out IP addresses, and never one address to two live workloads. Each method is a POST of JSON to its
path; docs/callers.md has the contract.`

const FRAMES = `A stream of Connect: before each message, the request too, stand a byte of flags and four of its length, big-endian.
Flag 2 ends the stream; that message has the error, if there is one.`

runNodeJs(createEcmaScriptPlugin({ name: 'openapi', version: VERSION, generateTs: generate }))

function generate(schema: Schema): void {
  const files = schema.files.filter(({ proto }) => proto.package === PACKAGE)
  const services = files.flatMap((file) => file.services)
  const messages = files.flatMap((file) => file.messages)
  const enums = files.flatMap((file) => file.enums)
  const jsonNames = new Map(messages.flatMap(({ fields }) => fields.map((one) => [one.name, one.jsonName])))
  const general = files.flatMap((file) => getSyntaxComments(file).leadingDetached).join('\n')

  /** Fields are named as in JSON. */
  const prose = (comment: string | undefined): string =>
    (comment ?? '')
      .replace(/^ /gm, '')
      .trim()
      .replace(
        /`([a-z_.]+)`/g,
        (_, name: string) => `\`${name.replace(/[a-z_]+/g, (one) => jsonNames.get(one) ?? one)}\``,
      )
  const described = (desc: DescMessage | DescField | DescEnum | DescMethod | DescService) => ({
    description: prose(getComments(desc).leading),
  })

  const operation = (method: DescMethod) => {
    const { description } = described(method)
    const isStream = method.methodKind !== 'unary'
    const content = isStream ? stream : json
    const failed = { description: 'It was refused, or got no answer.', content: json(ERROR) }
    return {
      post: {
        operationId: `${method.parent.name}_${method.name}`,
        tags: [method.parent.name],
        summary: /^.*?\.(?=\s|$)/s.exec(description)![0].replaceAll('\n', ' '),
        description: isStream ? `${description}\n\n${FRAMES}` : description,
        requestBody: { required: true, content: content(method.input.name) },
        responses: {
          200: { description: 'The answer.', content: content(method.output.name) },
          '4XX': failed,
          '5XX': failed,
        },
      },
    }
  }

  const asked = new Set<DescMessage>()
  const collect = (message: DescMessage): void => {
    if (asked.has(message)) return
    asked.add(message)
    for (const field of message.fields) if (field.message !== undefined) collect(field.message)
  }
  for (const { methods } of services) for (const { input } of methods) collect(input)
  const isRequired = (field: DescField) =>
    asked.has(field.parent)
      ? /^Required(?! with)/.test(described(field).description)
      : field.presence === FeatureSet_FieldPresence.IMPLICIT && field.oneof === undefined

  const messageSchema = (message: DescMessage) => ({
    type: 'object',
    ...described(message),
    properties: Object.fromEntries(
      message.fields.map((field) => [field.jsonName, { ...typeOf(field), ...described(field) }]),
    ),
    ...listed(
      'required',
      message.fields.filter(isRequired).map(({ jsonName }) => jsonName),
    ),
    // An unknown field of a request is refused; an answer may get new ones.
    ...(message.name.endsWith('Request') && { additionalProperties: false }),
  })

  const enumSchema = (desc: DescEnum) => {
    const values = desc.values.filter(({ number }) => number !== 0)
    const lines = values.map((value) => `- \`${value.name}\`: ${prose(getComments(value).leading)}`)
    return {
      type: 'string',
      enum: desc.values.map(({ name }) => name),
      description: [described(desc).description, ...lines].join('\n'),
    }
  }

  const document = {
    openapi: '3.1.0',
    info: {
      title: 'ipledger',
      version: VERSION,
      description: `${ABOUT}\n\n${prose(general)}`,
      license: { name: manifest.license, identifier: manifest.license },
    },
    servers: [{ url: 'http://127.0.0.1:8080', description: 'As `ipledger serve` starts it.' }],
    security: [{ token: [] }, {}],
    tags: services.map((service) => ({ name: service.name, ...described(service) })),
    paths: Object.fromEntries(
      services.flatMap((service) =>
        service.methods.map((method) => [`/${service.typeName}/${method.name}`, operation(method)]),
      ),
    ),
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      schemas: {
        ...Object.fromEntries(messages.map((message) => [message.name, messageSchema(message)])),
        ...Object.fromEntries(enums.map((desc) => [desc.name, enumSchema(desc)])),
        [ERROR]: ERROR_SCHEMA,
      },
    },
  }
  schema.generateFile('openapi.json').print(JSON.stringify(document, null, 1))
}

function json(name: string) {
  return { 'application/json': { schema: reference(name) } }
}

function stream(name: string) {
  return { 'application/connect+json': { schema: reference(name) } }
}

/** Nothing, if there are none: an empty list is not valid everywhere. */
const listed = (name: string, all: readonly string[]) => (all.length === 0 ? {} : { [name]: all })

function reference(name: string) {
  return { $ref: `#/components/schemas/${name}` }
}

function typeOf(field: DescField): object {
  switch (field.fieldKind) {
    case 'list':
      return { type: 'array', items: singleOf(field) }
    case 'map':
      return { type: 'object', additionalProperties: { type: 'string' } }
    default:
      return singleOf(field)
  }
}

function singleOf({ message, enum: names, scalar }: DescField): object {
  if (message !== undefined) return WELL_KNOWN[message.typeName] ?? reference(message.name)
  if (names !== undefined) return reference(names.name)
  switch (scalar) {
    case ScalarType.STRING:
      return { type: 'string' }
    case ScalarType.BOOL:
      return { type: 'boolean' }
    case ScalarType.UINT32:
      return { type: 'integer', minimum: 0, maximum: 2 ** 32 - 1 }
    case ScalarType.BYTES:
      return { type: 'string', contentEncoding: 'base64' }
    case ScalarType.UINT64:
      return { type: 'string', format: 'uint64', pattern: '^[0-9]+$' }
    default:
      throw new Error(`there is no JSON type yet for scalar ${scalar}`)
  }
}

const WELL_KNOWN: Readonly<Record<string, object>> = {
  'google.protobuf.Timestamp': { type: 'string', format: 'date-time' },
  'google.protobuf.Duration': { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)?s$', examples: ['90s'] },
  'google.protobuf.FieldMask': { type: 'string', examples: ['labels,exclude'] },
  'google.protobuf.Struct': { type: 'object' },
}

const ERROR_SCHEMA = {
  type: 'object',
  required: ['code', 'message'],
  description: 'An error as the Connect protocol has it.',
  properties: {
    code: { type: 'string', description: 'Connect code.', examples: ['resource_exhausted'] },
    message: { type: 'string', description: 'For people.' },
    details: {
      type: 'array',
      description: 'google.rpc.ErrorInfo, and google.rpc.RetryInfo where waiting helps.',
      items: {
        type: 'object',
        properties: {
          type: { type: 'string', examples: ['google.rpc.ErrorInfo'] },
          value: { type: 'string', description: 'The message in binary, as base64.' },
          debug: {
            type: 'object',
            description: 'The message as JSON: `reason`, `domain`, `metadata`; or `retryDelay`.',
          },
        },
      },
    },
  },
}
