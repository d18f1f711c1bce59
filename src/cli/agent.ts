import { hostname } from 'node:os'
import type { Command } from 'commander'
import type { AgentOptions } from '../agent/agent.ts'
import { list, whole } from './readers.ts'
import { connected } from './verb.ts'

export function agentCommand(program: Command): void {
  program
    .command('agent')
    .description('run on a node: answer the CNI plugin, report what is alive, keep addresses for an outage')
    .requiredOption('--bridge <name>', 'the bridge of its containers, or the parent of macvlan and ipvlan')
    .option('--network <name>', 'network of the ledger', 'default')
    .option('--node <name>', 'this node, as the token has it', hostname())
    .option('--source <id>', 'its source, registered for this node (default: the name of the node)')
    .option('--socket <path>', 'where the plugin calls', '/run/ipledger/agent.sock')
    .option('--state <directory>', 'undelivered releases and the reserve', '/var/lib/ipledger')
    .option('--cni-cache <directory>', "where the container runtime's library keeps results", '/var/lib/cni')
    .option('--reserve <n>', 'addresses to hand out while the service is away', whole, 0)
    .option(
      '--pools <names>',
      'pools of the reserve, one address of each (default: the default pools)',
      list,
      [],
    )
    .option('--probe', 'ask the link whether an address is in use before it is handed out (ARP, ND)', false)
    .addHelpText(
      'after',
      `
Needs root, and the programs ip and nsenter. Register and enable its source first:
  ipledger source register node-1 --node node-1 --owner-kinds pod,container,reserve
  ipledger source enable node-1
  ipledger agent --node node-1 --bridge cni0 --reserve 8`,
    )
    .action(async ({ source, ...options }: Omit<AgentOptions, 'source'> & { readonly source?: string }) => {
      const [{ runAgent }, { createLogger }, { readConfig }, { awaitSignals }] = await Promise.all([
        import('../agent/agent.ts'),
        import('../telemetry.ts'),
        import('../config.ts'),
        import('./stopping.ts'),
      ])
      const log = createLogger(readConfig().logLevel)
      const stopping = awaitSignals(log)
      const ended = new AbortController()
      void stopping.asked.then(() => ended.abort())
      const { node, network, socket } = options
      await runAgent({ ...options, source: source ?? node }, await connected(), log, ended.signal, () =>
        console.log(`ipledger agent: node ${node}, network ${network}, listening on ${socket}`),
      )
    })
}
