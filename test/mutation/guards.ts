/**
 * Every guard that protects a live address (DESIGN §4; INV-2 to 7, 12, 16, 21, 24), as what has to be taken out of the
 * source for it to be gone, and the test that must then fail (16.9: a test that passes without its guard is worthless).
 * `run.ts` takes them out one at a time; a text that is not exactly once in its file fails `test/unit/guards.test.ts`.
 */
export type Guard = {
  /** What it is, in words. */
  readonly guard: string
  readonly file: string
  /** Exactly once in the file. */
  readonly text: string
  readonly replacement: string
  /** A file of tests, of which at least one fails. */
  readonly fails: string
}

const JUDGE = 'src/core/judge.ts'
const JUDGE_TEST = 'test/unit/judge.test.ts'
const RECOVERED_TEST = 'test/unit/judge-recovery.test.ts'
const PROVEN = 'src/core/decide-proven.ts'
const PROVEN_TEST = 'test/unit/proven.test.ts'
const SIGHTING = 'src/core/decide-sighting.ts'
const SIGHTING_TEST = 'test/unit/sightings.test.ts'
const RESERVE = 'src/core/decide-reserve.ts'
const STANDING = 'src/liveness/standing.ts'
const STANDING_TEST = 'test/unit/standing.test.ts'

function judge(guard: string, text: string, replacement: string): Guard {
  return { guard, file: JUDGE, text, replacement, fails: JUDGE_TEST }
}
function recovered(guard: string, text: string, replacement: string): Guard {
  return { guard, file: JUDGE, text, replacement, fails: RECOVERED_TEST }
}
function proven(guard: string, text: string, replacement: string): Guard {
  return { guard, file: PROVEN, text, replacement, fails: PROVEN_TEST }
}
function sighting(guard: string, text: string, replacement: string): Guard {
  return { guard, file: SIGHTING, text, replacement, fails: SIGHTING_TEST }
}
function standing(guard: string, text: string, replacement: string): Guard {
  return { guard, file: STANDING, text, replacement, fails: STANDING_TEST }
}

const ALL_STANDING =
  'const STANDING: readonly StandingRule[] = [notEnabled, cannotSee, isHeld, neverKnew, otherEra, notWarm]'
const without = (rule: string) =>
  ALL_STANDING.replace(rule, '').replace('[, ', '[').replace(', ,', ',').replace(', ]', ']')

/** Rules of the judge: what keeps a lease whatever is missing. */
const JUDGED: readonly Guard[] = [
  judge(
    'what an operator quarantined ends by an operator',
    '  operatorDecides,\n  infrastructureIsJudgedByWhomItNamed,\n',
    '  infrastructureIsJudgedByWhomItNamed,\n',
  ),
  judge(
    'infrastructure is judged by nobody unless named',
    '  operatorDecides,\n  infrastructureIsJudgedByWhomItNamed,\n  recoveryTakesNothing,',
    '  operatorDecides,\n  recoveryTakesNothing,',
  ),
  judge(
    'a network in recovery takes nothing back',
    '  recoveryTakesNothing,\n  evidenceIsOfTheBooksEra,\n]',
    '  evidenceIsOfTheBooksEra,\n]',
  ),
  judge(
    'evidence of an earlier era says nothing of a lease of this one',
    '  recoveryTakesNothing,\n  evidenceIsOfTheBooksEra,\n]',
    '  recoveryTakesNothing,\n]',
  ),
  judge(
    'whoever lists the address keeps it',
    'const ABSENCE: readonly Rule[] = [\n  seenLive,',
    'const ABSENCE: readonly Rule[] = [',
  ),
  judge(
    'a look-up that says live keeps it',
    'const ABSENCE: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,',
    'const ABSENCE: readonly Rule[] = [\n  seenLive,',
  ),
  judge(
    'a reservation is left alone until its deadline',
    '  confirmationIsPending,\n  tooYoung,\n  somebodyCanTell,',
    '  tooYoung,\n  somebodyCanTell,',
  ),
  judge(
    'minimum age since the last change',
    '  confirmationIsPending,\n  tooYoung,\n  somebodyCanTell,',
    '  confirmationIsPending,\n  somebodyCanTell,',
  ),
  judge(
    'a longer age for what nobody has seen',
    'const minimum = unseen ? policy.unwitnessedAgeMs : policy.minimumAgeMs',
    'const minimum = policy.minimumAgeMs',
  ),
  judge(
    'without anybody who can tell it is never missed',
    '  somebodyCanTell,\n  namedWitnessSpeaks,\n]',
    '  namedWitnessSpeaks,\n]',
  ),
  judge(
    'a named witness that is not there blocks',
    '  somebodyCanTell,\n  namedWitnessSpeaks,\n]',
    '  somebodyCanTell,\n]',
  ),
  judge(
    'a source of another node is no news of a lease it has never seen',
    "return scopeNode === '' || scopeNode === lease.placement.node\n}\n\n/** Whose silence",
    'return true\n}\n\n/** Whose silence',
  ),
  judge(
    'what a caller saw may be on any node',
    "if (lease.quarantine?.reason === 'SEEN_BY_CALLER') return false",
    '',
  ),
  judge(
    'a source covers nothing that it cannot see',
    "if (why !== 'COVERS' || !enabled || !canSee) return false",
    "if (why !== 'COVERS' || !enabled) return false",
  ),
  judge('a source in dry run proves nothing', ALL_STANDING, without('notEnabled')),
  judge('a source misses nothing that it cannot see', ALL_STANDING, without('cannotSee')),
  judge('a held source proves nothing', ALL_STANDING, without('isHeld')),
  judge('nobody misses what it never knew', ALL_STANDING, without('neverKnew')),
  judge('a source must have reported in this era', ALL_STANDING, without('otherEra')),
  judge('warm-up: a cold source proves nothing', ALL_STANDING, without('notWarm')),
  judge(
    'head causality: a snapshot begun before the lease changed is no miss of it',
    '[knewTheLease, begunAfterLastSighting, ofThisEra]',
    '[begunAfterLastSighting, ofThisEra]',
  ),
  judge(
    'one sighting by anyone starts the count again',
    '[knewTheLease, begunAfterLastSighting, ofThisEra]',
    '[knewTheLease, ofThisEra]',
  ),
  judge(
    'heads of an earlier era count for nothing',
    '[knewTheLease, begunAfterLastSighting, ofThisEra]',
    '[knewTheLease, begunAfterLastSighting]',
  ),
  judge('k counted misses of each witness', '[...STANDING, tooFewMisses]', '[...STANDING]'),
  judge(
    'a snapshot reported twice is one',
    'return new Set(snapshots.map(({ sequence }) => sequence)).size',
    'return snapshots.length',
  ),
  judge(
    'each witness must say that it is gone',
    '    inTheWay: judgeEach(witnesses, [notSaidGone], evidence, policy),',
    '    inTheWay: [],',
  ),
  judge(
    'a failed look-up means alive',
    'if (lookup === null || !(lookup.answer in FAILED)) return undefined',
    'return undefined',
  ),
  judge('dead gets a grace window', 'return now - since < policy.terminalGraceMs', 'return now - since < 0'),
  judge(
    'an answer in a proof is younger than a minute',
    'return now - at <= Math.max(policy.proofAgeMs, answersForMs)',
    'return true',
  ),
  judge(
    'of what a caller saw those enabled since count as well',
    "if (lease.quarantine?.reason === 'SEEN_BY_CALLER') return undefined",
    '',
  ),
  judge(
    'a list without the stopped ends nothing where nobody can be asked after',
    'if (about === null) return stoppedUnseen(witness)',
    'if (about === null) return undefined',
  ),
  judge(
    'an answer was given after whatever was last seen',
    'lookup.at > (lastSightedAt ?? Number.NEGATIVE_INFINITY) &&',
    'true &&',
  ),
  judge('an answer was given after whatever was last done', 'lookup.at >= changedAt(lease)', 'true'),
  judge(
    'a boot ends only what was placed on it',
    '[...STANDING, placedOnAnotherBoot, aliveSinceTheBoot]',
    '[...STANDING, aliveSinceTheBoot]',
  ),
  judge(
    'a boot ends nothing that was seen since',
    '[...STANDING, placedOnAnotherBoot, aliveSinceTheBoot]',
    '[...STANDING, placedOnAnotherBoot]',
  ),
  judge(
    'the source of a new boot must agree',
    'first.length > 0 ? first : judgeEach(ended, [notSaidGone], evidence, policy)',
    'first',
  ),
  judge(
    'a new boot ends nothing that anybody lists',
    'const NEW_BOOT: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,',
    'const NEW_BOOT: readonly Rule[] = [\n  lookedUpLive,',
  ),
  judge(
    'a new boot ends nothing that a look-up finds',
    'const NEW_BOOT: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,',
    'const NEW_BOOT: readonly Rule[] = [\n  seenLive,',
  ),
  judge(
    'a new boot ends nothing that was seen on another node',
    '  tooYoung,\n  seenOnAnotherNode,\n  othersWereThere,\n]',
    '  tooYoung,\n  othersWereThere,\n]',
  ),
  judge(
    'a new boot ends nothing that its source has never seen, though another has, before the longer age',
    '  tooYoungForItsNode,\n  tooYoung,\n',
    '  tooYoung,\n',
  ),
  judge(
    'a new boot ends nothing where others were seen',
    '  tooYoung,\n  seenOnAnotherNode,\n  othersWereThere,\n]',
    '  tooYoung,\n  seenOnAnotherNode,\n]',
  ),
  judge(
    'fencing frees nothing younger than the statement',
    'const FENCING: readonly Rule[] = [\n  youngerThanTheFence,',
    'const FENCING: readonly Rule[] = [',
  ),
  judge(
    'fencing frees nothing placed elsewhere',
    '  youngerThanTheFence,\n  placedOutsideTheFence,\n',
    '  youngerThanTheFence,\n',
  ),
  judge(
    'fencing frees nothing that others see',
    '  placedOutsideTheFence,\n  seenOutsideTheFence,\n',
    '  placedOutsideTheFence,\n',
  ),
  judge(
    'fencing frees nothing that a look-up finds',
    '  seenOutsideTheFence,\n  lookedUpLive,\n',
    '  seenOutsideTheFence,\n',
  ),
  judge(
    'fencing frees nothing that has spoken since',
    '  lookedUpLive,\n  fenceContradicted,\n',
    '  lookedUpLive,\n',
  ),
  judge(
    'fencing frees nothing that was seen on another node',
    '  fencedBootReports,\n  seenOnAnotherNode,\n',
    '  fencedBootReports,\n',
  ),
  judge(
    'fencing frees nothing of a boot that has reported since, listed or not',
    '  fenceContradicted,\n  fencedBootReports,\n',
    '  fenceContradicted,\n',
  ),
  judge(
    'a source of another node says nothing for having been named',
    "return !wasAskedFromElsewhere(evidence) && ['', scopeNode].includes(lease.placement.node)",
    'return !wasAskedFromElsewhere(evidence)',
  ),
  judge(
    'a named source says nothing of what was asked for from elsewhere since',
    "return !wasAskedFromElsewhere(evidence) && ['', scopeNode].includes(lease.placement.node)",
    "return ['', scopeNode].includes(lease.placement.node)",
  ),
  judge(
    'a longer age for what nobody has seen and a source of a node was named for',
    'return knowsRule(2, evidence) && holders.some((',
    'return false && holders.some((',
  ),
  judge(
    'a longer age for what was asked for from elsewhere, and was seen only where it was before',
    'return known.length === 0 || isOnItsWay(known, evidence)',
    'return known.length === 0',
  ),
  judge(
    'nor is it there before it was seen on each node that asked for it',
    'return askedFrom.some((asked) => !places.some((place) => place.node === asked && !isLeft(place)))',
    'return places.every(isLeft)',
  ),
  judge(
    'a fence and a boot end nothing that one of the whole network has seen elsewhere',
    "[{ node: scopeNode, boot: '' }, ...seenOn]",
    "[{ node: scopeNode, boot: '' }]",
  ),
  judge(
    'a fence and a boot end nothing that was seen in another boot',
    "return node !== placement.node || (boot !== '' && boot !== placement.boot)",
    'return node !== placement.node',
  ),
  judge(
    'fencing frees nothing where one that was retired had seen another',
    'const seen = knowsRule(2, evidence) ? [...witnesses, ...retired] : witnesses',
    'const seen = witnesses',
  ),
  judge(
    'a quarantine ends only when everybody else is said to be gone',
    'inTheWay: knowsRule(2, evidence) ? othersMayBeThere(others, evidence, policy) : [],',
    'inTheWay: [],',
  ),
  judge(
    'a quarantine does not end for want of a source that has seen another there',
    '    ...noWitnessWasRetired({ ...evidence, retired: retiredOthers }, policy),\n',
    '',
  ),
  judge(
    'a quarantine goes back to no closed life',
    'if (lease.owner === null || ownerClosed) return undefined',
    'if (lease.owner === null) return undefined',
  ),
  judge(
    'a quarantine goes back to no other life',
    'showing.every((witness) => isThisLife(witness, lease)) &&',
    'true &&',
  ),
  judge(
    'a quarantine ends only when nobody else is there',
    'others.every((witness) => isGoneFromHere(witness, evidence, policy)) &&',
    'true &&',
  ),
  judge(
    'a quarantine ends only after k snapshots of everybody',
    '[...own, ...others].every((witness) => showsNobodyElse(witness, evidence, policy))',
    'true',
  ),
  judge(
    'a new boot ends nothing that may still be confirmed',
    '  noWitnessWasRetired,\n  confirmationIsPending,\n  tooYoungForItsNode,\n',
    '  noWitnessWasRetired,\n  tooYoungForItsNode,\n',
  ),
  judge(
    'minimum age before a new boot ends anything',
    '  confirmationIsPending,\n  tooYoungForItsNode,\n  tooYoung,\n',
    '  confirmationIsPending,\n',
  ),
  judge(
    'a new boot ends nothing while asking anybody fails',
    '    ...judgeEach(evidence.witnesses, [askingFailed], evidence, policy),\n',
    '',
  ),
  judge(
    'a new boot of a source that is held, cold or in dry run ends nothing',
    '[...STANDING, placedOnAnotherBoot, aliveSinceTheBoot]',
    '[placedOnAnotherBoot, aliveSinceTheBoot]',
  ),
  judge(
    'fencing frees nothing where others were seen',
    '  seenOnAnotherNode,\n  othersWereThere,\n  promisedSinceTheFence,\n',
    '  seenOnAnotherNode,\n  promisedSinceTheFence,\n',
  ),
  judge('fencing frees nothing of a boot that nobody named', " || fencedBy!.boot === ''", ''),
  judge('nobody misses what was imported', '  if (imported) return ', '  if (false) return '),
  judge(
    'nobody misses what is older than the enabling of its source',
    'enabledHead === null || lease.fencingToken <= enabledHead',
    'enabledHead === null',
  ),
  judge(
    'a workload is who it is by kind and uid',
    '(owner.uidNamed ? owner.uid === seen.uid : owner.name === seen.name)',
    'owner.name === seen.name',
  ),
  judge(
    'a quarantine ends only by sources that stand',
    '    judgeEach([witness], STANDING, evidence, policy).length === 0 &&\n',
    '',
  ),
  judge(
    'a quarantine does not end while somebody unknown is seen there',
    '    placements.every((place) =>\n      sighted.some(({ source, live }) => source === place.source && live !== null),\n    ) &&\n',
    '',
  ),
]

