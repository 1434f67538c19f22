"use strict";
// Show the numbers under the pointer in pictures whose axes are described in data-axes (`axes_of_picture`).
(function () {
  const label = document.createElement("p");
  label.className = "numbers";
  label.hidden = true;
  document.body.appendChild(label);

  function number(axis, share) {
    const value = axis.log
      ? axis.from * Math.pow(axis.to / axis.from, share)
      : axis.from + share * (axis.to - axis.from);
    if (axis.words.length) {
      const distance = (word) => Math.abs(word[0] - value);
      return axis.name + ": " + axis.words.reduce((a, b) => (distance(b) < distance(a) ? b : a))[1];
    }
    const step = axis.log ? value : axis.to - axis.from;
    const decimals = Math.max(0, Math.min(8, 2 - Math.floor(Math.log10(Math.abs(step * axis.factor)))));
    const text = (value * axis.factor).toLocaleString("en", { maximumFractionDigits: decimals });
    return axis.name + ": " + text.replace("-", "\u2212") + axis.unit;
  }

  document.querySelectorAll("svg[data-axes]").forEach((picture) => {
    const axes = JSON.parse(picture.dataset.axes);
    const [left, top, right, bottom] = axes.box;
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cross.setAttribute("class", "cross");
    picture.appendChild(cross);

    function hide() {
      label.hidden = true;
      cross.setAttribute("d", "");
    }

    function show(event) {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
      if (at.x < left || at.x > right || at.y < top || at.y > bottom) return hide();
      cross.setAttribute("d", `M${left} ${at.y}H${right}M${at.x} ${top}V${bottom}`);
      label.textContent = number(axes.x, (at.x - left) / (right - left)) + "\n" +
        number(axes.y, (bottom - at.y) / (bottom - top));
      label.hidden = false;
      const across = Math.min(event.clientX + 14, document.documentElement.clientWidth - label.offsetWidth - 4);
      label.style.left = Math.max(4, across) + "px";
      label.style.top = Math.max(4, event.clientY - label.offsetHeight - 10) + "px";
    }

    picture.addEventListener("pointermove", show);
    picture.addEventListener("pointerdown", show);
    picture.addEventListener("pointerleave", hide);
  });
})();
