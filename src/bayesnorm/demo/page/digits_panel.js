// The third panel: draw a digit, turn it, blur it, and see how sure the network is.

import { imageOf, rotated } from "../numerics/strokes.js";
import { colours } from "./chart.js";
import { SHAPES } from "./shapes.js";

const PEN_WIDTH = 0.075; // of the drawing's side
const unit = (id) => document.getElementById(`digit-${id}`);

// A canvas whose size fits its box and the screen, cleared.
function freshContext(canvas) {
  const scale = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

export class DigitsPanel {
  constructor(worker) {
    this.worker = worker;
    this.strokes = SHAPES[3];
    this.image = null;
    this.answer = null;
    this.started = false;
    for (const name of Object.keys(SHAPES)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-label", `Draw ${name}`);
      button.addEventListener("click", () => this.load(SHAPES[name]));
      unit("shapes").append(button);
    }
    unit("clear").addEventListener("click", () => this.load([]));
    for (const name of ["turn", "blur"]) unit(name).addEventListener("input", () => this.ask());
    this.connectPen(unit("canvas"));
    const watcher = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      this.started = true;
      worker.postMessage({ type: "digits", content: JSON.parse(document.getElementById("digits-data").textContent) });
      this.ask();
    });
    watcher.observe(unit("canvas"));
  }

  connectPen(canvas) {
    let drawing = false;
    const position = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      const turn = Number(unit("turn").value);
      if (turn) this.strokes = rotated(this.strokes, turn); // further strokes belong to what is seen
      unit("turn").value = 0;
      this.strokes = this.isExample ? [] : this.strokes;
      this.isExample = false;
      drawing = true;
      this.strokes = [...this.strokes, [position(event)]];
      this.ask();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drawing) return;
      this.strokes[this.strokes.length - 1].push(position(event));
      this.ask();
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (drawing = false));
  }

  isExample = true;

  load(strokes) {
    this.strokes = strokes;
    this.isExample = strokes.length > 0;
    unit("turn").value = 0;
    unit("blur").value = 0;
    this.ask();
  }

  ask() {
    const [turn, blur] = [Number(unit("turn").value), Number(unit("blur").value)];
    unit("turn-value").textContent = `${turn}°`;
    unit("blur-value").textContent = blur ? `${blur} pixels` : "none";
    if (!this.started) return;
    this.image = this.strokes.length ? imageOf(rotated(this.strokes, turn), blur) : null;
    if (this.image) this.worker.postMessage({ type: "digit", image: this.image });
    else this.answer = null;
    this.draw();
    if (!this.image) this.show();
  }

  receive(answer) {
    if (!this.image) return;
    this.answer = answer;
    this.show();
    this.draw();
  }

  show() {
    const { answer } = this;
    const verdict = unit("verdict");
    if (!answer) {
      verdict.dataset.state = "calm";
      verdict.textContent = "Draw a digit in the box.";
      return;
    }
    const { probabilities, entropy, mutualInformation, limits } = answer;
    const best = probabilities.indexOf(Math.max(...probabilities));
    const unsure = entropy > limits.entropy;
    verdict.dataset.state = unsure ? "alarm" : "calm";
    const percent = `${Math.round(100 * probabilities[best])} %`;
    verdict.textContent = unsure
      ? `▲ Unsure: perhaps a ${best} (${percent}), perhaps no digit. 95 % of digits are less uncertain.`
      : `● A ${best}, with probability ${percent}.`;
    for (const [name, value, limit] of [["entropy", entropy, limits.entropy], ["mi", mutualInformation, limits.mutualInformation]]) {
      unit(name).textContent = value.toFixed(3);
      const most = name === "entropy" ? Math.log(10) : 0.8;
      unit(`${name}-bar`).style.setProperty("--share", Math.min(1, Math.sqrt(value / most)));
      unit(`${name}-bar`).style.setProperty("--limit", Math.sqrt(limit / most));
      unit(`${name}-bar`).dataset.state = value > limit ? "alarm" : "calm";
    }
    const list = probabilities.map((value, k) => `${k}: ${Math.round(100 * value)} %`).join(", ");
    unit("bars").setAttribute("aria-label", `Probabilities of the digits. ${list}.`);
  }

  draw() {
    this.drawStrokes();
    this.drawPixels();
    this.drawBars();
  }

  drawStrokes() {
    const canvas = unit("canvas");
    const context = freshContext(canvas);
    const [side, colour] = [canvas.clientWidth, colours()];
    const blur = Number(unit("blur").value);
    context.filter = blur ? `blur(${(blur * side) / 11}px)` : "none";
    context.strokeStyle = colour.text;
    context.lineWidth = PEN_WIDTH * side;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of rotated(this.strokes, Number(unit("turn").value))) {
      context.beginPath();
      for (const [x, y] of [stroke[0], ...stroke]) context.lineTo(x * side, y * side);
      context.stroke();
    }
  }

  // What the network sees: 8 x 8 pixels.
  drawPixels() {
    const canvas = unit("pixels");
    const context = freshContext(canvas);
    const size = canvas.clientWidth / 8;
    context.fillStyle = colours().text;
    (this.image ?? []).forEach((value, i) => {
      context.globalAlpha = value;
      context.fillRect((i % 8) * size, Math.floor(i / 8) * size, size + 0.5, size + 0.5);
    });
  }

  // One bar per digit, and one tick per sample of the batch statistics.
  drawBars() {
    const canvas = unit("bars");
    const context = freshContext(canvas);
    const colour = colours();
    const [row, left, right] = [canvas.clientHeight / 10, 22, 50];
    const width = canvas.clientWidth - left - right;
    context.font = '14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
    context.textBaseline = "middle";
    for (let k = 0; k < 10; k++) {
      const [value, middle] = [this.answer?.probabilities[k] ?? 0, (k + 0.5) * row];
      context.fillStyle = colour.grid;
      context.fillRect(left, middle - 0.3 * row, width, 0.6 * row);
      context.fillStyle = colour.band50;
      context.fillRect(left, middle - 0.3 * row, value * width, 0.6 * row);
      context.fillStyle = colour.mean;
      for (const sample of this.answer?.samples ?? []) context.fillRect(left + sample[k] * width - 0.75, middle - 0.3 * row, 1.5, 0.6 * row);
      context.fillStyle = value > 0.05 ? colour.text : colour.muted;
      context.textAlign = "left";
      context.fillText(k, 4, middle);
      context.textAlign = "right";
      context.fillText(this.answer ? `${Math.round(100 * value)} %` : "", canvas.clientWidth - 2, middle);
    }
  }
}
