/**
 * Completion for bash, zsh and fish: the shell asks `ipledger __complete` with the words so far. Commands and options come from the
 * program as it is, names of networks, pools and sources from the server.
 */
import type { Command, Option } from 'commander'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { everyPage, setServer } from './ask.ts'
import { command, type Declared, networkOptions } from './verb.ts'

const SCRIPTS = {
  bash: `_ipledger() {
  local IFS=$'\\n'
  COMPREPLY=($(ipledger __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ipledger ipledger`,
  zsh: `#compdef ipledger
_ipledger() {
  compadd -- \${(f)"$(ipledger __complete -- "\${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)"} || _files
}
compdef _ipledger ipledger`,
  fish: `complete -c ipledger -a '(ipledger __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'`,
}

export const completionCommands: readonly Declared[] = [
  command('completion <shell>', {
    about: 'print a script by which the shell completes commands, options, and names that the server knows',
    argument: (shell) => shell.choices(Object.keys(SCRIPTS)),
    help: `
Examples:
  source <(ipledger completion bash)
  ipledger completion zsh >"\${fpath[1]}/_ipledger"
  ipledger completion fish >~/.config/fish/completions/ipledger.fish`,
    run: (_, shell) => console.log(SCRIPTS[shell as keyof typeof SCRIPTS]),
  }),
  (program) => {
    const made = program.command('__complete [words...]', { hidden: true }).addOption(networkOptions()[0]!)
    return made.action(async (words: readonly string[], { network }: { readonly network: string }) => {
      const found = await completions(program, words, network)
      if (found.length > 0) console.log(found.join('\n'))
    })
  },
]

/** What the last word may become. */
async function completions(program: Command, words: readonly string[], ofEnvironment: string) {
  const last = words.at(-1) ?? ''
  const typed = words.slice(0, -1)
  let at = program
  let positions = 0
  let open: Option | undefined
  for (const word of typed) {
    if (open !== undefined) open = undefined
    else if (word.startsWith('-')) open = at.options.find((option) => takes(option, word))
    else {
      const inner = at.commands.find((one) => namesOf(one).includes(word))
      if (inner === undefined) positions++
      else at = inner
    }
  }
  const [url, token, network = ofEnvironment] = ['--url', '--token', '--network'].map((name) =>
    valueAfter(typed, name),
  )
  await setServer({ url, token })
  const candidates = async () => {
    if (open !== undefined) return open.argChoices ?? (await namesFor(open.attributeName(), network))
    if (last.startsWith('-')) return [...at.options.flatMap(({ long }) => long ?? []), '--help']
    const inner = at.commands.filter((one) => one.name() !== '__complete').flatMap(namesOf)
    if (inner.length > 0) return inner
    const argument = at.registeredArguments[positions]
    if (argument === undefined) return []
    return (
      argument.argChoices ?? (await namesFor(at.parent === program ? at.name() : at.parent!.name(), network))
    )
  }
  // Of a list with commas, its last part.
  const [, before = '', part = ''] = /^(.*,)?(.*)$/.exec(last)!
  return (await candidates()).filter((one) => one.startsWith(part)).map((one) => before + one)
}

const takes = ({ long, short, required, optional }: Option, word: string) =>
  (required || optional) && (word === long || word === short)

function valueAfter(words: readonly string[], name: string): string | undefined {
  const at = words.lastIndexOf(name)
  return at < 0 ? undefined : words[at + 1]
}

const namesOf = (command: Command) => [command.name(), ...command.aliases()]

/** Names on the server for an option or for the argument of a group's commands; it may not answer. */
async function namesFor(what: string, network: string): Promise<readonly string[]> {
  try {
    switch (what) {
      case 'network':
      case 'recover':
        return (await everyPage(NetworkService.method.listNetworks, {})).networks.map(({ name }) => name)
      case 'pool':
      case 'prefer':
        return (await everyPage(PoolService.method.listPools, { network })).pools.map(({ name }) => name)
      case 'source':
        return (await everyPage(LivenessService.method.listSources, { network })).sources.map(({ id }) => id)
      default:
        return []
    }
  } catch {
    return []
  }
}
