"""Triton kernels: each program runs a whole network with two hidden layers, with its weights on the chip.

Names: e is the network, D the inputs and H the hidden units (padded to powers of two; padded weights are 0 and stay 0),
R the rows that are held at once. Weights are w1 (D, H), w2 (H, H) and w3 (H,). Pre-activations are a, standardised ones
z, outputs of ReLU h, gradients before it d. Tensors in memory are those of a `Stack`: weights (E, out, in), one behind
the other in one buffer, at offsets `at_*`. Adam's moments have the same offsets in their own buffers. Indices that
offsets are computed from are 64-bit.

The file is long because all kernels share the functions at its top, and training repeats what `statistics` does: side
by side, their arithmetic can be compared.
"""

import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources as OutOfResources

# Numbers that differ between calls must not cause a new compilation.
VARYING = ["inputs", "longest", "epochs", "steps", "per_epoch", "blocks", "done", "states", "rows", "samples"]
VARYING += [f"at_{name}" for name in ("w1", "g1", "b1", "w2", "g2", "b2", "w3", "b3", "mean1", "var1", "mean2", "var2")]

BETA1, BETA2, TINY = tl.constexpr(0.9), tl.constexpr(0.999), tl.constexpr(1e-8)


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _rows(table, numbers, x, y, x_mean, x_std, y_mean, y_std, d, inputs, D: tl.constexpr):
    """Load standardised inputs (R, D) and targets (R,) of the rows `numbers` of a network's table."""
    row = tl.load(table + numbers).to(tl.int64)
    xb = tl.load(x + row[:, None] * inputs + d[None, :], mask=d[None, :] < inputs, other=0.0)
    xb = (xb - x_mean[None, :]) / x_std[None, :]
    return xb, (tl.load(y + row) - y_mean) / y_std


@triton.jit
def _scales(x_mean, x_std, y_mean, y_std, e, d, inputs):
    """Load a network's scales: means and standard deviations of its inputs and of its target."""
    inside = d < inputs
    return (
        tl.load(x_mean + e * inputs + d, mask=inside, other=0.0),
        tl.load(x_std + e * inputs + d, mask=inside, other=1.0),
        tl.load(y_mean + e),
        tl.load(y_std + e),
    )


@triton.jit
def _first(base, e, d, h, inputs, width: tl.constexpr):
    """Return the offsets of w1, and which entries are real."""
    at = base + e * width * inputs + h[None, :] * inputs + d[:, None]
    return at, (d[:, None] < inputs) & (h[None, :] < width)


@triton.jit
def _second(base, e, i, h, width: tl.constexpr):
    """Return the offsets of w2, from unit i to unit h, and which entries are real."""
    return base + e * width * width + h[None, :] * width + i[:, None], (i[:, None] < width) & (h[None, :] < width)


@triton.jit
def _adam(w, m, v, g, rate, root):
    """Take a step: `rate` is the learning rate over 1 - beta1^t, `root` is 1 over the root of 1 - beta2^t."""
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    return w - rate * m / (tl.sqrt(v) * root + TINY), m, v


@triton.jit
def _step(first, second, at, real, w, g, rate, root):
    """Take a step with weights whose moments stay in memory."""
    w, m, v = _adam(
        w, tl.load(first + at, mask=real, other=0.0), tl.load(second + at, mask=real, other=0.0), g, rate, root
    )
    tl.store(first + at, m, mask=real)
    tl.store(second + at, v, mask=real)
    return w


@triton.jit
def _transposed(base, e, i, h, width: tl.constexpr):
    """Return the offsets of the transpose of w2, and which entries are real."""
    return base + e * width * width + i[:, None] * width + h[None, :], (i[:, None] < width) & (h[None, :] < width)


@triton.jit
def _large_step(weights, first, second, at, real, g, decay, rate, root):
    """Take a step with weights that stay in memory, because registers cannot hold them and their gradient."""
    w = tl.load(weights + at, mask=real, other=0.0)
    m, v = tl.load(first + at, mask=real, other=0.0), tl.load(second + at, mask=real, other=0.0)
    w, m, v = _adam(w, m, v, g + w * decay, rate, root)
    tl.store(weights + at, w, mask=real)
    tl.store(first + at, m, mask=real)
    tl.store(second + at, v, mask=real)


