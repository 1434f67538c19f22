// Do new inputs come from the training distribution, and what do batch statistics become if not? This is bayesnorm's
// `drift` and `adapt` (posterior/batch_variation.py, posterior/training_batches.py, shift/) for groups of exactly one
// batch: the part that needs only statistics of whole batches and of their halves.

import { Fluctuations, meanOf } from "./posterior.js";
import { logGamma, logGammaLower, pearsonTail } from "./special.js";

const PLAIN_UP_TO = 100;
const LEAST_SHARE = 1e-4;
const PRIOR_PAIRS = 2;

const clipped = (square) => Math.min(square, PLAIN_UP_TO) + PLAIN_UP_TO * Math.log(Math.max(square / PLAIN_UP_TO, 1));

// The means of every layer, then its log-variances, are one part each.
function partMeans(values, width) {
  const parts = new Array(values.length / width).fill(0);
  for (let i = 0; i < values.length; i++) parts[Math.floor(i / width)] += values[i] / width;
  return parts;
}

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function floored(variance, width) {
  return variance.map((value, i) => {
    const start = i - (i % width);
    const sorted = Array.from(variance.subarray(start, start + width)).sort((a, b) => a - b);
    return Math.max(value, sorted[Math.floor((width - 1) / 2)] * LEAST_SHARE, 1e-30);
  });
}

// How the statistics of training batches vary.
export class TrainingBatches {
  // `batches` are statistics in coordinates; `halves` holds triples [index of a batch, half, other half].
  constructor(batches, halves, batchSize, rows, width) {
    Object.assign(this, { batchSize, rows, width, count: batches.length });
    this.center = meanOf(batches);
    const deviations = batches.map((row) => row.map((value, i) => value - this.center[i]));
    const squareSum = new Float64Array(this.center.length);
    for (const row of deviations) for (let i = 0; i < row.length; i++) squareSum[i] += row[i] ** 2;
    this.variance = floored(squareSum.map((value) => value / (this.count - 1)), width);
    this.standardised = deviations.map((row) => row.map((value, i) => value / Math.sqrt(this.variance[i])));
    this.shares = this.sharesOfHalves(halves);
    this.moments = this.distanceMoments(deviations);
  }

  // The share of a part's variance that is a sum of contributions of single examples.
  sharesOfHalves(halves) {
    const means = halves.map(([, first, second]) => first.map((value, i) => 0.5 * (value + second[i])));
    const center = meanOf(means);
    let common = new Array(this.center.length / this.width).fill(0);
    halves.forEach(([index], pair) => {
      const products = this.standardised[index].map(
        (value, i) => (value * (means[pair][i] - center[i])) / Math.sqrt(this.variance[i]),
      );
      common = common.map((sum, part) => sum + partMeans(products, this.width)[part]);
    });
    const pairs = halves.length;
    return common.map((sum) =>
      Math.min(1, Math.max(0, ((sum * pairs) / (pairs - 1) + PRIOR_PAIRS) / (pairs + PRIOR_PAIRS))),
    );
  }

