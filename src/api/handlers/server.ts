/** ServerService: what runs, and what its caller may do. */
import { MethodOptions_IdempotencyLevel as Idempotency } from '@bufbuild/protobuf/wkt'
import manifest from '../../../package.json' with { type: 'json' }
import type { ServerService } from '../../gen/ipledger/v1/server_pb.ts'
import type { Declarations, Method, Stream } from '../method.ts'
import { ROLES } from '../rights.ts'

type Right = Pick<Method, 'desc' | 'roles'> | Pick<Stream, 'desc' | 'roles'>

/** `rights`: every method of the contract; this one, too. */
export const serverMethods = (rights: () => readonly Right[]): Declarations<typeof ServerService> => ({
  getServer: {
    roles: new Set(ROLES),
    async answer(_request, { caller }, { ledger, reads }) {
      const { schema, place, version } = await reads.database()
      const { name, role, node, networks } = caller
      const allowed = rights().filter(({ roles }) => roles.has(role))
      const named = (isRead: boolean) =>
        allowed
          .filter(({ desc }) => isRead === (desc.idempotency === Idempotency.NO_SIDE_EFFECTS))
          .map(({ desc }) => `${desc.parent.name}/${desc.name}`)
      return {
        version: manifest.version,
        schema,
        time: ledger.now(),
        database: { place, version },
        caller: {
          name,
          role,
          node,
          networks: [...(networks ?? [])],
          reads: named(true),
          changes: named(false),
        },
      }
    },
  },
})