/** The second look, under the lock. */
const LOOKED_AT_AGAIN: readonly Guard[] = [
  proven(
    'the version that was judged, or nothing',
    'versionMismatch(lease, command.version) ?? versionMismatch(lease, proof.version)',
    'versionMismatch(lease, proof.version)',
  ),
  proven(
    'the proof is of that version',
    'versionMismatch(lease, command.version) ?? versionMismatch(lease, proof.version)',
    'versionMismatch(lease, command.version)',
  ),
  proven('the proof is about that lease', 'if (proof.token !== lease.fencingToken)', 'if (false)'),
  proven('the proof is of this era', 'if (proof.era !== era)', 'if (false)'),
  proven('age of the proof', 'if (Math.abs(books.now - proof.at) > POLICY.proofAgeMs)', 'if (false)'),
  proven('the proof is judged again', 'if (verdict.verdict !== wanted)', 'if (false)'),
  proven(
    'a source that was retired proves nothing any more',
    "if (book === null || book.state !== 'ENABLED')",
    'if (book === null)',
  ),
  proven('a source that began anew proves nothing any more', 'if (book.epoch !== epoch)', 'if (false)'),
  proven('a source must stand in this era', 'if (book.era !== books.network!.era)', 'if (false)'),
  proven('a source must still be warm', 'return book.warm ? null :', 'return true ? null :'),
  proven(
    'a network that recovers is not reaped in',
    'const bad = recovering(books)\n  if (bad !== null) return refused(bad)',
    'void recovering',
  ),
  proven(
    'a hold stops the reap',
    'const hold = holdOf(books, source)\n    if (hold !== null)',
    'const hold = holdOf(books, source)\n    if (hold !== null && false)',
  ),
  proven('what was seen is looked at again under the lock', '    seenSince(books, lease, proof) ??\n', ''),
  proven('whoever sees it now keeps it', 'if (seen !== undefined) return seenLive(lease, seen)', ''),
  proven(
    'seen since the evidence was read',
    'if (lastSeenAt !== null && lastSeenAt > (proof.lastSightedAt ?? Number.NEGATIVE_INFINITY))',
    'if (false)',
  ),
  proven(
    'cap: more than a few and more than a share of reaps by the hour',
    "if (proof.cause === 'PROVEN_ABSENT') {",
    'if (false) {',
  ),
  proven(
    'cap: of each source as well as of the network',
    "return ['', ...sources].flatMap((source) => {\n    const before",
    "return [''].flatMap((source) => {\n    const before",
  ),
  proven(
    'cap: of the network as well as of each source',
    "return ['', ...sources].flatMap((source) => {\n    const before",
    'return sources.flatMap((source) => {\n    const before',
  ),
  proven(
    'a fenced boot that speaks again was fenced falsely',
    'return head === null ? listedAt < fencedSince(fence, fenced) : isBeforeFence(fence, head)',
    'return true',
  ),
  proven(
    'a fenced boot that reports again was fenced falsely for all of its leases',
    'return reportedAt > since\n',
    'return false\n',
  ),
  proven(
    'nothing is given back to a closed life',
    'if (closedIn(books, owner, lease.poolId)) {',
    'if (false) {',
  ),
  proven(
    'nothing is given back while another is there',
    'if (other !== undefined) return refused(seenLive(lease, other))',
    '',
  ),
  proven(
    'the proof is enough for the reap policy of now',
    'if (rejudge(proof, judgePolicy(pool.reapPolicy)).verdict !== wanted)',
    'if (false)',
  ),
  proven(
    'a hold of the network stops the reap',
    "for (const source of ['', ...sources]) {",
    'for (const source of sources) {',
  ),
  proven(
    'a hold of each source stops the reap',
    "for (const source of ['', ...sources]) {",
    "for (const source of ['']) {",
  ),
  proven(
    'what a fenced boot listed is life for every other ground',
    "proof.cause !== 'FENCED' || fenced === null ||",
    'fenced === null ||',
  ),
  proven(
    'a fence names the boot: the node comes back with another',
    "if (boot === '') return refused(",
    'if (false) return refused(',
  ),
  proven(
    'nothing is given back to one who is seen there no more',
    'if (live.length === 0) return refused(',
    'if (false) return refused(',
  ),
]

/** What is seen is kept, and on evidence no older than the books. */
const SIGHTED: readonly Guard[] = [
  sighting('a closed epoch says nothing', 'if (source.epoch !== command.epoch) {', 'if (false) {'),
  sighting(
    'dry run: findings change nothing',
    "const dry = command.dryRun || source.state !== 'ENABLED'",
    'const dry = command.dryRun',
  ),
  sighting(
    'what is listed no more when the job comes is nothing',
    "if (listed === undefined) return nothing('LISTED_NO_MORE')\n  const { head } = listed",
    'const { head } = listed ?? { head: books.head }',
  ),
  sighting('evidence without a head decides nothing', "if (head === null) return nothing('NOT_PROVEN')", ''),
  sighting(
    'evidence older than the last event on the address decides nothing',
    'head < lastEventOf(standing)',
    'false',
  ),
  sighting('evidence of an earlier era decides nothing', 'eraOf(head) !== books.network!.era ||', ''),
  sighting(
    'quarantine cap of a source',
    'quarantinesOfSource(books, command.source) >= POLICY.quarantinesPerSource ||',
    '',
  ),
  sighting('quarantine cap of a pool', 'book.counts.quarantined >= quarantineCap(book.pool)', 'false'),
  sighting('a closed life is not adopted', 'if (closed !== undefined) {', 'if (false) {'),
  sighting(
    'nobody known is not adopted',
    'if (owner === null || !owner.uidNamed) {',
    'if (owner === null) {',
  ),
  sighting('a second address is set aside', 'if (other !== undefined) {', 'if (false) {'),
  sighting('a fenced node is not believed', 'if (fence !== null) {', 'if (false) {'),
  sighting('exclusions are nobody’s', 'if (!contains(pool.allocatable, address.value))', 'if (false)'),
  sighting(
    'seen for another than its holder is a conflict',
    "known === 'OTHER' ? 'SIGHTED_FOR_ANOTHER' : 'SIGHTED_FOR_UNKNOWN'",
    "'SIGHTED_FOR_UNKNOWN'",
  ),
  sighting(
    'what the database vetoed is given to nobody who is seen there',
    "if (books.setAside.has(address.text)) return nothing('SET_ASIDE')",
    '',
  ),
]

