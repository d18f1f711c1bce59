/** What an operator can do: first a dry run that shows what it would change, then a reason, then it is done. */

import { html } from 'htm/preact'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { LeaseJson } from '../gen/ipledger/v1/types_pb.ts'
import { call, Failed } from './api.ts'
import type { ScreenProps } from './route.ts'
import { sh } from './view.ts'

type More = { readonly validateOnly?: boolean; readonly why?: string }

export type Deed = {
  readonly label: string
  /** The method that it needs, as in `LeaseService/Reap`. */
  readonly right: string
  readonly command: string
  /** Does it, or only looks; says what becomes of it. */
  readonly tell: (more: More) => Promise<ComponentChildren>
  /** The log has no place for one. */
  readonly isWithoutReason?: boolean
}

const becomes = (leases: readonly (LeaseJson | undefined)[]) =>
  html`<ul>${leases.map((one) => html`<li>${one?.address}${one?.leaseId && ` (lease ${one.leaseId})`} becomes ${one?.state} ${one?.quarantine?.reason}</li>`)}</ul>`

/** The version that the operator looked at is the one of the dry run: what changes after it is refused. */
export function reap(leaseId: string): Deed {
  let version: string | undefined
  return {
    label: `Reap ${leaseId}`,
    right: 'LeaseService/Reap',
    command: sh`ipledger reap ${leaseId} --version N --why …`,
    async tell(more) {
      if (more.validateOnly) version = (await call('LeaseService', 'getLease', { leaseId })).lease!.version!
      const { leases = [] } = await call('LeaseService', 'reap', { leaseId, version: version!, ...more })
      return html`${becomes(leases)}<p>You say that nothing uses the address: it cools, and then another gets it.</p>`
    },
  }
}

export const quarantine = (network: string, address: string): Deed => ({
  label: `Quarantine ${address}`,
  right: 'LeaseService/Quarantine',
  command: sh`ipledger quarantine ${address} --network ${network} --why …`,
  async tell(more) {
    const { lease } = await call('LeaseService', 'quarantine', { network, address, ...more })
    return html`${becomes([lease])}<p>Nobody gets the address until an operator reaps it.</p>`
  },
})

/** Without a cause all holds. */
export const resume = (network: string, cause?: string): Deed => ({
  label: 'Resume',
  right: 'LivenessService/ResumeHold',
  command: sh`ipledger network resume ${network} --why …` + (cause ? sh` --cause ${cause}` : ''),
  async tell(more) {
    const { network: before } = await call('NetworkService', 'getNetwork', { name: network })
    const request = { network, ...(cause && { cause: cause as 'CLOCK' }), ...more }
    const { holds: left = [] } = await call('LivenessService', 'resumeHold', request)
    const ended = before?.holds?.filter((one) => !left.some((other) => other.cause === one.cause)) ?? []
    return html`<ul>${ended.map((one) => html`<li>ends ${one.cause}: ${one.why}</li>`)}${left.map((one) => html`<li>stays ${one.cause}</li>`)}</ul>`
  },
})

export const endRecovery = (network: string): Deed => ({
  label: 'End the recovery',
  right: 'NetworkService/EndRecovery',
  command: sh`ipledger recover --end ${network} --why …`,
  async tell(more) {
    const { network: after } = await call('NetworkService', 'endRecovery', { network, ...more })
    return html`<p>Network ${network} becomes ${after?.state}: addresses are handed out again. You say that the log has all that runs.</p>`
  },
})

export const enable = (network: string, id: string): Deed => ({
  label: `Enable ${id}`,
  right: 'LivenessService/EnableSource',
  command: sh`ipledger source enable ${id} --network ${network}`,
  isWithoutReason: true,
  async tell(more) {
    const request = { network, id, ...more }
    const { placed = 0, listed, foreseen } = await call('LivenessService', 'enableSource', request)
    const { adopted, quarantined, confirmed, omitted = 0 } = foreseen ?? {}
    return html`
      <p>From now on it is believed${placed > 0 && `; it is a witness of ${placed} leases of its node, and lists ${listed} of them`}.</p>
      ${foreseen && html`<p>Its next list, if it is as the last: adopts ${adopted}, quarantines ${quarantined}, confirms ${confirmed}${omitted > 0 && `; ${omitted} were not looked at`}.</p>`}`
  },
})

