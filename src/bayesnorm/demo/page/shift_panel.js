// The second panel: new inputs come from elsewhere, a test detects it, and adapting repairs it.

import { Plot, short } from "./chart.js";

const LEVEL = 0.05;
const SHIFT_WINDOW = { x: [-7.2, 7.2], y: [-2.3, 2.3] };
const SHIFT_GRID = Float64Array.from({ length: 121 }, (_, i) => -7.2 + (14.4 * i) / 120);
const part = (id) => document.getElementById(`shift-${id}`);

export class ShiftPanel {
  constructor(worker) {
    this.worker = worker;
    this.plot = new Plot(part("chart"));
    this.seed = 0;
    this.answer = null;
    part("slider").addEventListener("input", () => this.ask("show"));
    part("adapt").addEventListener("click", () => this.ask("adapt"));
    part("forget").addEventListener("click", () => this.ask("forget"));
    part("sample").addEventListener("click", () => {
      this.seed++;
      this.ask("show");
    });
    // The network is trained when the panel comes into view.
    const watcher = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      this.ask("show");
    });
    watcher.observe(part("chart"));
  }

  get shift() {
    return Number(part("slider").value);
  }

  ask(action) {
    const { shift, seed } = this;
    part("value").textContent = short(shift);
    part("slider").setAttribute("aria-valuetext", `shifted by ${shift}`);
    this.worker.postMessage({ type: "shift", shift, seed, action, grid: SHIFT_GRID });
  }

  receive(answer) {
    this.answer = answer;
    const { pValue, expected, expectedAfter, error, errorAfter, isAdapted } = answer;
    const alarm = pValue < LEVEL;
    part("p").textContent = pValue < 0.001 ? "below 0.001" : pValue.toFixed(pValue < 0.1 ? 3 : 2);
    part("verdict").dataset.state = alarm ? "alarm" : "calm";
    part("verdict").textContent = alarm
      ? "▲ Drift: the new inputs do not come from where the training inputs came from."
      : isAdapted
        ? "● No drift from the inputs that the network was adapted to."
        : "● No drift: the new inputs look like those of the training.";
    part("expected").textContent = expected.toFixed(2);
    part("error").textContent = error.toFixed(2);
    part("after").textContent = expectedAfter.toFixed(2);
    part("error-after").textContent = errorAfter.toFixed(2);
    part("forget").disabled = !isAdapted;
    part("adapt").disabled = !alarm;
    part("chart").setAttribute(
      "aria-label",
      `The curve with its bands, and new inputs shifted by ${short(this.shift)}. ${part("verdict").textContent}`,
    );
    this.draw();
  }

  draw() {
    this.plot.begin(SHIFT_WINDOW).axes();
    if (!this.answer) return;
    const { plot, answer } = this;
    const { colours: colour } = plot;
    const [low95, low50, high50, high95] = answer.quantiles;
    plot.clip(() => {
      plot.band(SHIFT_GRID, low95, high95, colour.band95).band(SHIFT_GRID, low50, high50, colour.band50);
      plot.dots(answer.trained, colour.muted, 2, "transparent");
      plot.line(SHIFT_GRID, answer.mean, colour.mean, 2.5);
      plot.dots(answer.points, colour.noise, 3.5);
    });
  }
}
