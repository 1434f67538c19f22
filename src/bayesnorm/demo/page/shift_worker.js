// The worker's part of the second panel.

import { ShiftProblem } from "../numerics/shifting.js";

let problem = null;
let present = null;
let newestShift = null;

// `request` has shift, seed, grid and action: "show", "adapt" or "forget".
export async function answerShift(request) {
  newestShift = request;
  if (problem === null) {
    problem = new ShiftProblem();
    while (!problem.fit.finished) {
      const until = performance.now() + 14;
      while (!problem.fit.finished && performance.now() < until) problem.fit.step();
      await new Promise((resolve) => setTimeout(resolve));
    }
    problem.finish();
    present = problem.original;
    request = newestShift;
  }
  await new Promise((resolve) => setTimeout(resolve)); // messages of a moving slider come in
  if (present === null || (request !== newestShift && request.action === "show")) return;
  const { shift, seed, grid, action } = request;
  if (action === "forget") present = problem.original;
  if (action === "adapt") present = problem.answer(shift, seed, present, grid).adapted;
  const { adapted, ...answer } = problem.answer(shift, seed, present, grid);
  postMessage({ type: "shift", ...answer, trained: problem.points, isAdapted: present !== problem.original });
}
