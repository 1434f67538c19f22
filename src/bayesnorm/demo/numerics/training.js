// Train a perceptron on mini-batches, as in PyTorch: batch norm normalises by the biased variance of the batch.

import { EPS, Perceptron, head, multiply } from "./network.js";
import { Generator } from "./random.js";

const MOMENTUM = 0.1;

// Forward pass of one batch in training mode. It returns outputs and all that the backward pass needs.
// `statistics`, if given, receives the batch means and biased variances of all layers.
export function forwardBatch(network, x, masks = null, statistics = null) {
  const { width, channels } = network;
  const rows = x.length;
  const saved = network.workspace(rows).layers;
  let input = x;
  for (const [l, layer] of network.layers.entries()) {
    const { normal, output, inverse } = saved[l];
    saved[l].input = input;
    multiply(input, layer.weight, normal, rows, layer.inputs, width);
    for (let c = 0; c < width; c++) {
      let mean = 0;
      for (let b = c; b < rows * width; b += width) mean += normal[b];
      mean /= rows;
      let variance = 0;
      for (let b = c; b < rows * width; b += width) variance += (normal[b] - mean) ** 2;
      variance /= rows;
      inverse[c] = 1 / Math.sqrt(variance + EPS);
      for (let b = c, row = 0; b < rows * width; b += width, row++) {
        normal[b] = (normal[b] - mean) * inverse[c];
        const factor = masks ? masks[row * channels + layer.offset + c] : 1;
        output[b] = factor * Math.max(0, layer.gamma[c] * normal[b] + layer.beta[c]);
      }
      if (statistics) {
        statistics[layer.offset + c] = mean;
        statistics[channels + layer.offset + c] = variance;
      }
    }
    input = output;
  }
  return { outputs: head(network, input, rows), saved };
}

// Gradients of sum(outputGradient * outputs), added up in `gradient`, a network of the same shape.
export function backwardBatch(network, pass, outputGradient, gradient, rows, masks = null) {
  const { width, outputs, channels } = network;
  let { back } = network.workspace(rows);
  back.fill(0);
  const last = pass.saved[pass.saved.length - 1].output;
  for (let b = 0; b < rows; b++) {
    for (let o = 0; o < outputs; o++) {
      const value = outputGradient[b * outputs + o];
      gradient.headBias[o] += value;
      for (let i = 0; i < width; i++) {
        gradient.headWeight[o * width + i] += value * last[b * width + i];
        back[b * width + i] += value * network.headWeight[o * width + i];
      }
    }
  }
  for (let l = network.layers.length - 1; l >= 0; l--) {
    const layer = network.layers[l];
    const { input, normal, output, inverse } = pass.saved[l];
    const slopes = gradient.layers[l];
    for (let c = 0; c < width; c++) {
      let sum = 0;
      let product = 0;
      for (let b = c, row = 0; b < rows * width; b += width, row++) {
        const factor = masks ? masks[row * channels + layer.offset + c] : 1;
        back[b] = output[b] > 0 ? factor * back[b] : 0;
        sum += back[b];
        product += back[b] * normal[b];
      }
      slopes.beta[c] += sum;
      slopes.gamma[c] += product;
      const scale = layer.gamma[c] * inverse[c];
      for (let b = c; b < rows * width; b += width) back[b] = scale * (back[b] - (sum + normal[b] * product) / rows);
    }
    const before = pass.saved[l].back.fill(0);
    addOuterProducts(slopes.weight, back, input, rows, layer.inputs, width);
    if (l) addProducts(before, back, layer.weight, rows, layer.inputs, width);
    back = before;
  }
}

// gradient[c, i] += sum over b of back[b, c] input[b, i]
function addOuterProducts(gradient, back, input, rows, inputs, width) {
  for (let c = 0; c < width; c++) {
    for (let b = 0; b < rows; b++) {
      const value = back[b * width + c];
      for (let i = 0, w = c * inputs, x = b * inputs; i < inputs; i++) gradient[w + i] += value * input[x + i];
    }
  }
}

// before[b, i] += sum over c of back[b, c] weight[c, i]
function addProducts(before, back, weight, rows, inputs, width) {
  for (let b = 0; b < rows; b++) {
    for (let c = 0; c < width; c++) {
      const value = back[b * width + c];
      for (let i = 0, w = c * inputs, x = b * inputs; i < inputs; i++) before[x + i] += value * weight[w + i];
    }
  }
}

