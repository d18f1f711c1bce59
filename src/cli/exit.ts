/** How a command that did not succeed ends: its exit code, and a sentence. */

/** Exit codes besides 0. A usage error was not even tried. */
export const REFUSED = 1
export const USAGE = 2
export const UNREACHABLE = 3

/** It was tried, and cannot be done; the message says why. Without one, the command has printed it. */
export class CommandFailed extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode = REFUSED) {
    super(message)
    this.exitCode = exitCode
  }
}

/** The command line can't be followed; the message says what to write instead. */
export class UsageError extends CommandFailed {
  constructor(message: string) {
    super(message, USAGE)
  }
}

/** There is nothing more to print. */
export class SilentExit extends CommandFailed {
  constructor(exitCode = REFUSED) {
    super('', exitCode)
  }
}

/** As shells count: 128 and the number of SIGINT. */
export const INTERRUPTED = 130
