/** What all views have: a title, when it was asked, what failed, and the same as curl and as a command. */

import { html } from 'htm/preact'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Failed, isSignedIn } from './api.ts'

export type Asked<T> = {
  readonly answer?: T
  readonly failure?: Failed
  /** When it was answered. */
  readonly at?: Date
  readonly again: () => void
}

/** The answer of `ask`, anew when `keys` change or somebody asks again. The one before stays until the next is there. */
export function useAnswer<T>(ask: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[]): Asked<T> {
  const [state, setState] = useState<Omit<Asked<T>, 'again'>>({})
  const [count, setCount] = useState(0)
  useEffect(() => {
    const ending = new AbortController()
    ask(ending.signal).then(
      (answer) => !ending.signal.aborted && setState({ answer, at: new Date() }),
      (error: Error) => {
        if (ending.signal.aborted) return
        const failure = error instanceof Failed ? error : new Failed(String(error))
        setState((before) => ({ ...before, failure }))
      },
    )
    return () => ending.abort()
  }, [...keys, count])
  return { ...state, again: () => setCount(count + 1) }
}

type ViewProps = {
  readonly title: string
  readonly asked: Asked<unknown>
  /** The call that the view shows: `LeaseService/ListLeases`, and its request. None: a stream, which curl cannot read. */
  readonly call?: readonly [method: string, request: object]
  readonly command: string
  /** The form by which one looks. It stays when the call fails. */
  readonly filter?: ComponentChildren
  readonly children?: ComponentChildren
}

export function View({ title, asked, call, command, filter, children }: ViewProps) {
  const { answer, failure, at, again } = asked
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · ipledger`
    heading.current?.focus()
  }, [title])
  return html`
    <div class="head">
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      <span class="tools">
        ${at && html`<span>as of <${Time} at=${at} short /></span>`}
        <button onClick=${again}>Refresh</button>
        ${call && html`<${Copy} label="Copy as curl" text=${() => curlOf(call)} />`}
        <${Copy} label="Copy as command" text=${() => command} />
      </span>
    </div>
    ${filter}
    ${failure && html`<${Failure} failure=${failure} again=${again} />`}
    ${answer === undefined && failure === undefined ? html`<p class="quiet">Loading…</p>` : answer !== undefined && children}
  `
}

export function Failure({ failure, again }: { readonly failure: Failed; readonly again: () => void }) {
  return html`<div role="alert" class="failure">
    <strong>${failure.reason ?? 'No answer'}</strong> ${failure.message}
    <button onClick=${again}>Try again</button>
  </div>`
}

function curlOf([method, request]: readonly [string, object]): string {
  const body = quoted(JSON.stringify(request))
  const token = isSignedIn() ? ` -H "authorization: Bearer $IPLEDGER_TOKEN"` : ''
  return `curl ${location.origin}/ipledger.v1.${method} -H 'content-type: application/json'${token} -d ${body}`
}

/** A word as a shell takes it: what a caller chose runs nothing where it is pasted. */
export const quoted = (text: string): string =>
  /^[\w./:@=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`

/** A command with its words quoted. */
export const sh = ({ raw }: TemplateStringsArray, ...words: readonly string[]): string =>
  String.raw({ raw }, ...words.map(quoted))

function Copy({ label, text }: { readonly label: string; readonly text: () => string }) {
  const [isDone, setDone] = useState(false)
  const copy = async () => {
    // Only a secure page has the clipboard.
    if (navigator.clipboard) await navigator.clipboard.writeText(text())
    else prompt(label, text())
    setDone(true)
  }
  return html`<button onClick=${copy} onBlur=${() => setDone(false)} title=${text()}>${isDone ? 'Copied' : label}</button>`
}

const LONG = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long', hourCycle: 'h23' })
const SHORT = new Intl.DateTimeFormat(undefined, { timeStyle: 'long', hourCycle: 'h23' })

/** For a field of type `datetime-local`, which knows no zone: it takes and shows the browser's. */
export function localOf(at: string | number): string {
  const date = new Date(at)
  // The API says what is wrong with it.
  if (Number.isNaN(date.getTime())) return ''
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

type TimeProps = { readonly at: string | Date | undefined; readonly short?: boolean }

/** In the browser's zone, with UTC on hover. */
export function Time({ at, short = false }: TimeProps) {
  if (at === undefined) return null
  const date = new Date(at)
  if (Number.isNaN(date.getTime())) return html`${at}`
  return html`<time datetime=${date.toISOString()} title="${date.toISOString()} (UTC)">${(short ? SHORT : LONG).format(date)}</time>`
}

/** `LEASE_STATE`s and the like, by colour and by word. */
export function State({ of }: { readonly of: string | undefined }) {
  return html`<span class="state" data-state=${of}>${of}</span>`
}

export type Column<T> = readonly [title: string, cell: (one: T) => ComponentChildren]

type TableProps<T> = {
  readonly caption: string
  readonly columns: readonly Column<T>[]
  readonly rows: readonly T[]
  readonly none: string
  /** There are more than these. */
  readonly isCut?: boolean
}

export function Table<T>({ caption, columns, rows, none, isCut = false }: TableProps<T>) {
  if (rows.length === 0)
    return html`<p class="quiet">${isCut ? 'Nothing on this page; there are more.' : none}</p>`
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption>${caption}</caption>
    <thead><tr>${columns.map(([title]) => html`<th scope="col">${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map(([, cell]) => html`<td>${cell(row)}</td>`)}</tr>`)}</tbody>
  </table>${isCut && html`<p class="quiet">Only ${rows.length} are shown; there are more.</p>`}</div>`
}