// The loss of a batch and its gradient by the outputs: half the squared error, or the Gaussian negative log density
// if the network predicts its noise.
export function lossOfBatch(outputs, y, predictsNoise) {
  const rows = y.length;
  const gradient = new Float64Array(outputs.length);
  let loss = 0;
  for (let b = 0; b < rows; b++) {
    if (!predictsNoise) {
      const error = outputs[b] - y[b];
      loss += (0.5 * error * error) / rows;
      gradient[b] = error / rows;
    } else {
      const error = outputs[2 * b] - y[b];
      const logVariance = Math.max(-8, Math.min(4, outputs[2 * b + 1]));
      const precision = Math.exp(-logVariance);
      loss += (0.5 * (precision * error * error + logVariance)) / rows;
      gradient[2 * b] = (precision * error) / rows;
      gradient[2 * b + 1] = (0.5 * (1 - precision * error * error)) / rows;
    }
  }
  return { loss, gradient };
}

// A training in progress. `step()` takes one step of Adam; the learning rate falls to zero along a cosine, so the
// network has converged when `finished` is true.
export class Training {
  constructor(x, y, { width = 30, batchSize = 16, steps = 500, rate = 0.01, decay = 1e-4, dropout = 0, outputs = 1, seed = 0 }) {
    Object.assign(this, { x, y, steps, rate, decay, dropout });
    this.batchSize = Math.min(batchSize, x.length);
    this.random = new Generator(seed);
    this.network = new Perceptron(width, outputs).initialise(this.random);
    this.gradient = new Perceptron(width, outputs);
    this.first = new Float64Array(this.network.parameters.length);
    this.second = new Float64Array(this.network.parameters.length);
    this.done = 0;
    this.loss = NaN;
    this.order = [];
  }

  get finished() {
    return this.done >= this.steps;
  }

  // The next batch of an epoch in random order; examples left over at its end are dropped.
  nextBatch() {
    if (this.order.length < this.batchSize) this.order = this.random.permutation(this.x.length);
    return this.order.splice(0, this.batchSize);
  }

  step() {
    const { network, gradient, random } = this;
    const chosen = this.nextBatch();
    const x = Float64Array.from(chosen, (row) => this.x[row]);
    const y = Float64Array.from(chosen, (row) => this.y[row]);
    const masks = this.dropout ? dropoutMasks(chosen.length * network.channels, this.dropout, random) : null;
    const statistics = new Float64Array(network.running.length);
    const pass = forwardBatch(network, x, masks, statistics);
    const { loss, gradient: back } = lossOfBatch(pass.outputs, y, network.outputs > 1);
    gradient.parameters.fill(0);
    backwardBatch(network, pass, back, gradient, x.length, masks);
    for (const [l, layer] of network.layers.entries()) addDecay(gradient.layers[l].weight, layer.weight, this.decay);
    addDecay(gradient.headWeight, network.headWeight, this.decay);
    this.adam();
    this.updateRunning(statistics, x.length);
    this.loss = Number.isNaN(this.loss) ? loss : 0.95 * this.loss + 0.05 * loss;
    this.done++;
  }

  adam() {
    const [values, slopes, { first, second }] = [this.network.parameters, this.gradient.parameters, this];
    const time = this.done + 1;
    const rate = this.rate * 0.5 * (1 + Math.cos((Math.PI * this.done) / this.steps));
    const step = rate / (1 - 0.9 ** time);
    const correction = 1 / (1 - 0.999 ** time);
    for (let i = 0; i < values.length; i++) {
      first[i] = 0.9 * first[i] + 0.1 * slopes[i];
      second[i] = 0.999 * second[i] + 0.001 * slopes[i] * slopes[i];
      values[i] -= (step * first[i]) / (Math.sqrt(second[i] * correction) + 1e-8);
    }
  }

  updateRunning(statistics, rows) {
    const { running, channels } = this.network;
    const unbiased = rows / (rows - 1);
    for (let i = 0; i < running.length; i++) {
      const value = i < channels ? statistics[i] : statistics[i] * unbiased;
      running[i] += MOMENTUM * (value - running[i]);
    }
  }
}

function addDecay(gradient, weight, decay) {
  for (let i = 0; i < weight.length; i++) gradient[i] += decay * weight[i];
}

// Factors of dropout: 0 with probability `rate`, otherwise 1 / (1 - rate).
export function dropoutMasks(count, rate, random) {
  return Float64Array.from({ length: count }, () => (random.uniform() < rate ? 0 : 1 / (1 - rate)));
}
