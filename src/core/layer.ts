/**
 * A map over another that can be thrown away: what is set or deleted stays here, everything else is read through. Made
 * in constant time, whatever the size below, so that a thousand trials of one batch cost what they touch. In the order of
 * a copy: what is changed keeps its place, what is deleted and set again goes to the end.
 *
 * Values that are changed in place are copied when they are first met; the map below must not change meanwhile.
 */
export class Layer<K, V extends object | string | number | boolean | null> extends Map<K, V> {
  readonly #below: ReadonlyMap<K, V>
  readonly #copy: ((value: V) => V) | undefined
  /** Of the keys below, those that are to be seen no more. */
  readonly #gone = new Set<K>()

  constructor(below: ReadonlyMap<K, V>, copy?: (value: V) => V) {
    super()
    this.#below = below
    this.#copy = copy
  }

  override get(key: K): V | undefined {
    const own = super.get(key)
    if (own !== undefined || this.#gone.has(key)) return own
    const found = this.#below.get(key)
    if (found === undefined || this.#copy === undefined) return found
    const copy = this.#copy(found)
    super.set(key, copy)
    return copy
  }

  override has(key: K): boolean {
    return super.has(key) || this.#isRead(key)
  }

  override delete(key: K): boolean {
    const had = this.has(key)
    super.delete(key)
    if (this.#below.has(key)) this.#gone.add(key)
    return had
  }

  override clear(): void {
    for (const key of this.#below.keys()) this.#gone.add(key)
    super.clear()
  }

  override *keys(): MapIterator<K> {
    for (const key of this.#below.keys()) if (!this.#gone.has(key)) yield key
    for (const key of super.keys()) if (!this.#isRead(key)) yield key
  }

  override *values(): MapIterator<V> {
    for (const key of this.keys()) yield this.get(key)!
  }

  override *entries(): MapIterator<[K, V]> {
    for (const key of this.keys()) yield [key, this.get(key)!]
  }

  override [Symbol.iterator](): MapIterator<[K, V]> {
    return this.entries()
  }

  override forEach(visit: (value: V, key: K, map: Map<K, V>) => void): void {
    for (const [key, value] of this.entries()) visit(value, key, this)
  }

  override get size(): number {
    let size = 0
    for (const _ of this.keys()) size += 1
    return size
  }

  #isRead(key: K): boolean {
    return !this.#gone.has(key) && this.#below.has(key)
  }
}
