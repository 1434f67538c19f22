// Starts the page.

import { CurvePanel } from "./curve_panel.js";
import { DigitsPanel } from "./digits_panel.js";
import { ShiftPanel } from "./shift_panel.js";

// The worker runs the text of two scripts of this page, so that the page is one file.
function startWorker() {
  const texts = ["numerics", "worker"].map((id) => document.getElementById(id).textContent);
  return new Worker(URL.createObjectURL(new Blob(texts, { type: "text/javascript" })));
}

const worker = startWorker();
const curvePanel = new CurvePanel(worker);
const shiftPanel = new ShiftPanel(worker);
const digitsPanel = new DigitsPanel(worker);
const receivers = { shift: shiftPanel, digit: digitsPanel, bands: curvePanel, calibrating: curvePanel, failed: curvePanel, idle: curvePanel };
worker.onmessage = ({ data }) => receivers[data.type].receive(data);

const redraw = () => [curvePanel, shiftPanel, digitsPanel].forEach((panel) => panel.draw());
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
