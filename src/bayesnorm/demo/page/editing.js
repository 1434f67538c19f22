// Add, drag and delete points on a chart, with a mouse, a finger or the keyboard.

const NEAR = 16; // pixels
const DEAD_ZONE = 4;

// `panel` has state.points, change(live), select(index) and move(cursor); `plot` draws in the canvas.
export function makeEditable(plot, panel) {
  const { canvas } = plot;
  let drag = null;

  const position = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  const nearest = ([left, top], reach) => {
    let best = -1;
    let least = reach;
    panel.state.points.forEach(([x, y], i) => {
      const distance = Math.hypot(plot.toX(x) - left, plot.toY(y) - top);
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  };

  const inside = ([left, top]) => left >= plot.margin.left && left <= plot.width && top >= 0 && top <= plot.height - plot.margin.bottom;

  // Fingers scroll the page unless they start on a point.
  canvas.addEventListener(
    "touchstart",
    (event) => {
      if (nearest(position(event.touches[0]), NEAR * 1.5) >= 0) event.preventDefault();
    },
    { passive: false },
  );

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const start = position(event);
    drag = { start, index: nearest(start, event.pointerType === "touch" ? NEAR * 1.5 : NEAR), moved: false };
    if (drag.index >= 0) canvas.setPointerCapture(event.pointerId);
    panel.select(drag.index);
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = position(event);
    panel.move(inside(at) ? plot.fromPosition(...at) : null);
    canvas.style.cursor = nearest(at, NEAR) >= 0 ? "grab" : "crosshair";
    if (!drag) return;
    if (Math.hypot(at[0] - drag.start[0], at[1] - drag.start[1]) > DEAD_ZONE) drag.moved = true;
    if (!drag.moved || drag.index < 0) return;
    canvas.style.cursor = "grabbing";
    panel.place(drag.index, plot.fromPosition(...at));
    panel.change(true);
  });

  canvas.addEventListener("pointerup", (event) => {
    const at = position(event);
    const { index, moved } = drag ?? { index: -1, moved: true };
    drag = null;
    if (index >= 0 && moved) {
      if (inside(at)) panel.change(false);
      else panel.remove(index); // dragged out of the chart
    } else if (index < 0 && !moved && inside(at)) panel.add(plot.fromPosition(...at));
  });

  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", () => panel.move(null));
  canvas.addEventListener("dblclick", (event) => panel.remove(nearest(position(event), NEAR)));
  canvas.addEventListener("contextmenu", (event) => {
    const index = nearest(position(event), NEAR);
    if (index < 0) return;
    event.preventDefault();
    panel.remove(index);
  });

  canvas.addEventListener("keydown", (event) => {
    const { x, y } = plot.window;
    const [stepX, stepY] = [(x[1] - x[0]) / 48, (y[1] - y[0]) / 32];
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const cursor = panel.cursor ?? [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2];
    const on = [plot.toX(cursor[0]), plot.toY(cursor[1])];
    if (event.key in moves) {
      const [across, up] = moves[event.key];
      const clamp = (value, [low, high]) => Math.max(low, Math.min(high, value));
      const next = [clamp(cursor[0] + across * stepX, x), clamp(cursor[1] + up * stepY, y)];
      panel.move(Object.assign(next, { keyboard: true }));
    } else if (event.key === "Enter" || event.key === " ") panel.add(cursor);
    else if (event.key === "Delete" || event.key === "Backspace") panel.remove(nearest(on, 40));
    else return;
    event.preventDefault();
  });
}
