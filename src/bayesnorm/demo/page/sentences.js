// What the first panel shows, as one sentence.

import { short } from "./chart.js";

const widthAt = ({ quantiles }, i) => quantiles[3][i] - quantiles[0][i];

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

// The widest stretch of x without points, if it is wide compared with the others.
export function widestGap(points) {
  const x = points.map((point) => point[0]).sort((a, b) => a - b);
  const gaps = x.slice(1).map((value, i) => [x[i], value]);
  const widest = gaps.reduce((best, gap) => (gap[1] - gap[0] > best[1] - best[0] ? gap : best), [0, 0]);
  return widest[1] - widest[0] > 0.12 * (x[x.length - 1] - x[0]) ? widest : null;
}

const nearestIndex = (grid, x) => grid.reduce((best, value, i) => (Math.abs(value - x) < Math.abs(grid[best] - x) ? i : best), 0);

export function sentenceOf(state, methodName, grid, bands) {
  const { points } = state;
  const count = `${points.length} points`;
  const atPoints = median(points.map(([x]) => widthAt(bands, nearestIndex(grid, x))));
  if (atPoints < 1e-6) return `One network without noise is a single line through ${count}, without any band.`;
  const gap = widestGap(points);
  if (!gap) return `The network has seen ${count} without a gap. Click on the chart to add one, or drag a point away.`;
  const [from, to] = gap;
  const inside = [...grid.keys()].filter((i) => grid[i] > from && grid[i] < to);
  const widest = inside.reduce((best, i) => (widthAt(bands, i) > widthAt(bands, best) ? i : best), inside[0]);
  const ratio = widthAt(bands, widest) / atPoints;
  const where = `Between x = ${from.toFixed(1).replace("-", "−")} and ${to.toFixed(1).replace("-", "−")} there are no points`;
  if (ratio > 1.25) {
    return `${where}, and there ${methodName}’s 95 % band is up to ${ratio.toFixed(1)} times as wide as at the points.`;
  }
  return `${where}, but ${methodName}’s band is hardly wider there: a limit of this method.`;
}

// The numbers under the pointer.
export function readingOf(x, grid, bands) {
  const i = nearestIndex(grid, x);
  const [low, , , high] = bands.quantiles.map((values) => values[i]);
  const parts = `epistemic ${short(bands.epistemic[i])}, aleatoric ${short(bands.aleatoric[i])}`;
  return `x = ${short(grid[i])}: y is ${short(bands.mean[i])}, and with 95 % probability between ${short(low)} and ${short(high)}; ${parts}.`;
}