/** What a source counts for. */
const SOURCES: readonly Guard[] = [
  standing(
    'complete: a partial report counts for nothing',
    'const complete = because.length === 0',
    'const complete = true',
  ),
  standing(
    'complete: out of sequence is partial',
    "if (facts.begun !== null && !inOrder) because.push('OUT_OF_SEQUENCE')",
    '',
  ),
  standing('a closed epoch is closed for good', "if (facts.epochClosed) because.push('CLOSED_EPOCH')", ''),
  standing(
    'warm-up: nothing counts before it',
    "if (opensEpoch || !standing.warm) return 'WARM_UP'",
    "if (opensEpoch) return 'WARM_UP'",
  ),
  standing(
    'warm-up: a set that grows is not whole',
    'if (warming === null || size > warming.size) {',
    'if (warming === null) {',
  ),
  standing(
    'warm-up: nothing ends before it',
    'ends: complete && !opensEpoch && warmUp(standing, facts).warm',
    'ends: complete',
  ),
  standing(
    'counted snapshots are half an interval apart',
    "return isSpaced(lastCountedAt(standing), facts) ? null : 'TOO_SOON'",
    'return null',
  ),
  standing(
    'a gap starts the count again',
    'begunAt > complete.begunAt + POLICY.gapIntervals * facts.intervalMs',
    'false',
  ),
  standing('a new era starts the count again', 'complete.era !== facts.era ||', ''),
  standing(
    'a new epoch starts the count again',
    '        warming: null,\n        streakFrom: standing.counted,',
    '        warming: null,',
  ),
  standing(
    'enabling starts the count',
    'return { ...standing, streakFrom: standing.counted }',
    'return standing',
  ),
  standing(
    'warm-up: its two looks are half an interval apart',
    '  if (!isSpaced(warming.begunAt, facts)) return { warm, warming }\n',
    '',
  ),
  {
    guard: 'a snapshot token is signed',
    file: 'src/liveness/snapshot-token.ts',
    text: 'if (bytes.length !== expected.length || !timingSafeEqual(bytes, expected)) return null',
    replacement: '',
    fails: 'test/unit/snapshot-token.test.ts',
  },
  {
    guard: 'what cannot be read is not passed over',
    file: 'src/liveness/entries.ts',
    text: 'if (isMalformed(address)) return readMeant(text, address.malformed, scope)',
    replacement: "if (isMalformed(address)) return 'ignored'",
    fails: 'test/unit/entries.test.ts',
  },
  {
    guard: 'an address in a spelling that is refused is in use all the same',
    file: 'src/liveness/entries.ts',
    text: '  const meant = addressMeant(text)\n',
    replacement: '  const meant = null as ReturnType<typeof addressMeant>\n',
    fails: 'test/unit/entries.test.ts',
  },
]

