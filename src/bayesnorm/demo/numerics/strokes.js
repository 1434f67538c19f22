// Strokes become images as in the digits data: a bitmap of 32 x 32, counted in blocks of 4 x 4.

const BITMAP = 32;
const BLOCK = 4;
const PEN = 2.1; // radius of the pen on the bitmap

// Strokes turned by an angle in degrees around the middle of the drawing; strokes are lists of [x, y] from 0 to 1.
export function rotated(strokes, degrees) {
  const [cosine, sine] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  return strokes.map((stroke) =>
    stroke.map(([x, y]) => [0.5 + cosine * (x - 0.5) - sine * (y - 0.5), 0.5 + sine * (x - 0.5) + cosine * (y - 0.5)]),
  );
}

// Strokes moved and scaled so that they fill the height or the width of the bitmap.
function fillBitmap(strokes) {
  const all = strokes.flat();
  const [left, top] = [0, 1].map((axis) => Math.min(...all.map((point) => point[axis])));
  const [right, bottom] = [0, 1].map((axis) => Math.max(...all.map((point) => point[axis])));
  const size = Math.max(right - left, bottom - top, 0.1);
  const room = BITMAP - 2 * PEN;
  const place = (value, middle) => BITMAP / 2 + ((value - middle) / size) * room;
  return strokes.map((stroke) =>
    stroke.map(([x, y]) => [place(x, (left + right) / 2), place(y, (top + bottom) / 2)]),
  );
}

function distanceToSegment(x, y, [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const share = length ? Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
  return Math.hypot(x - ax - share * dx, y - ay - share * dy);
}

// An image of 64 numbers from 0 to 1. `blur` is the standard deviation of a Gaussian filter, in pixels of the image.
export function imageOf(strokes, blur = 0) {
  const bitmap = new Float64Array(BITMAP * BITMAP);
  for (const stroke of fillBitmap(strokes)) {
    for (let i = 0; i < stroke.length; i++) {
      const [from, to] = [stroke[Math.max(0, i - 1)], stroke[i]];
      for (let p = 0; p < bitmap.length; p++) {
        if (bitmap[p]) continue;
        if (distanceToSegment((p % BITMAP) + 0.5, Math.floor(p / BITMAP) + 0.5, from, to) <= PEN) bitmap[p] = 1;
      }
    }
  }
  const smooth = blur > 0 ? blurred(blurred(bitmap, blur * BLOCK, 1), blur * BLOCK, BITMAP) : bitmap;
  const side = BITMAP / BLOCK;
  const image = new Float64Array(side * side);
  for (let p = 0; p < smooth.length; p++) {
    image[Math.floor(p / BITMAP / BLOCK) * side + Math.floor((p % BITMAP) / BLOCK)] += smooth[p] / (BLOCK * BLOCK);
  }
  return image;
}

// A Gaussian filter along rows (step 1) or columns (step 32).
function blurred(bitmap, std, step) {
  const reach = Math.ceil(3 * std);
  const weights = Array.from({ length: 2 * reach + 1 }, (_, i) => Math.exp(-0.5 * ((i - reach) / std) ** 2));
  const total = weights.reduce((sum, value) => sum + value, 0);
  return bitmap.map((_, p) => {
    const along = step === 1 ? p % BITMAP : Math.floor(p / BITMAP);
    let sum = 0;
    for (let i = -reach; i <= reach; i++) {
      if (along + i >= 0 && along + i < BITMAP) sum += weights[i + reach] * bitmap[p + i * step];
    }
    return sum / total;
  });
}
