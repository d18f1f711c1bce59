/** Where README.md, docs and ops are, and where the source is. */
export const ROOT = new URL('../../../src/next/', import.meta.url)
export const SRC = new URL('../../../src/next/', import.meta.url)