/** What is handed out. */
const HANDED_OUT: readonly Guard[] = [
  {
    guard: 'untouched space that is seen live is no candidate',
    file: 'src/core/books.ts',
    text: 'if (book.sighted.has(address)) seen.add(address)\n      else yield address',
    replacement: 'yield address',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'a recycled address that is seen live is no candidate',
    file: 'src/core/books.ts',
    text: 'if (isSeenAtFree(books, book, released)) seen.add(released.address)\n    else yield released.address',
    replacement: 'yield released.address',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'what a silent source listed before the last event stays listed, unless it is the one that let go',
    file: 'src/core/books.ts',
    text: '  return holder.owner !== null && isItself(seen, holder.owner)\n',
    replacement: '  return true\n',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'a Release says nothing of another node',
    file: 'src/core/books.ts',
    text: "  if (isElsewhere && holder.node !== '' && seen.node !== '') return false\n",
    replacement: '',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'nor the Release of a block of guests on another node',
    file: 'src/core/books.ts',
    text: "  if (isBlock) return seen.node !== '' && !isElsewhere\n",
    replacement: '  if (isBlock) return true\n',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'a reap says nothing of what is listed, but of a boot that is fenced',
    file: 'src/core/books.ts',
    text: '  if (released.removalConfirmed && holder !== null && isRemovedWith(holder, released, seen)) return true\n  return fence !== null && isBeforeFence(fence, head)',
    replacement: '  return true',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'a named address goes by the same',
    file: RESERVE,
    text: '  return live.filter((seen) => !isOwn(seen) && !isRefuted(books, seen, released, holder))',
    replacement:
      '  return live.filter((seen) => !isOwn(seen) && (seen.head === null || seen.head >= released.releasedSeq))',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'a Release says nothing of any node where another has asked for the lease',
    file: 'src/core/books.ts',
    text: "  if (holder.isMoved && seen.node !== '') return false\n",
    replacement: '',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'the node that a workload left does not end its lease, nor one of several that asked',
    file: 'src/core/decide-lease.ts',
    text: '  if (askedFrom.length > 1 || askedFrom[0] !== actor.node) {',
    replacement: '  if (actor.node === askedFrom.join()) {',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'the node that asked does not end a lease that is seen on another',
    file: 'src/core/decide-lease.ts',
    text: "  const seen = live.find(({ node }) => node !== '' && node !== actor.node)\n",
    replacement: '  const seen = live.find(() => false)\n',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'nor does it hand it on',
    file: RESERVE,
    text: '      const bad = mayEnd(books, command.actor, lease)\n',
    replacement: '      const bad = mayTouch(command.actor, lease)\n',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'nobody is told the lease of another whose uid is its name',
    file: RESERVE,
    text: '    const bad = mistaken(owner, lease)\n',
    replacement: '    const bad = mistaken(lease.owner!, lease)\n',
    fails: 'test/unit/reserve.test.ts',
  },
  {
    guard: 'cooling: an address rests between two holders',
    file: 'src/core/books.ts',
    text: '    if (released.availableAt > books.now) continue\n',
    replacement: '',
    fails: 'test/unit/candidates.test.ts',
  },
  {
    guard: 'cooling: an address that is named rests as well',
    file: RESERVE,
    text: 'const cooling = released !== null && released.availableAt > books.now',
    replacement: 'const cooling = false',
    fails: 'test/unit/cooling.test.ts',
  },
  {
    guard: 'fencing of a Release: what has ended is touched no more',
    file: 'src/core/decide-lease.ts',
    text: 'const bad = mayTouch(command.actor, found.ended.lease) ?? matches(reference, found.ended.lease)',
    replacement: 'const bad = mayTouch(command.actor, found.ended.lease)',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'cooling covers two reports of the slowest source',
    file: 'src/core/books.ts',
    text: 'return Math.max(pool.cooldownMs, POLICY.cooldownIntervals * books.slowestIntervalMs)',
    replacement: 'return pool.cooldownMs',
    fails: PROVEN_TEST,
  },
  {
    guard: 'a named address that is seen live is refused',
    file: RESERVE,
    text: '(one) => !isItself(one, command.owner),',
    replacement: '(one) => false && !isItself(one, command.owner),',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'a previous address that is seen live is not given back',
    file: RESERVE,
    text: '!isSetAside(books, picking, previous) &&\n      !isSeen(books, command, book, succession, previous)',
    replacement: '!isSetAside(books, picking, previous)',
    fails: 'test/unit/sighted-candidates.test.ts',
  },
  {
    guard: 'what its caller sees live is not handed out',
    file: RESERVE,
    text: "if (!seenLive(book, picking, address)) return 'taken'",
    replacement: "return 'taken'",
    fails: 'test/unit/live-addresses.test.ts',
  },
  {
    guard: 'quarantine cap of a caller',
    file: RESERVE,
    text: 'quarantinesCausedBy(books, command.actor.name) + picking.quarantines.length >=\n    POLICY.quarantinesPerCaller',
    replacement: 'false',
    fails: 'test/unit/live-addresses.test.ts',
  },
  {
    guard: 'quarantine cap of a pool, for callers',
    file: RESERVE,
    text: 'if (book.counts.quarantined + inPool >= quarantineCap(book.pool)) return',
    replacement: '',
    fails: 'test/unit/live-addresses.test.ts',
  },
  {
    guard: 'a STRICT pool waits for its sources',
    file: RESERVE,
    text: "pool.liveness === 'STRICT' ? staleness(books, command, pool) : null",
    replacement: 'null',
    fails: 'test/unit/strict.test.ts',
  },
  {
    guard: 'a network that is not READY hands out nothing',
    file: RESERVE,
    text: "if (state === 'READY') return null",
    replacement: 'return null',
    fails: 'test/unit/networks.test.ts',
  },
  {
    guard: 'a closed life reserves nothing',
    file: RESERVE,
    text: 'if (!command.reopen && closedIn(books, owner, pool.poolId)) {',
    replacement: 'if (false) {',
    fails: 'test/unit/closing.test.ts',
  },
  {
    guard: 'the owner limit bounds a crash loop',
    file: RESERVE,
    text: 'if (filling.length < pool.ownerLimit) return null',
    replacement: 'return null',
    fails: 'test/unit/supersede.test.ts',
  },
  {
    guard: 'fencing of a Release: by owner it names an incarnation',
    file: 'src/core/decide-lease.ts',
    text: "if (incarnation === '')\n      return refused(invalid('owner.incarnation'",
    replacement: "if (false)\n      return refused(invalid('owner.incarnation'",
    fails: 'test/unit/closing.test.ts',
  },
  {
    guard: 'a Release without confirmed removal frees nothing',
    file: 'src/core/decide-lease.ts',
    text: "command.removalConfirmed ? 'RELEASE_CONFIRMED' : 'RELEASE_UNCONFIRMED'",
    replacement: "'RELEASE_CONFIRMED'",
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'a Release that overtook its Reserve closes',
    file: 'src/core/decide-lease.ts',
    text: 'const drafts = over || closedIn(books, owner, null) ? [] : closeDraft(owner, null)',
    replacement: 'const drafts: readonly Draft[] = []',
    fails: 'test/unit/closing.test.ts',
  },
  {
    guard: 'never confirmed: not before the grace is over',
    file: 'src/core/decide-lease.ts',
    text: 'if (books.now <= due) {',
    replacement: 'if (false) {',
    fails: 'test/unit/expiry.test.ts',
  },
  {
    guard: 'never confirmed: not what was seen',
    file: 'src/core/decide-lease.ts',
    text: 'const seen = seenSinceReserved(books, lease)\n  if (seen !== null) return refused(seen)',
    replacement: '',
    fails: 'test/unit/expiry.test.ts',
  },
  {
    guard: 'never confirmed: not by books that were restored',
    file: 'src/core/decide-lease.ts',
    text: 'if (lease.fencingToken < lastRecoveryOf(books)) {',
    replacement: 'if (false) {',
    fails: 'test/unit/expiry.test.ts',
  },
  {
    guard: 'what the database vetoed is no candidate',
    file: RESERVE,
    text: ' || books.setAside.has(address)',
    replacement: '',
    fails: 'test/unit/reserve.test.ts',
  },
  {
    guard: 'cooling: every way out of a lease goes through it',
    file: 'src/core/decide-lease.ts',
    text: 'availableAt: header.at + cooldownMs',
    replacement: 'availableAt: header.at',
    fails: 'test/unit/cooling.test.ts',
  },
  {
    guard: 'cooling: what was reaped cools for everybody',
    file: RESERVE,
    text: 'if (released === null || !released.removalConfirmed) return false',
    replacement: 'if (released === null) return false',
    fails: 'test/unit/cooling.test.ts',
  },
  {
    guard: 'cooling: only its last holder has it back before',
    file: RESERVE,
    text: 'return released.holderKey === holderKey(command.owner)',
    replacement: 'return true',
    fails: 'test/unit/cooling.test.ts',
  },
  {
    guard: 'an older life is set aside, and freed only by who says that it is removed',
    file: RESERVE,
    text: "named && supersedes.removalConfirmed ? 'SUPERSEDE_REMOVED' : 'SUPERSEDE'",
    replacement: "'SUPERSEDE_REMOVED'",
    fails: 'test/unit/supersede.test.ts',
  },
  {
    guard: 'who says that it is removed names whom',
    file: RESERVE,
    text: '    (supersedes.uid !== null || supersedes.incarnation !== null) &&\n',
    replacement: '',
    fails: 'test/unit/supersede.test.ts',
  },
  {
    guard: 'another uid on another node takes over no name',
    file: RESERVE,
    text: '      lease.placement.node !== command.placement.node\n',
    replacement: '      false\n',
    fails: 'test/unit/supersede.test.ts',
  },
  {
    guard: 'a STRICT pool waits until all have reported in this era',
    file: RESERVE,
    text: '  if (unreported.length > 0)\n    return stale(',
    replacement: '  if (false)\n    return stale(',
    fails: 'test/unit/strict.test.ts',
  },
  {
    guard: 'a STRICT pool waits for who has fallen silent',
    file: RESERVE,
    text: '  return silent.length > 0 ?',
    replacement: '  return false ?',
    fails: 'test/unit/strict.test.ts',
  },
  {
    guard: 'candidates that its caller sees live are not tried for ever',
    file: RESERVE,
    text: "  if (picking.skips < POLICY.skips) return 'skipped'\n",
    replacement: "  if (picking.skips < Infinity) return 'skipped'\n",
    fails: 'test/unit/live-addresses.test.ts',
  },
  {
    guard: 'a closed life confirms nothing',
    file: 'src/core/decide-lease.ts',
    text: "if (lease.state !== 'ACTIVE' && lease.owner !== null && closedIn(books, lease.owner, lease.poolId)) {",
    replacement: 'if (false) {',
    fails: 'test/unit/closing.test.ts',
  },
  {
    guard: 'a life is closed as long as an address of it is superseded or not removed',
    file: 'src/core/decide-lease.ts',
    text: 'KEEPS_CLOSED.includes(quarantine.reason)',
    replacement: 'false',
    fails: 'test/unit/closing.test.ts',
  },
  {
    guard: 'fencing of a Release: an owner beside the id is its holder',
    file: 'src/core/decide-lease.ts',
    text: 'mayEnd(books, command.actor, lease) ?? matches(reference, lease)',
    replacement: 'mayEnd(books, command.actor, lease)',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'a token of a node touches the leases of that node alone',
    file: 'src/core/decide-lease.ts',
    text: '  if (lease.askedFrom?.includes(actor.node)) return null\n',
    replacement: '  if (actor.node !== null) return null\n',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: "an operator's Reap names the version that was looked at",
    file: 'src/core/decide-lease.ts',
    text: 'mayTouch(command.actor, lease) ?? versionMismatch(lease, command.version) ?? recovering(books)',
    replacement: 'mayTouch(command.actor, lease) ?? recovering(books)',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: "nor does an operator's Reap take anything by books that may be old",
    file: 'src/core/decide-lease.ts',
    text: 'mayTouch(command.actor, lease) ?? versionMismatch(lease, command.version) ?? recovering(books)',
    replacement: 'mayTouch(command.actor, lease) ?? versionMismatch(lease, command.version)',
    fails: 'test/unit/release-confirm.test.ts',
  },
  {
    guard: 'never confirmed: only the version that was judged',
    file: 'src/core/decide-lease.ts',
    text: 'const stale = versionMismatch(lease, command.version) ?? recovering(books)',
    replacement: 'const stale = recovering(books)',
    fails: 'test/unit/expiry.test.ts',
  },
  {
    guard: 'never confirmed: nothing while a network is not READY',
    file: 'src/core/decide-lease.ts',
    text: 'const stale = versionMismatch(lease, command.version) ?? recovering(books)',
    replacement: 'const stale = versionMismatch(lease, command.version)',
    fails: 'test/unit/networks.test.ts',
  },
  {
    guard: 'never confirmed: without a deadline, never',
    file: 'src/core/decide-lease.ts',
    text: '  if (lease.confirmBy === null) {\n',
    replacement: '  if (false) {\n',
    fails: 'test/unit/expiry.test.ts',
  },
  {
    guard: 'a replayed Confirm says nothing of a lease that is lost',
    file: 'src/core/decide.ts',
    text: "if (type !== 'reserve' && type !== 'confirm') return answer",
    replacement: "if (type !== 'reserve') return answer",
    fails: 'test/unit/requests.test.ts',
  },
  {
    guard: 'a fence ends no recovery',
    file: 'src/ledger/load-seen.ts',
    text: "reportedYet('')",
    replacement:
      'reportedYet(" and not exists (select from ipledger.fence f where f.network_id = $1 and f.node = s.node and f.boot = s.epoch)")',
    fails: 'test/jobs/recovered.test.ts',
  },
  recovered(
    'an age begins anew with a recovery',
    'return Math.max(changedAt(lease), recoveredAt ?? 0)',
    'return changedAt(lease)',
  ),
  recovered('a fence of lost books frees nothing', 'if (since <= recoveredAt)', 'if (false)'),
  recovered(
    'a fence frees nothing soon after a recovery',
    '  promisedSinceTheFence,\n  lostSinceTheFence,\n]',
    '  promisedSinceTheFence,\n]',
  ),
  recovered(
    'a boot that began in lost books ends nothing',
    'Math.max(aliveAt(evidence), evidence.recoveredAt ?? 0) > bootEnded!.at',
    'aliveAt(evidence) > bootEnded!.at',
  ),
  {
    guard: 'recovery ends when every source has reported',
    file: 'src/core/decide-pool.ts',
    text: 'const unobserved = command.observed === true ? notObserved(books) : null',
    replacement: 'const unobserved = null',
    fails: 'test/unit/networks.test.ts',
  },
]

const REPORT = 'src/liveness/report.ts'
const EVIDENCE = 'src/liveness/evidence.ts'
const ERAS = 'src/ledger/eras.ts'

function report(guard: string, text: string, replacement: string): Guard {
  return { guard, file: REPORT, text, replacement, fails: 'test/db/intake.test.ts' }
}
function evidence(guard: string, text: string, replacement: string): Guard {
  return { guard, file: EVIDENCE, text, replacement, fails: 'test/db/evidence.test.ts' }
}

