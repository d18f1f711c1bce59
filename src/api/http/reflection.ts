/** gRPC server reflection, v1, for grpcurl and its kind. */
import {
  createRegistry,
  type DescFile,
  type DescService,
  type MessageInitShape,
  toBinary,
} from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Code, type ConnectRouter } from '@connectrpc/connect'
import * as pb from '../../gen/grpc/reflection/v1/reflection_pb.ts'

type Found = NonNullable<MessageInitShape<typeof pb.ServerReflectionResponseSchema>['messageResponse']>

export function addReflection(router: ConnectRouter, served: readonly DescService[]): void {
  const services = [...served, pb.ServerReflection]
  const files = new Set(services.flatMap(({ file }) => [...withDependencies(file)]))
  const registry = createRegistry(...files)

  /** A type or a service by its name, or a method of a service. */
  function fileOf(symbol: string): DescFile | undefined {
    const dot = symbol.lastIndexOf('.')
    const service = registry.getService(symbol.slice(0, Math.max(0, dot)))
    const isMethod = service?.methods.some(({ name }) => name === symbol.slice(dot + 1)) === true
    return (registry.get(symbol) ?? (isMethod ? service : undefined))?.file
  }

  function find(question: pb.ServerReflectionRequest['messageRequest']): Found {
    const { value } = question
    switch (question.case) {
      case 'listServices':
        return {
          case: 'listServicesResponse',
          value: { service: services.map(({ typeName }) => ({ name: typeName })) },
        }
      case 'fileByFilename':
        return withImports([...files].find(({ proto }) => proto.name === value)) ?? missing(`file ${value}`)
      case 'fileContainingSymbol':
        return withImports(fileOf(question.value)) ?? missing(`symbol ${value}`)
      case 'allExtensionNumbersOfType':
        if (registry.getMessage(question.value) === undefined) return missing(`message ${value}`)
        return { case: 'allExtensionNumbersResponse', value: { baseTypeName: question.value } }
      case 'fileContainingExtension':
        return failed(Code.NotFound, 'there are no extensions')
      case undefined:
        return failed(Code.InvalidArgument, 'the question is missing')
    }
  }

  router.service(pb.ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const request of requests)
        yield {
          validHost: request.host,
          originalRequest: request,
          messageResponse: find(request.messageRequest),
        }
    },
  })
}

/** A file, and before it is asked for, everything it imports. */
function withImports(file: DescFile | undefined): Found | undefined {
  if (file === undefined) return undefined
  const all = [...withDependencies(file)].map(({ proto }) => toBinary(FileDescriptorProtoSchema, proto))
  return { case: 'fileDescriptorResponse', value: { fileDescriptorProto: all } }
}

function withDependencies(file: DescFile, found = new Set<DescFile>()): ReadonlySet<DescFile> {
  if (found.has(file)) return found
  found.add(file)
  for (const dependency of file.dependencies) withDependencies(dependency, found)
  return found
}

const missing = (what: string): Found => failed(Code.NotFound, `there is no ${what}`)

function failed(errorCode: Code, errorMessage: string): Found {
  return { case: 'errorResponse', value: { errorCode, errorMessage } }
}
