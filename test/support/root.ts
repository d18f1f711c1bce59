/** Where README.md, docs and ops are, and where the source is. */
export const ROOT = new URL('../../', import.meta.url)
export const SRC = new URL('../../src/', import.meta.url)
