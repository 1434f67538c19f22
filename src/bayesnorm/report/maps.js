"use strict";
(function () {
  const controls = document.getElementById("controls");
  const slider = document.getElementById("threshold");
  const summary = document.getElementById("summary");
  const numbers = (name) => controls.dataset[name].split(" ").filter(Boolean).map(Number);
  const counts = numbers("counts"), right = numbers("right"), labelled = numbers("labelled");
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
    return { canvas: canvas, note: figure.querySelector(".note"), parts: parts };
  });

  function draw(map, threshold, show) {
    const context = map.canvas.getContext("2d");
    const target = context.createImageData(map.canvas.width, map.canvas.height);
    const base = map.parts[show], uncertainty = map.parts.uncertainty, wrong = map.parts.wrong;
    let above = 0, mistakes = 0, flaggedMistakes = 0;
    for (let i = 0; i < uncertainty.length; i += 4) {
      const flagged = Math.floor(uncertainty[i] * levels / 256) > threshold;
      const mistaken = wrong !== undefined && wrong[i] > 127;
      above += flagged;
      mistakes += mistaken;
      flaggedMistakes += flagged && mistaken;
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
    map.note.textContent = ". Pixels to check: " + percent(above, uncertainty.length / 4) +
      (wrong === undefined ? "" : ", with " + percent(flaggedMistakes, mistakes) + " of its mistakes");
  }

  let waiting = false;
  function update() {
    waiting = false;
    const threshold = Number(slider.value);
    const show = document.querySelector("input[name=show]:checked").value;
    const above = sum(counts, threshold + 1), all = sum(counts, 0);
    let text = "Threshold " + percent((threshold + 1), levels) + ": check " + percent(above, all) + " of all pixels";
    if (right.length) {
      const restRight = sum(right, 0, threshold + 1), rest = sum(labelled, 0, threshold + 1);
      const wrong = sum(labelled, 0) - sum(right, 0), flagged = wrong - (rest - restRight);
      text += " and find " + percent(flagged, wrong) + " of the mistakes. Of the remaining pixels, " + percent(restRight, rest) + " are right";
    }
    maps.forEach((map) => draw(map, threshold, show));
    summary.textContent = text + ".";
    summary.dataset.level = threshold;
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
