/** How a demo is told: numbered steps, and what they show beneath, three columns in. */
export type Telling = {
  step(title: string): void
  /** Paragraphs and tables. */
  show(...blocks: readonly string[]): void
  /** One line of several that come one by one; `end` follows the last. */
  line(text: string): void
  end(): void
}

const INDENT = '   '

export function createTelling(say: (text: string) => void): Telling {
  let steps = 0
  return {
    step: (title) => {
      steps += 1
      say(`${steps}  ${title}\n`)
    },
    show: (...blocks) => {
      for (const block of blocks) say(`${block.replace(/^(?=.)/gm, INDENT)}\n`)
    },
    line: (text) => say(`${INDENT}${text}`),
    end: () => say(''),
  }
}
