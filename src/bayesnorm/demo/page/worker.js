// Trains and predicts in a worker, so that the page stays responsive. The newest request wins.

import { BATCH_NORM, Fit, calibrations, crossValidate, kindOfFit, standardised } from "../numerics/fitting.js";
import { Predictive } from "../numerics/predictive.js";
import { answerDigits } from "./digits_worker.js";
import { answerShift } from "./shift_worker.js";

const STEPS = 400;
const SLICE = 14; // milliseconds of work before messages are read
const FUNCTIONS = 8;
const LEVELS = [0.025, 0.25, 0.75, 0.975];
const REMEMBERED = 8;

const fits = new Map(); // finished fits by what they depend on
const calibrated = new Map();
let waiting = null;
let paused = false;
const lastNoise = { constant: 0.03, varies: 1 };

const breathe = () => new Promise((resolve) => setTimeout(resolve));

function remember(map, key, value) {
  map.set(key, value);
  if (map.size > REMEMBERED) map.delete(map.keys().next().value);
  return value;
}

// Let messages in; true if a newer request makes this one pointless. Requests of a drag wait for each other.
async function overtaken(job) {
  await breathe();
  while (paused && !waiting) await new Promise((resolve) => setTimeout(resolve, 50));
  return waiting !== null && !(job.live && waiting.live);
}

function settingsOf(job) {
  return { width: job.width, seed: job.seed, predictsNoise: job.noise === "varies", steps: STEPS };
}

function keyOf(job, kind) {
  return JSON.stringify([kind, job.points, settingsOf(job)]);
}

// The result of a generator, run in slices; null if a newer request came in between.
async function inSlices(job, work) {
  for (;;) {
    const until = performance.now() + SLICE;
    while (performance.now() < until) {
      const step = work.next();
      if (step.done) return step.value;
    }
    if (await overtaken(job)) return null;
  }
}

// The finished fit of a kind, or null if a newer request came in between.
async function fitted(job, data, kind) {
  const key = keyOf(job, kind);
  if (fits.has(key)) return fits.get(key);
  const fit = new Fit(data.x, data.y, kind, settingsOf(job));
  let shown = performance.now();
  while (!fit.finished) {
    const until = performance.now() + SLICE;
    while (!fit.finished && performance.now() < until) fit.step();
    if (await overtaken(job)) return null;
    if (job.animate && performance.now() - shown > 60) {
      fit.collect(24);
      show(job, data, fit, false);
      shown = performance.now();
    }
  }
  if (job.live) {
    fit.collect(64);
    return fit;
  }
  fit.collect();
  return remember(fits, key, fit);
}

// The noise variance, or its factor, in standardised units, and whether it is calibrated yet.
function noiseOf(job, method) {
  if (job.noise === "off") return { noise: 0, known: true };
  const rows = calibrated.get(keyOf(job, kindOfFit(method)))?.[method];
  if (!rows) return { noise: lastNoise[job.noise], known: false };
  const row = rows.length === 1 ? rows[0] : rows.find(({ size }) => size === job.size);
  lastNoise[job.noise] = row.noise;
  return { noise: row.noise, known: true };
}

function predictiveOf(job, data, fit, method, grid) {
  const { noise, known } = noiseOf(job, method);
  const outputs = fit.sample(method, grid, job.samples, job.size);
  const varies = job.noise === "varies";
  return { outputs, known, predictive: new Predictive(outputs, noise, varies ? 2 : 1) };
}

// Send the bands of every view that uses this fit, in the units of the points.
function show(job, data, fit, final) {
  const { x, y } = data.scales;
  const grid = Float64Array.from(job.grid, (value) => (value - x.mean) / x.std);
  job.views.forEach((method, view) => {
    if (kindOfFit(method) !== fit.kind) return;
    const { predictive, known } = predictiveOf(job, data, fit, method, grid);
    const raw = (values) => Float64Array.from(values, (value) => value * y.std + y.mean);
    const std = (values) => Float64Array.from(values, (value) => Math.sqrt(value) * y.std);
    postMessage({
      type: "bands",
      job: job.id,
      view,
      method,
      final,
      known,
      progress: fit.progress,
      mean: raw(predictive.mean),
      quantiles: LEVELS.map((level) => raw(predictive.quantile(level))),
      functions: method === "constant" ? [] : predictive.locations.slice(0, FUNCTIONS).map(raw),
      epistemic: std(predictive.epistemic),
      aleatoric: std(predictive.aleatoric),
    });
  });
}

// Choose the noise by cross-validation, for every method that is shown and every effective batch size.
async function calibrate(job, data, kind) {
  const key = keyOf(job, kind);
  const methods = job.views.filter((method) => kindOfFit(method) === kind);
  const known = calibrated.get(key) ?? remember(calibrated, key, {});
  if (methods.every((method) => known[method])) return true;
  known.folds ??= await inSlices(job, crossValidate(data.x, data.y, kind, settingsOf(job)));
  if (!known.folds) return false;
  for (const method of methods) {
    known[method] ??= await inSlices(job, calibrations(known.folds, method, job.noise === "varies"));
    if (!known[method]) return false;
  }
  return true;
}

// Where the evidence bound and where calibration put the effective batch size of the first view.
function marks(job, fit) {
  const [method] = job.views;
  if (!BATCH_NORM.includes(method)) return { trained: null };
  const rows = calibrated.get(keyOf(job, "plain"))?.[method];
  const best = rows.reduce((lowest, row) => (row.score < lowest.score ? row : lowest));
  const bound = job.noise === "constant" ? fit.chooseByBound(rows.find(({ size }) => size >= fit.batchSize).noise) : null;
  return { trained: fit.batchSize, calibrated: best.size, bound };
}

async function answer(job) {
  const data = standardised(job.points);
  const kinds = [...new Set(job.views.map(kindOfFit))];
  for (const kind of kinds) {
    const fit = await fitted(job, data, kind);
    if (!fit) return;
    show(job, data, fit, true);
  }
  if (job.live) return;
  postMessage({ type: "calibrating", job: job.id });
  for (const kind of kinds) {
    if (job.noise !== "off" && !(await calibrate(job, data, kind))) return;
    show(job, data, fits.get(keyOf(job, kind)), true);
  }
  const plain = fits.get(keyOf(job, kinds[0]));
  postMessage({ type: "idle", job: job.id, marks: job.noise === "off" ? { trained: plain.batchSize } : marks(job, plain) });
}

let running = false;
async function run() {
  if (running) return;
  running = true;
  while (waiting) {
    const job = waiting;
    waiting = null;
    try {
      await answer(job);
    } catch (error) {
      postMessage({ type: "failed", job: job.id, text: error.message });
    }
  }
  running = false;
}

self.onmessage = ({ data }) => {
  if (data.type === "pause") paused = data.value;
  else if (data.type === "shift") answerShift(data);
  else if (data.type?.startsWith("digit")) answerDigits(data);
  else {
    waiting = data;
    run();
  }
};
