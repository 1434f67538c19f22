// Random numbers from a seed, so that the same state of the page gives the same picture.

export class Generator {
  constructor(seed) {
    this.state = (seed * 2654435761 + 0x9e3779b9) >>> 0;
    this.spare = null;
    for (let i = 0; i < 8; i++) this.uniform();
  }

  // A number in [0, 1): the mulberry32 sequence.
  uniform() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let bits = this.state;
    bits = Math.imul(bits ^ (bits >>> 15), bits | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  }

  // A standard normal number (Box and Muller).
  normal() {
    if (this.spare !== null) {
      const value = this.spare;
      this.spare = null;
      return value;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    const angle = 2 * Math.PI * this.uniform();
    this.spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }

  // The whole numbers below `count` in random order.
  permutation(count) {
    const order = Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const other = Math.floor(this.uniform() * (i + 1));
      [order[i], order[other]] = [order[other], order[i]];
    }
    return order;
  }
}
