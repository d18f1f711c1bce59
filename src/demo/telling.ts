/** How a demo is told: numbered steps, and what they show beneath, three columns in. */

export type Telling = Readonly<{
  step: (title: string) => void
  /** Paragraphs and tables. */
  show: (...blocks: readonly string[]) => void
  /** One line of several that come one by one; `end` follows the last. */
  line: (text: string) => void
  end: () => void
}>

const INDENT = '   '
const WIDTH = 112

export function createTelling(say: (text: string) => void): Telling {
  let steps = 0
  return {
    step: (title) => {
      steps += 1
      say(`${steps}  ${title}\n`)
    },
    show: (...blocks) => {
      for (const block of blocks) say(`${indented(block)}\n`)
    },
    line: (text) => say(`${INDENT}${text}`),
    end: () => say(''),
  }
}

function indented(block: string): string {
  return block
    .split('\n')
    .map((line) => (line === '' ? '' : `${INDENT}${line}`))
    .join('\n')
}

/** Between words, where a line is too long for it; a table is not prose. */
export function wrapped(prose: string): string {
  const lines: string[] = []
  for (const word of prose.split(' ')) {
    const last = lines.at(-1)
    if (last === undefined || last.length + 1 + word.length > WIDTH) lines.push(word)
    else lines[lines.length - 1] = `${last} ${word}`
  }
  return lines.join('\n')
}
