// A perceptron for functions of one variable: linear without bias, batch norm and ReLU in every hidden layer, then a
// linear output. A second output, if there is one, is the logarithm of the noise variance.

export const EPS = 1e-5;
const LAYERS = 3;

export class Perceptron {
  // All parameters are views of one array, so that an optimiser sees them as one vector.
  constructor(width, outputs = 1) {
    this.width = width;
    this.outputs = outputs;
    const sizes = [];
    for (let l = 0; l < LAYERS; l++) sizes.push((l ? width : 1) * width, width, width);
    sizes.push(width * outputs, outputs);
    this.parameters = new Float64Array(sizes.reduce((sum, size) => sum + size, 0));
    this.running = new Float64Array(2 * LAYERS * width); // means of all layers, then variances
    let at = 0;
    const views = sizes.map((size) => this.parameters.subarray(at, (at += size)));
    this.layers = [];
    for (let l = 0; l < LAYERS; l++) {
      const [weight, gamma, beta] = views.slice(3 * l, 3 * l + 3);
      this.layers.push({ weight, gamma, beta, inputs: l ? width : 1, offset: l * width });
    }
    [this.headWeight, this.headBias] = views.slice(-2);
  }

  get channels() {
    return LAYERS * this.width;
  }

  // Start a training. The first layer only sees x, so its shifts are spread: each unit gets a kink of its own.
  initialise(random) {
    for (const [l, layer] of this.layers.entries()) {
      const scale = Math.sqrt(2 / layer.inputs);
      for (let i = 0; i < layer.weight.length; i++) layer.weight[i] = scale * random.normal();
      layer.gamma.fill(1);
      for (let i = 0; i < this.width; i++) layer.beta[i] = l ? 0 : 3 * random.uniform() - 1.5;
    }
    for (let i = 0; i < this.headWeight.length; i++) this.headWeight[i] = 0.1 * random.normal();
    this.headBias.fill(0);
    this.running.fill(0, 0, this.channels);
    this.running.fill(1, this.channels);
    return this;
  }

  // Arrays for a pass over so many rows, which the next pass of as many rows uses again.
  workspace(rows) {
    if (this.arrays?.rows !== rows) {
      const size = rows * this.width;
      const layers = this.layers.map(({ inputs }) => ({
        normal: new Float64Array(size),
        output: new Float64Array(size),
        inverse: new Float64Array(this.width),
        back: new Float64Array(rows * inputs),
      }));
      this.arrays = { rows, layers, back: new Float64Array(size) };
    }
    return this.arrays;
  }

  // The running statistics in coordinates: means, then log(variance + eps).
  runningCoordinates() {
    const half = this.channels;
    return this.running.map((value, i) => (i < half ? value : Math.log(value + EPS)));
  }
}

// result[b, o] = sum over i of input[b, i] weight[o, i]. Two rows and two sums at a time keep the processor busy.
export function multiply(input, weight, result, rows, inputs, outputs) {
  for (let b = 0; b < rows; b += 2) {
    const x = b * inputs;
    const y = b + 1 < rows ? x + inputs : x;
    for (let o = 0; o < outputs; o++) {
      let first = 0;
      let second = 0;
      for (let i = 0, w = o * inputs; i < inputs; i++) {
        const value = weight[w + i];
        first += input[x + i] * value;
        second += input[y + i] * value;
      }
      result[b * outputs + o] = first;
      if (y !== x) result[(b + 1) * outputs + o] = second;
    }
  }
}

// Outputs of the network in evaluation mode, (rows x outputs), with the given statistics in coordinates.
// `masks`, if given, are the factors of the dropout layers, one per channel.
export function evaluate(network, x, coordinates, masks = null) {
  const { width, channels } = network;
  const rows = x.length;
  let input = x;
  let hidden = new Float64Array(rows * width);
  let next = new Float64Array(rows * width);
  for (const layer of network.layers) {
    multiply(input, layer.weight, hidden, rows, layer.inputs, width);
    for (let c = 0; c < width; c++) {
      const at = layer.offset + c;
      const factor = masks ? masks[at] : 1;
      const scale = layer.gamma[c] * Math.exp(-0.5 * coordinates[channels + at]);
      const shift = layer.beta[c] - scale * coordinates[at];
      for (let b = c; b < rows * width; b += width) hidden[b] = factor * Math.max(0, hidden[b] * scale + shift);
    }
    input = hidden;
    [hidden, next] = [next, hidden];
  }
  return head(network, input, rows);
}

// The linear output layer.
export function head(network, input, rows) {
  const { outputs, width } = network;
  const result = new Float64Array(rows * outputs);
  multiply(input, network.headWeight, result, rows, width, outputs);
  for (let i = 0; i < result.length; i++) result[i] += network.headBias[i % outputs];
  return result;
}
