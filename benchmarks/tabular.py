"""Tables of numbers: bayesnorm's regressor beside what people use now, on the eight UCI sets.

    python -m benchmarks.tabular [--sets yacht boston] [--models CatBoost TabM] [--out results/tabular.json]

Every model is fitted with what its user would do in an afternoon, on the training rows of the MCBN paper's splits only:
- bayesnorm: `BayesNormRegressor()` as it comes, with `fast=True`, without samples (`method="ensemble"`), and as a single
  network (`members=1`), with samples and without.
- boosted quantiles (scikit-learn): 19 histogram gradient boosters with quantile loss, and one with squared error for
  the mean. Cross-validation chooses the size of trees and leaves, and early stopping on the held-out folds the number
  of trees for quantiles .1, .5 and .9 (others: interpolated); then all rows are used. Crossing quantiles are sorted.
- boosted quantiles, conformal: the same on four fifths of the rows, chosen on one held-out fold of these; MAPIE's
  conformalised quantile regression adjusts the intervals on the last fifth. CRPS is that of the quantiles.
- CatBoost: `RMSEWithUncertainty`; depth 4, 6 or 8 and the number of trees by a held-out fifth, then all rows. A normal
  distribution; its variance is the predicted one and what virtual ensembles disagree by.
- NGBoost: a normal distribution by boosting; the number of trees by early stopping on a fifth of the rows, then all
  rows are used.
- quantile forest: 300 trees; leaves of 1, 5 or 15 rows by rows out of the bag.
- RealMLP (pytabkit): its own settings, 19 quantiles by pinball loss, the best epoch by a held-out fifth; the mean is
  that of the quantiles. One network, or five, each of which holds out another fold.
- TabM (pytabkit): the same loss; piecewise-linear embeddings, early stopping on a held-out fifth; width 512, or 128
  above 2,000 rows.
- Gaussian process (scikit-learn): one length scale per column, and noise; standardised; a second start below 1,000
  rows; none above 1,700 rows.
- Bayesian ridge (scikit-learn): a line with Gaussian noise, standardised.

Scores on the test rows, in the target's units: RMSE of the mean; CRPS of the whole distribution (the mixture's, in
closed form of the normal distribution, or from quantiles by the trapezoid rule); coverage and mean width of 90 %
intervals. Only the intervals of bayesnorm and those called conformal were adjusted on held-out rows (`own_coverage` in
the results: bayesnorm's without that). Fits run one at a time, in one thread, and are left out beyond six minutes of
it. The packages have an environment of their own (`tabular_requirements.txt`); what is not installed is not run, and a
second run goes on with what is missing.
"""

from __future__ import annotations

import numpy as np

from bayesnorm.data import load_uci
from benchmarks.tabular_forecasts import covered
from benchmarks.tabular_models import MODELS, NEEDED
from benchmarks.tabular_runs import Row, go_on, parser, timed
from benchmarks.tabular_tables import Score, all_tables
from experiments.splits import paper_split

SETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "protein")
"""From the fewest rows to the most."""

SCORES = (
    Score("crps", "CRPS", best=True),
    Score("rmse", "RMSE", best=True),
    Score("coverage", "coverage of 90 % intervals", digits=3),
    Score("width", "mean width of 90 % intervals"),
    Score("fit_s", "fit (s)", digits=1),
    Score("predict_s", "predict all test rows (s)", digits=2),
)


def measured(name: str, model: str, split: int, limit: float) -> Row:
    """Return time and scores of a model on a split of a set."""
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
