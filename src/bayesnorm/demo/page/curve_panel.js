// The first panel: a curve through points, its bands, and everything that changes them.

import { SIZES } from "../numerics/fitting.js";
import { Plot, colours, drawBands, drawParts } from "./chart.js";
import { element, fillControls, showControls, showMarks } from "./controls.js";
import { MOST_POINTS, TITLES, pointsOf, readCsv, round, windowOf } from "./data_sets.js";
import { makeEditable } from "./editing.js";
import { bandsAsCsv, saveFile, savePicture } from "./saving.js";
import { readingOf, sentenceOf } from "./sentences.js";
import { decodeBands, gridOf } from "./start.js";
import { METHODS, MOST_IN_LINK, fromHash, startState, toHash } from "./state.js";

const FEWEST = 8;

export class CurvePanel {
  constructor(worker) {
    this.worker = worker;
    this.state = fromHash(location.hash);
    this.cursor = null;
    this.selected = -1;
    this.job = 0;
    this.paused = false;
    this.updates = 0;
    this.marks = null;
    this.views = ["a", "b"].map((name) => ({
      box: element(`view-${name}`),
      heading: element(`title-${name}`),
      plots: [new Plot(element(`chart-${name}`)), new Plot(element(`parts-${name}`), { bottom: 6, top: 6 })],
      bands: null,
      method: null,
    }));
    for (const view of this.views) makeEditable(view.plots[0], this);
    fillControls();
    this.connectControls();
    this.newWindow();
    if (toHash(this.state) === "") this.openTrained();
    this.showControls();
    this.request({ animate: !this.start && !matchMedia("(prefers-reduced-motion: reduce)").matches });
  }

  // Show the stored picture until the worker has trained the same network.
  openTrained() {
    this.start = JSON.parse(element("start-data").textContent);
    const [view] = this.views;
    const { method } = this.state;
    Object.assign(view, { bands: decodeBands(this.start.bands), method, title: METHODS[method] });
    this.marks = this.start.marks;
    this.describe();
  }

  connectControls() {
    for (const name of ["method", "compare", "noise"]) {
      element(name).addEventListener("change", () => this.set({ [name]: element(name).value }));
    }
    for (const name of ["samples", "width"]) {
      element(name).addEventListener("input", () => this.set({ [name]: Number(element(name).value) }, true));
      element(name).addEventListener("change", () => this.set({ [name]: Number(element(name).value) }));
    }
    element("size").addEventListener("input", () => this.set({ size: SIZES[element("size").value] }, true));
    element("size").addEventListener("change", () => this.set({ size: SIZES[element("size").value] }));
    element("functions").addEventListener("change", () => this.draw());
    element("data").addEventListener("change", () => this.loadData(element("data").value));
    element("reset").addEventListener("click", () => this.reset());
    element("again").addEventListener("click", () => this.set({ seed: this.state.seed + 1 }, false, true));
    element("pause").addEventListener("click", () => this.pause(!this.paused));
    element("delete").addEventListener("click", () => this.remove(this.selected));
    element("link").addEventListener("click", () => this.copyLink());
    element("picture").addEventListener("click", () => {
      savePicture("bayesnorm.png", this.shownViews(), () => this.drawNow(), colours());
    });
    element("table").addEventListener("click", () => {
      saveFile("bayesnorm.csv", bandsAsCsv(this.grid, this.shownViews()), "text/csv");
    });
    element("file").addEventListener("change", () => this.readFile(element("file").files[0]));
    element("points").addEventListener("change", (event) => this.editCell(event.target));
    element("points").addEventListener("click", (event) => {
      if (event.target.dataset.remove) this.remove(Number(event.target.dataset.remove));
    });
    element("point-list").addEventListener("toggle", () => this.listPoints());
    addEventListener("hashchange", () => {
      if (location.hash.slice(1) === toHash(this.state)) return;
      this.state = fromHash(location.hash);
      this.newWindow();
      this.showControls();
      this.request({ animate: true });
    });
  }

  // Change some settings. `live` is true while a slider moves.
  set(changes, live = false, animate = false) {
    Object.assign(this.state, changes);
    this.showControls();
    this.request({ live, animate });
  }

  loadData(name) {
    if (name === "own") {
      element("file").click();
      element("data").value = this.state.data;
      return;
    }
    Object.assign(this.state, { data: name, points: pointsOf(name) });
    this.selected = -1;
    this.newWindow();
    this.set({}, false, true);
  }

  reset() {
    const { data } = this.state;
    this.state = startState();
    if (Object.hasOwn(TITLES, data)) Object.assign(this.state, { data, points: pointsOf(data) });
    this.selected = -1;
    this.pause(false);
    this.newWindow();
    this.set({}, false, true);
  }

  async readFile(file) {
    if (!file) return;
    element("file").value = "";
    try {
      if (file.size > 2e7) throw new Error("The file is larger than 20 MB. Save a part of it.");
      this.state.points = readCsv(await file.text());
      this.state.data = "own";
      this.selected = -1;
      this.newWindow();
      this.set({}, false, true);
    } catch (error) {
      this.say(error.message);
    }
  }

  // Points -------------------------------------------------------------------------------------------------------

