/** What the command line may say to a server: the compiler is the test, `npm run check:types` runs it. */
import { expect, test } from 'vitest'
import { connect } from '../../src/cli/connection.ts'
import { given } from '../../src/cli/options.ts'

test('a field that a request does not have is an error, also when it is spread into it', () => {
  const version: bigint | undefined = 3n
  const calls = [
    () => connect().networks.updateNetwork({ name: 'n', ...given({ version }) }),
    // @ts-expect-error: there is no such field.
    () => connect().networks.updateNetwork({ name: 'n', ...given({ versoin: version }) }),
    // @ts-expect-error: nor in the whole of it.
    () => connect().networks.getNetwork(given({ name: 'n', version })),
  ]
  expect(calls).toHaveLength(3)
})
