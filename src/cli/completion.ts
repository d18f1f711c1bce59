/** Completion for bash and zsh: the commands and options of the program as they are, in one function without a process per key. */
import type { Command } from 'commander'
import { command, type Declared } from './verb.ts'

export const completionCommand: Declared = (program) =>
  command('completion <shell>', {
    about: 'print what makes the shell complete commands and options',
    argument: (shell) => shell.choices(['bash', 'zsh']),
    help: `
Examples:
  source <(ipledger completion bash)
  ipledger completion zsh >"\${fpath[1]}/_ipledger"`,
    run: (_, shell) => console.log(completionScript(program, shell === 'zsh')),
  })(program)

/** zsh takes functions for bash. */
export function completionScript(program: Command, isZsh: boolean): string {
  const commands = [...everyCommand(program, '')]
  const groups = commands.filter(([, { commands }]) => commands.length > 0).map(([path]) => path)
  return [
    ...(isZsh ? ['#compdef ipledger', 'autoload -U +X bashcompinit && bashcompinit'] : []),
    '_ipledger() {',
    "  local path='' word",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: bash
    '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
    `    case "$path" in ${groups.map((path) => `'${path}'`).join('|')}) case "$word" in -*) ;; *) path="$path $word" ;; esac ;; esac`,
    '  done',
    '  case "$path" in',
    ...commands.map(([path, command]) => `    '${path}') word='${wordsOf(command).join(' ')}' ;;`),
    "    *) word='' ;;",
    '  esac',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: bash
    '  COMPREPLY=($(compgen -W "$word" -- "${COMP_WORDS[COMP_CWORD]}"))',
    '}',
    'complete -o default -F _ipledger ipledger',
  ].join('\n')
}

function* everyCommand(command: Command, path: string): Generator<readonly [path: string, Command]> {
  yield [path, command]
  for (const one of command.commands)
    for (const name of [one.name(), ...one.aliases()]) yield* everyCommand(one, `${path} ${name}`)
}

function wordsOf({ commands, options }: Command): readonly string[] {
  return [
    ...commands.flatMap((one) => [one.name(), ...one.aliases()]),
    ...options.flatMap(({ long }) => long ?? []),
    '--help',
  ]
}
