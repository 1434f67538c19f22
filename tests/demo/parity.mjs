// Runs the modules of the demo page on a case that Python wrote, and prints their results as JSON.
// node parity.mjs FOLDER_OF_MODULES CASE.json

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.js`).href);
const given = JSON.parse(readFileSync(file, "utf8"));
const { Perceptron, evaluate } = await load("network");
const { Training } = await load("training");
const { BatchNormPosterior, Fluctuations, collectStatistics } = await load("posterior");
const { Generator } = await load("random");
const { Predictive } = await load("predictive");
const { bestNoise, divergence, evidenceBound, unitGaussians } = await load("batch_size");
const { TrainingBatches, adapt } = await load("drift");

const array = (values) => Float64Array.from(values);
const rowsOf = (values, indices) => indices.map((chosen) => array(chosen.map((row) => values[row])));

function network({ width, outputs, parameters, running }) {
  const result = new Perceptron(width, outputs);
  result.parameters.set(parameters);
  result.running.set(running);
  return result;
}

function summary(predictive) {
  return {
    mean: [...predictive.mean],
    epistemic: [...predictive.epistemic],
    aleatoric: [...predictive.aleatoric],
    quantiles: [0.025, 0.25, 0.75, 0.975].map((level) => [...predictive.quantile(level, true)]),
    drawn: [0.025, 0.25, 0.75, 0.975].map((level) => [...predictive.quantile(level)]),
  };
}

const results = {};
const plain = network(given.network);
const grid = array(given.grid);
results.evaluated = [...evaluate(plain, grid, plain.runningCoordinates())];
results.masked = [...evaluate(plain, grid, plain.runningCoordinates(), array(given.masks))];

const training = new Training(array(given.x), array(given.y), given.training.settings);
training.network = network(given.training.start);
training.order = given.training.order.flat();
for (let step = 0; step < given.training.order.length; step++) training.step();
results.trained = [...training.network.parameters];
results.running = [...training.network.running];

const statistics = collectStatistics(plain, rowsOf(given.x, given.batches));
const fluctuations = new Fluctuations("mcbn", statistics);
results.batchMean = [...fluctuations.center];
results.deviations = fluctuations.deviations.map((row) => [...row]);
results.std = [...fluctuations.std];
// Variances over samples: of every coordinate, and of the sum of all coordinates.
results.sampled = Object.fromEntries(
  ["mcbn", "gaussian", "stochastic"].map((kind) => {
    const rows = new Fluctuations(kind, statistics).sample(given.samples, new Generator(1));
    const sums = rows.map((row) => row.reduce((sum, value) => sum + value, 0));
    const square = (values) => values.reduce((sum, value) => sum + value ** 2, 0) / values.length;
    return [kind, { each: Array.from(rows[0], (_, i) => square(rows.map((row) => row[i]))), sum: square(sums) }];
  }),
);
results.predictions = ["running", "batch"].map((center) => {
  const posterior = new BatchNormPosterior(plain, fluctuations, given.batchSize, center).atBatchSize(given.effective);
  const outputs = posterior.place(fluctuations.deviations).map((state) => evaluate(plain, grid, state));
  return summary(new Predictive(outputs, given.noise));
});

const noisy = network(given.noisy);
const noisyBatches = new Fluctuations("mcbn", collectStatistics(noisy, rowsOf(given.x, given.batches)));
const noisyPosterior = new BatchNormPosterior(noisy, noisyBatches, given.batchSize);
const noisyOutputs = noisyPosterior.place(noisyBatches.deviations).map((state) => evaluate(noisy, grid, state));
results.noisy = summary(new Predictive(noisyOutputs, given.noise, 2));

const posterior = new BatchNormPosterior(plain, fluctuations, given.batchSize);
const sampled = (x, size) =>
  posterior.atBatchSize(size).place(fluctuations.deviations).map((state) => evaluate(plain, array(x), state));
results.noise = bestNoise([{ outputs: sampled(given.validation.x, given.batchSize), y: given.validation.y }]);
const units = unitGaussians(plain, rowsOf(given.x, given.epoch));
results.bounds = given.sizes.map((size) => ({
  elbo: evidenceBound(units, size, sampled(given.x, size), given.y, given.y.length, given.noise, given.decay),
  kl: divergence(units, size, given.x.length, 1 / given.noise, given.decay),
}));

const halves = given.halved.map((index) => {
  const x = given.batches[index].map((row) => given.x[row]);
  const parts = [x.slice(0, x.length / 2), x.slice(x.length / 2)].map(array);
  return [index, ...collectStatistics(plain, parts)];
});
const reference = new TrainingBatches(statistics, halves, given.batchSize, given.x.length, plain.width);
results.shifts = given.shifted.map((x) => {
  const groups = [];
  for (let start = 0; start < x.length; start += given.batchSize) groups.push(array(x.slice(start, start + given.batchSize)));
  const comparison = reference.compare(collectStatistics(plain, groups));
  const adapted = adapt(posterior, reference, comparison);
  const outputs = adapted.place(adapted.fluctuations.deviations).map((state) => evaluate(plain, grid, state));
  return { p: reference.pValue(comparison), shares: reference.believed(comparison), ...summary(new Predictive(outputs, given.noise)) };
});
console.log(JSON.stringify(results));
