/** `ipledger demo`: the stage, the play, and everything put away however it ends. */

import { Unsuccessful } from '../cli/failure.ts'
import { awaitSignals } from '../cli/stopping.ts'
import { createLogger } from '../telemetry.ts'
import { CALLERS, INTRODUCTION, playMir1238 } from './mir-1238.ts'
import { openStage } from './stage.ts'

/** As shells count: 128 and the number of SIGINT. */
const INTERRUPTED = 130

export async function runDemo({ directory }: Readonly<{ directory: string | undefined }>): Promise<void> {
  const stopping = awaitSignals(createLogger('error'))
  const interrupted = stopping.asked.then(() => {
    throw new Unsuccessful(INTERRUPTED)
  })
  interrupted.catch(() => {})
  const say = (text: string) => console.log(text)
  await using open = new AsyncDisposableStack()

  say(INTRODUCTION)
  const stage = await openStage(open, { callers: CALLERS, directory, onFailure: stopping.fail })
  await Promise.race([playMir1238(stage, say), interrupted])
}