/** Guards that stand in the shell, each with a test on a real database. Not part of the quick form. */
const IN_THE_SHELL: readonly Guard[] = [
  report(
    'a group of which nobody knows whether it was committed is not sent again',
    'if (!isAboutRows(error)) throw error',
    'if (false as boolean) throw error',
  ),
  report(
    'reports whose commit was answered by a rollback are not told as taken',
    "expectCommitted(\n      await trip(client, [\n        run('updateStandings'",
    "Boolean(\n      await trip(client, [\n        run('updateStandings'",
  ),
  report(
    'no token is begun with numbers that this ledger never gave out',
    'key === null || beyond !== null || tooShort',
    'key === null || tooShort',
  ),
  report(
    'a token that is too old proves no beginning',
    "if (ground.now > begun.begunAt + lifeMs(ground)) return unproven('TOKEN_EXPIRED')",
    '',
  ),
  report(
    'a token from before its boot was fenced proves no beginning',
    "if (fencedAt !== null && begun.begunAt <= fencedAt) return unproven('TOKEN_EXPIRED')",
    '',
  ),
  report(
    'a token of another source proves nothing',
    'if (begun.network !== report.network || begun.source !== report.source) {',
    'if (false) {',
  ),
  report('a token of an earlier era proves nothing', 'if (begun.era < ground.era) {', 'if (false) {'),
  report(
    'a token beyond the head tells of an older database',
    "if (isBeyond(begun, ground)) return unproven('BEYOND_HEAD', { era: begun.era, head: begun.head })",
    '',
  ),
  report(
    'complete: what its source says is incomplete is',
    "if (!report.complete && !problems.includes('DECLARED')) problems.push('DECLARED')",
    '',
  ),
  report(
    'complete: not with an entry that cannot be read',
    "if (set !== null && set.unreadableCount > 0) problems.push('UNREADABLE_ENTRY')",
    '',
  ),
  report('complete: not with a chunk missing', "if (given !== total.entries) return ['CHUNK_MISSING']", ''),
  report(
    'complete: not with another set than was sent',
    "return digest === total.digest ? [] : ['DIGEST_DIFFERS']",
    'return []',
  ),
  report(
    'complete: not with a part gone before its entries are written',
    'if (entries.length < own.intersection(wanted).size) throw new PartGone()',
    '',
  ),
  report(
    'what came out of order has no head',
    'assessment.because.some(isUnproven) ? null : beginning.begun',
    'beginning.begun',
  ),
  report(
    'the first lists of an epoch end nothing',
    'const difference = assessment.ends ? found : { ...found, vanished: [] }',
    'const difference = found',
  ),
  report(
    'verdicts of another epoch are ignored',
    'const rows = epoch === source.standing.epoch && ground.beyond === null',
    'const rows = ground.beyond === null',
  ),
  evidence(
    'misses are counted from where it vanished',
    'vanished.length === 0 ? streak : since(streak, Math.max(...vanished))',
    'streak',
  ),
  evidence(
    'misses are of the streak',
    'standing.recent.filter(({ counted }) => counted > standing.streakFrom)',
    'standing.recent',
  ),
  evidence('an answer is about the lease as it is', 'row.version !== lease.version ||', ''),
  evidence(
    'an answer is of this life of its source',
    'if (row.epoch !== source.standing.epoch) return null',
    '',
  ),
  evidence(
    'a question that stays without an answer blocks',
    'return known.ground.now - at > unansweredAfterMs(source) ?',
    'return false ?',
  ),
  {
    guard: 'a hold of the network holds its sources',
    file: EVIDENCE,
    text: "known.held.has('') || known.held.has(id)",
    replacement: 'known.held.has(id)',
    fails: 'test/incidents/05-incomplete-live-set.test.ts',
  },
  {
    guard: 'the end of a guest is not that of his block',
    file: EVIDENCE,
    text: '(isOfAnother(row) || isGuest(lease, row))',
    replacement: 'isOfAnother(row)',
    fails: 'test/jobs/guests.test.ts',
  },
  {
    guard: 'nobody known on another node is not the holder of a block',
    file: EVIDENCE,
    text: "return namesHolder(lease, row) || row.node === '' || mayBeOn(lease, row.node)",
    replacement: 'return true',
    fails: 'test/jobs/guests.test.ts',
  },
  {
    guard: 'the end of one container is not that of its name',
    file: EVIDENCE,
    text: 'if (owner?.uidNamed === false && row.owner_uid_named) return false',
    replacement: '',
    fails: 'test/jobs/made-anew.test.ts',
  },
  {
    guard: 'an end from before a promise is not that of who was promised',
    file: EVIDENCE,
    text: 'return row.listed_since! >= Math.max(reservedAt, confirmedAt ?? 0)',
    replacement: 'return true',
    fails: 'test/jobs/made-anew.test.ts',
  },
  {
    guard: 'a list may have looked after a statement that came while it was under way',
    file: EVIDENCE,
    text: 'seenUpTo: seenUpTo(rows, sources, ground),',
    replacement: '',
    fails: 'test/jobs/straddling.test.ts',
  },
  evidence('families that a source cannot see', 'source.families.includes(familyOf(lease)) &&', 'true &&'),
  evidence(
    'kinds that a source cannot see',
    '(about === null || source.ownerKinds.includes(about.kind))',
    'true',
  ),
  evidence(
    'what is still listed was seen with the last report',
    'return mayBeListed ? Math.max(row.listed_at!, standing.lastBegunAt ?? 0) : row.listed_at!',
    'return row.listed_at!',
  ),
  evidence(
    'a fenced boot is the one it was placed on',
    'fence === undefined\n        ? null',
    'fence === undefined || true\n        ? null',
  ),
  evidence(
    'a fenced boot that has reported since is read with its fence',
    'reportedAt: fence.reported_at,',
    'reportedAt: null,',
  ),
  {
    guard: 'a failover that lost what this process saw recovers, whatever was declared',
    file: ERAS,
    text: 'if (endedAt !== null) {',
    replacement: 'if (false) {',
    fails: 'test/db/eras.test.ts',
  },
  {
    guard: 'a quoted number beyond the end of its era was lost',
    file: REPORT,
    text: 'return endedAt === null ? known :',
    replacement: 'return endedAt !== undefined ? known :',
    fails: 'test/db/eras.test.ts',
  },
  {
    guard: 'a signed number beyond the end of its era was lost',
    file: REPORT,
    text: "return endedAt === null ? unproven('OTHER_ERA')",
    replacement: "return endedAt !== undefined ? unproven('OTHER_ERA')",
    fails: 'test/db/eras.test.ts',
  },
  {
    guard: 'a copy of a database is another life',
    file: ERAS,
    text: 'if (stored !== null && stored.databaseOid !== now.databaseOid) {',
    replacement: 'if (false as boolean) {',
    fails: 'test/db/eras.test.ts',
  },
  {
    guard: 'a log that has become shorter has lost commits',
    file: ERAS,
    text: 'if (head < seen.head) {',
    replacement: 'if (false as boolean) {',
    fails: 'test/db/eras.test.ts',
  },
  {
    guard: 'what is seen in untouched space is read with it',
    file: 'src/ledger/load-seen.ts',
    text: 'addresses: row.sighted ?? [],',
    replacement: 'addresses: [],',
    fails: 'test/db/ledger-seen.test.ts',
  },
  {
    guard: 'cap: what was reaped before counts with what is reaped now',
    file: 'src/ledger/absence.ts',
    text: 'for (const entry of [...memory.entries, ...events',
    replacement: 'for (const entry of [...events',
    fails: 'test/incidents/05-incomplete-live-set.test.ts',
  },
  {
    guard: 'what cannot be read is logged',
    file: REPORT,
    text: 'if (chunks?.told !== true) logUnreadable(intake, at, set)',
    replacement: 'void logUnreadable',
    fails: 'test/db/intake.test.ts',
  },
  {
    guard: 'one writer at a time: the lock of the network',
    file: 'src/ledger/load.ts',
    text: ' where network_id = $1 for no key update',
    replacement: ' where network_id = $1',
    fails: 'test/db/ledger-processes.test.ts',
  },
]

const DOCKER = 'src/liveness/docker.ts'
const KUBERNETES = 'src/liveness/kubernetes.ts'
const HTTP = 'src/liveness/http.ts'
const PULL = 'src/jobs/pull-sources.ts'
const REGISTER = 'src/liveness/register.ts'
const SIGHTINGS = 'src/liveness/sightings.ts'
const PRUNE = 'src/jobs/prune-observations.ts'

function guardsIn(file: string, fails: string) {
  return (guard: string, text: string, replacement: string): Guard => ({
    guard,
    file,
    text,
    replacement,
    fails,
  })
}
const docker = guardsIn(DOCKER, 'test/unit/asked-docker.test.ts')
const kubernetes = guardsIn(KUBERNETES, 'test/unit/asked-kubernetes.test.ts')
const http = guardsIn(HTTP, 'test/unit/asked-http.test.ts')
const pulled = guardsIn(PULL, 'test/jobs/pull-sources.test.ts')
const registered = guardsIn(REGISTER, 'test/db/intake.test.ts')
const listed = guardsIn(SIGHTINGS, 'test/db/intake.test.ts')
const pruned = guardsIn(PRUNE, 'test/jobs/observations.test.ts')
const older = guardsIn('src/ledger/eras.ts', 'test/db/eras.test.ts')
const asking = guardsIn('src/liveness/suspects.ts', 'test/jobs/suspects.test.ts')
const intake = guardsIn('src/liveness/report.ts', 'test/db/intake.test.ts')
const renewed = guardsIn('src/core/decide-lease.ts', 'test/unit/renewed.test.ts')

