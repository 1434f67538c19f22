// The controls of the first panel show its state.

import { BATCH_NORM, SIZES } from "../numerics/fitting.js";
import { TITLES } from "./data_sets.js";
import { METHODS, NOISES } from "./state.js";

const MARKS = { trained: ["●", "training"], bound: ["◆", "evidence bound (ELBO)"], calibrated: ["▲", "calibration"] };

export const element = (id) => document.getElementById(id);

export function fillControls() {
  const options = (names) => Object.entries(names).map(([value, title]) => new Option(title, value));
  element("method").append(...options(METHODS));
  element("compare").append(new Option("nothing", ""), ...options(METHODS));
  element("noise").append(...options(NOISES));
  element("data").append(...options(TITLES), new Option("Your own points", "own"));
  element("size").max = SIZES.length - 1;
}

export function showControls({ state, views, selected }) {
  for (const name of ["method", "compare", "noise", "data", "samples", "width"]) element(name).value = state[name];
  element("size").value = SIZES.indexOf(state.size);
  element("size").setAttribute("aria-valuetext", `${state.size} points`);
  for (const name of ["size", "samples", "width"]) element(`${name}-value`).textContent = state[name];
  const usesSize = [state.method, state.compare].some((method) => BATCH_NORM.includes(method));
  element("size").disabled = !usesSize;
  element("size-box").classList.toggle("off", !usesSize);
  element("delete").disabled = selected < 0;
  element("views").classList.toggle("two", Boolean(state.compare));
  views[1].box.hidden = !state.compare;
  views.forEach((view, i) => (view.heading.textContent = METHODS[i ? state.compare : state.method] ?? ""));
}

// Where training, the evidence bound and calibration put the effective batch size, below its slider.
export function showMarks(marks, choose) {
  const box = element("marks");
  box.replaceChildren();
  for (const [name, [symbol, title]] of Object.entries(MARKS)) {
    const size = marks?.[name];
    if (!size || element("size").disabled) continue;
    const distance = (other) => Math.abs(Math.log(other / size));
    const nearest = SIZES.reduce((best, other) => (distance(other) < distance(best) ? other : best));
    const button = document.createElement("button");
    button.type = "button";
    button.innerHTML = `${symbol} <b>${size}</b> ${title}`;
    button.setAttribute("aria-label", `Set the effective batch size to ${nearest}, from ${title}`);
    button.addEventListener("click", () => choose(nearest));
    const tick = document.createElement("i");
    tick.style.left = `${(100 * SIZES.indexOf(nearest)) / (SIZES.length - 1)}%`;
    tick.textContent = symbol;
    box.append(button, tick);
  }
}
