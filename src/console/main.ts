/** The page: sign-in, the box, where one may go, and the view of the address behind the `#`. */

import { html } from 'htm/preact'
import { render } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { call, type Failed, isSignedIn, signIn } from './api.ts'
import { linkTo, parseRoute, type Route } from './route.ts'
import { Address } from './screens/address.ts'
import { Attention } from './screens/attention.ts'
import { Events } from './screens/events.ts'
import { Lease } from './screens/lease.ts'
import { Leases } from './screens/leases.ts'
import { Live } from './screens/live.ts'
import { Overview } from './screens/overview.ts'
import { Owners } from './screens/owner.ts'
import { Pool } from './screens/pool.ts'
import { Search } from './screens/search.ts'
import { Server } from './screens/server.ts'
import { Sources } from './screens/sources.ts'
import { Failure, useAnswer } from './view.ts'

const SCREENS = {
  overview: ['Overview', Overview],
  attention: ['Attention', Attention],
  sources: ['Sources', Sources],
  leases: ['Leases', Leases],
  events: ['Events', Events],
  live: ['Live', Live],
  address: [null, Address],
  pool: [null, Pool],
  lease: [null, Lease],
  owner: [null, Owners],
  search: [null, Search],
  server: ['Server', Server],
} as const

function useRoute(): Route {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const change = () => setHash(location.hash)
    addEventListener('hashchange', change)
    // It may have changed before anybody listened.
    change()
    return () => removeEventListener('hashchange', change)
  }, [])
  return parseRoute(hash)
}

function App() {
  const { path, query } = useRoute()
  const [name = 'overview', network = 'default', ...rest] = path
  const [signedIn, setSignedIn] = useState(0)
  const server = useAnswer((signal) => call('ServerService', 'getServer', {}, signal), [signedIn])
  if (server.failure?.reason === 'UNAUTHENTICATED')
    return html`<${SignIn} failure=${isSignedIn() ? server.failure : undefined} onDone=${() => setSignedIn(signedIn + 1)} />`
  if (server.answer === undefined)
    return server.failure
      ? html`<main><${Failure} failure=${server.failure} again=${server.again} /></main>`
      : null
  const [, Screen] = SCREENS[name as keyof typeof SCREENS] ?? SCREENS.overview
  return html`
    <a class="skip" href="#main">To the content</a>
    <header>
      <a class="name" href=${linkTo(['overview', network])}>ipledger</a>
      <${Box} network=${network} />
      <${Networks} network=${network} name=${name} />
      <nav aria-label="Views">${Object.entries(SCREENS).map(
        ([key, [title]]) =>
          title &&
          html`<a href=${linkTo([key, network])} aria-current=${key === name ? 'page' : undefined}>${title}</a>`,
      )}</nav>
    </header>
    <main id="main" key=${[name, network, ...rest].join('/')}>
      <${Screen} network=${network} rest=${rest} query=${query} server=${server.answer} />
    </main>
  `
}

/** One box for whatever one has: `/` goes there. */
function Box({ network }: { readonly network: string }) {
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== '/' || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? '')) return
      event.preventDefault()
      document.getElementById('box')?.focus()
    }
    addEventListener('keydown', focus)
    return () => removeEventListener('keydown', focus)
  }, [])
  const go = (event: SubmitEvent) => {
    event.preventDefault()
    const { value } = document.getElementById('box') as HTMLInputElement
    if (value.trim() !== '') location.hash = linkTo(['search', network, value.trim()])
  }
  return html`<form role="search" onSubmit=${go}>
    <input id="box" type="search" aria-label="Address, CIDR, owner, lease, node or source" placeholder="Address, owner, lease, node …  /" />
  </form>`
}

function Networks({ network, name }: { readonly network: string; readonly name: string }) {
  const { answer } = useAnswer(
    (signal) => call('NetworkService', 'listNetworks', { pageSize: 1000 }, signal),
    [],
  )
  const names = new Set([network, ...(answer?.networks ?? []).map((one) => one.name ?? '')])
  const choose = (event: Event) => {
    const screen = SCREENS[name as keyof typeof SCREENS]?.[0] ? name : 'overview'
    location.hash = linkTo([screen, (event.target as HTMLSelectElement).value])
  }
  return html`<label class="network">Network
    <select value=${network} onChange=${choose}>${[...names].map((one) => html`<option>${one}</option>`)}</select>
  </label>`
}

function SignIn({ failure, onDone }: { readonly failure: Failed | undefined; readonly onDone: () => void }) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.target as HTMLFormElement)
    signIn(String(form.get('token')).trim(), form.get('kept') === 'on')
    onDone()
  }
  return html`<main class="signin"><h1>ipledger</h1>
    ${failure && html`<div role="alert" class="failure">${failure.message}</div>`}
    <form onSubmit=${submit}>
      <label>Token <input name="token" type="password" autocomplete="off" required /></label>
      <label><input name="kept" type="checkbox" /> Keep it until this tab is closed</label>
      <button>Sign in</button>
    </form>
    <p class="quiet">A token decides what one sees and may do. <code>ipledger token create</code> makes one.</p>
  </main>`
}

render(html`<${App} />`, document.body)
