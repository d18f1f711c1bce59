/** `ipledger demo`: the stage, the play, and everything put away however it ends. */

import { INTERRUPTED, Unsuccessful } from '../cli/failure.ts'
import { awaitSignals } from '../cli/stopping.ts'
import { createLogger } from '../telemetry.ts'
import { INTRODUCTION, playMir1238 } from './mir-1238.ts'
import { openStage } from './stage.ts'

export async function runDemo(directory: string | undefined): Promise<void> {
  const stopping = awaitSignals(createLogger('error'))
  const interrupted = stopping.asked.then(() => {
    throw new Unsuccessful(INTERRUPTED)
  })
  interrupted.catch(() => {})
  await using open = new AsyncDisposableStack()
  console.log(INTRODUCTION)
  const stage = await openStage(open, directory, stopping.fail)
  await Promise.race([playMir1238(stage, (text) => console.log(text)), interrupted])
}
