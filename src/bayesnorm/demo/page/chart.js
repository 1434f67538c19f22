// Draws a curve with its bands on a canvas, and the parts of its uncertainty below.

const MARGIN = { left: 40, right: 12, top: 10, bottom: 24 };

// The colours of the page in the current scheme, from its style sheet.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${String(name)}`).trim() });
}

// Round numbers between two ends, about `count` of them.
export function ticks([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

export const short = (value) => {
  const size = Math.abs(value);
  const text = size >= 1e5 || (size > 0 && size < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  return text.replace("-", "−");
};

export class Plot {
  constructor(canvas, { bottom = MARGIN.bottom, top = MARGIN.top } = {}) {
    this.canvas = canvas;
    this.margin = { ...MARGIN, bottom, top };
    this.window = { x: [0, 1], y: [0, 1] };
  }

  // Fit the canvas to its box and the screen, and clear it.
  begin(window) {
    const { canvas } = this;
    const scale = this.scale ?? Math.max(1, Math.min(3, devicePixelRatio || 1));
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    canvas.width = Math.round(this.width * scale);
    canvas.height = Math.round(this.height * scale);
    this.window = window;
    this.context = canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
    this.colours = colours();
    this.context.fillStyle = this.colours.card;
    this.context.fillRect(0, 0, this.width, this.height);
    return this;
  }

  toX(x) {
    const [low, high] = this.window.x;
    return this.margin.left + ((x - low) / (high - low)) * (this.width - this.margin.left - this.margin.right);
  }

  toY(y) {
    const [low, high] = this.window.y;
    return this.height - this.margin.bottom - ((y - low) / (high - low)) * (this.height - this.margin.top - this.margin.bottom);
  }

  // The point of the plane under a position on the screen.
  fromPosition(left, top) {
    const [[lowX, highX], [lowY, highY]] = [this.window.x, this.window.y];
    const across = (left - this.margin.left) / (this.width - this.margin.left - this.margin.right);
    const up = (this.height - this.margin.bottom - top) / (this.height - this.margin.top - this.margin.bottom);
    return [lowX + across * (highX - lowX), lowY + up * (highY - lowY)];
  }

  axes({ labelX = true, countY = 5 } = {}) {
    const { context, colours: colour, window } = this;
    context.strokeStyle = colour.grid;
    context.fillStyle = colour.muted;
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const y of ticks(window.y, countY)) {
      this.path([[window.x[0], y], [window.x[1], y]]).stroke();
      context.fillText(short(y), this.margin.left - 6, this.toY(y));
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    if (labelX) {
      for (const x of ticks(window.x, this.width < 420 ? 5 : 9)) context.fillText(short(x), this.toX(x), this.height - this.margin.bottom + 6);
    }
    return this;
  }

  path(points) {
    const { context } = this;
    context.beginPath();
    points.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](this.toX(x), this.toY(y)));
    return context;
  }

  line(x, y, colour, width = 2, dash = []) {
    const context = this.path(Array.from(x, (value, i) => [value, y[i]]));
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
    return this;
  }

  band(x, low, high, colour) {
    const forth = Array.from(x, (value, i) => [value, high[i]]);
    const back = Array.from(x, (value, i) => [value, low[i]]).reverse();
    const context = this.path([...forth, ...back]);
    context.closePath();
    context.fillStyle = colour;
    context.fill();
    return this;
  }

  dots(points, colour, radius = 4, ring = this.colours.card) {
    const { context } = this;
    for (const [x, y] of points) {
      context.beginPath();
      context.arc(this.toX(x), this.toY(y), radius, 0, 2 * Math.PI);
      context.fillStyle = colour;
      context.fill();
      context.strokeStyle = ring;
      context.lineWidth = 1.25;
      context.stroke();
    }
    return this;
  }

  text(label, left, top, colour, align = "left") {
    const { context } = this;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeStyle = this.colours.card;
    context.strokeText(label, left, top);
    context.fillStyle = colour;
    context.fillText(label, left, top);
    return this;
  }

  // Draw only inside of the axes.
  clip(draw) {
    const { context, margin } = this;
    context.save();
    context.beginPath();
    context.rect(margin.left, margin.top, this.width - margin.left - margin.right, this.height - margin.top - margin.bottom);
    context.clip();
    draw();
    context.restore();
    return this;
  }
}

// The bands, functions and mean of one method, and the training points.
export function drawBands(plot, window, x, bands, points, { functions = true, cursor = null, selected = -1 } = {}) {
  plot.begin(window).axes();
  const { colours: colour } = plot;
  plot.clip(() => {
    if (bands) {
      const [low95, low50, high50, high95] = bands.quantiles;
      plot.band(x, low95, high95, colour.band95).band(x, low50, high50, colour.band50);
      if (functions) for (const values of bands.functions) plot.line(x, values, colour.sample, 1);
      plot.line(x, bands.mean, colour.mean, 2.5);
    }
    if (cursor) {
      plot.line([cursor[0], cursor[0]], window.y, colour.muted, 1, [3, 3]);
      if (cursor.keyboard) plot.line(window.x, [cursor[1], cursor[1]], colour.muted, 1, [3, 3]);
    }
    if (points.length > 300) plot.dots(points, colour.muted, 1.5, "transparent");
    else plot.dots(points, colour.text, 4.5);
    if (points[selected]) plot.dots([points[selected]], colour.alarm, 6.5);
  });
}

// Epistemic and aleatoric standard deviations over x.
export function drawParts(plot, window, x, bands, most, cursor) {
  plot.begin({ x: window.x, y: [0, most > 0 ? 1.18 * most : 1] }).axes({ countY: 2 });
  if (!bands) return;
  const { colours: colour } = plot;
  const zero = new Float64Array(x.length);
  plot.clip(() => {
    plot.band(x, zero, bands.epistemic, colour.band50).line(x, bands.epistemic, colour.mean, 2);
    plot.line(x, bands.aleatoric, colour.noise, 2, [7, 4]);
    if (cursor) plot.line([cursor[0], cursor[0]], plot.window.y, colour.muted, 1, [3, 3]);
  });
}
