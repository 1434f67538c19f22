// The data sets of the first panel, and the reading of a CSV file.

import { Generator } from "../numerics/random.js";

export const MOST_POINTS = 2000;

// [name, title, function of x, noise by x, pieces: from, to, points]
const RECIPES = {
  gap: {
    title: "A gap",
    curve: (x) => 2 * Math.cos(x),
    noise: () => 0.2,
    pieces: [[-4.5, -2.2, 10], [0.6, 4.5, 14]],
  },
  figure: {
    title: "Two gaps, like figure 1 of the MCBN paper",
    curve: (x) => x * Math.sin(x),
    noise: () => 0.3,
    pieces: [[-5, -3, 7], [-1.5, 1, 7], [2.5, 4.5, 6]],
  },
  noisy: {
    title: "Noise that grows to the right",
    curve: (x) => 1.5 * Math.sin(x),
    noise: (x) => 0.05 + 0.13 * (x + 5),
    pieces: [[-4.8, 4.8, 90]],
  },
};

export const TITLES = Object.fromEntries(Object.entries(RECIPES).map(([name, { title }]) => [name, title]));

// The points of a data set: stratified in every piece, so that no part of it is empty by chance.
export function pointsOf(name) {
  const { curve, noise, pieces } = RECIPES[name];
  const random = new Generator(2);
  return pieces.flatMap(([from, to, count]) =>
    Array.from({ length: count }, (_, i) => {
      const x = from + ((to - from) * (i + random.uniform())) / count;
      return [round(x), round(curve(x) + noise(x) * random.normal())];
    }),
  );
}

export const round = (value) => Number(value.toPrecision(4));

// The window that shows all points with some room around them.
export function windowOf(points) {
  const range = (values, room) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const size = high - low || Math.abs(low) || 1;
    return [low - room * size, high + room * size];
  };
  return { x: range(points.map((point) => point[0]), 0.17), y: range(points.map((point) => point[1]), 0.55) };
}

// The points of a CSV text: the first two columns that are numbers in most rows. Throws an Error that says what to do.
export function readCsv(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const separator = [";", "\t", ","].find((mark) => lines[0]?.includes(mark)) ?? ",";
  const cells = lines.map((line) => line.split(separator).map((cell) => cell.trim().replace(/^"|"$/g, "")));
  const number = (cell) => (cell === undefined || cell === "" ? NaN : Number(separator === ";" ? cell.replace(",", ".") : cell));
  const width = Math.max(0, ...cells.map((row) => row.length));
  const columns = Array.from({ length: width }, (_, column) => column).filter(
    (column) => cells.filter((row) => Number.isFinite(number(row[column]))).length > cells.length / 2,
  );
  if (columns.length < 2) {
    throw new Error("The file needs two columns of numbers. Save it as CSV with one point per line, such as 1.5,2.25.");
  }
  const points = cells
    .map((row) => columns.slice(0, 2).map((column) => number(row[column])))
    .filter((point) => point.every((value) => Number.isFinite(value) && Math.abs(value) < 1e12));
  if (points.length < 8) throw new Error(`The file has ${points.length} points. At least 8 are needed.`);
  if (new Set(points.map((point) => point[0])).size < 4) {
    throw new Error("The first column has fewer than 4 different values. Put the inputs there.");
  }
  const step = Math.max(1, points.length / MOST_POINTS);
  return Array.from({ length: Math.min(points.length, MOST_POINTS) }, (_, i) => points[Math.floor(i * step)]);
}
