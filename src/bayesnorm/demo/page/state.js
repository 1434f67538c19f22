// What the first panel shows, as an object, and as the part of the address after "#".

import { SIZES } from "../numerics/fitting.js";
import { TITLES, pointsOf, round } from "./data_sets.js";

export const METHODS = {
  mcbn: "MCBN",
  gaussian: "Correlated Gaussian",
  stochastic: "Stochastic BN",
  dropout: "MC dropout",
  ensemble: "Ensemble of five",
  constant: "Noise alone",
};
export const NOISES = { constant: "constant", varies: "depends on x", off: "off" };
const DEFAULTS = { data: "gap", method: "mcbn", compare: "", size: 16, samples: 32, width: 30, noise: "constant", seed: 1 };
export const MOST_IN_LINK = 300;

export function startState() {
  return { ...DEFAULTS, points: pointsOf(DEFAULTS.data) };
}

// The address of a state: only what differs from the start, and points only if they were changed.
export function toHash(state) {
  const parts = Object.entries(DEFAULTS)
    .filter(([name, value]) => state[name] !== value && name !== "data")
    .map(([name]) => `${name}=${encodeURIComponent(state[name])}`);
  if (state.data !== DEFAULTS.data) parts.unshift(`data=${state.data}`);
  if (state.data === "own" && state.points.length <= MOST_IN_LINK) {
    parts.push(`points=${state.points.map((point) => point.map(round).join(",")).join(";")}`);
  }
  return parts.join("&");
}

// The state of an address. Anything that is not as `toHash` writes it is left at its start.
export function fromHash(hash) {
  const state = startState();
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const choose = (name, options) => options.includes(values.get(name)) && (state[name] = values.get(name));
  const number = (name, low, high) => {
    const value = Math.round(Number(values.get(name)));
    if (values.has(name) && value >= low && value <= high) state[name] = value;
  };
  choose("method", Object.keys(METHODS));
  choose("compare", Object.keys(METHODS));
  choose("noise", Object.keys(NOISES));
  number("samples", 4, 128);
  number("width", 4, 60);
  number("seed", 0, 1e6);
  if (SIZES.includes(Number(values.get("size")))) state.size = Number(values.get("size"));
  if (Object.hasOwn(TITLES, values.get("data"))) {
    state.data = values.get("data");
    state.points = pointsOf(state.data);
  }
  const points = (values.get("points") ?? "").split(";").map((pair) => pair.split(",").map(Number));
  const valid = points.filter((point) => point.length === 2 && point.every((value) => Math.abs(value) < 1e12));
  if (values.get("data") === "own" && valid.length >= 8) {
    state.data = "own";
    state.points = valid.slice(0, MOST_IN_LINK);
  }
  return state;
}
