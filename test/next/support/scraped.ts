/** A page as Prometheus reads it, read strictly: what is not in its text format 0.0.4 throws. */

export type Sample = {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export type Scraped = {
  readonly types: ReadonlyMap<string, string>
  readonly samples: readonly Sample[]
  /** Those of one name with these labels, among others. */
  of(name: string, labels?: Readonly<Record<string, string>>): readonly Sample[]
  /** Of the only one; undefined: there is none. */
  value(name: string, labels?: Readonly<Record<string, string>>): number | undefined
}

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(?:,|$)/y
const SUFFIXES = ['_bucket', '_sum', '_count'] as const

export function readPage(page: string): Scraped {
  if (!page.endsWith('\n')) throw new Error('the last line does not end')
  const types = new Map<string, string>()
  const samples: Sample[] = []
  const seen = new Set<string>()
  for (const line of page.split('\n').slice(0, -1)) {
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line)
    if (type !== null) {
      if (types.has(type[1]!)) throw new Error(`${type[1]} is there twice`)
      types.set(type[1]!, type[2]!)
      continue
    }
    if (/^# HELP \S+ \S/.test(line)) continue
    const found = SAMPLE.exec(line)
    if (found === null) throw new Error(`no sample: ${line}`)
    const [, name, labels = '', value] = found
    const family = [name!, ...SUFFIXES.map((suffix) => name!.replace(new RegExp(`${suffix}$`), ''))].find(
      (one) => types.has(one),
    )
    if (family === undefined) throw new Error(`${name} has no type`)
    const key = `${name}{${labels}}`
    if (seen.has(key)) throw new Error(`${key} is there twice`)
    seen.add(key)
    samples.push({ name: name!, labels: readLabels(labels), value: readValue(value!) })
  }
  const of: Scraped['of'] = (name, labels = {}) =>
    samples.filter(
      (one) =>
        one.name === name && Object.entries(labels).every(([label, value]) => one.labels[label] === value),
    )
  return {
    types,
    samples,
    of,
    value(name, labels = {}) {
      const found = of(name, labels)
      if (found.length > 1)
        throw new Error(`${name}${JSON.stringify(labels)} is ${found.length} series, not one`)
      return found[0]?.value
    },
  }
}

function readLabels(text: string): Readonly<Record<string, string>> {
  const labels: Record<string, string> = {}
  LABEL.lastIndex = 0
  for (let at = 0; at < text.length; at = LABEL.lastIndex) {
    const found = LABEL.exec(text)
    if (found === null) throw new Error(`no labels: ${text}`)
    const [, name, value] = found
    if (name! in labels) throw new Error(`label ${name} is there twice`)
    labels[name!] = value!.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped))
  }
  return labels
}

function readValue(text: string): number {
  if (text === '+Inf') return Number.POSITIVE_INFINITY
  const value = Number(text)
  if (Number.isNaN(value)) throw new Error(`no number: ${text}`)
  return value
}
