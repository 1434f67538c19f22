// Save what is on the page to files of the visitor.

export function saveFile(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The charts of all views side by side, as a PNG of twice their size.
export function savePicture(name, views, draw, background) {
  const scale = 2;
  for (const { plots } of views) for (const plot of plots) plot.scale = scale;
  draw();
  const canvas = document.createElement("canvas");
  const gap = 12 * scale;
  const columns = views.map(({ plots }) => plots.map((plot) => plot.canvas));
  const height = Math.max(...columns.map((column) => column.reduce((sum, part) => sum + part.height + gap, gap))) + 44 * scale;
  canvas.width = columns.reduce((sum, column) => sum + column[0].width + gap, gap);
  canvas.height = height;
  const context = canvas.getContext("2d");
  context.fillStyle = background.card;
  context.fillRect(0, 0, canvas.width, canvas.height);
  let left = gap;
  views.forEach(({ title }, i) => {
    context.fillStyle = background.text;
    context.font = `600 ${14 * scale}px system-ui, sans-serif`;
    context.fillText(title, left + 40 * scale, 20 * scale);
    let top = 26 * scale;
    for (const part of columns[i]) {
      context.drawImage(part, left, top);
      top += part.height + gap;
    }
    left += columns[i][0].width + gap;
  });
  context.fillStyle = background.muted;
  context.font = `${11 * scale}px system-ui, sans-serif`;
  const legend = "50 % and 95 % bands; below, the epistemic (filled) and aleatoric (dashed) standard deviation";
  context.fillText(legend, gap + 40 * scale, height - gap, canvas.width - 2 * gap - 40 * scale);
  for (const { plots } of views) for (const plot of plots) delete plot.scale;
  draw();
  canvas.toBlob((blob) => saveFile(name, blob));
}

// The bands of all views as a table.
export function bandsAsCsv(x, views) {
  const names = ["mean", "lower_95", "lower_50", "upper_50", "upper_95", "epistemic_std", "aleatoric_std"];
  const head = ["method", "x", ...names].join(",");
  const rows = views.flatMap(({ title, bands }) =>
    Array.from(x, (value, i) => {
      const [low95, low50, high50, high95] = bands.quantiles.map((values) => values[i]);
      const values = [value, bands.mean[i], low95, low50, high50, high95, bands.epistemic[i], bands.aleatoric[i]];
      return [title, ...values.map((number) => Number(number.toPrecision(6)))].join(",");
    }),
  );
  return [head, ...rows, ""].join("\n");
}
