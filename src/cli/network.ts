/** Networks: create, list, get, update; the end of a hold. */
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { group, verb } from './verb.ts'

const { method } = NetworkService

export const networkCommands = group(
  'network',
  'address spaces in which an address is unique',
  verb('create <name>', method.createNetwork, {
    about: 'make a network and its ledger',
    fields: [
      ['--description <text>', 'for people'],
      ['--label <key=value>', 'label, repeatable', 'labels'],
    ],
    help: '\nExample:\n  ipledger network create tenant-7 --description "VPC of tenant 7"',
  }),
  verb('list', method.listNetworks, {
    about: 'networks, by name',
    fields: [['--label <key=value>', 'only networks with this label, repeatable', 'labels']],
  }),
  verb('get [name]', method.getNetwork, {
    about: 'one network (default: "default"): its state, its recovery, the head of its log',
  }),
  verb('update <name>', method.updateNetwork, {
    about: 'change description or labels, close it or open it again',
    fields: [
      ['--description <text>', 'new description; "" clears it'],
      ['--label <key=value>', 'new label, repeatable; together they replace all labels', 'labels'],
      ['--no-labels', 'remove all labels', () => ({ labels: {} })],
      ['--closed', 'hand out nothing new; what is held stays'],
      ['--no-closed', 'hand out again', 'closed'],
    ],
  }),
  verb('resume [network]', LivenessService.method.resumeHold, {
    about: 'end holds: an operator says that the missing workloads are gone, or that the clock is right',
    fields: [['--cause <cause>', 'only this hold (default: all of them)']],
    isGrave: () => true,
    help: '\nExample:\n  ipledger network resume --cause too-many-reaps --why "node-1 was drained at noon"',
  }),
)
