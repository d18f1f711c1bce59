/** All dashboards, by the names of their files. */
import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'
import { address } from './address.ts'
import { overview } from './overview.ts'
import { pool } from './pool.ts'
import { service } from './service.ts'
import { sources } from './sources.ts'

export const DASHBOARDS: Readonly<Record<string, Dashboard>> = { overview, pool, address, sources, service }
