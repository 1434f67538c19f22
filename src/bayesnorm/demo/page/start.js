// The trained picture that the page opens with, while its worker trains the same network: `node write_start.mjs`.

import { windowOf } from "./data_sets.js";

const STEPS_OF_Y = 3000; // parts of a unit of y in a stored number
export const GRID = 121;
export const STORED_FUNCTIONS = 4;

export function gridOf(points) {
  const [low, high] = windowOf(points).x;
  return Float64Array.from({ length: GRID }, (_, i) => low + ((high - low) * i) / (GRID - 1));
}

const rowsOf = ({ mean, quantiles, epistemic, aleatoric, functions }) => [
  mean,
  ...quantiles,
  epistemic,
  aleatoric,
  ...functions.slice(0, STORED_FUNCTIONS),
];

export function encodeBands(bands) {
  const values = rowsOf(bands).flatMap((row) => Array.from(row, (value) => Math.round(value * STEPS_OF_Y)));
  return btoa(String.fromCharCode(...new Uint8Array(Int16Array.from(values).buffer)));
}

export function decodeBands(text) {
  const stored = new Int16Array(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer);
  const rows = Array.from({ length: stored.length / GRID }, (_, i) =>
    Float64Array.from(stored.subarray(i * GRID, (i + 1) * GRID), (value) => value / STEPS_OF_Y),
  );
  const [mean, low95, low50, high50, high95, epistemic, aleatoric, ...functions] = rows;
  return { mean, quantiles: [low95, low50, high50, high95], epistemic, aleatoric, functions };
}
