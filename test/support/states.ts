/** How an address gets into each state of DESIGN §3. Its lease, where it has one, is the given holder's. */
import type { Owner } from '../../src/core/owner.ts'
import { active, closed, DAY, elapsed, type Fact, quarantined, reaped, released, reserved } from './given.ts'

export const SUBJECT = '10.0.0.5'

export const EVERY_STATE = [
  'FREE',
  'COOLED',
  'COOLING',
  'COOLING_REAPED',
  'RESERVED',
  'ACTIVE',
  'SUPERSEDED',
  'REMOVAL_UNCONFIRMED',
  'CONFLICT',
  'OPERATOR',
  'RELEASED_BUT_LIVE',
  'SECOND_ADDRESS',
  'FOREIGN',
  'SEEN_BY_CALLER',
] as const

export type State = (typeof EVERY_STATE)[number]

export const QUARANTINED = [
  'SUPERSEDED',
  'REMOVAL_UNCONFIRMED',
  'CONFLICT',
  'OPERATOR',
  'RELEASED_BUT_LIVE',
  'SECOND_ADDRESS',
  'FOREIGN',
  'SEEN_BY_CALLER',
] as const

export const ENDED = ['COOLED', 'COOLING', 'COOLING_REAPED'] as const

export function statesOf(holder: Owner): Readonly<Record<State, readonly Fact[]>> {
  return {
    FREE: [],
    COOLED: [active(SUBJECT, holder), released(SUBJECT), elapsed(DAY)],
    COOLING: [active(SUBJECT, holder), released(SUBJECT)],
    COOLING_REAPED: [active(SUBJECT, holder), reaped(SUBJECT)],
    RESERVED: [reserved(SUBJECT, holder)],
    ACTIVE: [active(SUBJECT, holder)],
    SUPERSEDED: [active(SUBJECT, holder), quarantined(SUBJECT, 'SUPERSEDED'), closed(holder)],
    REMOVAL_UNCONFIRMED: [
      active(SUBJECT, holder),
      quarantined(SUBJECT, 'REMOVAL_UNCONFIRMED'),
      closed(holder),
    ],
    CONFLICT: [active(SUBJECT, holder), quarantined(SUBJECT, 'CONFLICT')],
    OPERATOR: [active(SUBJECT, holder), quarantined(SUBJECT, 'OPERATOR')],
    RELEASED_BUT_LIVE: [active(SUBJECT, holder), quarantined(SUBJECT, 'RELEASED_BUT_LIVE')],
    SECOND_ADDRESS: [active(SUBJECT, holder), quarantined(SUBJECT, 'SECOND_ADDRESS')],
    FOREIGN: [quarantined(SUBJECT, 'FOREIGN')],
    SEEN_BY_CALLER: [quarantined(SUBJECT, 'SEEN_BY_CALLER')],
  }
}
