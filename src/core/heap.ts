/** A binary min-heap. Stale entries stay until they come up; the caller checks what it takes. */
export function createHeap<T>(isBefore: (a: T, b: T) => boolean) {
  const items: T[] = []
  return {
    get size(): number {
      return items.length
    },
    peek: (): T | undefined => items[0],
    push(item: T): void {
      let at = items.length
      while (at > 0) {
        const parent = (at - 1) >>> 1
        if (!isBefore(item, items[parent]!)) break
        items[at] = items[parent]!
        at = parent
      }
      items[at] = item
    },
    pop(): T | undefined {
      const top = items[0]
      const last = items.pop()!
      if (items.length === 0) return top
      let at = 0
      for (;;) {
        let child = 2 * at + 1
        if (child >= items.length) break
        if (child + 1 < items.length && isBefore(items[child + 1]!, items[child]!)) child++
        if (!isBefore(items[child]!, last)) break
        items[at] = items[child]!
        at = child
      }
      items[at] = last
      return top
    },
  }
}
