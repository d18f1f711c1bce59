/**
 * Callers: whoever starts, moves, restarts and ends workloads and asks ipledger for their addresses. They keep to the
 * contract (`confirmBy`, a refused Confirm, removal before Release); where a fault makes one break it, its life is excused.
 */
import type { Answer, Command, LeaseView, Reserve } from '../../../src/next/core/command.ts'
import type { Owner } from '../../../src/next/core/owner.ts'
import type { Refusal } from '../../../src/next/core/refusal.ts'
import type { Processes } from './processes.ts'
import { has, type Life, MINUTE, NETWORK, SECOND, type World } from './world.ts'

export type Callers = { start(): void; endAll(): void }

/** Longest time from an answer until the workload uses its address, or between two uses: less than any age of the judge. */
const LONGEST_START = 3.5 * MINUTE
const BLOCKS = 'blocks'

export function createCallers(world: World, processes: Processes): Callers {
  const { random } = world
  let lives = 0
  let calls = 0
  const generations = new Map<string, number>()
  let isOver = false
  /** Of names without incarnations: their lives follow each other. */
  const taken = new Set<string>()

  const envelope = (cause: string, requestId: string | null = null) => ({
    network: NETWORK,
    actor: { name: 'caller', node: null },
    cause,
    requestId,
    fingerprint: requestId,
    traceId: `t${++calls}`,
  })

  /**
   * Sends a command to some process. Calls get lost on either way, take their time, and may be delivered once more much
   * later. `undefined`: no answer came.
   */
  function send(command: Command, answered: (answer: Answer | Refusal | undefined) => void): void {
    let isDone = false
    const done = (answer: Answer | Refusal | undefined) => {
      if (isDone) return
      isDone = true
      answered(answer)
    }
    const deliver = (one: Command, then: typeof done) => {
      const process = processes.any()
      if (process === null) {
        world.at(SECOND, () => then(undefined))
        return
      }
      processes.call(process, one, (outcome) => {
        const answer = outcome.ok ? outcome.answer : outcome.refusal
        if (has(world, 'answersAreLost') && random.chance(0.1)) return
        if (has(world, 'callsAreSlow') && random.chance(0.2))
          world.at(random.below(3 * SECOND), () => then(answer))
        else then(answer)
      })
    }
    const isDelicate = command.type === 'release' && command.lease.owner?.incarnation === ''
    const isSlow = has(world, 'callsAreSlow') && random.chance(0.2)
    const isLost = has(world, 'answersAreLost') && random.chance(0.05)
    if (isSlow) world.at(random.below(5 * SECOND), () => deliver(command, done))
    else if (!isLost) deliver(command, done)
    if (has(world, 'callsRepeatLate') && random.chance(0.1) && !isDelicate)
      world.at(random.below(80 * SECOND), () => deliver({ ...command, traceId: `t${++calls}` }, () => {}))
    world.afterwards(() => {
      if (!isDone) world.at(20 * SECOND, () => done(undefined))
    })
  }

  // A life.

  function start(of?: { readonly name: string; readonly kind: string }): void {
    if (isOver) return
    const strangers = has(world, 'strangersAppear') && random.chance(0.1)
    const kind =
      of?.kind ?? (random.chance(0.03) ? 'infrastructure' : random.pick(['container', 'pod', 'pod']))
    const name = of?.name ?? `w${random.below(16)}`
    const isNameless = kind === 'container' && name.endsWith('3')
    if (isNameless && taken.has(name)) return
    const generation = (generations.get(name) ?? 0) + 1
    generations.set(name, generation)
    lives += 1
    const owner: Owner = {
      kind,
      name,
      uid: kind === 'pod' ? `${name}-${generation}` : name,
      incarnation: isNameless ? '' : String(generation),
      interface: 'eth0',
    }
    const life: Life = {
      id: lives,
      owner,
      generation,
      node: random.pick(world.nodes),
      state: 'asking',
      unit: null,
      address: null,
      token: 0,
      deadline: null,
      excuse: null,
      endedAt: 0,
      isHidden: false,
      isCovered: kind !== 'infrastructure',
    }
    if (strangers) {
      appear(life)
      return
    }
    if (isNameless) taken.add(name)
    world.lives.add(life)
    world.byUid.set(`${owner.kind} ${owner.uid}`, life)
    world.tell(() => `life ${life.id} is ${owner.name}/${owner.incarnation} on ${life.node.name}`)
    reserve(life)
  }

  /** Uses an address that it never asked for, and that ipledger can only be told of. */
  function appear(life: Life): void {
    const address = `10.0.0.${random.between(1, 14)}`
    const isKnown = random.chance(0.5)
    const stranger: Life = {
      ...life,
      owner: isKnown
        ? { ...life.owner, name: `s${life.id}`, uid: `s${life.id}` }
        : { ...life.owner, kind: 'stranger', uid: `s${life.id}` },
      state: 'running',
      excuse: 'a stranger',
    }
    world.lives.add(stranger)
    world.byUid.set(`${stranger.owner.kind} ${stranger.owner.uid}`, stranger)
    world.use(stranger, address, address)
    world.tell(() => `stranger ${stranger.id} takes ${address} on ${stranger.node.name}`)
    world.at(random.between(2 * MINUTE, 20 * MINUTE), () => end(stranger, 'forgotten'))
  }

  function reserve(life: Life): void {
    const { owner, id } = life
    const isBlock = id % 7 === 0
    const confirmWithinMs = random.chance(0.4) ? random.between(20 * SECOND, 90 * SECOND) : null
    const named = !isBlock && random.chance(0.15) ? `10.0.0.${random.between(1, 15)}` : null
    const command: Reserve = {
      ...envelope('Reserve', random.chance(0.3) ? `reserve ${id} ${calls}` : null),
      type: 'reserve',
      owner,
      node: life.node.name,
      labels: {},
      claims: [{ pools: [isBlock ? BLOCKS : 'pool'], address: named, preferPrevious: random.chance(0.3) }],
      liveAddresses: has(world, 'callersSeeGhosts') && random.chance(0.5) ? ghosts() : [],
      confirmWithinMs,
      confirmed: confirmWithinMs === null && random.chance(0.3),
      validateOnly: random.chance(0.02),
    }
    // The promise is counted from the first time that it was asked for: a repeated request is answered as it was.
    const deadline = confirmWithinMs === null ? null : world.now + confirmWithinMs
    const ask = (attempt: number): void => {
      if (life.state !== 'asking') return
      send({ ...command, traceId: `t${++calls}` }, (answer) => {
        if (life.state !== 'asking') return
        const isRefused = answer !== undefined && 'reason' in answer
        const [lease] = answer === undefined || isRefused ? [] : answer.leases
        if (lease !== undefined && !command.validateOnly && lease.state !== 'QUARANTINED')
          promised(life, lease, lease.state === 'ACTIVE' ? null : deadline)
        else if (
          attempt < 3 &&
          !(isRefused && answer.retryAfterMs === undefined) &&
          !command.validateOnly &&
          (!isRefused || attempt === 0)
        )
          world.at(random.between(SECOND, 15 * SECOND), () => ask(attempt + 1))
        else end(life, 'forgotten')
      })
    }
    ask(0)
  }

  /** Twenty in a row, so that a Reserve that meets one meets them all. */
  const ghosts = () => {
    const from = random.between(1, 200)
    return Array.from({ length: 20 }, (_, i) => `10.0.0.${from + i}`)
  }

  function promised(life: Life, lease: LeaseView, deadline: number | null): void {
    const { address: unit, fencingToken, prefixLength, state } = lease
    world.use(life, unit, prefixLength === 124 ? `${unit.endsWith('::') ? unit : unit.slice(0, -1)}5` : unit)
    life.token = fencingToken
    life.state = 'pending'
    life.deadline = deadline
    const isActive = state === 'ACTIVE'
    world.tell(() => `life ${life.id} is promised ${unit} #${fencingToken} on ${life.node.name}`)
    if (deadline !== null) {
      world.at(deadline - world.now, () => {
        if (life.deadline === deadline && life.unit === unit) giveUp(life)
      })
    }
    if (has(world, 'callersDie') && random.chance(0.15)) {
      if (random.chance(0.5)) end(life, 'forgotten')
      else {
        // The workload goes on, and nobody confirms it.
        if (life.deadline !== null) life.excuse = 'its caller died'
        life.deadline = null
        run(life)
      }
      return
    }
    const most =
      has(world, 'confirmsAreLate') || world.faults.has('startsAreUnseen') ? LONGEST_START : 20 * SECOND
    world.at(random.below(most), () => {
      if (life.state !== 'pending' || life.unit !== unit) return
      run(life)
      if (!isActive && (life.deadline !== null || random.chance(0.7))) confirm(life, 0)
    })
  }

  function run(life: Life): void {
    life.state = 'running'
    world.tell(() => `life ${life.id} runs at ${life.address} on ${life.node.name}`)
    const lasts = random.chance(0.3)
      ? random.between(20 * SECOND, 2 * MINUTE)
      : random.between(2 * MINUTE, 40 * MINUTE)
    world.at(lasts, () => leave(life))
    if (random.chance(0.15)) world.at(random.below(lasts), () => askAgain(life))
  }

  function confirm(life: Life, attempt: number): void {
    const { owner, token, unit } = life
    if (life.state !== 'running' || unit === null) return
    const byToken = random.chance(0.5) || owner.incarnation === ''
    const command: Command = {
      ...envelope('Confirm', random.chance(0.3) ? `confirm ${life.id} ${token}` : null),
      type: 'confirm',
      lease: byToken ? { token, owner } : { token: null, owner },
    }
    send(command, (answer) => {
      if (life.unit !== unit) return
      if (answer !== undefined && 'leases' in answer) {
        life.deadline = null
        return
      }
      const mayHelp =
        answer === undefined ||
        answer.reason === 'DATABASE_UNAVAILABLE' ||
        answer.reason === 'OUTCOME_UNKNOWN' ||
        answer.reason === 'DEADLINE_EXCEEDED'
      if (!mayHelp) giveUp(life)
      else if (attempt < 5) world.at(random.between(SECOND, 10 * SECOND), () => confirm(life, attempt + 1))
    })
  }

  /** Unconfigures the address: its promise is over. */
  function giveUp(life: Life): void {
    world.tell(() => `life ${life.id} gives ${life.unit} up`)
    end(life, 'forgotten')
  }

  /** The same attachment asks once more: after a restart, for another node, or just so. */
  function askAgain(life: Life): void {
    if (life.state !== 'running' || life.unit === null) return
    const moves = has(world, 'livesMove') && random.chance(0.5)
    const to = moves ? random.pick(world.nodes) : life.node
    const { unit } = life
    const command: Reserve = {
      ...envelope('Reserve'),
      type: 'reserve',
      owner: life.owner,
      node: to.name,
      labels: {},
      claims: [{ pools: [life.id % 7 === 0 ? BLOCKS : 'pool'], address: null, preferPrevious: true }],
      liveAddresses: [],
      confirmWithinMs: null,
      confirmed: false,
      validateOnly: false,
    }
    send(command, (answer) => {
      const [lease] = answer !== undefined && 'leases' in answer ? answer.leases : []
      // Given another one: it keeps what it has, which is in quarantine for whatever reason, and gives the new one back.
      if (life.unit !== unit || life.state !== 'running') return
      if (lease !== undefined && lease.address !== unit) {
        giveBack(life, lease.fencingToken)
        return
      }
      if (lease === undefined || to === life.node) return
      life.isHidden = true
      world.tell(() => `life ${life.id} moves from ${life.node.name} to ${to.name}`)
      world.at(random.below(LONGEST_START), () => {
        life.node = to
        life.isHidden = false
      })
    })
  }

  function giveBack(life: Life, token: number): void {
    send(
      {
        ...envelope('Release'),
        type: 'release',
        removalConfirmed: true,
        lease: { token, owner: life.owner },
      },
      () => {},
    )
  }

  function leave(life: Life): void {
    if (life.state !== 'running') return
    const { owner, token } = life
    if (has(world, 'livesRestart') && random.chance(0.3)) {
      restart(life)
      return
    }
    const byToken = owner.incarnation === '' || random.chance(0.5)
    const releases = (removalConfirmed: boolean, attempt = 0): void => {
      const command: Command = {
        ...envelope('Release', random.chance(0.3) ? `release ${life.id} ${token} ${removalConfirmed}` : null),
        type: 'release',
        removalConfirmed,
        lease: byToken ? { token, owner } : { token: null, owner },
      }
      send(command, (answer) => {
        if (answer === undefined && attempt < 3 && owner.incarnation !== '')
          world.at(random.between(SECOND, 20 * SECOND), () => releases(removalConfirmed, attempt + 1))
        else if (has(world, 'releasesRepeat') && random.chance(0.3) && owner.incarnation !== '')
          world.at(random.below(90 * SECOND), () => releases(removalConfirmed, 3))
      })
    }
    const chance = random.next()
    if (has(world, 'livesOverlap') && chance < 0.35) {
      // Its successor starts first; it is told to end a while later, or is forgotten.
      start({ name: owner.name, kind: owner.kind })
      world.at(random.between(10 * SECOND, 10 * MINUTE), () => {
        end(life, 'overlapping')
        if (random.chance(0.5)) releases(true)
      })
    } else if (chance < 0.5) {
      end(life, 'released')
      releases(true)
    } else if (chance < 0.65) {
      releases(false)
      world.at(random.between(SECOND, 8 * MINUTE), () => end(life, 'later'))
    } else if (has(world, 'releasesAreEarly') && chance < 0.75) {
      life.excuse = 'released while it runs'
      releases(true)
      world.at(random.between(10 * SECOND, 10 * MINUTE), () => end(life, 'later'))
    } else end(life, 'forgotten')
    if (random.chance(0.5))
      world.at(random.below(MINUTE), () => start({ name: owner.name, kind: owner.kind }))
  }

  /** Stops, is away for a while, and asks for its address again before it uses it. */
  function restart(life: Life): void {
    world.tell(() => `life ${life.id} stops`)
    world.drop(life)
    life.state = 'asking'
    const away = random.chance(0.5) ? random.between(SECOND, MINUTE) : random.between(MINUTE, 30 * MINUTE)
    // Its node knows nothing of it meanwhile, or knows that it has ended.
    life.endedAt = world.now
    world.at(away, () => {
      if (life.state === 'asking') reserve(life)
    })
  }

  function end(life: Life, how: string): void {
    if (life.state === 'gone') return
    world.tell(
      () => `life ${life.id} (${life.owner.name}/${life.owner.incarnation}) ends at ${life.unit}: ${how}`,
    )
    world.drop(life)
    life.state = 'gone'
    life.endedAt = world.now
    world.lives.delete(life)
    // Lives that nobody tells apart must not meet each other's calls.
    if (life.owner.incarnation === '') world.at(2 * MINUTE, () => taken.delete(life.owner.name))
  }

  const most = random.between(6, 24)
  function keepStarting(): void {
    if (!world.isCalm && world.lives.size < most) start()
    if (!world.isCalm) world.at(random.between(SECOND, MINUTE), keepStarting)
  }

  return {
    start: keepStarting,
    endAll() {
      isOver = true
      for (const life of [...world.lives]) end(life, 'the world ends')
    },
  }
}
