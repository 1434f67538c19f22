// Starts the page.

import { CurvePanel } from "./curve_panel.js";

// The worker runs the text of two scripts of this page, so that the page is one file.
function startWorker() {
  const texts = ["numerics", "worker"].map((id) => document.getElementById(id).textContent);
  return new Worker(URL.createObjectURL(new Blob(texts, { type: "text/javascript" })));
}

const worker = startWorker();
const curvePanel = new CurvePanel(worker);
worker.onmessage = ({ data }) => curvePanel.receive(data);

const redraw = () => curvePanel.draw();
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
