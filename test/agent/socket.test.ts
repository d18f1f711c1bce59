/** Two agents cannot share a directory or a socket, by whatever path they name them. */
import { existsSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { startProcess } from '../e2e/commands.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

/** The service need not be there. */
function start(socket: string, state: string) {
  const args = ['agent', '--node', 'n1', '--bridge', 'none', '--socket', socket, '--state', state]
  return startProcess(args, { IPLEDGER_URL: 'http://127.0.0.1:9', IPLEDGER_LOG_LEVEL: 'fatal' })
}
const refusal = async (socket: string, state: string) => {
  const { code, stderr } = await start(socket, state).finished
  return `${code} ${stderr}`
}

test('the second is refused, and told what to give; a killed one hinders nobody', async () => {
  const home = temporaryDirectory()
  const at = (name: string) => join(home, name)
  const first = start(at('run/agent.sock'), at('state'))
  const listens = (running: typeof first) =>
    waitFor(() => running.stdout().includes('listening on'), { what: 'the agent to listen' })
  await listens(first)
  symlinkSync(at('state'), at('linked'))
  symlinkSync(at('run'), at('linked-run'))
  for (const state of ['state', 'linked'])
    expect(await refusal(at('other.sock'), at(state))).toMatch(
      new RegExp(`^1 .*has --state ${at(state)}.*--socket, a --state and a --source of its own`, 's'),
    )
  for (const socket of ['run/agent.sock', 'linked-run/agent.sock'])
    expect(await refusal(at(socket), at('other'))).toMatch(
      new RegExp(`^1 .*has --socket ${at(socket)}.*--socket, a --state and a --source of its own`, 's'),
    )
  expect(existsSync(at('run/agent.sock'))).toBe(true)

  first.child.kill('SIGKILL')
  await first.finished
  const next = start(at('run/agent.sock'), at('state'))
  await listens(next)
  next.child.kill('SIGTERM')
  expect((await next.finished).code).toBe(0)
})
