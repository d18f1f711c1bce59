/** gRPC server reflection, v1, for grpcurl and its kind. */
import { create, createRegistry, type DescFile, type DescService, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Code, type ConnectRouter } from '@connectrpc/connect'
import {
  ServerReflection,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from '../gen/grpc/reflection/v1/reflection_pb.ts'

export function addReflection(router: ConnectRouter, services: readonly DescService[]): void {
  const answer = createReflection([...services, ServerReflection])
  router.service(ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const request of requests) yield answer(request)
    },
  })
}

function createReflection(services: readonly DescService[]) {
  const files = new Set(services.flatMap(({ file }) => [...withDependencies(file)]))
  const registry = createRegistry(...files)

  /** A type or a service by its name, or a method of a service. */
  function fileOf(symbol: string): DescFile | undefined {
    const dot = symbol.lastIndexOf('.')
    const service = registry.getService(symbol.slice(0, Math.max(0, dot)))
    const isMethod = service?.methods.some(({ name }) => name === symbol.slice(dot + 1)) === true
    return (registry.get(symbol) ?? (isMethod ? service : undefined))?.file
  }

  function find(question: ServerReflectionRequest['messageRequest']) {
    switch (question.case) {
      case 'listServices':
        return {
          case: 'listServicesResponse' as const,
          value: { service: services.map(({ typeName }) => ({ name: typeName })) },
        }
      case 'fileByFilename':
        return withFile(
          [...files].find(({ proto }) => proto.name === question.value),
          `there is no file ${question.value}`,
        )
      case 'fileContainingSymbol':
        return withFile(fileOf(question.value), `there is no symbol ${question.value}`)
      case 'allExtensionNumbersOfType':
        return registry.getMessage(question.value) !== undefined
          ? {
              case: 'allExtensionNumbersResponse' as const,
              value: { baseTypeName: question.value, extensionNumber: [] },
            }
          : notFound(`there is no message ${question.value}`)
      case 'fileContainingExtension':
        return notFound('there are no extensions')
      case undefined:
        return {
          case: 'errorResponse' as const,
          value: { errorCode: Code.InvalidArgument, errorMessage: 'the question is missing' },
        }
    }
  }

  return (request: ServerReflectionRequest): ServerReflectionResponse =>
    create(ServerReflectionResponseSchema, {
      validHost: request.host,
      originalRequest: request,
      messageResponse: find(request.messageRequest),
    })
}

/** A file, and before it is asked for, everything it imports. */
function withFile(file: DescFile | undefined, otherwise: string) {
  if (file === undefined) return notFound(otherwise)
  const all = [...withDependencies(file)]
  return {
    case: 'fileDescriptorResponse' as const,
    value: { fileDescriptorProto: all.map((one) => toBinary(FileDescriptorProtoSchema, one.proto)) },
  }
}

function withDependencies(file: DescFile, found = new Set<DescFile>()): ReadonlySet<DescFile> {
  if (found.has(file)) return found
  found.add(file)
  for (const dependency of file.dependencies) withDependencies(dependency, found)
  return found
}

function notFound(errorMessage: string) {
  return { case: 'errorResponse' as const, value: { errorCode: Code.NotFound, errorMessage } }
}
