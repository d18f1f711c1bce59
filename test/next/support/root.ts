/** Where README.md, docs and ops are. */
export const ROOT = new URL('../../../src/next/', import.meta.url)
