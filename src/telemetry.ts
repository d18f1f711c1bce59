/**
 * The logger, and the names of what is counted. Logs are JSON lines on stderr, so that stdout carries only what a
 * command was asked for. Counts go nowhere unless a process registers a meter provider.
 */

import { metrics } from '@opentelemetry/api'
import { pino } from 'pino'
import type { LogLevel } from './config.ts'

export type Logger = pino.Logger

export function createLogger(level: LogLevel): Logger {
  return pino(
    { name: 'ipledger', level, base: { pid: process.pid } },
    pino.destination({ fd: 2, sync: true }),
  )
}

const meter = metrics.getMeter('ipledger')

/** Commands the ledger refused, by `reason`: an unmatched Release is counted, not a silent success. */
export const refusals = meter.createCounter('ipledger.ledger.refusals', {
  description: 'Commands the ledger refused',
  unit: '{command}',
})