  add(point) {
    if (this.state.points.length >= MOST_POINTS) return this.say(`There are already ${MOST_POINTS} points.`);
    this.state.points.push(point.map(round));
    this.selected = this.state.points.length - 1;
    this.change(false);
  }

  remove(index) {
    if (!this.state.points[index]) return;
    if (this.state.points.length <= FEWEST) return this.say(`${FEWEST} points are the fewest that the network can be trained on.`);
    this.state.points.splice(index, 1);
    this.selected = -1;
    this.change(false);
  }

  place(index, point) {
    this.state.points[index] = point.map(round);
  }

  select(index) {
    this.selected = index;
    element("delete").disabled = index < 0;
    this.draw();
  }

  change(live) {
    this.state.data = "own";
    this.showControls();
    this.request({ live });
    this.draw();
  }

  editCell(input) {
    const value = Number(input.value);
    if (!input.dataset.index || !Number.isFinite(value) || input.value === "") return;
    this.state.points[input.dataset.index][input.dataset.axis] = value;
    this.change(false);
  }

  listPoints() {
    if (!element("point-list").open) return;
    const cell = (index, axis, value) =>
      `<td><input type="number" step="any" data-index="${index}" data-axis="${axis}" value="${value}" aria-label="${"xy"[axis]} of point ${index + 1}"></td>`;
    element("points").innerHTML = this.state.points
      .slice(0, 200)
      .map(([x, y], i) => `<tr>${cell(i, 0, x)}${cell(i, 1, y)}<td><button type="button" data-remove="${i}" aria-label="Delete point ${i + 1}">Delete</button></td></tr>`)
      .join("");
  }

  // The worker ---------------------------------------------------------------------------------------------------

  newWindow() {
    this.window = windowOf(this.state.points);
    this.grid = gridOf(this.state.points);
    for (const view of this.views) view.bands = null;
  }

  request({ live = false, animate = false } = {}) {
    const { points, method, compare, size, samples, width, noise, seed } = this.state;
    const views = compare ? [method, compare] : [method];
    this.job++;
    this.busy(true);
    this.worker.postMessage({ id: this.job, points, views, size, samples, width, noise, seed, grid: this.grid, live, animate });
    if (!live) history.replaceState(null, "", `#${toHash(this.state)}`);
  }

  receive(message) {
    if (message.type === "bands") {
      const view = this.views[message.view];
      if (message.grid && message.grid !== this.grid) return;
      view.bands = message;
      view.method = message.method;
      view.title = METHODS[message.method];
      if (message.final) this.updates++;
      this.draw();
    } else if (message.type === "failed") {
      this.say(`The computation failed (${message.text}). Reset the page.`);
    } else if (message.job !== this.job) {
      return;
    } else if (message.type === "calibrating") {
      this.busy(true, "Calibrating");
    } else {
      this.marks = message.marks;
      this.busy(false);
      this.showMarks();
      this.describe();
      if (this.cursor) this.read();
    }
  }

  pause(value) {
    this.paused = value;
    element("pause").textContent = value ? "Continue" : "Pause";
    element("pause").setAttribute("aria-pressed", value);
    this.worker.postMessage({ type: "pause", value });
    this.busy(this.isBusy);
  }

  busy(value, activity = "Training") {
    this.isBusy = value;
    const text = value ? (this.paused ? "Paused" : activity) : "Converged";
    element("status").textContent = text;
    element("status").dataset.state = text.toLowerCase();
  }

  // Drawing ------------------------------------------------------------------------------------------------------

  shownViews() {
    return this.views.slice(0, this.state.compare ? 2 : 1).filter((view) => view.bands);
  }

  showControls() {
    showControls(this);
    this.listPoints();
    this.showMarks();
  }

  showMarks() {
    showMarks(this.marks, (size) => this.set({ size }));
  }

  move(cursor) {
    this.cursor = cursor;
    this.draw();
    this.read();
  }

  // The numbers under the cursor.
  read() {
    const { bands } = this.views[0];
    if (bands) this.say(this.cursor ? readingOf(this.cursor[0], this.grid, bands) : element("reading").dataset.empty);
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.frame = null;
    const { cursor, selected, grid, window } = this;
    const functions = element("functions").checked;
    const most = Math.max(...this.shownViews().flatMap(({ bands }) => [...bands.epistemic, ...bands.aleatoric]));
    for (const { plots, bands } of this.views.slice(0, this.state.compare ? 2 : 1)) {
      drawBands(plots[0], window, grid, bands, this.state.points, { functions, cursor, selected });
      drawParts(plots[1], window, grid, bands, most, cursor);
    }
  }

  describe() {
    const { bands } = this.views[0];
    if (!bands) return;
    const name = this.state.method === "constant" ? "the network" : METHODS[this.state.method];
    const sentence = sentenceOf(this.state, name, this.grid, bands);
    element("sentence").textContent = sentence;
    for (const { plots, method } of this.shownViews()) plots[0].canvas.setAttribute("aria-label", `${METHODS[method]}: ${sentence}`);
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      const left = this.state.data === "own" && this.state.points.length > MOST_IN_LINK;
      this.say(left ? `The link is in the clipboard, without points: it holds up to ${MOST_IN_LINK}.` : "The link is in the clipboard.");
    } catch {
      prompt("Copy this link:", location.href);
    }
  }

  say(text) {
    element("reading").textContent = text;
  }
}
