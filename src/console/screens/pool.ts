/** A pool, or any CIDR: how full it was, and a map of its addresses now and at any time of the log. */

import { html } from 'htm/preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import type {
  EventJson,
  GetAddressMapResponseJson,
  MapAddressJson,
  MapBlockJson,
} from '../../gen/ipledger/v1/audit_pb.ts'
import type { PoolSampleJson, PoolTrendJson } from '../../gen/ipledger/v1/pool_pb.ts'
import type { LeaseJson } from '../../gen/ipledger/v1/types_pb.ts'
import { call } from '../api.ts'
import { linkTo, momentOf, type ScreenProps } from '../route.ts'
import { localOf, sh, Time, useAnswer, View } from '../view.ts'

const HELD = ['active', 'reserved', 'quarantined', 'cooling'] as const
const OF_NOTE = ['lease.reaped', 'lease.quarantined', 'era.begun', 'reconcile.held']
/** Steps of the slider, and of a film from the first event to now. */
const STEPS = 1_000
const FRAMES = 60

export function Pool({ network, rest: [name = ''], query }: ScreenProps) {
  const isPool = !name.includes('/')
  const { at } = query
  // The slider changes the address of this view, and adds no steps to the browser's history.
  const setAt = (next: string | undefined) => {
    history.replaceState(null, '', linkTo(['pool', network, name], { ...query, at: next }))
    dispatchEvent(new Event('hashchange'))
  }
  const known = useAnswer(
    async (signal) => {
      const noted = { network, types: OF_NOTE, descending: true, pageSize: 1000 }
      const [{ network: found }, { events: marks = [], nextPageToken: isMore }] = await Promise.all([
        call('NetworkService', 'getNetwork', { name: network }, signal),
        call('AuditService', 'listEvents', noted, signal),
      ])
      return { begun: found!.createdAt!, marks, isMore }
    },
    [network],
  )
  const { begun, marks = [], isMore } = known.answer ?? {}
  const named = useAnswer(
    async (signal) =>
      isPool
        ? (await call('PoolService', 'listPoolTrends', { network, pool: name }, signal)).trends![0]!.cidr
        : name,
    [network, name],
  )
  const cidr = query.cidr ?? named.answer
  const request = { network, cidr: cidr ?? '', ...momentOf(at) }
  const asked = useAnswer(
    async (signal) =>
      cidr ? { at, map: await call('AuditService', 'getAddressMap', request, signal) } : undefined,
    [network, cidr, at],
  )
  const { map } = asked.answer ?? {}
  const up = linkTo(['pool', network, name], { at })
  return html`<${View} title=${isPool ? `Pool ${name}` : name} asked=${[named, known].find(({ failure }) => failure) ?? asked} call=${['AuditService/GetAddressMap', request]}
      command=${sh`ipledger map ${cidr ?? ''} --network ${network}` + (at ? sh` --at ${at}` : '')}>
    ${isPool && html`<${Trend} network=${network} pool=${name} />`}
    <h2>${query.cidr && html`<a href=${up}>${named.answer ?? name}</a> › `}${map?.cidr ?? cidr}</h2>
    ${begun && html`<${Slider} begun=${begun} at=${at} time=${map?.time} onMove=${setAt} marks=${marks.filter(({ lease }) => !lease || isInside(lease, name, map?.cidr))} isReady=${map && asked.answer!.at === at} />`}
    ${isMore && html`<p class="quiet">Marks are the newest 1,000 of the network.</p>`}
    ${map && html`<${Addresses} network=${network} name=${name} map=${map} at=${at} />`}
  <//>`
}

const numberOf = (address: string): number =>
  address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0)
const textOf = (value: number): string =>
  [24, 16, 8, 0].map((bits) => Math.floor(value / 2 ** bits) % 256).join('.')

/** Of a CIDR of IPv4 the first address of each part of a length. */
function stepsOf(cidr: string, prefixLength: number): readonly number[] {
  const [base = '', length] = cidr.split('/')
  return Array.from(
    { length: 2 ** (prefixLength - Number(length)) },
    (_, index) => numberOf(base) + index * 2 ** (32 - prefixLength),
  )
}

/** Of IPv6: by the pool, or all if a CIDR is shown. */
function isInside({ address = '', pool }: LeaseJson, name: string, cidr = ''): boolean {
  if (address.includes(':') || cidr.includes(':')) return pool === name || name.includes(':')
  const [base = '', length] = cidr.split('/')
  return (
    numberOf(address) >= numberOf(base) && numberOf(address) < numberOf(base) + 2 ** (32 - Number(length))
  )
}