/** What sources are, how they are asked, and what becomes of what they said. */
const ASKED: readonly Guard[] = [
  intake(
    'a part that was declared incomplete makes the whole incomplete',
    'report.complete ? digest : NOT_COMPLETE,',
    'digest,',
  ),
  docker(
    'docker: one engine answers all of a list',
    'if (before.ID !== after.ID) throw',
    'if (false as boolean) throw',
  ),
  docker(
    'docker: containers in whatever state',
    '.listContainers({ all: true,',
    '.listContainers({ all: false,',
  ),
  docker(
    'docker: what cannot be read makes it incomplete',
    'complete: unread.length === 0,',
    'complete: true,',
  ),
  docker('docker: nothing it lists has ended', "state: State === TERMINAL ? '' : State", 'state: State'),
  docker(
    'docker: what was stopped is there by the name of its network',
    '(name !== settings.network && one.NetworkID !== networkId)',
    'one.NetworkID !== networkId',
  ),
  docker(
    "docker: gone is the engine's own word for this very container",
    'return /no such container/i.test(message) && message.split(/[^A-Za-z0-9_.-]+/).includes(reference)',
    'return true',
  ),
  docker(
    'docker: of what cannot be read the address is in use',
    'if (attached.success) {',
    'if (false as boolean) {',
  ),
  kubernetes(
    'kubernetes: a container that is not mentioned has not ended',
    '  if (containerStatuses.length < (spec.containers?.length ?? 0)) return null\n',
    '',
  ),
  kubernetes(
    'kubernetes: of what cannot be read the addresses are in use',
    'if (addressed.success) entries',
    'if (false as boolean) entries',
  ),
  docker(
    'docker: gone is the word of the engine that listed what there is (5.1)',
    'return ID === epoch\n',
    'return ID !== null\n',
  ),
  kubernetes(
    'kubernetes: gone and ended are the word of the cluster that listed what there is (5.1)',
    'return uid === question.epoch\n',
    'return uid !== null\n',
  ),
  asking(
    'sources are asked about a slice for as long as an answer is fresh',
    'next < POLICY.lookUpsAtOnce || performance.now() < end',
    'next < Number.MAX_SAFE_INTEGER',
  ),
  asking(
    'what a run does not get to is asked first by the next',
    'questions.toSorted((a, b) => (a.before ?? 0) - (b.before ?? 0))',
    'questions',
  ),
  asking(
    'what a source says of itself stops nobody from being judged',
    "column(({ reply }) => printable((reply?.detail ?? '')",
    "column(({ reply }) => ((reply?.detail ?? '')",
  ),
  pruned(
    'where a held lease was seen is not forgotten (16.5)',
    '           and later.node = old.node and later.boot = old.boot\n',
    '',
  ),
  pruned(
    'that a held lease was alive is not forgotten for an end of another life (16.8, W-03)',
    `           and (later.state = '\${TERMINAL}') = (old.state = '\${TERMINAL}')\n`,
    '',
  ),
  pulled(
    'those that fail leave places to those that answer',
    'failing.size < FAILING_AT_ONCE',
    'failing.size < AT_ONCE + 1',
  ),
  pulled(
    'what a source says of its failure stops no other',
    'printable(failure.slice(0, LONGEST_FAILURE))',
    'failure.slice(0, LONGEST_FAILURE)',
  ),
  {
    guard: 'an end at a time that was never set is none (M-07)',
    file: 'src/liveness/source.ts',
    text: 'return since > 0',
    replacement: 'return true',
    fails: 'test/unit/asked-http.test.ts',
  },
  http(
    'http: gone and ended are said in the epoch of the list, where they name one (5.1)',
    'const isOfThisLife = !read.data.epoch || read.data.epoch === epoch',
    'const isOfThisLife = epoch !== null',
  ),
  kubernetes(
    'kubernetes: pages of one version',
    'if (resourceVersion !== version) {',
    'if (false as boolean) {',
  ),
  kubernetes(
    'kubernetes: a page that is missing',
    'if (next !== undefined) return listing(',
    "if (next !== undefined) return listing('') ?? String(",
  ),
  kubernetes(
    'kubernetes: an older version than was seen',
    'if (latest !== null && number < latest)',
    'if (false as boolean)',
  ),
  kubernetes(
    'kubernetes: an owner without a uid goes by its name',
    'if (owner.uidNamed && uid !== owner.uid) {',
    'if (uid !== owner.uid) {',
  ),
  kubernetes(
    'kubernetes: a 404 of anything else is none',
    'return read.success && read.data.details.name === name',
    'return true',
  ),
  kubernetes(
    'kubernetes: only what succeeded or failed has ended',
    "if (status?.phase !== 'Succeeded' && status?.phase !== 'Failed') return null",
    'if (!status) return null',
  ),
  kubernetes(
    'kubernetes: what is being deleted has not ended',
    '  if (metadata.deletionTimestamp) return null\n',
    '',
  ),
  kubernetes(
    'kubernetes: an end that nobody saw is none',
    'finished.every((at) => at !== null && at > 0)',
    'finished.every((at) => at !== null)',
  ),
  http(
    'http: a page that is missing',
    'if (url !== first) return listing(',
    "if (url !== first) return listing('') ?? String(",
  ),
  http('http: pages of one epoch', 'if (read.epoch !== epoch)', 'if (false as boolean)'),
  http('http: another origin is not asked', 'next === null || next.origin !== first.origin', 'next === null'),
  http(
    'http: what cannot be read makes it incomplete',
    'if (unread.length > 0) {',
    'if (false as boolean) {',
  ),
  http(
    'http: complete only if it says so',
    "return listing(complete ? '' : 'it says so itself')",
    "return listing('')",
  ),
  http(
    'http: only two answers of HTTP are answers',
    'if (status !== 200 && status !== 404) throw',
    'if (false as boolean) throw',
  ),
  http(
    'http: gone, of this very workload',
    "return isIt ? { answer: 'gone', detail }",
    "return true ? { answer: 'gone', detail }",
  ),
  http(
    'http: ended, of this very workload',
    'if (!isIt) return unknown(\'"terminal" of another than was asked for.\')',
    '',
  ),
  http(
    'http: a word that nobody knows is not gone',
    'default:\n      return unknown(',
    "default:\n      return { answer: 'gone', detail } ?? unknown(",
  ),
  pulled(
    'the head is read before a source is asked',
    'const reported = settled(await takeSnapshot(intake, { begun, epoch, complete, set }))',
    `const later = settled(await beginSnapshot(intake, { network, source: id, quoted: { era: 0, head: 0 } }))
  const reported = settled(await takeSnapshot(intake, { begun: later.begun, epoch, complete, set }))`,
  ),
  pulled(
    'an incomplete list only protects',
    'takeSnapshot(intake, { begun, epoch, complete, set })',
    'takeSnapshot(intake, { begun, epoch, complete: complete || true, set })',
  ),
  pulled('a source is asked by one at a time', '\n  where turn.next_at <= excluded.taken_at', ''),
  pulled('only who took a turn ends it', 'and taken_by = $3`', 'and $3::text is not null`'),
  registered(
    'a source of another kind, node or settings is another source',
    'return (await ask(database, LOOKS_AT_THE_SAME, cells)).length > 0',
    'return cells.length > 0',
  ),
  registered(
    'another declaration is in dry run again',
    "report_interval_ms = $9, state = 'REGISTERED'",
    'report_interval_ms = $9, state = state',
  ),
  registered(
    'what was not listed before a source was enabled proves nothing',
    'enabled_by = $3, streak_from = counted,',
    'enabled_by = $3,',
  ),
  registered(
    'what a retired source saw is over',
    'if (listed.length === 0) return source',
    'if (listed.length >= 0) return source',
  ),
  listed('what has ended is not live', '    state !== TERMINAL,\n', '    true,\n'),
  pruned('the last sighting of a held lease stays', 'when: `(\n', 'when: `(true or\n'),
  pruned('what is listed stays', "    column: 'vanished_at',\n", "    column: 'appeared_at',\n"),
  older(
    'a copy in another cluster is another life',
    'if (stored !== null && stored.systemIdentifier !== now.systemIdentifier) {',
    'if (false as boolean) {',
  ),
  older(
    'a dump restored over the log is another life',
    'if (stored !== null && stored.logOid !== now.logOid) {',
    'if (false as boolean) {',
  ),
  older(
    'another timeline is another life',
    'if (stored !== null && stored.timeline !== now.timeline) {',
    'if (false as boolean) {',
  ),
  older(
    'a number that nobody can have been given begins nothing',
    'if (reached > era + MOST_ERAS_AHEAD || reached >= LAST_ERA) {',
    'if (false as boolean) {',
  ),
  older(
    'numbers beyond the head begin a recovery',
    "cause: 'BEYOND_HEAD',\n    recovering: true,",
    "cause: 'BEYOND_HEAD',\n    recovering: false,",
  ),
  asking(
    'whatever is not an answer is an error',
    "return { answer: 'error', detail }",
    "return { answer: 'gone', detail }",
  ),
  asking(
    'a proof is asked for with the version that was judged',
    'const of = { token: lease.fencingToken, version: lease.version, proof }',
    'const of = { token: lease.fencingToken, version: lease.version + 1, proof }',
  ),
  renewed(
    'a promise that Confirm renews is life',
    "becomes.to === 'UNCHANGED' ? renewDraft(books, lease)",
    "becomes.to === 'UNCHANGED' ? null",
  ),
  renewed(
    'a storm of retries writes nothing',
    'if (isYoung && !isFencedSince(books, lease)) return null',
    '',
  ),
  renewed(
    'a promise after a fence contradicts it, however young the lease is',
    'if (isYoung && !isFencedSince(books, lease)) return null',
    'if (isYoung) return null',
  ),
  {
    guard: 'a promise with a deadline that was made after a fence keeps it until then',
    file: JUDGE,
    text: '    ? confirmationIsPending(evidence, policy)\n',
    replacement: '    ? []\n',
    fails: 'test/jobs/renewed.test.ts',
  },
  {
    guard: 'a promise that Reserve renews is life',
    file: RESERVE,
    text: 'if (lease.confirmBy === null) return renewDraft(books, lease)',
    replacement: 'if (lease.confirmBy === null) return null',
    fails: 'test/unit/renewed.test.ts',
  },
  {
    guard: 'a promise to another node is life',
    file: RESERVE,
    text: 'const reservedAt = lease.confirmBy === null ? books.now : lease.reservedAt',
    replacement: 'const { reservedAt } = lease',
    fails: 'test/unit/renewed.test.ts',
  },
  {
    guard: 'a promise to another node with a deadline goes by its reservation',
    file: RESERVE,
    text: 'const reservedAt = lease.confirmBy === null ? books.now : lease.reservedAt',
    replacement: 'const reservedAt = books.now',
    fails: 'test/unit/expiry.test.ts',
  },
]

const LISTED = 'src/core/listed.ts'
const LISTED_TEST = 'test/unit/listed.test.ts'
const LISTED_SINCE_TEST = 'test/jobs/listed-since.test.ts'

/** What goes on being listed by reports that end nothing, what a start lists, and what nobody's sighting would keep. */
const LISTED_SINCE: readonly Guard[] = [
  {
    guard: 'a report with holes leaves open what it listed',
    file: LISTED,
    text: 'return listing.head > 0 && isLast(listing, source) ? listing : null',
    replacement: 'return listing.head > 0 ? listing : null',
    fails: LISTED_SINCE_TEST,
  },
  {
    guard: 'an entry of no proven head is not as old as the ledger',
    file: LISTED,
    text: 'return listing.head > 0 && isLast(listing, source) ? listing : null',
    replacement: 'return isLast(listing, source) ? listing : null',
    fails: LISTED_SINCE_TEST,
  },
  {
    guard: 'a source that warms up may have listed it or not',
    file: LISTED,
    text: 'warm && complete !== null',
    replacement: 'complete !== null',
    fails: LISTED_TEST,
  },
  {
    guard: 'a report without a token is later than the last one with',
    file: LISTED,
    text: 'sequence === lastSequence && (lastBegunAt === null || begunAt >= lastBegunAt)',
    replacement: 'sequence === lastSequence',
    fails: LISTED_SINCE_TEST,
  },
  {
    guard: 'what decides nothing is not brought before the ledger',
    file: SIGHTING,
    text: "if (head === null) return nothing('NOT_PROVEN')",
    replacement: '',
    fails: SIGHTING_TEST,
  },
  proven(
    'a fenced boot that has reported since is not over: under the lock',
    'head === null ? listedAt < fencedSince(fence, fenced) : isBeforeFence(fence, head)',
    'head === null || isBeforeFence(fence, head)',
  ),
  {
    guard: 'a fenced boot that has reported since is not over: in the evidence',
    file: EVIDENCE,
    text: 'return mayBeListed ? Math.max(row.listed_at!, standing.lastBegunAt ?? 0) : row.listed_at!',
    replacement: 'return row.listed_at!',
    fails: 'test/db/evidence.test.ts',
  },
  {
    guard: 'when a fenced boot reported last is read under the lock',
    file: 'src/ledger/load-seen.ts',
    text: 'row?.reported_at ?? null',
    replacement: 'null',
    fails: LISTED_SINCE_TEST,
  },
  {
    guard: 'when a listed entry was reported last is read under the lock',
    file: 'src/ledger/load-seen.ts',
    text: 'listedAt: mayBeListed ? Math.max(begunAt, lastBegunAt ?? 0) : begunAt',
    replacement: 'listedAt: begunAt',
    fails: LISTED_SINCE_TEST,
  },
  {
    guard: 'the end of one life is no end of the next',
    file: EVIDENCE,
    text: '(isOfAnother(row) || isGuest(lease, row))',
    replacement: 'isGuest(lease, row)',
    fails: 'test/db/evidence.test.ts',
  },
  {
    guard: 'whoever has seen another life is a witness',
    file: EVIDENCE,
    text: '!(row.ended && (isOfAnother(row) || isGuest(lease, row)))',
    replacement: '!(isOfAnother(row) || (row.ended && isGuest(lease, row)))',
    fails: 'test/db/evidence.test.ts',
  },
  {
    guard: 'sources that warm up are waited for',
    file: 'src/ledger/load-seen.ts',
    text: "s.state = 'ENABLED' and not s.warm",
    replacement: 'false',
    fails: 'test/db/ledger-seen.test.ts',
  },
  standing(
    'a new era starts the warm-up',
    'complete === null || complete.era === era ? standing',
    'complete === null || complete.era <= era ? standing',
  ),
  {
    guard: 'a pool has no addresses of which no sighting counts',
    file: 'src/core/decide-pool.ts',
    text: 'if (found.length === 0) return null',
    replacement: 'if (found.length >= 0) return null',
    fails: 'test/unit/pools.test.ts',
  },
]

