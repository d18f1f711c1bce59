/**
 * A vitest that stays, for `run.ts`: started once in a copy of the tree and asked again and again, because most of what a
 * vitest of its own costs is its start. Each file of tests still runs in a process of its own, so that nothing of a run is in the
 * memory of the next; only the text of modules that did not change is kept. That a run had the text that it should
 * have is not believed but seen: `run.ts` stamps what it changes.
 */
import { resolve } from 'node:path'
import { createVitest, type TestModule } from 'vitest/node'
import { type Outcome, type Report, read } from './report.ts'

/** `changed`: files whose text is another than at the last question. */
export type Question = { readonly changed: readonly string[]; readonly file: string }
export type Answer = { readonly outcome: Outcome }

/** Of the run that is on its way: what is kept of earlier ones says nothing of it. */
let ended: TestModule[] = []

const vitest = await createVitest('test', {
  watch: false,
  project: ['unit'],
  bail: 1,
  reporters: [{ onTestModuleEnd: (module) => void ended.push(module) }],
})
await vitest.standalone()

process.on('message', ({ changed, file }: Question) => {
  void ask(changed, resolve(file)).then(
    (outcome) => process.send!({ outcome } satisfies Answer),
    (error) => {
      console.error(error)
      process.exit(1)
    },
  )
})
process.on('disconnect', () => process.exit(0))
process.send!('ready')

async function ask(changed: readonly string[], file: string): Promise<Outcome> {
  for (const one of changed) vitest.invalidateFile(resolve(one))
  const project = vitest.projects.find(({ name }) => name === 'unit')!
  ended = []
  const { unhandledErrors } = await vitest.runTestSpecifications([project.createSpecification(file)])
  if (unhandledErrors.length > 0) throw unhandledErrors[0]
  const [module] = ended
  if (module === undefined || ended.length !== 1 || module.moduleId !== file)
    throw new Error(`asked for ${file}, ran ${ended.map(({ moduleId }) => moduleId)}`)
  return read(reportOf(module))
}

function reportOf(module: TestModule): Report {
  const assertionResults = [...module.children.allTests()].map((one) => ({
    status: one.result().state,
    fullName: one.fullName.replaceAll(' > ', ' '),
  }))
  const message = module
    .errors()
    .map((error) => error.message)
    .join('; ')
  return {
    numFailedTests: assertionResults.filter(({ status }) => status === 'failed').length,
    testResults: [{ name: module.moduleId, status: module.state(), message, assertionResults }],
  }
}
