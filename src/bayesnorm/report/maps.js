"use strict";
(function () {
  const controls = document.getElementById("controls");
  const slider = document.getElementById("threshold");
  const told = document.getElementById("told");
  const numbers = (name) => controls.dataset[name].split(" ").filter(Boolean).map(Number);
  const counts = numbers("counts"), right = numbers("right"), known = numbers("known");
  const levels = Number(controls.dataset.levels);
  const sum = (values, from, to) => values.slice(from, to).reduce((a, b) => a + b, 0);
  const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) : "–") + " %";

  function pixels(image, width, height) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  }

  const maps = Array.from(document.querySelectorAll("figure.map"), (figure) => {
    const canvas = figure.querySelector("canvas");
    const parts = {};
    figure.querySelectorAll("img").forEach((image) => {
      parts[image.dataset.part] = pixels(image, canvas.width, canvas.height);
    });
    return { canvas: canvas, own: figure.querySelector(".own"), parts: parts };
  });

  function draw(map, threshold, show) {
    const context = map.canvas.getContext("2d");
    const target = context.createImageData(map.canvas.width, map.canvas.height);
    const base = map.parts[show], uncertainty = map.parts.uncertainty, wrong = map.parts.wrong;
    let above = 0, mistakes = 0, found = 0;
    for (let i = 0; i < uncertainty.length; i += 4) {
      const flagged = Math.floor(uncertainty[i] * levels / 256) > threshold;
      const mistaken = wrong !== undefined && wrong[i] > 127;
      above += flagged;
      mistakes += mistaken;
      found += flagged && mistaken;
      let colour = [base[i], base[i + 1], base[i + 2]];
      if (flagged && show === "labels") colour = colour.map((value) => 0.2 * value + 0.8 * 255);
      else if (flagged) colour = [0.3 * colour[0] + 0.7 * 230, 0.3 * colour[1] + 0.7 * 159, 0.3 * colour[2]];
      else if (mistaken) colour = [0, 0, 0];
      target.data[i] = colour[0];
      target.data[i + 1] = colour[1];
      target.data[i + 2] = colour[2];
      target.data[i + 3] = 255;
    }
    context.putImageData(target, 0, 0);
    map.own.textContent = ". Pixels to check: " + percent(above, uncertainty.length / 4) +
      (wrong === undefined ? "" : ", with " + percent(found, mistakes) + " of its mistakes");
  }

  let waiting = false;
  function update() {
    waiting = false;
    const threshold = Number(slider.value);
    const show = document.querySelector("input[name=show]:checked").value;
    const above = sum(counts, threshold + 1), all = sum(counts, 0);
    let text = "Threshold " + percent((threshold + 1), levels) + ": check " + percent(above, all) + " of all pixels";
    if (right.length) {
      const rest = sum(right, 0, threshold + 1), of = sum(known, 0, threshold + 1);
      const wrong = sum(known, 0) - sum(right, 0), found = wrong - (of - rest);
      text += " and find " + percent(found, wrong) + " of the mistakes. Of the remaining pixels, " + percent(rest, of) + " are right";
    }
    maps.forEach((map) => draw(map, threshold, show));
    told.textContent = text + ".";
    told.dataset.level = threshold;
  }
  function soon() {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(update);
    }
  }
  slider.addEventListener("input", soon);
  document.querySelectorAll("input[name=show]").forEach((input) => input.addEventListener("change", soon));
  update();
})();
