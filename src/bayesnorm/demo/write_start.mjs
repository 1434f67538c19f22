// Runs the page's worker in node on the state that the page opens with, and writes the result: node write_start.mjs

import { writeFileSync } from "node:fs";
import { encodeBands, gridOf } from "./page/start.js";
import { startState } from "./page/state.js";

const { points, method, ...settings } = startState();
let bands = null;
globalThis.self = globalThis;
globalThis.postMessage = (message) => {
  if (message.type === "bands") bands = message;
  else if (message.type === "idle") {
    const content = { bands: encodeBands(bands), marks: message.marks };
    writeFileSync(new URL("start.json", import.meta.url), `${JSON.stringify(content, null, 1)}\n`);
  }
};
await import("./page/worker.js");
self.onmessage({ data: { ...settings, id: 1, points, views: [method], grid: gridOf(points) } });
