// A convolutional batch-norm network for images of 8 x 8 pixels, with MCBN samples of its statistics. Its weights are
// whole numbers of 8 bits times a scale per output; `python -m experiments demo-digits` trains it and writes them.

const SIDE = 8;
const NORM_EPS = 1e-5;

const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
const wholes = (text) => new Int8Array(bytes(text).buffer);
const floats = (text) => Float64Array.from(new Float32Array(bytes(text).buffer));

export class DigitsNetwork {
  constructor(content) {
    this.matrices = content.matrices.map(({ values, scale }) => {
      const [numbers, scales] = [wholes(values), floats(scale)];
      const inputs = numbers.length / scales.length;
      return Float64Array.from(numbers, (value, i) => value * scales[Math.floor(i / inputs)]);
    });
    this.widths = content.widths;
    this.bias = floats(content.bias);
    this.norms = content.norms.map(([gamma, beta]) => ({ gamma: floats(gamma), beta: floats(beta) }));
    this.location = floats(content.location);
    const unit = floats(content.unit);
    const deviations = wholes(content.deviations);
    this.deviations = Array.from({ length: deviations.length / unit.length }, (_, row) =>
      unit.map((value, i) => value * deviations[row * unit.length + i]),
    );
    this.batchSize = content.batchSize;
    this.effective = content.effective;
    this.temperature = content.temperature;
    this.limits = content.limits;
  }

  // Logits of one image (64 numbers from 0 to 1) under statistics in coordinates.
  logits(image, coordinates, first = convolve(image, this.matrices[0], 1, this.widths[0], SIDE)) {
    const channels = coordinates.length / 2;
    let hidden = first;
    let side = SIDE;
    let offset = 0;
    this.widths.forEach((width, l) => {
      if (l) hidden = convolve(hidden, this.matrices[l], this.widths[l - 1], width, side);
      const { gamma, beta } = this.norms[l];
      const area = side * side;
      const output = new Float64Array(hidden.length);
      for (let c = 0; c < width; c++) {
        const scale = gamma[c] * Math.exp(-0.5 * coordinates[channels + offset + c]);
        const shift = beta[c] - scale * coordinates[offset + c];
        for (let i = c * area; i < (c + 1) * area; i++) output[i] = Math.max(0, hidden[i] * scale + shift);
      }
      offset += width;
      hidden = l ? halve(output, width, side) : output;
      if (l) side /= 2;
    });
    const [weight, inputs] = [this.matrices[this.matrices.length - 1], hidden.length];
    return this.bias.map((value, o) => {
      let sum = value;
      for (let i = 0; i < inputs; i++) sum += weight[o * inputs + i] * hidden[i];
      return sum;
    });
  }

  // Class probabilities with their entropy and mutual information, in nats, from all samples.
  predict(image, batchSize = this.effective) {
    const spread = Math.sqrt(this.batchSize / batchSize);
    const first = convolve(image, this.matrices[0], 1, this.widths[0], SIDE);
    const samples = this.deviations.map((row) => {
      const state = row.map((value, i) => this.location[i] + spread * value);
      return softmax(this.logits(image, state, first).map((value) => value / this.temperature));
    });
    const probabilities = samples[0].map((_, k) => samples.reduce((sum, row) => sum + row[k], 0) / samples.length);
    const expected = samples.reduce((sum, row) => sum + entropyOf(row), 0) / samples.length;
    const entropy = entropyOf(probabilities);
    return { probabilities, samples, entropy, mutualInformation: Math.max(0, entropy - expected) };
  }
}

// A convolution with a 3 x 3 kernel and a border of zeros; (channels, side, side).
function convolve(input, weight, inputs, outputs, side) {
  const area = side * side;
  const result = new Float64Array(outputs * area);
  for (let o = 0; o < outputs; o++) {
    for (let i = 0; i < inputs; i++) {
      for (let k = 0; k < 9; k++) {
        const value = weight[(o * inputs + i) * 9 + k];
        const [down, right] = [Math.floor(k / 3) - 1, (k % 3) - 1];
        const [left, end] = [Math.max(0, -right), Math.min(side, side - right)];
        for (let y = Math.max(0, -down); y < Math.min(side, side - down); y++) {
          const to = o * area + y * side;
          const from = i * area + (y + down) * side + right;
          for (let x = left; x < end; x++) result[to + x] += value * input[from + x];
        }
      }
    }
  }
  return result;
}

// The maxima of 2 x 2 blocks.
function halve(input, channels, side) {
  const half = side / 2;
  const result = new Float64Array(channels * half * half);
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < half; y++) {
      for (let x = 0; x < half; x++) {
        const at = c * side * side + 2 * y * side + 2 * x;
        result[(c * half + y) * half + x] = Math.max(input[at], input[at + 1], input[at + side], input[at + side + 1]);
      }
    }
  }
  return result;
}

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = logits.map((value) => Math.exp(value - most));
  const sum = powers.reduce((total, value) => total + value, 0);
  return powers.map((value) => value / sum);
}

function entropyOf(probabilities) {
  return probabilities.reduce((sum, value) => (value > 0 ? sum - value * Math.log(value) : sum), 0);
}
