/** What a run of tests says of a guard that was taken out. */
export type Outcome = { readonly failed: number; readonly first: string; readonly problem: string }

/** As vitest's reporter `json` writes it. */
export type Report = {
  readonly numFailedTests: number
  readonly testResults: readonly {
    readonly name: string
    readonly status: string
    readonly message: string
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[]
  }[]
}

/** A file that cannot even be loaded, or whose end fails, proves nothing: the guard has to be missed by a test. */
export function read({ numFailedTests, testResults }: Report): Outcome {
  const first = testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .find(({ status }) => status === 'failed')
  const broken = testResults.find(
    ({ status, assertionResults }) =>
      status === 'failed' && assertionResults.every((one) => one.status !== 'failed'),
  )
  return {
    failed: numFailedTests,
    first: first?.fullName ?? '',
    problem: broken === undefined ? '' : `${broken.name}: ${broken.message}`,
  }
}