const SEEN_NEEDS_TEST = 'test/db/ledger-seen-needs.test.ts'

function witnessed(guard: string, file: string, text: string, replacement: string): Guard {
  return { guard, file, text, replacement, fails: 'test/jobs/witnesses.test.ts' }
}

/** Who is a witness, and what makes an end one; those of the shell are not part of the quick form. */
const WITNESSES: readonly Guard[] = [
  judge(
    'a witness that was retired can tell no more',
    'const ABSENCE: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,\n  noWitnessWasRetired,',
    'const ABSENCE: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,',
  ),
  judge(
    'nor does a new boot tell for one that was retired',
    'const NEW_BOOT: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,\n  noWitnessWasRetired,',
    'const NEW_BOOT: readonly Rule[] = [\n  seenLive,\n  lookedUpLive,',
  ),
  judge(
    'the longer age where only another life was seen',
    'return known.length === 0 || isOnItsWay(known, evidence)',
    'return isOnItsWay(known, evidence)',
  ),
  judge(
    'who saw another life tells nothing where one that is younger than the lease covers it',
    'if (able.some(({ anotherLife }) => anotherLife !== true)) return []',
    'if (able.length > 0) return []',
  ),
  judge(
    'who saw another life tells nothing of another node',
    "if (able.some(({ scopeNode }) => scopeNode === '' || scopeNode === lease.placement.node)) return []",
    'if (able.length > 0) return []',
  ),
  {
    guard: 'a listed end is believed of a warm source alone',
    file: LISTED,
    text: 'source.warm ? lastListing(appeared, source) : null',
    replacement: 'lastListing(appeared, source)',
    fails: LISTED_TEST,
  },
  {
    guard: 'a listed end is believed of a complete report alone',
    file: LISTED,
    text: 'return listing !== null && listing.sequence === source.complete?.sequence',
    replacement: 'return listing !== null',
    fails: LISTED_TEST,
  },
  evidence(
    'a listed end is believed where its last report proves it',
    'provesEnd(appeared, standing) &&',
    '',
  ),
  evidence(
    'a listed end is none while its source is silent',
    'ground.now - complete.begunAt <= POLICY.gapIntervals * intervalMs',
    'true',
  ),
  evidence(
    'who was retired having seen the lease is told',
    'return hasHeir ? [] :',
    'return hasHeir || true ? [] :',
  ),
  evidence(
    'another life is no heir of what a retired source saw',
    '(anotherLife || !other.anotherLife)',
    'true',
  ),
  evidence(
    'an heir looks where the retired one looked',
    "(heir.node === '' || heir.node === source.node) &&",
    '',
  ),
  evidence('an heir has seen it since', 'lastLiveAt(other, heir) > seenAt', 'true'),
  evidence(
    'who was listed without a name before a source was retired is no witness',
    'if (about === null && !listedToTheEnd) return []',
    '',
  ),
  witnessed(
    'who was listed to the end blocks, named or not',
    EVIDENCE,
    'if (about === null && !listedToTheEnd) return []',
    'if (about === null) return []',
  ),
  witnessed(
    'what a retired source lists it has seen of all that was leased by then',
    'src/liveness/register.ts',
    'const head = then?.seq ?? 0',
    'const head = source.standing.complete?.head ?? 0',
  ),
  witnessed(
    'who is told of its lease on another node may run there: no node misses it by its declaration',
    EVIDENCE,
    '(node === lease.placement.node && !isMoved)',
    'node === lease.placement.node',
  ),
  judge(
    'what another node saw whose source was retired is no business of this one',
    'return [...still, ...once].flatMap(',
    'return [...still].flatMap(',
  ),
  witnessed(
    'a boot is heard of when its source has left it',
    REPORT,
    "...(hasLeft ? [run('hearBoot'",
    "...(hasLeft && false ? [run('hearBoot'",
  ),
  witnessed(
    'and beside the one that its source is in',
    REPORT,
    "...(of !== epoch && of !== '' ?",
    "...(of !== epoch && of === '' ?",
  ),
  witnessed(
    'a report from another boot says nothing of this one',
    REPORT,
    "const ofOther = source.node !== '' && advanced.epoch !== report.epoch",
    'const ofOther = false as boolean',
  ),
  evidence(
    'a fence as of an earlier head holds from when the ledger went beyond that',
    'since: fence.since_at,',
    'since: fence.fenced_at,',
  ),
  judge(
    'a fence as of an earlier head is contradicted by what was reported after that',
    '  const { by, node, boot, at, since = at, reportedAt } = fencedBy!',
    '  const { by, node, boot, at, reportedAt } = fencedBy!\n  const since = at',
  ),
  judge(
    'and by what was confirmed after that',
    '  const { by, node, at, since = at } = evidence.fencedBy!',
    '  const { by, node, at } = evidence.fencedBy!\n  const since = at',
  ),
  proven(
    'under the lock, too',
    'fence.head === fence.seq ? fence.at : Math.min(since, fence.at)',
    'fence.head === fence.seq ? fence.at : fence.at',
  ),
  {
    guard: 'whoever calls for a source in dry run is remembered',
    file: 'src/liveness/unknown-sources.ts',
    text: `, "s.state <> 'REGISTERED'")`,
    replacement: ', "true")',
    fails: 'test/db/unknown-sources.test.ts',
  },
  {
    guard: 'a source in dry run that calls while the network recovers is waited for',
    file: 'src/api/liveness-handlers.ts',
    text: "result.source?.state === 'REGISTERED'",
    replacement: 'result.source?.state === undefined',
    fails: 'test/api/liveness.test.ts',
  },
  evidence(
    'what appeared in the life of the lease was seen in it, whatever head its end says',
    'appeared_head >= fencingToken || ',
    '',
  ),
  evidence(
    'beside whoever saw another life, those that cover this one testify',
    'const seenWell = sightedBy.some(({ anotherLife }) => !anotherLife)',
    'const seenWell = sightedBy.length > 0',
  ),
  evidence(
    'what a caller saw all that cover the network must miss',
    "if (seenWell && lease.quarantine?.reason !== 'SEEN_BY_CALLER') return seers",
    'if (seenWell) return seers',
  ),
  {
    guard: 'a Reserve from another boot is written down',
    file: RESERVE,
    text: "if (!isAnother && (placement.boot === '' || !isElsewhere)) return null",
    replacement: 'if (!isAnother) return null',
    fails: 'test/unit/reserve.test.ts',
  },
  {
    guard: 'and by a token that may not touch the lease',
    file: RESERVE,
    text: 'return { ...made, drafts: [moved, changes].flatMap((draft) => draft ?? []) }',
    replacement: 'return { ...made, drafts: changes === null ? [] : [changes] }',
    fails: 'test/unit/reserve.test.ts',
  },
  proven(
    'the cap of a source is a share of leases',
    'leasesSeenOf(books, sourceNamed(books, source)!, enough) + reaps',
    'sourceNamed(books, source)!.size + reaps',
  ),
  {
    guard: 'what is listed as ended is no lease that is there',
    file: 'src/ledger/load-seen.ts',
    text: 'on e.live and (h.address',
    replacement: 'on (h.address',
    fails: SEEN_NEEDS_TEST,
  },
  {
    guard: 'a block that is listed many times is one lease',
    file: 'src/ledger/load-seen.ts',
    text: 'count(distinct h.address)',
    replacement: 'count(h.address)',
    fails: SEEN_NEEDS_TEST,
  },
]

const SEALS = 'src/ledger/seals.ts'
const SEAL_CHAIN = 'src/ledger/seal-chain.ts'
const VERIFY_SEALS = 'src/ledger/verify-seals.ts'
const CHECK_EXPORT = 'src/ledger/check-export.ts'
const SEALS_TEST = 'test/db/seals.test.ts'
function sealed(guard: string, file: string, text: string, replacement: string): Guard {
  return { guard, file, text, replacement, fails: SEALS_TEST }
}

/** Of the log itself: without one of these an event could be altered or removed unnoticed (15.1). */
const SEALED: readonly Guard[] = [
  {
    guard: 'the job that verifies looks at the seals',
    file: 'src/ledger/verification.ts',
    text: "next === null ? at('seals') : at('checkpoints', next)",
    replacement: "next === null ? at('closings') : at('checkpoints', next)",
    fails: 'test/jobs/verify-log.test.ts',
  },
  {
    guard: 'the job that verifies looks at tenures from the first event',
    file: 'src/ledger/verification.ts',
    text: "if (poolId === undefined) piece.at = at('tenures')",
    replacement: "if (poolId === undefined) piece.at = at('checkpoints')",
    fails: 'test/jobs/verify-log.test.ts',
  },
  {
    guard: 'networks of which rows and events are gone are verified',
    file: 'src/jobs/verify-log.ts',
    text: 'names.push(...(await networksWithoutRow(context.database)))',
    replacement: 'void networksWithoutRow',
    fails: 'test/jobs/verify-log.test.ts',
  },
  sealed('a stretch is sealed by one at a time', SEALS, 'if (rows.length === 0) return { busy: true }', ''),
  sealed(
    'the line of an event has all its columns',
    'db/migrations/0011_seals.sql',
    '    event.trace_id,\n',
    '',
  ),
  sealed(
    'a digest is over the one before it',
    'db/migrations/0011_seals.sql',
    '    previous_digest\n    || convert_to',
    '    convert_to',
  ),
  sealed(
    'a seal has a leaf for each event',
    'db/migrations/0011_seals.sql',
    '  constraint seal_has_a_leaf_for_each_event check (octet_length(leaves) = 16 * (last_seq - first_seq + 1)),\n',
    '',
  ),
  sealed('sealing stops at a gap', SEALS, '  if (!follows(sealed, first))', '  if (false as boolean)'),
  sealed(
    'sealing stops where the log is shorter than its seals',
    SEALS,
    'if (sealed !== null && (head ?? 0) < sealed)',
    'if (false as boolean)',
  ),
  sealed(
    'each seal names the digest of the one before',
    SEAL_CHAIN,
    '  if (previousDigest === expected) return null',
    "  if (previousDigest !== '') return null",
  ),
  sealed(
    'seals between others are missed',
    SEAL_CHAIN,
    '  if (!follows(before?.last ?? null, first)) {',
    '  if (false as boolean) {',
  ),
  sealed(
    'events that were not sealed before an era ended are missed',
    VERIFY_SEALS,
    '  if (first <= before + 1) return null',
    '  if (first > 0) return null',
  ),
  sealed('events that nobody seals are missed', VERIFY_SEALS, 'now - first_at > LATE_MS', 'false'),
  sealed(
    'digests that were exported are held against the log',
    VERIFY_SEALS,
    'if (rows[index]!.digest === stretch.digest) continue',
    'if (rows[index] !== undefined) continue',
  ),
  sealed(
    'a file has each line once, in its place',
    CHECK_EXPORT,
    '      if (seq <= before) {',
    '      if (seq < 0) {',
  ),
]