@triton.jit
def _merge(mean, squares, count, a, R: tl.constexpr):
    """Return the mean and the sum of squared deviations of `count` rows and R more rows together."""
    part = tl.sum(a, 0) / R
    centred = a - part[None, :]
    shift = part - mean
    total = count + R
    return mean + shift * (R / total), squares + tl.sum(centred * centred, 0) + shift * shift * (count * R / total)


@triton.jit(do_not_specialize=VARYING)
def train_batchnorm(
    weights, first, second, running, x, y, table, orders, order_of, x_mean, x_std, y_mean, y_std, decays, corrections,
    losses, inputs, longest, epochs, steps, per_epoch, eps, momentum,
    at_w1, at_g1, at_b1, at_w2, at_g2, at_b2, at_w3, at_b3, at_mean1, at_var1, at_mean2, at_var2,
    blocks, width: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    SINGLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Train for some epochs: linear -> batch norm -> ReLU, twice, then linear, on batches of `count` times R rows."""
    e = tl.program_id(0).to(tl.int64)
    count = 1 if SINGLE else blocks
    M = R * count
    d, h, i, r = tl.arange(0, D), tl.arange(0, H), tl.arange(0, H), tl.arange(0, R)
    unit = h < width
    xm, xs, ym, ys = _scales(x_mean, x_std, y_mean, y_std, e, d, inputs)
    decay = tl.load(decays + e)
    row_table = table + e * longest
    order = orders + tl.load(order_of + e) * epochs * per_epoch
    p1, in1 = _first(at_w1, e, d, h, inputs, width)
    p2, in2 = _second(at_w2, e, i, h, width)
    units_at = e * width + h
    w1 = tl.load(weights + p1, mask=in1, other=0.0)
    pt, _in = _transposed(at_w2, e, i, h, width)
    g1 = tl.load(weights + at_g1 + units_at, mask=unit, other=0.0)
    b1 = tl.load(weights + at_b1 + units_at, mask=unit, other=0.0)
    g2 = tl.load(weights + at_g2 + units_at, mask=unit, other=0.0)
    b2 = tl.load(weights + at_b2 + units_at, mask=unit, other=0.0)
    w3 = tl.load(weights + at_w3 + units_at, mask=unit, other=0.0)
    b3 = tl.load(weights + at_b3 + e)
    m3 = tl.load(first + at_b3 + e)
    v3 = tl.load(second + at_b3 + e)
    rm1 = tl.load(running + at_mean1 + units_at, mask=unit, other=0.0)
    rv1 = tl.load(running + at_var1 + units_at, mask=unit, other=0.0)
    rm2 = tl.load(running + at_mean2 + units_at, mask=unit, other=0.0)
    rv2 = tl.load(running + at_var2 + units_at, mask=unit, other=0.0)
    for epoch in range(epochs):
        total = 0.0
        for s in range(steps):
            batch = order + epoch * per_epoch + s * M
            w2 = tl.load(weights + p2, mask=in2, other=0.0)
            mean1, sq1 = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
            for b in range(count):
                xb, yb = _rows(row_table, tl.load(batch + b * R + r), x, y, xm, xs, ym, ys, d, inputs, D)
                mean1, sq1 = _merge(mean1, sq1, b * R, _dot(xb, w1, PRECISION), R)
            inv1 = 1.0 / tl.sqrt(sq1 / M + eps)
            mean2, sq2 = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
            for b in range(count):
                xb, yb = _rows(row_table, tl.load(batch + b * R + r), x, y, xm, xs, ym, ys, d, inputs, D)
                z1 = (_dot(xb, w1, PRECISION) - mean1[None, :]) * inv1[None, :]
                h1 = tl.maximum(z1 * g1[None, :] + b1[None, :], 0.0)
                mean2, sq2 = _merge(mean2, sq2, b * R, _dot(h1, w2, PRECISION), R)
            inv2 = 1.0 / tl.sqrt(sq2 / M + eps)
            loss, db3 = 0.0, 0.0
            dw3, db2, dg2 = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
            for b in range(count):
                xb, yb = _rows(row_table, tl.load(batch + b * R + r), x, y, xm, xs, ym, ys, d, inputs, D)
                z1 = (_dot(xb, w1, PRECISION) - mean1[None, :]) * inv1[None, :]
                h1 = tl.maximum(z1 * g1[None, :] + b1[None, :], 0.0)
                z2 = (_dot(h1, w2, PRECISION) - mean2[None, :]) * inv2[None, :]
                h2 = tl.maximum(z2 * g2[None, :] + b2[None, :], 0.0)
                error = tl.sum(h2 * w3[None, :], 1) + b3 - yb
                loss += tl.sum(error * error, 0) / (2 * M)
                error = error / M
                d2 = tl.where(h2 > 0, error[:, None] * w3[None, :], 0.0)
                dw3 += tl.sum(h2 * error[:, None], 0)
                db3 += tl.sum(error, 0)
                db2 += tl.sum(d2, 0)
                dg2 += tl.sum(d2 * z2, 0)
            total += loss
            db1, dg1, sum_x = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32), tl.zeros([D], tl.float32)
            dw2 = tl.zeros([H, H], tl.float32)
            w2t = tl.load(weights + pt, mask=in2, other=0.0)
            x_d, x_z = tl.zeros([D, H], tl.float32), tl.zeros([D, H], tl.float32)
            for b in range(count):
                xb, yb = _rows(row_table, tl.load(batch + b * R + r), x, y, xm, xs, ym, ys, d, inputs, D)
                z1 = (_dot(xb, w1, PRECISION) - mean1[None, :]) * inv1[None, :]
                h1 = tl.maximum(z1 * g1[None, :] + b1[None, :], 0.0)
                z2 = (_dot(h1, w2, PRECISION) - mean2[None, :]) * inv2[None, :]
                h2 = tl.maximum(z2 * g2[None, :] + b2[None, :], 0.0)
                error = (tl.sum(h2 * w3[None, :], 1) + b3 - yb) / M
                d2 = tl.where(h2 > 0, error[:, None] * w3[None, :], 0.0)
                d2 = (g2 * inv2)[None, :] * (d2 - db2[None, :] / M - z2 * (dg2 / M)[None, :])
                dw2 += _dot(tl.trans(h1), d2, PRECISION)
                d1 = tl.where(h1 > 0, _dot(d2, w2t, PRECISION), 0.0)
                db1 += tl.sum(d1, 0)
                dg1 += tl.sum(d1 * z1, 0)
                sum_x += tl.sum(xb, 0)
                x_d += _dot(tl.trans(xb), d1, PRECISION)
                x_z += _dot(tl.trans(xb), z1, PRECISION)
            # x^T times the gradient before batch norm, which needs db1 and dg1 of all rows
            dw1 = x_d - sum_x[:, None] * (db1 / M)[None, :] - x_z * (dg1 / M)[None, :]
            dw1 = dw1 * (g1 * inv1)[None, :] + w1 * decay
            rate = tl.load(corrections + 2 * (epoch * steps + s))
            root = tl.load(corrections + 2 * (epoch * steps + s) + 1)
            rm1 += momentum * (mean1 - rm1)
            rv1 += momentum * (sq1 / (M - 1) - rv1)
            rm2 += momentum * (mean2 - rm2)
            rv2 += momentum * (sq2 / (M - 1) - rv2)
            dw3 += w3 * decay
            w1 = _step(first, second, p1, in1, w1, dw1, rate, root)
            _large_step(weights, first, second, p2, in2, dw2, decay, rate, root)
            g1 = _step(first, second, at_g1 + units_at, unit, g1, dg1, rate, root)
            b1 = _step(first, second, at_b1 + units_at, unit, b1, db1, rate, root)
            g2 = _step(first, second, at_g2 + units_at, unit, g2, dg2, rate, root)
            b2 = _step(first, second, at_b2 + units_at, unit, b2, db2, rate, root)
            w3 = _step(first, second, at_w3 + units_at, unit, w3, dw3, rate, root)
            b3, m3, v3 = _adam(b3, m3, v3, db3, rate, root)
            tl.debug_barrier()  # one thread may load what another has stored
        tl.store(losses + e * epochs + epoch, total / steps)
    tl.store(weights + p1, w1, mask=in1)
    tl.store(weights + at_g1 + units_at, g1, mask=unit)
    tl.store(weights + at_b1 + units_at, b1, mask=unit)
    tl.store(weights + at_g2 + units_at, g2, mask=unit)
    tl.store(weights + at_b2 + units_at, b2, mask=unit)
    tl.store(weights + at_w3 + units_at, w3, mask=unit)
    tl.store(weights + at_b3 + e, b3)
    tl.store(first + at_b3 + e, m3)
    tl.store(second + at_b3 + e, v3)
    tl.store(running + at_mean1 + units_at, rm1, mask=unit)
    tl.store(running + at_var1 + units_at, rv1, mask=unit)
    tl.store(running + at_mean2 + units_at, rm2, mask=unit)
    tl.store(running + at_var2 + units_at, rv2, mask=unit)


@triton.jit(do_not_specialize=VARYING)
def train_dropout(
    weights, first, second, x, y, table, orders, order_of, x_mean, x_std, y_mean, y_std, decays, corrections, losses,
    seeds, keeps, done, inputs, longest, epochs, steps, per_epoch,
    at_w1, at_b1, at_w2, at_b2, at_w3, at_b3,
    width: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Train for some epochs: dropout -> linear -> ReLU, twice, then dropout -> linear, with batches of R rows."""
    e = tl.program_id(0).to(tl.int64)
    d, h, i, r = tl.arange(0, D), tl.arange(0, H), tl.arange(0, H), tl.arange(0, R)
    unit = h < width
    xm, xs, ym, ys = _scales(x_mean, x_std, y_mean, y_std, e, d, inputs)
    decay = tl.load(decays + e)
    seed = tl.load(seeds + e)
    keep0, keep1, keep2 = tl.load(keeps + 3 * e), tl.load(keeps + 3 * e + 1), tl.load(keeps + 3 * e + 2)
    row_table = table + e * longest
    order = orders + tl.load(order_of + e) * epochs * per_epoch
    p1, in1 = _first(at_w1, e, d, h, inputs, width)
    p2, in2 = _second(at_w2, e, i, h, width)
    units_at = e * width + h
    w1 = tl.load(weights + p1, mask=in1, other=0.0)
    pt, _in = _transposed(at_w2, e, i, h, width)
    b1 = tl.load(weights + at_b1 + units_at, mask=unit, other=0.0)
    b2 = tl.load(weights + at_b2 + units_at, mask=unit, other=0.0)
    w3 = tl.load(weights + at_w3 + units_at, mask=unit, other=0.0)
    b3 = tl.load(weights + at_b3 + e)
    m3 = tl.load(first + at_b3 + e)
    v3 = tl.load(second + at_b3 + e)
    cells = r[:, None] * (2 * H + D) + h[None, :]
    xb, yb = _rows(row_table, tl.load(order + r), x, y, xm, xs, ym, ys, d, inputs, D)
    for epoch in range(epochs):
        total = 0.0
        for s in range(steps):
            w2 = tl.load(weights + p2, mask=in2, other=0.0)
            # The next batch is loaded while this one is computed.
            after = tl.minimum(epoch * per_epoch + (s + 1) * R, (epochs - 1) * per_epoch + (steps - 1) * R)
            after = tl.where((s + 1 == steps) & (epoch + 1 < epochs), (epoch + 1) * per_epoch, after)
            next_x, next_y = _rows(row_table, tl.load(order + after + r), x, y, xm, xs, ym, ys, d, inputs, D)
            key = seed * 4294967296 + done + epoch * steps + s  # every pair of network and step has its own number
            f0 = (tl.rand(key, 2 * H + r[:, None] * (2 * H + D) + d[None, :]) < keep0) / keep0
            f1 = (tl.rand(key, cells) < keep1) / keep1
            f2 = (tl.rand(key, H + cells) < keep2) / keep2
            x0 = xb * f0
            h1 = tl.maximum(_dot(x0, w1, PRECISION) + b1[None, :], 0.0) * f1
            h2 = tl.maximum(_dot(h1, w2, PRECISION) + b2[None, :], 0.0) * f2
            error = tl.sum(h2 * w3[None, :], 1) + b3 - yb
            total += tl.sum(error * error, 0) / (2 * R)
            error = error / R
            d2 = tl.where(h2 > 0, error[:, None] * w3[None, :] * f2, 0.0)
            w2t = tl.load(weights + pt, mask=in2, other=0.0)
            d1 = tl.where(h1 > 0, _dot(d2, w2t, PRECISION) * f1, 0.0)
            dw3 = tl.sum(h2 * error[:, None], 0) + w3 * decay
            dw2 = _dot(tl.trans(h1), d2, PRECISION)
            dw1 = _dot(tl.trans(x0), d1, PRECISION) + w1 * decay
            rate = tl.load(corrections + 2 * (epoch * steps + s))
            root = tl.load(corrections + 2 * (epoch * steps + s) + 1)
            w1 = _step(first, second, p1, in1, w1, dw1, rate, root)
            _large_step(weights, first, second, p2, in2, dw2, decay, rate, root)
            b1 = _step(first, second, at_b1 + units_at, unit, b1, tl.sum(d1, 0), rate, root)
            b2 = _step(first, second, at_b2 + units_at, unit, b2, tl.sum(d2, 0), rate, root)
            w3 = _step(first, second, at_w3 + units_at, unit, w3, dw3, rate, root)
            b3, m3, v3 = _adam(b3, m3, v3, tl.sum(error, 0), rate, root)
            xb, yb = next_x, next_y
            tl.debug_barrier()
        tl.store(losses + e * epochs + epoch, total / steps)
    tl.store(weights + p1, w1, mask=in1)
    tl.store(weights + at_b1 + units_at, b1, mask=unit)
    tl.store(weights + at_b2 + units_at, b2, mask=unit)
    tl.store(weights + at_w3 + units_at, w3, mask=unit)
    tl.store(weights + at_b3 + e, b3)
    tl.store(first + at_b3 + e, m3)
    tl.store(second + at_b3 + e, v3)


@triton.jit(do_not_specialize=VARYING)
def statistics(
    weights, x, table, picked, which, x_mean, x_std, y_mean, y_std, means, variances,
    inputs, longest, states, at_w1, at_g1, at_b1, at_w2, eps,
    blocks, width: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    SINGLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Store mean and biased variance of both batch-norm layers' inputs in one batch, in training mode."""
    e, state = tl.program_id(0).to(tl.int64), tl.program_id(1)
    count = 1 if SINGLE else blocks
    M = R * count
    d, h, i, r = tl.arange(0, D), tl.arange(0, H), tl.arange(0, H), tl.arange(0, R)
    unit = h < width
    xm, xs, _ym, _ys = _scales(x_mean, x_std, y_mean, y_std, e, d, inputs)
    p1, in1 = _first(at_w1, e, d, h, inputs, width)
    p2, in2 = _second(at_w2, e, i, h, width)
    units_at = e * width + h
    w1 = tl.load(weights + p1, mask=in1, other=0.0)
    w2 = tl.load(weights + p2, mask=in2, other=0.0)
    g1 = tl.load(weights + at_g1 + units_at, mask=unit, other=0.0)
    b1 = tl.load(weights + at_b1 + units_at, mask=unit, other=0.0)
    row_table = table + e * longest
    batch = picked + (tl.load(which + e) * states + state) * M
    mean1, sq1 = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
    for b in range(count):
        row = tl.load(row_table + tl.load(batch + b * R + r)).to(tl.int64)
        xb = tl.load(x + row[:, None] * inputs + d[None, :], mask=d[None, :] < inputs, other=0.0)
        mean1, sq1 = _merge(mean1, sq1, b * R, _dot((xb - xm[None, :]) / xs[None, :], w1, PRECISION), R)
    inv1 = 1.0 / tl.sqrt(sq1 / M + eps)
    mean2, sq2 = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
    for b in range(count):
        row = tl.load(row_table + tl.load(batch + b * R + r)).to(tl.int64)
        xb = tl.load(x + row[:, None] * inputs + d[None, :], mask=d[None, :] < inputs, other=0.0)
        a1 = _dot((xb - xm[None, :]) / xs[None, :], w1, PRECISION)
        h1 = tl.maximum((a1 - mean1[None, :]) * (inv1 * g1)[None, :] + b1[None, :], 0.0)
        mean2, sq2 = _merge(mean2, sq2, b * R, _dot(h1, w2, PRECISION), R)
    out = (e * states + state) * 2 * width + h
    tl.store(means + out, mean1, mask=unit)
    tl.store(means + out + width, mean2, mask=unit)
    tl.store(variances + out, sq1 / M, mask=unit)
    tl.store(variances + out + width, sq2 / M, mask=unit)


@triton.jit(do_not_specialize=VARYING)
def moments(
    weights, x, scales1, shifts1, scales2, shifts2, thin, means, variances, inputs, rows, samples,
    at_w1, at_w2, at_w3, at_b3,
    width: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, THIN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Store mean and variance over samples of the output; a sample gives h = max(a * scale + shift, 0) in both layers.

    x is (E, rows, inputs); scales and shifts are (E, samples, width); `thin`, (E, samples, inputs), multiplies inputs.
    """
    e, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    d, h, i, r = tl.arange(0, D), tl.arange(0, H), tl.arange(0, H), tl.arange(0, R) + part * R
    unit = h < width
    p1, in1 = _first(at_w1, e, d, h, inputs, width)
    p2, in2 = _second(at_w2, e, i, h, width)
    w1 = tl.load(weights + p1, mask=in1, other=0.0)
    w2 = tl.load(weights + p2, mask=in2, other=0.0)
    w3 = tl.load(weights + at_w3 + e * width + h, mask=unit, other=0.0)
    b3 = tl.load(weights + at_b3 + e)
    inside = (r[:, None] < rows) & (d[None, :] < inputs)
    xb = tl.load(x + (e * rows + r[:, None]) * inputs + d[None, :], mask=inside, other=0.0)
    a1 = _dot(xb, w1, PRECISION)
    first, total, squares = tl.zeros([R], tl.float32), tl.zeros([R], tl.float32), tl.zeros([R], tl.float32)
    for t in range(samples):
        at = (e * samples + t) * width + h
        if THIN:
            factor = tl.load(thin + (e * samples + t) * inputs + d, mask=d < inputs, other=0.0)
            a1 = _dot(xb * factor[None, :], w1, PRECISION)
        s1 = tl.load(scales1 + at, mask=unit, other=0.0)
        t1 = tl.load(shifts1 + at, mask=unit, other=0.0)
        s2 = tl.load(scales2 + at, mask=unit, other=0.0)
        t2 = tl.load(shifts2 + at, mask=unit, other=0.0)
        h1 = tl.maximum(a1 * s1[None, :] + t1[None, :], 0.0)
        h2 = tl.maximum(_dot(h1, w2, PRECISION) * s2[None, :] + t2[None, :], 0.0)
        f = tl.sum(h2 * w3[None, :], 1) + b3
        first = tl.where(t == 0, f, first)
        total += f - first
        squares += (f - first) * (f - first)
    mean = total / samples
    tl.store(means + e * rows + r, first + mean, mask=r < rows)
    tl.store(variances + e * rows + r, tl.maximum(squares / samples - mean * mean, 0.0), mask=r < rows)