type SliderProps = {
  readonly begun: string
  readonly at: string | undefined
  /** Of the map that is shown. */
  readonly time: string | undefined
  readonly marks: readonly EventJson[]
  /** The map of this position is there. */
  readonly isReady: boolean
  readonly onMove: (at: string | undefined) => void
}

/** The whole log from left to right; the right end is now. */
function Slider({ begun, at, time: shown = begun, marks, isReady, onMove }: SliderProps) {
  const [isPlaying, setPlaying] = useState(false)
  const first = Date.parse(begun)
  const span = Math.max(1, Date.now() - first)
  const markOf = (seq: string | undefined) => marks.find((one) => one.seq === seq)
  const time = at === undefined ? Date.now() : Date.parse(momentOf(at).time ?? shown)
  const move = (ms: number) =>
    onMove(ms < first + span ? new Date(Math.max(ms, first)).toISOString() : undefined)
  useEffect(() => {
    if (!isPlaying || !isReady) return
    if (at === undefined) return setPlaying(false)
    const next = setTimeout(() => move(time + span / FRAMES), 150)
    return () => clearTimeout(next)
  }, [isPlaying, isReady, at])
  const play = () => {
    if (!isPlaying && at === undefined) move(first)
    setPlaying(!isPlaying)
  }
  const placeOf = (ms: number) => `${((ms - first) / span) * 100}%`
  const later = marks.filter((one) => Date.parse(one.time!) > time).at(-1)
  const earlier = marks.find((one) => Date.parse(one.time!) < time && one.seq !== at)
  return html`<div class="time">
    <button onClick=${play}>${isPlaying ? 'Pause' : 'Play'}</button>
    <button disabled=${!earlier} onClick=${() => onMove(earlier!.seq)}>Mark before</button>
    <button disabled=${!later} onClick=${() => onMove(later!.seq)}>Next mark</button>
    <button disabled=${at === undefined} onClick=${() => onMove(undefined)}>Now</button>
    <label>At <input type="datetime-local" step="1" value=${localOf(time)} onChange=${(event: Event) => move(Date.parse((event.target as HTMLInputElement).value))} /></label>
    <strong>${at === undefined ? 'now' : html`<${Time} at=${new Date(time)} />`}</strong>
    ${markOf(at) && html`<span>${markOf(at)!.type} ${markOf(at)!.lease?.address} (number ${at})</span>`}
    <input type="range" aria-label="Time" aria-valuetext=${at === undefined ? 'now' : new Date(time).toLocaleString()} min="0" max=${STEPS}
      value=${Math.round(((time - first) / span) * STEPS)} onInput=${(event: Event) => move(first + (Number((event.target as HTMLInputElement).value) / STEPS) * span)} />
    <span class="marks" aria-hidden="true">${marks.map((one) => html`<i data-mark=${one.type} style=${{ left: placeOf(Date.parse(one.time!)) }} title="${one.type} ${one.lease?.address ?? ''}" onClick=${() => onMove(one.seq)}></i>`)}</span>
  </div>`
}

type MapProps = {
  readonly network: string
  readonly name: string
  readonly map: GetAddressMapResponseJson
  readonly at: string | undefined
}
type Cell = {
  readonly title: string
  readonly label: string
  readonly link: string
  readonly part?: string
  readonly fill?: string
}

