// The regularised incomplete gamma functions, and what is made of them.

import { normalCdf } from "./predictive.js";

const LANCZOS = [
  676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
  -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

export function logGamma(x) {
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
  let sum = 0.99999999999980993;
  for (let i = 0; i < LANCZOS.length; i++) sum += LANCZOS[i] / (x + i);
  const t = x + LANCZOS.length - 1.5;
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

// The logarithm of the lower regularised incomplete gamma function by its series; for x < shape + 1.
function logLower(shape, x) {
  let term = 1;
  let sum = 1;
  for (let k = 1; k < 1e6 && term > sum * 1e-17; k++) sum += term *= x / (shape + k);
  return shape * Math.log(x) - x - logGamma(shape + 1) + Math.log(sum);
}

// The upper function by its continued fraction (Lentz); for x >= shape + 1.
function upperFraction(shape, x) {
  let b = x + 1 - shape;
  let c = 1e300;
  let d = 1 / b;
  let fraction = d;
  for (let k = 1; k < 1e6; k++) {
    const a = -k * (k - shape);
    b += 2;
    d = 1 / (a * d + b);
    c = b + a / c;
    fraction *= c * d;
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return Math.exp(shape * Math.log(x) - x - logGamma(shape)) * fraction;
}

export function logGammaLower(shape, x) {
  return x < shape + 1 ? logLower(shape, x) : Math.log1p(-upperFraction(shape, x));
}

export function gammaLower(shape, x) {
  return x <= 0 ? 0 : Math.exp(logGammaLower(shape, x));
}

export function gammaUpper(shape, x) {
  if (x <= 0) return 1;
  return x < shape + 1 ? -Math.expm1(logLower(shape, x)) : upperFraction(shape, x);
}

// The tail probability of a Pearson III distribution with mean 0, standard deviation 1 and this skewness.
export function pearsonTail(value, skew) {
  const most = 2 * Math.SQRT2; // beyond, half of the probability would lie at the lower end
  const s = Math.max(-most, Math.min(most, skew));
  if (Math.abs(s) < 1e-5) return normalCdf(-value);
  const shape = 4 / (s * s);
  const at = Math.max(shape + (2 * value) / s, 0);
  return s > 0 ? gammaUpper(shape, at) : gammaLower(shape, at);
}
