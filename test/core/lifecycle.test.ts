import { describe, test } from 'vitest'
import { given } from './given.ts'
import { LIFECYCLE, type Row, TRUTH } from './rows.ts'

function rows(name: string, all: readonly Row[]): void {
  describe(name, () => {
    for (const row of all)
      test(row.name, () => {
        const shown = given(...row.given)
          .when(row.when)
          .then(...row.gives)
        if (row.answers !== undefined) shown.answers(...row.answers)
      })
  })
}

rows('lifecycle', LIFECYCLE)
rows('truth', TRUTH)