function Addresses({ network, name, map, at }: MapProps) {
  const [hint, setHint] = useState('')
  useEffect(() => setHint(''), [map])
  const { addresses = [], blocks = [], blockSize, sampled = 0 } = map
  const cells = blockSize
    ? blockCells(map, (cidr) => linkTo(['pool', network, name], { cidr, at }))
    : addressCells(map, (address) => linkTo(['address', network, address], { at: at && map.seq }))
  const counts = HELD.map((part) => {
    const count = blockSize
      ? blocks.reduce((sum, one) => sum + (one[part] ?? 0), 0)
      : addresses.filter(({ state }) => state === part.toUpperCase()).length
    return `${count.toLocaleString()} ${part}`
  })
  const columns = cells.length > 256 ? 64 : 16
  const show = ({ target }: Event) => setHint((target as HTMLElement).getAttribute('aria-label') ?? '')
  const walk = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key]
    const all = [...(event.currentTarget as HTMLElement).children] as HTMLElement[]
    const next = by && all[all.indexOf(event.target as HTMLElement) + by]
    if (!next) return
    event.preventDefault()
    next.focus()
  }
  return html`
    <p>${sampled > 1 ? 'About ' : ''}${counts.join(', ')}.
      ${sampled > 1 && html`<em> An estimate: one of ${sampled} addresses was looked at. Blocks of the past are sampled, addresses are exact.</em>`}</p>
    <p class="hint">${hint || (cells.length === 0 ? 'No lease was ever made here.' : `Point at a ${blockSize ? 'block' : 'cell'}, or walk with the arrow keys.`)}</p>
    <div class="map" role="group" aria-label="Map of ${map.cidr}" data-columns=${columns} onKeyDown=${walk} onMouseOver=${show} onFocusIn=${show}>
      ${cells.map(({ title, label, link, part, fill }, index) => html`<a href=${link} tabindex=${index === 0 ? 0 : -1} aria-label=${title} data-part=${part} style=${fill && { background: fill }}>${label}</a>`)}
    </div>
    <p class="legend" aria-hidden="true">${[...HELD, 'excluded', 'free'].map((part) => html`<span><i data-part=${part}></i>${part}</span>`)}</p>`
}

/** Of IPv4 every block, of IPv6 those that are not all free. */
function blockCells(
  { cidr = '', prefixLength = 32, blocks = [], blockSize }: GetAddressMapResponseJson,
  linkOf: (cidr: string) => string,
): readonly Cell[] {
  const found = Object.fromEntries(blocks.map((one) => [one.cidr, one]))
  const names = cidr.includes(':')
    ? blocks.map((one) => one.cidr!)
    : stepsOf(cidr, prefixLength).map((base) => `${textOf(base)}/${prefixLength}`)
  return names.map((name) => blockCell(name, found[name] ?? {}, Number(blockSize), linkOf(name)))
}

/** Parts of a block from its foot: a block is mostly full, or mostly not. */
function blockCell(cidr: string, block: MapBlockJson, size: number, link: string): Cell {
  let from = 0
  const stops = HELD.map((part) => {
    const to = Math.min(100, from + ((block[part] ?? 0) / size) * 100)
    const stop = `var(--${part}) ${from}% ${to}%`
    from = to
    return stop
  })
  const said = HELD.filter((part) => block[part]).map((part) => `${block[part]!.toLocaleString()} ${part}`)
  return {
    title: `${cidr}: ${said.join(', ') || 'nothing'} of ${size.toLocaleString()}`,
    label: shortOf(cidr),
    link,
    fill: `linear-gradient(to top, ${stops.join(', ')}, var(--free) ${from}%)`,
  }
}

/** `.5`, `.5.0/24`, `:2a` */
const shortOf = (text: string) =>
  text.includes(':')
    ? `:${text.replace(/\/.*/, '').split(':').filter(Boolean).at(-1)}`
    : `.${text
        .split('.')
        .slice(text.includes('/') ? 1 : 3)
        .join('.')}`

/** Of IPv4 every address of the CIDR, of IPv6 those that were ever leased. */
function addressCells(
  { cidr = '', prefixLength = 32, addresses = [], excluded = [] }: GetAddressMapResponseJson,
  linkOf: (address: string) => string,
): readonly Cell[] {
  const cellOf = (address: string, found: MapAddressJson | undefined, other: string): Cell => {
    const state = found?.state ?? other
    const owner = found?.ownerName
      ? ` ${found.ownerKind} ${found.ownerName}${found.node ? ` on ${found.node}` : ''}`
      : ''
    return {
      title: `${address} ${state}${owner}`,
      label: shortOf(address),
      link: linkOf(address),
      part: state.toLowerCase(),
    }
  }
  if (cidr.includes(':')) return addresses.map((one) => cellOf(one.address!, one, ''))
  const byNumber: Record<number, MapAddressJson> = {}
  for (const one of addresses)
    for (const step of stepsOf(`${one.address}/${one.prefixLength}`, prefixLength)) byNumber[step] = one
  const never = excluded.map((text) => text.split('-').map(numberOf))
  return stepsOf(cidr, prefixLength).map((value) => {
    const isExcluded = never.some(([from, to = from]) => value >= from! && value <= to!)
    return cellOf(textOf(value), byNumber[value], isExcluded ? 'EXCLUDED' : 'FREE')
  })
}