export const retire = (network: string, id: string): Deed => ({
  label: `Retire ${id}`,
  right: 'LivenessService/RetireSource',
  command: sh`ipledger source retire ${id} --network ${network}`,
  isWithoutReason: true,
  async tell(more) {
    const { unwitnessed, unlisted } = await call('LivenessService', 'retireSource', { network, id, ...more })
    return html`<p>For good. ${unwitnessed} leases lose their last witness, and ${unlisted} free addresses that only it lists may be handed out.</p>`
  },
})

type Stage = 'looking' | 'looked' | 'doing' | 'done'

type ActProps = {
  readonly deed: Deed
  readonly server: ScreenProps['server']
  /** Something has changed. */
  readonly onDone: () => void
}

/** A button, if one may; and a dialog. */
export function Act({ deed, server, onDone }: ActProps) {
  const [open, setOpen] = useState<Deed | null>(null)
  const { changes = [], role } = server.caller ?? {}
  if (!changes.includes(deed.right))
    return html`<span class="quiet"><code>${deed.command}</code> (not with the role ${role})</span>`
  return html`<button class="act" onClick=${() => setOpen(deed)}>${deed.label}…</button>
    ${open && html`<${Dialog} deed=${open} onClose=${() => setOpen(null)} onDone=${onDone} />`}`
}

type DialogProps = Omit<ActProps, 'server'> & { readonly onClose: () => void }

function Dialog({ deed, onClose, onDone }: DialogProps) {
  const { label, tell, command, isWithoutReason } = deed
  const element = useRef<HTMLDialogElement>(null)
  const [stage, setStage] = useState<Stage>('looking')
  const [answer, setAnswer] = useState<ComponentChildren>()
  const [failure, setFailure] = useState<Failed>()
  const go = async (more: More, next: Stage) => {
    setFailure(undefined)
    try {
      setAnswer(await tell(more))
      setStage(next)
    } catch (error) {
      setFailure(error instanceof Failed ? error : new Failed(String(error)))
      setStage('looked')
    }
  }
  useEffect(() => {
    element.current!.showModal()
    go({ validateOnly: true }, 'looked')
  }, [])
  const submit = async (event: SubmitEvent) => {
    event.preventDefault()
    const why = String(new FormData(event.target as HTMLFormElement).get('why') ?? '')
    setStage('doing')
    await go(isWithoutReason ? {} : { why }, 'done')
  }
  const close = () => {
    onClose()
    if (stage === 'done') onDone()
  }
  const cancel = (event: Event) => stage === 'doing' && event.preventDefault()
  return html`<dialog ref=${element} aria-label=${label} onClose=${close} onCancel=${cancel}>
    <h2>${label}</h2>
    ${failure && html`<div role="alert" class="failure"><strong>${failure.reason}</strong> ${failure.message}</div>`}
    ${answer !== undefined && html`<p class="quiet">${stage === 'done' ? 'Done:' : 'Nothing is done yet. It would be so:'}</p>${answer}`}
    ${stage === 'looking' && html`<p class="quiet">Looking what it would change…</p>`}
    <form onSubmit=${submit}>
      ${!isWithoutReason && stage !== 'done' && answer !== undefined && html`<label>Why (it goes into the log) <input name="why" required maxlength="1024" autofocus /></label>`}
      <p><code>${command}</code></p>
      ${stage !== 'done' && answer !== undefined && html`<button disabled=${stage === 'doing'}>${label}</button>`}
      <button type="button" onClick=${() => element.current!.close()}>${stage === 'done' ? 'Close' : 'Leave it'}</button>
    </form>
  </dialog>`
}
