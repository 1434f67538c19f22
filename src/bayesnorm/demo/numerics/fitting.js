// Fit one network, or five, to the points of the page, and sample functions from the posterior of a method.

import { bestNoise, chooseByBound } from "./batch_size.js";
import { evaluate } from "./network.js";
import { BatchNormPosterior, Fluctuations, collectStatistics, randomBatches, updateRunning } from "./posterior.js";
import { Generator } from "./random.js";
import { Training, dropoutMasks } from "./training.js";

export const BATCH_NORM = ["mcbn", "gaussian", "stochastic"];
export const SIZES = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];
const MEMBERS = 5;
const DROPOUT = 0.1;
const DECAY = 1e-4;
const STATES = 256;
const FOLDS = 5;
// Points that choose noise and batch size: per fold, and of the training for the evidence bound.
const MOST_SCORED = 60;
const MOST_BOUND = 200;

// Means and standard deviations of the points, and the points in these units.
export function standardised(points) {
  const scale = (values) => {
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
    return { mean, std: Math.sqrt(variance) || 1 };
  };
  const [x, y] = [scale(points.map((point) => point[0])), scale(points.map((point) => point[1]))];
  return {
    scales: { x, y },
    x: Float64Array.from(points, (point) => (point[0] - x.mean) / x.std),
    y: Float64Array.from(points, (point) => (point[1] - y.mean) / y.std),
  };
}

// The batch size of training: 16 for a few points, 32 for many, and always fewer than all points.
export function trainingBatchSize(rows) {
  if (rows < 20) return Math.floor(0.75 * rows);
  return rows >= 150 ? 32 : 16;
}

export class Fit {
  // `settings`: width, predictsNoise, seed, steps. `kind`: "plain", "dropout" or "ensemble".
  constructor(x, y, kind, settings) {
    Object.assign(this, { x, y, kind, settings });
    this.batchSize = trainingBatchSize(x.length);
    this.trainings = Array.from({ length: kind === "ensemble" ? MEMBERS : 1 }, (_, member) => {
      const { width, seed, steps } = settings;
      return new Training(x, y, {
        width,
        steps,
        batchSize: this.batchSize,
        decay: DECAY,
        outputs: settings.predictsNoise ? 2 : 1,
        dropout: kind === "dropout" ? DROPOUT : 0,
        seed: seed + 1000 * member,
      });
    });
    this.networks = this.trainings.map((training) => training.network);
  }

  get finished() {
    return this.trainings.every((training) => training.finished);
  }

  get progress() {
    return this.trainings[0].done / this.trainings[0].steps;
  }

  step() {
    for (const training of this.trainings) training.step();
  }

  // Collect the statistics of random training batches; networks with all their steps also get precise running ones.
  collect(states = STATES) {
    const random = new Generator(this.settings.seed + 7);
    this.statistics = this.networks.map((network) => {
      const batches = randomBatches(this.x, this.batchSize, states, random);
      const statistics = collectStatistics(network, batches);
      updateRunning(network, statistics, this.batchSize);
      return statistics;
    });
  }

  posterior(method, batchSize) {
    const fluctuations = new Fluctuations(method, this.statistics[0]);
    return new BatchNormPosterior(this.networks[0], fluctuations, this.batchSize).atBatchSize(batchSize);
  }

  // Outputs of samples at standardised inputs: one array per sample.
  sample(method, x, samples, batchSize) {
    const random = new Generator(this.settings.seed + 99);
    const [network] = this.networks;
    if (BATCH_NORM.includes(method)) {
      const states = this.posterior(method, batchSize).sample(samples, random);
      return states.map((state) => evaluate(network, x, state));
    }
    if (method === "dropout") {
      const running = network.runningCoordinates();
      return Array.from({ length: samples }, () =>
        evaluate(network, x, running, dropoutMasks(network.channels, DROPOUT, random)),
      );
    }
    return this.networks.map((member) => evaluate(member, x, member.runningCoordinates()));
  }

  // The effective batch size with the highest evidence lower bound.
  chooseByBound(noise) {
    const random = new Generator(this.settings.seed + 3);
    const posterior = this.posterior("mcbn", this.batchSize);
    const deviations = posterior.fluctuations.sample(32, random);
    const order = random.permutation(this.x.length);
    const batches = [];
    while (order.length >= this.batchSize) {
      batches.push(Float64Array.from(order.splice(0, this.batchSize), (row) => this.x[row]));
    }
    const [x, y] = [this.x, this.y].map((values) => values.subarray(0, MOST_BOUND));
    return chooseByBound(posterior, x, y, this.x.length, noise, DECAY, SIZES, deviations, batches);
  }
}

export function kindOfFit(method) {
  return method === "dropout" || method === "ensemble" ? method : "plain";
}

// Five-fold cross-validation: fit on four fifths, and keep the fits with the points that they have not seen.
// A generator: every `next()` takes one training step, so that the caller can stop.
export function* crossValidate(x, y, kind, settings) {
  const order = new Generator(settings.seed + 11).permutation(x.length);
  const folds = [];
  for (let fold = 0; fold < FOLDS; fold++) {
    const held = new Set(order.filter((_, i) => i % FOLDS === fold));
    const keep = (values) => values.filter((_, row) => !held.has(row));
    const fit = new Fit(keep(x), keep(y), kind, settings);
    while (!fit.finished) {
      fit.step();
      yield;
    }
    fit.collect(64);
    const scored = [...held].slice(0, MOST_SCORED);
    folds.push({ fit, x: Float64Array.from(scored, (row) => x[row]), y: Float64Array.from(scored, (row) => y[row]) });
    yield;
  }
  return folds;
}

// The noise with the lowest held-out CRPS: for each effective batch size, or one for methods without.
// A generator that yields after each size.
export function* calibrations(folds, method, predictsNoise) {
  const rows = [];
  for (const size of BATCH_NORM.includes(method) ? SIZES : [Infinity]) {
    const cases = folds.map(({ fit, x, y }) => ({ outputs: fit.sample(method, x, 24, size), y }));
    rows.push({ size, ...bestNoise(cases, predictsNoise ? 2 : 1) });
    yield;
  }
  return rows;
}
