// The predicted distribution at every input: a mixture with equal weights of one normal distribution per sample.

const SQRT_2PI = Math.sqrt(2 * Math.PI);

// The standard normal distribution function, with a relative error below 1e-15 (W. J. Cody's rational functions would
// do; a continued fraction and a series are shorter).
export function normalCdf(z) {
  const x = Math.abs(z);
  let tail;
  if (x > 38) tail = 0;
  else if (x > 3) {
    let fraction = x;
    for (let k = 60; k > 0; k--) fraction = x + k / fraction;
    tail = Math.exp(-0.5 * x * x) / (SQRT_2PI * fraction);
  } else {
    let term = x;
    let sum = x;
    for (let k = 3; Math.abs(term) > 1e-17 * sum && k < 200; k += 2) sum += term *= (x * x) / k;
    tail = 0.5 - (sum * Math.exp(-0.5 * x * x)) / SQRT_2PI;
  }
  return z > 0 ? 1 - tail : tail;
}

// A table of the distribution function: bands are drawn, so 1e-7 is exact enough, and it is ten times faster.
const TABLE_STEPS = 256;
const TABLE = Float64Array.from({ length: 16 * TABLE_STEPS + 3 }, (_, i) => normalCdf((i - 1) / TABLE_STEPS - 8));

function fastCdf(z) {
  if (z <= -8) return 0;
  if (z >= 8) return 1;
  const at = (z + 8) * TABLE_STEPS + 1;
  const i = Math.floor(at);
  const t = at - i;
  const [a, b, c, d] = [TABLE[i - 1], TABLE[i], TABLE[i + 1], TABLE[i + 2]];
  return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

export class Predictive {
  // `outputs` has one array per sample; with two outputs per input, the second is the logarithm of a noise variance,
  // which `noise` multiplies. Otherwise `noise` is the variance itself.
  constructor(outputs, noise, perInput = 1) {
    const [samples, rows] = [outputs.length, outputs[0].length / perInput];
    this.locations = perInput === 1 ? outputs : outputs.map((row) => row.filter((_, i) => i % perInput === 0));
    this.variances =
      perInput === 1
        ? outputs.map(() => new Float64Array(rows).fill(noise))
        : outputs.map((row) => row.filter((_, i) => i % perInput).map((value) => noise * Math.exp(value)));
    this.mean = new Float64Array(rows);
    this.epistemic = new Float64Array(rows);
    this.aleatoric = new Float64Array(rows);
    for (let s = 0; s < samples; s++) {
      for (let i = 0; i < rows; i++) {
        this.mean[i] += this.locations[s][i] / samples;
        this.aleatoric[i] += this.variances[s][i] / samples;
      }
    }
    for (const row of this.locations) {
      for (let i = 0; i < rows; i++) this.epistemic[i] += (row[i] - this.mean[i]) ** 2 / samples;
    }
  }

  get variance() {
    return this.epistemic.map((value, i) => value + this.aleatoric[i]);
  }

  // The quantile of the mixture at every input; without noise, that of the samples.
  quantile(level, exact = false) {
    const cdf = exact ? normalCdf : fastCdf;
    return this.mean.map((_, i) => this.quantileAt(i, level, cdf));
  }

  quantileAt(i, level, cdf) {
    const centers = this.locations.map((row) => row[i]);
    const widths = this.variances.map((row) => Math.sqrt(row[i]));
    if (Math.max(...widths) < 1e-9) return sampleQuantile(centers, level);
    const total = Math.sqrt(this.epistemic[i] + this.aleatoric[i]);
    let low = Math.min(...centers) - 9 * Math.max(...widths);
    let high = Math.max(...centers) + 9 * Math.max(...widths);
    let at = this.mean[i] + 2.8 * (level - 0.5) * total;
    for (let step = 0; step < 60; step++) {
      let below = 0;
      let density = 0;
      for (let s = 0; s < centers.length; s++) {
        const z = (at - centers[s]) / widths[s];
        below += cdf(z) / centers.length;
        density += Math.exp(-0.5 * z * z) / (widths[s] * SQRT_2PI * centers.length);
      }
      if (below > level) high = at;
      else low = at;
      const newton = at - (below - level) / density;
      const next = newton > low && newton < high ? newton : (low + high) / 2;
      if (Math.abs(next - at) < 1e-8 * total) return next;
      at = next;
    }
    return at;
  }

  // The continuous ranked probability score of the normal distribution with this mean and variance; lower is better.
  crps(y) {
    return this.variance.map((variance, i) => normalCrps(y[i], this.mean[i], Math.sqrt(variance)));
  }
}

export function normalCrps(y, mean, std) {
  const z = (y - mean) / std;
  return std * (z * (2 * normalCdf(z) - 1) + (2 * Math.exp(-0.5 * z * z)) / SQRT_2PI - 1 / Math.sqrt(Math.PI));
}

function sampleQuantile(values, level) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = level * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}
