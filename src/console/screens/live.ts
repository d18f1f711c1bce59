/** What happens to leases, from now on. It goes on where it was after a pause and after the server was away. */

import { html } from 'htm/preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { LeaseChangeJson } from '../../gen/ipledger/v1/lease_pb.ts'
import { type Failed, isRefused, watchLeases } from '../api.ts'
import type { ScreenProps } from '../route.ts'
import { Table, Time, View } from '../view.ts'
import { FIELDS, Filter, filterOf, flagsOf, leaseColumns } from './leases.ts'

const MOST = 500
const LONGEST_WAIT_MS = 5_000

/** Newest first. What waits is shown when somebody asks for it, so that nothing moves under the pointer. */
type Feed = {
  readonly shown: readonly LeaseChangeJson[]
  readonly waiting: readonly LeaseChangeJson[]
  readonly isSetBack: boolean
  readonly status: string
  readonly failure: Failed | undefined
}
const EMPTY: Feed = { shown: [], waiting: [], isSetBack: false, status: 'Connecting…', failure: undefined }

function received(feed: Feed, changes: readonly LeaseChangeJson[]): Feed {
  const waiting = [...changes.toReversed(), ...feed.waiting].slice(0, MOST)
  const added = feed.shown.length === 0 ? { shown: waiting } : { waiting }
  return { ...feed, ...added, status: 'Watching.', failure: undefined }
}

type Position = { readonly after?: string; readonly afterDigest?: string }

async function follow(
  request: ReturnType<typeof filterOf>,
  from: { current: Position },
  update: (change: (feed: Feed) => Feed) => void,
  signal: AbortSignal,
): Promise<void> {
  for (let failed = 0; !signal.aborted; failed += 1) {
    try {
      for await (const { changes = [], position, digest } of watchLeases(
        { ...request, ...from.current },
        signal,
      )) {
        failed = 0
        from.current = { after: position!, afterDigest: digest! }
        update((feed) => received(feed, changes))
      }
    } catch (error) {
      if (signal.aborted) return
      const failure = error as Failed
      const { message, reason } = failure
      if (isRefused(failure) || reason === 'UNAUTHENTICATED')
        return update((feed) => ({ ...feed, status: 'Ended.', failure }))
      if (reason === 'VERSION_MISMATCH') {
        from.current = {}
        update(() => ({ ...EMPTY, isSetBack: true }))
      } else update((feed) => ({ ...feed, status: `Not connected. It goes on where it was. (${message})` }))
      await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** failed, LONGEST_WAIT_MS)))
    }
  }
}

/** An agent sees its own node only. */
export function Live({ network, query, server: { caller } }: ScreenProps) {
  const node = query.node ?? (caller?.role === 'agent' ? caller.node : undefined)
  const wanted = { ...query, ...(node && { node }) }
  return html`<${Watched} key=${JSON.stringify(wanted)} network=${network} query=${wanted} />`
}

function Watched({ network, query }: Pick<ScreenProps, 'network' | 'query'>) {
  const [feed, update] = useState(EMPTY)
  const [isPaused, setPaused] = useState(false)
  const [tries, setTries] = useState(0)
  const from = useRef<Position>({})
  useEffect(() => {
    if (isPaused) return
    const ending = new AbortController()
    void follow(filterOf(network, query), from, update, ending.signal)
    return () => ending.abort()
  }, [isPaused, tries])
  const show = () =>
    update(({ shown, waiting, ...rest }) => {
      return { ...rest, shown: [...waiting, ...shown].slice(0, MOST), waiting: [], isSetBack: false }
    })
  const again = () => {
    show()
    setTries(tries + 1)
  }
  const count = feed.waiting.length
  return html`<${View} title="Live" asked=${{ answer: feed, failure: feed.failure, again }} command="ipledger watch ${flagsOf(network, query, FIELDS)}"
      filter=${html`<${Filter} path=${['live', network]} query=${query} fields=${FIELDS} choice=${['state', ['RESERVED', 'ACTIVE', 'QUARANTINED', 'ENDED']]} />`}>
    <p class="filter">
      <button onClick=${() => setPaused(!isPaused)}>${isPaused ? 'Resume' : 'Pause'}</button>
      <button onClick=${show}>${count === 0 ? 'Nothing new' : `${count}${count === MOST ? ' or more' : ''} new: show`}</button>
    </p>
    ${feed.isSetBack && html`<p class="banner">The log was set back, so the feed began anew: what it showed is no longer in the log.</p>`}
    <${Table} caption="What happened to leases, the newest first, at most ${MOST}" none="Nothing has happened since this view was opened. What happened before is under Events." rows=${feed.shown} columns=${[
      ['Time', ({ time }: LeaseChangeJson) => html`<${Time} at=${time} />`],
      ['What', ({ type, cause }: LeaseChangeJson) => `${type} (${cause})`],
      ...leaseColumns(network).map(([title, cell]) => [title, ({ lease }: LeaseChangeJson) => cell(lease!)]),
      ['By', ({ actor }: LeaseChangeJson) => actor],
    ]} />
    <p class="status" role="status">${isPaused ? 'Paused. It goes on where it was.' : feed.status}</p>
  <//>`
}