const REVIEWED_TEST = 'test/db/stuck-endless.test.ts'
const UNKNOWN_TEST = 'test/db/unknown-sources.test.ts'
const HANDLERS = 'src/api/liveness-handlers.ts'
const STUCK = 'src/liveness/stuck.ts'
const told = guardsIn(STUCK, REVIEWED_TEST)
const called = guardsIn(HANDLERS, 'test/api/liveness.test.ts')

/** What a restored dump does not know, blocks without a holder, how far a fence reaches, and who is told what waits. */
const REVIEWED: readonly Guard[] = [
  sighting('a block is not given to a guest of it', 'if (isBlock(book.pool)) {', 'if (false as boolean) {'),
  {
    guard: 'a recovery waits for who has called and is in no book',
    file: 'src/core/decide-pool.ts',
    text: 'if (sources > 0 && unreported.length === 0 && unknown.length === 0) return null',
    replacement: 'if (sources > 0 && unreported.length === 0) return null',
    fails: UNKNOWN_TEST,
  },
  {
    guard: 'who has called is read under the lock',
    file: 'src/ledger/load-seen.ts',
    text: 'unknown: unknown ?? [],',
    replacement: 'unknown: [],',
    fails: UNKNOWN_TEST,
  },
  {
    guard: 'who has called is waited for until it is enabled',
    file: 'src/ledger/load-seen.ts',
    text: "order by s.source_id limit 1), 'REGISTERED') = 'REGISTERED'",
    replacement: "order by s.source_id limit 1), '') = ''",
    fails: UNKNOWN_TEST,
  },
  called(
    'who calls with a token of its node is waited for as well',
    "result.reason === 'SOURCE_NOT_FOUND' || result.reason === 'SOURCE_MISMATCH'",
    "result.reason === 'SOURCE_NOT_FOUND'",
  ),
  called(
    'an era is begun at the word of an agent alone',
    "role === 'agent' ? await named(backend, network, asked.source) : null",
    'role === null ? null : await named(backend, network, asked.source)',
  ),
  called(
    'an era is begun at the word of no source in dry run',
    "source === null || source.state !== 'ENABLED' || source.node !== node",
    'source === null || source.node !== node',
  ),
  {
    guard: 'a token of a node speaks for a source of that node',
    file: REPORT,
    text: 'if (asked.boundTo !== undefined && sourceRow?.node !== asked.boundTo) {',
    replacement: 'if (false as boolean) {',
    fails: 'test/api/liveness.test.ts',
  },
  {
    guard: 'a fence reaches as far as its caller had seen',
    file: 'src/core/evolve.ts',
    text: 'head: Math.min(head, event.seq)',
    replacement: 'head: event.seq',
    fails: PROVEN_TEST,
  },
  proven(
    'a fence up to a number that nobody was given is refused',
    'if (head !== null && head > books.head) {',
    'if (false as boolean) {',
  ),
  {
    guard: 'how far a fence reaches is written down',
    file: 'src/ledger/append.ts',
    text: 'return [node, boot, seq, at, by, why, head === seq ? null : head]',
    replacement: 'return [node, boot, seq, at, by, why, head === seq ? null : null]',
    fails: REVIEWED_TEST,
  },
  {
    guard: 'how far a fence reaches is read with it',
    file: EVIDENCE,
    text: 'coalesce(f.fenced_head, f.fenced_seq) as fenced_head',
    replacement: 'f.fenced_seq as fenced_head',
    fails: REVIEWED_TEST,
  },
  {
    guard: 'what is set aside on a fenced boot is judged without a source, too',
    file: 'src/liveness/suspects.ts',
    text: "and l.boot = $3 and l.fencing_token <= $4 and l.quarantine_reason is distinct from 'OPERATOR'",
    replacement: "and l.boot = $3 and l.fencing_token <= $4 and l.state in ('RESERVED', 'ACTIVE')",
    fails: REVIEWED_TEST,
  },
  {
    guard: 'a boot ends nothing of a source that does not declare so',
    file: EVIDENCE,
    text: '!source.bootEndsAll || !warm ||',
    replacement: '!warm ||',
    fails: 'test/jobs/suspects.test.ts',
  },
  evidence(
    'a source is held by its own hold',
    "known.held.has('') || known.held.has(id)",
    "known.held.has('')",
  ),
  evidence(
    "a source is held by its network's hold",
    "known.held.has('') || known.held.has(id)",
    'known.held.has(id)',
  ),
  evidence(
    'a source speaks in no era before it has reported completely',
    'standing.complete?.era ?? -1',
    'standing.complete?.era ?? known.ground.era',
  ),
  evidence(
    'a boot ends nothing before its source is warm',
    '!source.bootEndsAll || !warm ||',
    '!source.bootEndsAll ||',
  ),
  evidence(
    'a boot has ended only if its source has left it',
    ' || !known.endedBoots.has(',
    ' || ((_: string) => false)(',
  ),
  evidence(
    'what was seen before the lease is of the one before',
    'return listed > 0 || appeared_head >= fencingToken || (vanished_head ?? 0) >= fencingToken',
    'return listed >= 0',
  ),
  evidence(
    'an end that was listed before the lease is no end of it',
    '  if (row.ended) return true\n',
    '  if (row.ended) return false\n',
  ),
  evidence(
    'what was listed before the lease and not since is no witness of it',
    'return (row.last_seen_at ?? 0) < beginning.at',
    'return false',
  ),
  evidence('where a source has seen it, now or before', 'seenOn: seenOn(rows, source),\n    live,', 'live,'),
  evidence(
    'where a source that was retired had seen it',
    'scopeNode: source.node, seenOn: seenOn(rows, source) }]',
    'scopeNode: source.node }]',
  ),
  evidence('what was asked for from elsewhere since', '    leftBoot,\n', '    leftBoot: null,\n'),
  evidence(
    'where more is seen than is looked at, nothing is judged',
    'isCutOff(draft) ? [] : [evidenceOf(draft, seers[index]!, known)]',
    '[evidenceOf(draft, seers[index]!, known)]',
  ),
  report(
    'a verdict is taken once',
    'l.answered_at is null and l.version = v.version',
    'l.version = v.version',
  ),
  report(
    'a verdict is about the version that was asked after',
    'l.answered_at is null and l.version = v.version',
    'l.answered_at is null',
  ),
  report(
    'a verdict answers the question that was put',
    'and l.asked_at = to_timestamp(v.asked / 1000)`',
    'and l.asked_at is not null`',
  ),
  {
    guard: 'an entry that cannot be read keeps its address',
    file: 'src/liveness/entries.ts',
    text: "return { entry: entryOf(canonical, null, scope.node, bootOf('', scope), LIVE), why }",
    replacement: 'return { entry: null, why }',
    fails: 'test/unit/entries.test.ts',
  },
  {
    guard: 'docker: containers outlive a boot of the engine',
    file: 'src/liveness/asked.ts',
    text: "if (kind === 'docker' && bootEndsAll) {",
    replacement: 'if (false as boolean) {',
    fails: 'test/unit/asked-settings.test.ts',
  },
  told(
    'infrastructure that is set aside is told of',
    "return code === 'INFRASTRUCTURE' && state === 'QUARANTINED'",
    "return code === 'INFRASTRUCTURE' && state === 'RESERVED'",
  ),
  told(
    'who was seen without a name is told of',
    "EFFECT[code] === 'doubt' ||",
    "(EFFECT[code] === 'doubt' && code !== 'STOPPED_UNSEEN') ||",
  ),
  told(
    'a source that begins anew with each report is told of',
    'return now - since > patience && reports > POLICY.gapIntervals ? since : null',
    'return null',
  ),
  told(
    'a source that was away is not cold before it is here',
    '&& reports > POLICY.gapIntervals ?',
    '&& reports >= 0 ?',
  ),
  told(
    'a source that reports too seldom is told of',
    'return recent.length - first >= POLICY.misses ?',
    'return false ?',
  ),
  told('a rebuild that broke off is told of', "ground.state === 'REBUILDING' &&", 'false &&'),
  {
    guard: 'each reason that blocks is told of',
    file: STUCK,
    text: "STOPPED_UNSEEN: 'NO_EXIT',",
    replacement: "STOPPED_UNSEEN: 'PASSING',",
    fails: 'test/unit/stuck-told.test.ts',
  },
  {
    guard: 'an exclusion that is added leaves the others',
    file: 'src/cli/exclusions.ts',
    text: 'let entries: readonly IpRange[] = pool.exclude.map(range)',
    replacement: 'let entries: readonly IpRange[] = []',
    fails: 'test/e2e/cli.test.ts',
  },
  {
    guard: 'exclusions are changed only as they were read',
    file: 'src/cli/pool.ts',
    text: 'version ??= found!.version',
    replacement: 'version ??= undefined',
    fails: 'test/e2e/cli.test.ts',
  },
]

export const GUARDS: readonly Guard[] = [
  ...JUDGED,
  ...LOOKED_AT_AGAIN,
  ...SIGHTED,
  ...SOURCES,
  ...HANDED_OUT,
  ...IN_THE_SHELL,
  ...ASKED,
  ...LISTED_SINCE,
  ...WITNESSES,
  ...SEALED,
  ...REVIEWED,
]

export function isQuick({ fails }: Guard): boolean {
  return fails.startsWith('test/unit/')
}
