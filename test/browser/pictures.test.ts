/** The main screens of a network that has lived a day: what the pages say is seen in them. `--update` takes the pictures of docs/images. */
import { afterAll, expect, test } from 'vitest'
import { useTestDatabase, withClient } from '../support/database.ts'
import {
  DAY_NETWORK,
  liveADay,
  SILENT_SOURCE,
  STORIED_ADDRESS,
  STORIED_OWNERS,
} from '../support/day-of-life.ts'
import { SAME_LIFE } from '../support/same-life.ts'
import { serviceOn } from '../support/service.ts'
import { openBrowser } from './chromium.ts'

const database = await useTestDatabase()
const { storied } = await withClient(database.adminUrl, async (admin) => {
  await admin.query(SAME_LIFE)
  return liveADay(admin)
})
const service = await serviceOn({ database })
const browser = await openBrowser()
afterAll(async () => {
  await browser.close()
  await service.stop()
})
const [, second] = storied
/** When the second of them got it. */
const then = second!.split('/')[1]!

test.each([
  {
    picture: 'overview',
    view: 'overview/*',
    seen: ['TOO_MANY_REAPS', '2 excluded', `${SILENT_SOURCE} has not reported`, 'grows by'],
  },
  {
    picture: 'map',
    view: `pool/*/web?at=${then}`,
    seen: ['grows by', `${STORIED_ADDRESS} ACTIVE container ${STORIED_OWNERS[1]}`],
  },
  {
    picture: 'address',
    view: `address/*/${STORIED_ADDRESS}`,
    seen: ['set aside as CONFLICT', 'PROVEN_ABSENT', ...STORIED_OWNERS],
  },
  {
    picture: 'attention',
    view: 'attention/*',
    seen: ['LOOKUP_FAILING', 'connection refused', `Retire ${SILENT_SOURCE}`],
  },
])('$picture', async ({ picture, view, seen }) => {
  const page = await browser.newPage({ viewport: { width: 1200, height: 800 } })
  await page.goto(`${service.url}/#/${view.replace('*', DAY_NETWORK)}`)
  for (const text of seen) await page.getByText(text).or(page.getByLabel(text)).first().waitFor()
  const { snapshotUpdateState } = expect.getState().snapshotState
  const path = new URL(`../../docs/images/${picture}.png`, import.meta.url).pathname
  await page.screenshot(snapshotUpdateState === 'all' ? { path } : {})
  await page.close()
})

test('to resume names the hold that it ends', async () => {
  const page = await browser.newPage()
  await page.goto(`${service.url}/#/overview/${DAY_NETWORK}`)
  await page.locator('.banner').getByRole('button', { name: 'Resume' }).click()
  await page.getByRole('dialog').getByText('ends TOO_MANY_REAPS').waitFor()
  await page.getByText(`ipledger network resume ${DAY_NETWORK} --why … --cause TOO_MANY_REAPS`).waitFor()
  await page.close()
})

test('a chart has no line over a time in which nothing was counted', async () => {
  const page = await browser.newPage({ viewport: { width: 1200, height: 800 } })
  await page.goto(`${service.url}/#/pool/${DAY_NETWORK}/web`)
  await page.locator('.chart canvas').waitFor()
  const widestGap = `(() => {
    const element = document.querySelector('.chart canvas')
    const { data } = element.getContext('2d').getImageData(0, 0, element.width, element.height)
    const isActive = (at) => data[at] === 0 && data[at + 1] === 114 && data[at + 2] === 178
    const columns = Array.from({ length: element.width }, (_, x) =>
      Array.from({ length: element.height }, (_, y) => (y * element.width + x) * 4).some(isActive))
    const drawn = columns.flatMap((has, x) => (has ? [x] : []))
    return Math.max(...drawn.slice(1).map((x, index) => x - drawn[index]))
  })()`
  // Between the samples of one hour there are some pixels, over an hour without any about a sixth of the chart.
  await expect.poll(() => page.evaluate(widestGap)).toBeGreaterThan(30)
  await page.close()
})

test('a chart in the colours of a dark page', async () => {
  const page = await browser.newPage({ colorScheme: 'dark' })
  await page.goto(`${service.url}/#/pool/${DAY_NETWORK}/web`)
  await page.locator('.chart canvas').waitFor()
  const inkOf = `(() => {
    const element = document.querySelector('.chart canvas')
    const { data } = element.getContext('2d').getImageData(0, 0, element.width, element.height)
    const ink = getComputedStyle(element).color.match(/\\d+/g).map(Number)
    const isInk = (at) => data[at + 3] === 255 && ink.every((part, index) => data[at + index] === part)
    return Array.from({ length: data.length / 4 }, (_, index) => index * 4).filter(isInk).length
  })()`
  await expect.poll(() => page.evaluate(inkOf)).toBeGreaterThan(0)
  await page.close()
})
