// The worker's part of the third panel.

import { DigitsNetwork } from "../numerics/digits.js";

let digitsNetwork = null;
let newestImage = null;

export async function answerDigits({ type, content, image }) {
  if (type === "digits") {
    digitsNetwork = new DigitsNetwork(content);
    return;
  }
  newestImage = image;
  await new Promise((resolve) => setTimeout(resolve)); // the next messages of a moving pen come in
  if (image !== newestImage) return;
  postMessage({ type: "digit", ...digitsNetwork.predict(image), limits: digitsNetwork.limits });
}
