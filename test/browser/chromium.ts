/** A real browser, Debian's Chromium. */
import { type Browser, chromium } from 'playwright-core'

/** As root it has no sandbox; it opens only pages of tests. */
export const openBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
