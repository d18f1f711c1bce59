/** `ipledger demo`, a program: the stage and the play, and on a terminal a look at it. */
import { INTERRUPTED, SilentExit } from '../cli/exit.ts'
import { exitCodeOf } from '../cli/program.ts'
import { awaitSignals } from '../cli/stopping.ts'
import { createLogger } from '../telemetry.ts'
import { INTRODUCTION, playMir1238 } from './mir-1238.ts'
import { openStage } from './stage.ts'

async function runDemo(directory: string | undefined): Promise<void> {
  const stopping = awaitSignals(createLogger('error'))
  const interrupted = stopping.stopped.then(() => {
    throw new SilentExit(INTERRUPTED)
  })
  interrupted.catch(() => {})
  await using open = new AsyncDisposableStack()
  console.log(INTRODUCTION)
  const stage = await openStage(open, directory, stopping.fail)
  const address = await Promise.race([playMir1238(stage, (text) => console.log(text)), interrupted])
  if (!process.stdout.isTTY) return
  console.log(`See it in the browser:  ${stage.url}/#/address/default/${address}`)
  console.log(`Sign in with the token  ${stage.token}\n\nCtrl-C ends it.`)
  await stopping.stopped
}

const { directory } = JSON.parse(process.argv[2]!) as { readonly directory?: string }
process.exitCode = await exitCodeOf(() => runDemo(directory))
