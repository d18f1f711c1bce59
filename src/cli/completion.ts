/** Completion for bash and zsh: the commands and options of the program as they are, in one function without a process per key. */
import type { Command } from 'commander'
import { command, type Declared } from './verb.ts'

export const completionCommand: Declared = (program) =>
  command('completion <shell>', {
    about: 'print a script by which the shell completes commands and options',
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
  const groups = commands.filter(([, { commands }]) => commands.length > 0).map(([path]) => `'${path}'`)
  const options = commands.map(([path, command]) => `    '${path}') word='${wordsOf(command).join(' ')}' ;;`)
  return `${isZsh ? '#compdef ipledger\nautoload -U +X bashcompinit && bashcompinit\n' : ''}_ipledger() {
  local path='' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path" in ${groups.join('|')}) case "$word" in -*) ;; *) path="$path $word" ;; esac ;; esac
  done
  case "$path" in
${options.join('\n')}
    *) word='' ;;
  esac
  COMPREPLY=($(compgen -W "$word" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _ipledger ipledger`
}

const namesOf = (command: Command) => [command.name(), ...command.aliases()]

function* everyCommand(command: Command, path: string): Generator<readonly [path: string, Command]> {
  yield [path, command]
  for (const one of command.commands)
    for (const name of namesOf(one)) yield* everyCommand(one, `${path} ${name}`)
}

function wordsOf({ commands, options }: Command): readonly string[] {
  return [...commands.flatMap(namesOf), ...options.flatMap(({ long }) => long ?? []), '--help']
}
