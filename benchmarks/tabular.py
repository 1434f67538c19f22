"""Compare `BayesNormRegressor` with other regression models on the eight UCI sets of the MCBN paper.

    python -m benchmarks.tabular [--sets yacht boston] [--models CatBoost TabM] [--out results/tabular.json]

Every model sees only the training rows of the MCBN paper's splits, with the search that a user could do in an
afternoon:
- bayesnorm: `BayesNormRegressor()` with its defaults, which combine networks, boosted trees and a linear model.
- networks only: `networks_only=True`; the same with `fast=True`, without samples (`method="ensemble"`), and as a single
  network (`members=1`) with and without samples.
- boosted quantiles (scikit-learn): 19 histogram gradient boosters with quantile loss, and one with squared error for
  the mean. Cross-validation chooses the size of trees and leaves. Early stopping on the held-out folds chooses the
  number of trees for the quantiles 0.1, 0.5 and 0.9; the others are interpolated. Then all rows are used. Crossing
  quantiles are sorted.
- boosted quantiles, conformal: the same on four fifths of the rows, chosen on one held-out fold of these. MAPIE's
  conformalised quantile regression adjusts the intervals on the last fifth. The CRPS is that of the quantiles.
- CatBoost: `RMSEWithUncertainty`; a held-out fifth chooses depth 4, 6 or 8 and the number of trees, then all rows are
  used. A normal distribution with the predicted variance plus the variance between virtual ensembles.
- NGBoost: boosting of a normal distribution; early stopping on a fifth of the rows chooses the number of trees, then
  all rows are used.
- quantile forest: 300 trees; out-of-bag rows choose leaves of 1, 5 or 15 rows.
- RealMLP (pytabkit): default settings, 19 quantiles with pinball loss, the best epoch on a held-out fifth; the mean is
  that of the quantiles. One network, or five that each hold out another fold.
- TabM (pytabkit): the same loss; piecewise-linear embeddings, early stopping on a held-out fifth; width 512, or 128
  above 2,000 rows.
- Gaussian process (scikit-learn): one length scale per column, and noise; standardised; one restart below 1,000 rows;
  not run above 1,700 rows.
- Bayesian ridge (scikit-learn): a linear model with Gaussian noise, standardised.

Scores on the test rows, in the target's units: RMSE of the mean; CRPS of the whole distribution (of the mixture, in
closed form for a normal distribution, or from quantiles by the trapezoid rule); coverage and mean width of 90 %
intervals. Only the intervals of bayesnorm and the conformal ones were adjusted on held-out rows; `own_coverage` in the
results is bayesnorm's coverage without that. Fits run one at a time in one thread, and are left out if they take more
than six minutes. The packages need a separate environment (`tabular_requirements.txt`); models of packages that are
not installed are not run. A second run measures what is missing.
"""

from __future__ import annotations

import numpy as np

from benchmarks.tabular_forecasts import covered
from benchmarks.tabular_models import MODELS, NEEDED
from benchmarks.tabular_runs import Row, go_on, parser, timed
from benchmarks.tabular_tables import Score, all_tables
from experiments.data import load_uci
from experiments.splits import paper_split

SETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "protein")
"""The sets, from the smallest to the largest."""

SCORES = (
    Score("crps", "CRPS", best=True),
    Score("rmse", "RMSE", best=True),
    Score("coverage", "coverage of 90 % intervals", digits=3),
    Score("width", "mean width of 90 % intervals"),
    Score("fit_s", "fit (s)", digits=1),
    Score("predict_s", "predict all test rows (s)", digits=2),
)


def measured(name: str, model: str, split: int, limit: float) -> Row:
    """Return the time and the scores of a model on one split of a set."""
    X, y = load_uci(name)
    rows, test = paper_split(len(X), split)
    target = y[test]
    times, (forecast, chosen) = timed(
        lambda: MODELS[model](X[rows], y[rows], split), lambda fitted: (fitted[0](X[test]), fitted[1]), limit
    )
    return {
        "rows": len(rows),
        **times,
        "rmse": float(np.sqrt(np.mean((forecast.mean - target) ** 2))),
        "crps": forecast.crps(target),
        "coverage": covered(forecast.lower, forecast.upper, target),
        "width": float(np.mean(forecast.upper - forecast.lower)),
        **forecast.extra(target),
        "chosen": chosen,
    }


def main() -> None:
    options = parser(__doc__, SETS, MODELS, "results/tabular.json").parse_args()
    rows = go_on(options, lambda *unit: measured(*unit, limit=options.limit), NEEDED)
    print("\n\n".join(all_tables(rows, SETS, list(MODELS), SCORES)))


if __name__ == "__main__":
    main()
