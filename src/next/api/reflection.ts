/** gRPC server reflection, v1 and v1alpha (which differ in nothing but the name), for grpcurl and its kind. */
import {
  create,
  type DescFile,
  type DescMessage,
  type DescService,
  fromBinary,
  toBinary,
} from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Code, type ConnectRouter } from '@connectrpc/connect'
import {
  ServerReflection,
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from '../gen/grpc/reflection/v1/reflection_pb.ts'
import * as alpha from '../gen/grpc/reflection/v1alpha/reflection_pb.ts'

export function addReflection(router: ConnectRouter, services: readonly DescService[]): void {
  const answer = createReflection([...services, ServerReflection, alpha.ServerReflection])
  router.service(ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const request of requests) yield answer(request)
    },
  })
  router.service(alpha.ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const request of requests) {
        const bytes = toBinary(alpha.ServerReflectionRequestSchema, request)
        const answered = answer(fromBinary(ServerReflectionRequestSchema, bytes))
        yield fromBinary(
          alpha.ServerReflectionResponseSchema,
          toBinary(ServerReflectionResponseSchema, answered),
        )
      }
    },
  })
}

function createReflection(services: readonly DescService[]) {
  const files = new Map<string, DescFile>()
  const symbols = new Map<string, DescFile>()
  const types = new Set<string>()

  function addFile(file: DescFile): void {
    if (files.has(file.proto.name)) return
    files.set(file.proto.name, file)
    for (const dependency of file.dependencies) addFile(dependency)
    for (const message of file.messages) addMessage(message, file)
    for (const one of file.enums) symbols.set(one.typeName, file)
    for (const service of file.services) {
      symbols.set(service.typeName, file)
      for (const method of service.methods) symbols.set(`${service.typeName}.${method.name}`, file)
    }
  }

  function addMessage(message: DescMessage, file: DescFile): void {
    symbols.set(message.typeName, file)
    types.add(message.typeName)
    for (const nested of message.nestedMessages) addMessage(nested, file)
    for (const one of message.nestedEnums) symbols.set(one.typeName, file)
  }

  for (const service of services) addFile(service.file)

  function find(question: ServerReflectionRequest['messageRequest']) {
    switch (question.case) {
      case 'listServices':
        return {
          case: 'listServicesResponse' as const,
          value: { service: services.map(({ typeName }) => ({ name: typeName })) },
        }
      case 'fileByFilename':
        return withFile(files.get(question.value), `there is no file ${question.value}`)
      case 'fileContainingSymbol':
        return withFile(symbols.get(question.value), `there is no symbol ${question.value}`)
      case 'allExtensionNumbersOfType':
        return types.has(question.value)
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
  const all = new Set<DescFile>()
  const add = (one: DescFile): void => {
    if (all.has(one)) return
    all.add(one)
    for (const dependency of one.dependencies) add(dependency)
  }
  add(file)
  return {
    case: 'fileDescriptorResponse' as const,
    value: { fileDescriptorProto: [...all].map((one) => toBinary(FileDescriptorProtoSchema, one.proto)) },
  }
}

function notFound(errorMessage: string) {
  return { case: 'errorResponse' as const, value: { errorCode: Code.NotFound, errorMessage } }
}
