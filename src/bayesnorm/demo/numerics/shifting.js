// The second panel's numbers: a network for the readings of a sensor, and new readings that may be shifted.

import { bestNoise } from "./batch_size.js";
import { TrainingBatches, adapt, withPresent } from "./drift.js";
import { Fit, standardised } from "./fitting.js";
import { evaluate } from "./network.js";
import { collectStatistics, randomBatches } from "./posterior.js";
import { Predictive } from "./predictive.js";
import { Generator } from "./random.js";

const ROWS = 240;
const NEW_ROWS = 128;
const STATE_COUNT = 128;
const PAIRS = 32;
const NOISE_STD = 0.2;

// Points of the function that the network learns: (x, y) with x between -4 and 4.
export function sensorPoints(count, random) {
  return Array.from({ length: count }, () => {
    const x = -4 + 8 * random.uniform();
    return [x, Math.sin(1.4 * x) + 0.25 * x + NOISE_STD * random.normal()];
  });
}

export class ShiftProblem {
  constructor() {
    const random = new Generator(4);
    this.points = sensorPoints(ROWS, random);
    const { x, y, scales } = standardised(this.points);
    Object.assign(this, { x, y, scales });
    this.fit = new Fit(x, y, "plain", { width: 30, predictsNoise: false, seed: 2, steps: 500 });
  }

  // What follows the training: statistics of batches and of their halves, and the noise on further points.
  finish() {
    const { fit, x, scales } = this;
    const [network] = fit.networks;
    fit.collect(STATE_COUNT);
    const random = new Generator(5);
    const batches = randomBatches(x, fit.batchSize, STATE_COUNT, random);
    const half = fit.batchSize / 2;
    const halves = batches.slice(0, PAIRS).map((batch, index) => [
      index,
      ...collectStatistics(network, [batch.subarray(0, half), batch.subarray(half)]),
    ]);
    const statistics = collectStatistics(network, batches);
    this.reference = new TrainingBatches(statistics, halves, fit.batchSize, ROWS, network.width);
    this.original = fit.posterior("mcbn", fit.batchSize);
    const further = sensorPoints(NEW_ROWS, random);
    const inputs = Float64Array.from(further, (point) => (point[0] - scales.x.mean) / scales.x.std);
    const targets = Float64Array.from(further, (point) => (point[1] - scales.y.mean) / scales.y.std);
    this.noise = bestNoise([{ outputs: this.outputs(this.original, inputs), y: targets }]).noise;
  }

  outputs(posterior, inputs) {
    const states = posterior.sample(32, new Generator(6));
    return states.map((state) => evaluate(posterior.network, inputs, state));
  }

  predict(posterior, inputs) {
    return new Predictive(this.outputs(posterior, inputs), this.noise);
  }

  // The answer for readings that are shifted by `shift`: the test, errors, and bands on a grid of readings.
  // `present` is the posterior in use: the original one, or an adapted one.
  answer(shift, seed, present, grid) {
    const { scales, reference, original, fit } = this;
    const points = sensorPoints(NEW_ROWS, new Generator(100 + seed)).map(([x, y]) => [x + shift, y]);
    const inputs = Float64Array.from(points, (point) => (point[0] - scales.x.mean) / scales.x.std);
    const groups = [];
    for (let start = 0; start < NEW_ROWS; start += fit.batchSize) groups.push(inputs.subarray(start, start + fit.batchSize));
    const comparison = reference.compare(collectStatistics(fit.networks[0], groups));
    const adapted = adapt(original, reference, comparison);
    const [now, after] = [this.predict(present, inputs), this.predict(adapted, inputs)];
    const root = (values) => Math.sqrt(values.reduce((sum, value) => sum + value, 0) / values.length) * scales.y.std;
    const errors = ({ mean }) => mean.map((value, i) => (value - (points[i][1] - scales.y.mean) / scales.y.std) ** 2);
    const gridInputs = Float64Array.from(grid, (value) => (value - scales.x.mean) / scales.x.std);
    const bands = this.predict(present, gridInputs);
    const raw = (values) => values.map((value) => value * scales.y.std + scales.y.mean);
    return {
      adapted,
      points,
      pValue: reference.pValue(present === original ? comparison : withPresent(comparison, present)),
      // Without targets, the error is that of the present mean if the adapted network is right.
      expected: root(after.variance.map((value, i) => value + (now.mean[i] - after.mean[i]) ** 2)),
      expectedAfter: root(after.variance),
      error: root(errors(now)),
      errorAfter: root(errors(after)),
      mean: raw(bands.mean),
      quantiles: [0.025, 0.25, 0.75, 0.975].map((level) => raw(bands.quantile(level))),
    };
  }
}