  // Mean, variance and third cumulant of the distance of one batch, and their limits for many groups: one entry per
  // part, and one for the mean of all parts.
  distanceMoments(deviations) {
    const { count, width } = this;
    const rows = deviations.map((row) => {
      const squares = row.map((value) => (value * value * count) / (count - 1));
      const others = floored(squares.map((value, i) => (this.variance[i] * (count - 1) - value) / (count - 2)), width);
      const distances = squares.map((value, i) =>
        clipped((value * (count / (count - 1))) / (others[i] * (1 + 1 / (count - 1)))),
      );
      const parts = partMeans(distances, width);
      return [...parts, average(parts)];
    });
    const grams = this.innerProducts();
    return rows[0].map((_, part) => {
      const values = rows.map((row) => row[part]);
      const mean = average(values);
      const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1);
      const third = average(values.map((value) => (value - mean) ** 3));
      return { mean, variance, third, ...limits(grams[part], count) };
    });
  }

  innerProducts() {
    const { count, width, standardised } = this;
    const parts = standardised[0].length / width;
    const grams = Array.from({ length: parts + 1 }, () => new Float64Array(count * count));
    for (let a = 0; a < count; a++) {
      for (let b = 0; b < a; b++) {
        for (let part = 0; part < parts; part++) {
          let sum = 0;
          for (let i = part * width; i < (part + 1) * width; i++) sum += standardised[a][i] * standardised[b][i];
          grams[part][a * count + b] = grams[part][b * count + a] = sum / width;
          grams[parts][a * count + b] += sum / width / parts;
          grams[parts][b * count + a] += sum / width / parts;
        }
      }
    }
    return grams;
  }

  // The statistics of new examples, one array per group of one batch, compared with those of training examples.
  compare(groups) {
    const finite = (this.rows - 1) / Math.max(1, this.rows - this.batchSize);
    const fresh = 1 / (this.batchSize * groups.length) + 1 / (this.batchSize * this.count);
    const shift = meanOf(groups).map((value, i) => value - this.center[i]);
    const noise = this.variance.map(
      (value, i) => value * this.batchSize * finite * (fresh + this.shares[Math.floor(i / this.width)] / this.rows),
    );
    return { shift, noise, groups: groups.length };
  }

  // The probability that training examples differ at least as much.
  pValue({ shift, noise, groups }) {
    const parts = partMeans(shift.map((value, i) => clipped(value ** 2 / noise[i])), this.width);
    const tails = [...parts, average(parts)].map((distance, part) => {
      const { mean, variance, third, limitVariance, limitThird } = this.moments[part];
      const spread = limitVariance + Math.max(variance - limitVariance, 0) / groups;
      const skew = (limitThird + Math.max(third - limitThird, 0) / groups ** 2) / spread ** 1.5;
      return pearsonTail((distance - mean) / Math.sqrt(spread), skew);
    });
    const share = 0.1 * Math.min(1, this.count / 256);
    const farthest = Math.min(...tails.slice(0, -1)) * parts.length;
    return Math.min(1, tails[parts.length] / (1 - share), farthest / share);
  }

  // The share of the observed shift that is taken as real, for every part.
  believed({ shift, noise, groups }) {
    const squares = shift.map((value, i) => value ** 2 / noise[i]);
    const overall = average(partMeans(squares.map(clipped), this.width));
    const { mean, variance, limitVariance } = this.moments[this.moments.length - 1];
    const spread = limitVariance + Math.max(variance - limitVariance, 0) / groups;
    const channels = Math.min(1e6, Math.max(1, (2 * mean ** 2) / spread));
    const probability = driftProbability(overall, channels);
    return partMeans(squares, this.width).map((distance) => Math.max(0, 1 - 1 / distance) * probability);
  }
}

// Variance and third cumulant of the quadratic form in normal variables with these inner products.
function limits(gram, count) {
  let squares = 0;
  let triples = 0;
  const row = new Float64Array(count);
  for (let a = 0; a < count; a++) {
    row.fill(0);
    for (let b = 0; b < count; b++) {
      const value = gram[a * count + b];
      squares += value * value;
      if (value !== 0) for (let c = 0, at = b * count; c < count; c++) row[c] += value * gram[at + c];
    }
    for (let c = 0; c < count; c++) triples += row[c] * gram[a * count + c];
  }
  return {
    limitVariance: (2 * squares) / (count * (count - 1)),
    limitThird: Math.max(0, (8 * triples) / (count * (count - 1) * (count - 2))),
  };
}

// The probability that the data have drifted, given their distance over this many effective channels.
export function driftProbability(distance, channels) {
  const shape = channels / 2 + 1;
  const scaled = (channels * Math.max(distance, 1e-12)) / 2;
  const logAverage = logGamma(shape) - shape * Math.log(scaled) + logGammaLower(shape, scaled);
  return 1 / (1 + Math.exp(-(logAverage + scaled)));
}

// A posterior whose centre moves by the believed share of the shift; what remains unknown widens its samples.
export function adapt(posterior, batches, comparison) {
  const shares = batches.believed(comparison);
  const share = (i) => shares[Math.floor(i / batches.width)];
  const widening = posterior.fittedBatchSize / posterior.batchSize;
  const left = comparison.noise.map((value, i) => share(i) * value);
  const factor = left.map((value, i) => Math.sqrt(1 + value / (batches.variance[i] * widening)));
  const original = posterior.fluctuations;
  const fluctuations = Object.assign(Object.create(Fluctuations.prototype), original, {
    deviations: original.deviations.map((row) => row.map((value, i) => value * factor[i])),
    std: original.std.map((value, i) => value * factor[i]),
  });
  const moved = comparison.shift.map((value, i) => share(i) * value);
  const location = posterior.location.map((value, i) => value + moved[i]);
  const adapted = Object.assign(posterior.atBatchSize(posterior.batchSize), { fluctuations, moved, left });
  return Object.defineProperty(adapted, "location", { value: location });
}

// A comparison with the data that a posterior was adapted to.
export function withPresent(comparison, adapted) {
  return {
    ...comparison,
    shift: comparison.shift.map((value, i) => value - adapted.moved[i]),
    noise: comparison.noise.map((value, i) => value + adapted.left[i]),
  };
}