const SPANS = { '6 hours': 6, '24 hours': 24, '7 days': 168, '90 days': 2160 } as const

/** How full it was, by samples of a minute, and how fast it changes. */
function Trend({ network, pool }: { readonly network: string; readonly pool: string }) {
  const [hours, setHours] = useState(6)
  const { answer, failure } = useAnswer(
    (signal) => {
      const from = new Date(Date.now() - hours * 3_600_000).toISOString()
      return call('PoolService', 'listPoolTrends', { network, pool, from, samples: 360 }, signal)
    },
    [network, pool, hours],
  )
  const { trends: [trend] = [], countedFrom } = answer ?? {}
  if (failure) return html`<p class="failure" role="alert">${failure.message}</p>`
  if (trend === undefined) return null
  return html`
    <p><${TrendSaid} trend=${trend} since=${countedFrom} /> <label>Over <select value=${hours} onChange=${(event: Event) => setHours(Number((event.target as HTMLSelectElement).value))}>
      ${Object.entries(SPANS).map(([title, of]) => html`<option value=${of}>${title}</option>`)}</select></label></p>
    ${(trend.samples?.length ?? 0) < 2 ? html`<p class="quiet">There are no samples yet: a job counts once a minute.</p>` : html`<${Chart} key=${hours} samples=${trend.samples!} />`}`
}

export function TrendSaid({
  trend,
  since,
}: {
  readonly trend: PoolTrendJson
  readonly since: string | undefined
}) {
  const { made = 0, ended = 0, leasesPerHour = 0, exhaustedIn } = trend
  const seconds = Number(exhaustedIn?.replace('s', ''))
  const rest =
    seconds > 172_800 ? `${Math.floor(seconds / 86_400)} days` : `${(seconds / 3_600).toFixed(1)} hours`
  const grows =
    leasesPerHour > 0 &&
    `; by the samples of the last hour it grows by ${leasesPerHour.toLocaleString()} an hour`
  return html`${made.toLocaleString()} made and ${ended.toLocaleString()} ended since <${Time} at=${since} short />${grows}${exhaustedIn && `: nothing is free in ${rest}`}.`
}

/** With an empty sample in each gap, so that no line is drawn over a time in which nothing was counted. */
function withGaps(samples: readonly PoolSampleJson[]): readonly PoolSampleJson[] {
  const times = samples.map(({ time }) => Date.parse(time!))
  const steps = times.slice(1).map((time, index) => time - times[index]!)
  const usual = steps.toSorted((a, b) => a - b)[Math.floor(steps.length / 2)]!
  return samples.flatMap((one, index) => {
    const isLate = times[index]! - times[index - 1]! > 3 * usual
    return isLate ? [{ time: new Date(times[index]! - 1).toISOString() }, one] : [one]
  })
}

function Chart({ samples }: { readonly samples: readonly PoolSampleJson[] }) {
  const element = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const shown = withGaps(samples)
    const span = Date.parse(samples.at(-1)!.time!) - Date.parse(samples[0]!.time!)
    // A canvas knows no light-dark().
    const { color: ink, borderTopColor: line } = getComputedStyle(element.current!)
    const color = (part: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${part}`)
    const axis = { stroke: ink, grid: { stroke: line } }
    const ticks = span > 86_400_000 ? '{YYYY}-{MM}-{DD}' : '{HH}:{mm}'
    const options = {
      width: element.current!.clientWidth,
      height: 180,
      series: [
        { value: '{YYYY}-{MM}-{DD} {HH}:{mm}' },
        ...HELD.map((part) => ({ label: part, stroke: color(part), width: 2 })),
      ],
      axes: [
        { ...axis, values: ticks, space: 90 },
        { ...axis, size: 70 },
      ],
    }
    const values = HELD.map((part) => shown.map(({ usage }) => (usage ? Number(usage[part]) : null)))
    const times = shown.map(({ time }) => Date.parse(time!) / 1_000)
    const chart = new uPlot(options, [times, ...values], element.current!)
    const fit = () => chart.setSize({ width: element.current!.clientWidth, height: 180 })
    addEventListener('resize', fit)
    return () => {
      removeEventListener('resize', fit)
      chart.destroy()
    }
  }, [samples])
  return html`<div ref=${element} class="chart" role="img" aria-label="Active, reserved, quarantined and cooling leases over time"></div>`
}
