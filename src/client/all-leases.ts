/** All pages of ListLeases. The package does not export it. */
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { ListLeasesRequestSchema } from '../gen/ipledger/v1/lease_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import type { IpledgerClient } from './client.ts'

/** @throws CallFailed */
export async function* allLeases(
  { leases }: IpledgerClient,
  filter: MessageInitShape<typeof ListLeasesRequestSchema>,
): AsyncGenerator<Lease, void> {
  for (let pageToken = ''; ; ) {
    const page = await leases.listLeases({ ...filter, pageSize: 1_000, pageToken })
    yield* page.leases
    pageToken = page.nextPageToken
    if (pageToken === '') return
  }
}
