"""The claim that the best batch size of MCBN grows with the number of training rows (Mukhoti et al., 2020)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import stats

from bayesnorm.calibration import select_batch_size
from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MCBN

from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column
from .toy import NOISE, friedman_rows, trained

ROWS = (100, 200, 400, 800, 1600, 3200)
TRAINED_WITH, STEPS = 32, 2_400
SIZES = tuple(2.0**power for power in range(3, 15))


def measure(seed: int) -> Numbers:
    """Return the effective batch size that the ELBO chooses, by the number of training rows."""
    results: Numbers = {}
    for rows in ROWS:
        x, y, _ = friedman_rows(rows, seed)
        epochs = max(1, STEPS * TRAINED_WITH // rows)
        network = trained(x, y, batch_size=TRAINED_WITH, epochs=epochs, seed=seed)
        posterior = MCBN(TRAINED_WITH).fit(network, (x, y), Gaussian(precision=1 / NOISE**2), seed=seed)
        choice = select_batch_size(posterior, (x, y), batch_sizes=SIZES, seed=seed)
        results[str(rows)] = float(choice.batch_size)
    return results


def judge(runs: Sequence[Numbers]) -> Verdict:
    """Judge the rank correlation of rows and chosen sizes, and the growth from the fewest to the most rows."""
    sizes = [2 ** statistics.fmean(map(math.log2, column(runs, str(rows)))) for rows in ROWS]
    correlation = float(stats.spearmanr(ROWS, sizes).statistic) if len(set(sizes)) > 1 else 0.0
    growth = sizes[-1] / sizes[0]
    word = HOLDS if correlation > 0.8 and growth >= 2 else PARTLY if growth > 1 and correlation > 0.5 else FAILS
    shown = ", ".join(f"{size:.0f} for {rows:,}" for rows, size in zip(ROWS, sizes, strict=True))
    return Verdict(word, f"chosen effective batch sizes (geometric means over seeds) by rows: {shown}")


CLAIM = Claim(
    "size-over-rows",
    "Mukhoti et al. (2020)",
    "the batch size must grow with the number of training rows; the ELBO chooses it",
    "holds if the chosen size at least doubles from 100 to 3,200 rows, with a rank correlation above 0.8; partly if it "
    "grows with a correlation above 0.5",
    measure,
    judge,
)
