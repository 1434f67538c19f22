// The two ways to choose the effective batch size: the evidence lower bound (bayesnorm's `select_batch_size`) and the
// score on held-out points (`calibrate`).

import { evaluate } from "./network.js";
import { forwardBatch } from "./training.js";
import { Predictive, normalCrps } from "./predictive.js";

const FLOOR = 1e-12;
const RELATIVE_FLOOR = 1e-6;
const GOLDEN = (Math.sqrt(5) - 1) / 2;

// Central-limit Gaussians of every unit: mean, variance of the mean, and mean and variance of the standard deviation,
// for batches of one example. Batches normalise as in training; together they cover the data once.
export function unitGaussians(network, batches) {
  const { channels } = network;
  const inputs = batches.map((x) => preActivations(network, x));
  const rows = batches.reduce((sum, x) => sum + x.length, 0);
  return Array.from({ length: channels }, (_, c) => {
    let [mean, variance, fourth] = [0, 0, 0];
    for (const values of inputs) for (const value of values[c]) mean += value / rows;
    for (const values of inputs) for (const value of values[c]) variance += (value - mean) ** 2 / rows;
    for (const values of inputs) for (const value of values[c]) fourth += ((value - mean) ** 2 - variance) ** 2 / rows;
    const alive = variance > FLOOR;
    variance = Math.max(variance, FLOOR);
    return {
      std: Math.sqrt(variance),
      meanVariance: Math.max(alive ? variance : 0, RELATIVE_FLOOR * variance),
      stdVariance: Math.max(alive ? fourth / (4 * variance) : 0, RELATIVE_FLOOR * variance),
    };
  });
}

// The inputs of all batch-norm layers for one batch: an array of values per channel.
function preActivations(network, x) {
  const { saved } = forwardBatch(network, x);
  const { width } = network;
  return network.layers.flatMap((layer, l) => {
    const { input } = saved[l];
    return Array.from({ length: width }, (_, c) =>
      Float64Array.from(x, (_, row) => {
        let sum = 0;
        for (let i = 0; i < layer.inputs; i++) sum += input[row * layer.inputs + i] * layer.weight[c * layer.inputs + i];
        return sum;
      }),
    );
  });
}

// KL(q || p) of all units at a batch size, with a flat prior on means and the prior of weight decay on deviations.
export function divergence(units, batchSize, rows, precision, decay) {
  const prior = 1 / (rows * precision * decay);
  let sum = 0;
  for (const { std, meanVariance, stdVariance } of units) {
    const [byMean, byStd] = [meanVariance / batchSize, stdVariance / batchSize];
    sum -= 0.5 * (Math.log(2 * Math.PI * Math.E) + Math.log(byMean));
    sum += 0.5 * (Math.log(prior) - Math.log(byStd)) + 0.5 * ((byStd + std * std) / prior - 1);
  }
  return sum;
}

// The bound for one effective batch size and N training points, given outputs of its samples at some of them.
export function evidenceBound(units, batchSize, outputs, y, rows, noise, decay) {
  let fit = 0;
  for (const row of outputs) {
    for (let i = 0; i < y.length; i++) {
      fit -= (0.5 * ((y[i] - row[i]) ** 2 / noise + Math.log(2 * Math.PI * noise))) / outputs.length;
    }
  }
  return fit * (rows / y.length) - divergence(units, batchSize, rows, 1 / noise, decay);
}

// The noise variance, or its factor, with the lowest mean CRPS on held-out points. `folds` holds outputs and targets.
export function bestNoise(folds, perInput = 1) {
  const moments = folds.map(({ outputs, y }) => ({ y, predictive: new Predictive(outputs, 1, perInput) }));
  const objective = (logNoise) => {
    let [sum, count] = [0, 0];
    for (const { y, predictive } of moments) {
      for (let i = 0; i < y.length; i++, count++) {
        const variance = predictive.epistemic[i] + Math.exp(logNoise) * predictive.aleatoric[i];
        sum += normalCrps(y[i], predictive.mean[i], Math.sqrt(variance));
      }
    }
    return sum / count;
  };
  let best = -12;
  for (let value = -12; value <= 3; value += 0.5) if (objective(value) < objective(best)) best = value;
  let [low, high] = [best - 0.5, best + 0.5];
  for (let step = 0; step < 24; step++) {
    const [left, right] = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)];
    if (objective(left) < objective(right)) high = right;
    else low = left;
  }
  return { noise: Math.exp((low + high) / 2), score: objective((low + high) / 2) };
}

// The candidate with the highest bound. Samples use the same random numbers for all sizes.
export function chooseByBound(posterior, x, y, rows, noise, decay, sizes, deviations, batches) {
  const units = unitGaussians(posterior.network, batches);
  const bounds = sizes.map((size) => {
    const states = posterior.atBatchSize(size).place(deviations);
    const outputs = states.map((state) => evaluate(posterior.network, x, state));
    return evidenceBound(units, size, outputs, y, rows, noise, decay);
  });
  return sizes[bounds.indexOf(Math.max(...bounds))];
}
