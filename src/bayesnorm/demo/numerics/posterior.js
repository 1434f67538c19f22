// Posteriors over batch statistics, as in bayesnorm's posterior/batchnorm.py. Coordinates are the means of all layers,
// then log(variance + eps), so that every sum is a valid variance.

import { EPS } from "./network.js";
import { forwardBatch } from "./training.js";

// The statistics of batches of standardised inputs, in coordinates: one array per batch.
export function collectStatistics(network, batches) {
  return batches.map((x) => {
    const statistics = new Float64Array(network.running.length);
    forwardBatch(network, x, null, statistics);
    return toCoordinates(statistics, network.channels);
  });
}

export function toCoordinates(statistics, channels) {
  return statistics.map((value, i) => (i < channels ? value : Math.log(value + EPS)));
}

// Random batches: without replacement within a batch, independent of each other.
export function randomBatches(x, batchSize, count, random) {
  return Array.from({ length: count }, () => {
    const order = random.permutation(x.length).slice(0, batchSize);
    return Float64Array.from(order, (row) => x[row]);
  });
}

// Replace the running statistics by averages over batches, as torch.optim.swa_utils.update_bn does.
export function updateRunning(network, coordinates, batchSize) {
  const { running, channels } = network;
  const unbiased = batchSize / (batchSize - 1);
  running.fill(0);
  for (const values of coordinates) {
    for (let i = 0; i < running.length; i++) {
      running[i] += (i < channels ? values[i] : (Math.exp(values[i]) - EPS) * unbiased) / coordinates.length;
    }
  }
}

export function meanOf(rows) {
  const mean = new Float64Array(rows[0].length);
  for (const row of rows) for (let i = 0; i < mean.length; i++) mean[i] += row[i] / rows.length;
  return mean;
}

// How a batch's statistics deviate from their mean. Every kind has `sample(count, random)`.
export class Fluctuations {
  constructor(kind, batches) {
    const center = meanOf(batches);
    this.kind = kind;
    this.center = center;
    this.deviations = batches.map((row) => row.map((value, i) => value - center[i]));
    this.std = new Float64Array(center.length);
    for (const row of this.deviations) for (let i = 0; i < row.length; i++) this.std[i] += row[i] ** 2 / batches.length;
    this.std = this.std.map(Math.sqrt);
  }

  sample(count, random) {
    return { mcbn: empirical, gaussian: correlated, stochastic: independent }[this.kind](this, count, random);
  }
}

// MCBN: real batches, every one once before any comes again.
function empirical({ deviations }, count, random) {
  const chosen = [];
  while (chosen.length < count) chosen.push(...random.permutation(deviations.length));
  return chosen.slice(0, count).map((row) => deviations[row]);
}

// The Gaussian with the covariance of the batches: sums of their deviations with normal weights.
function correlated({ deviations }, count, random) {
  const scale = 1 / Math.sqrt(deviations.length);
  return Array.from({ length: count }, () => {
    const sum = new Float64Array(deviations[0].length);
    for (const row of deviations) {
      const weight = scale * random.normal();
      for (let i = 0; i < sum.length; i++) sum[i] += weight * row[i];
    }
    return sum;
  });
}

// Stochastic BN: independent normal means and log-normal standard deviations.
function independent({ std }, count, random) {
  return Array.from({ length: count }, () => std.map((value) => value * random.normal()));
}

// A distribution over batch statistics. center="running": samples lie around the network's running statistics;
// center="batch": around the mean of the batches.
export class BatchNormPosterior {
  constructor(network, fluctuations, fittedBatchSize, center = "running") {
    Object.assign(this, { network, fluctuations, fittedBatchSize, batchSize: fittedBatchSize, center });
  }

  get location() {
    return this.center === "running" ? this.network.runningCoordinates() : this.fluctuations.center;
  }

  // The same fluctuations times sqrt(M / M'), with M' the effective batch size.
  atBatchSize(batchSize) {
    const other = Object.assign(Object.create(Object.getPrototypeOf(this)), this);
    other.batchSize = batchSize;
    return other;
  }

  sample(count, random) {
    return this.place(this.fluctuations.sample(count, random));
  }

  place(deviations) {
    const spread = Math.sqrt(this.fittedBatchSize / this.batchSize);
    const { location } = this;
    return deviations.map((row) => row.map((value, i) => location[i] + spread * value));
  }
}
