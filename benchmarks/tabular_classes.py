"""Compare `BayesNormClassifier` with boosted trees and logistic regression on thirteen sets.

    python -m benchmarks.tabular_classes [--sets digits caravan] [--models CatBoost] [--out FILE]

The sets come with packages of `tabular_requirements.txt`, so nothing is downloaded. Six of them have a rare class.
There are five random stratified splits with four fifths of the rows for training. The models:
- bayesnorm: `BayesNormClassifier()` with its defaults.
- boosting (scikit-learn's histogram gradient boosting): cross-validation chooses the size of trees and leaves, and
  early stopping on the held-out folds the number of trees; then all rows are used. "temperature" averages five of
  them, one per fold, each with one temperature from its held-out rows (`CalibratedClassifierCV`).
- CatBoost: a held-out fifth chooses depth 4 or 6 and the number of trees, then all rows are used.
- logistic regression (scikit-learn): standardised, one column per category; cross-validation chooses the penalty.

Scores on the test rows: negative log-likelihood (NLL, in nats; probabilities of at least 1e-12), Brier score (0 to 2),
expected calibration error (ECE, 15 bins of equal width) and share of errors. Fits run one at a time in one thread, and
are left out if they take more than six minutes. A second run measures what is missing.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from bayesnorm import metrics
from bayesnorm.predictive import ClassificationPredictive
from benchmarks.tabular_class_models import MODELS, NEEDED
from benchmarks.tabular_class_sets import SETS
from benchmarks.tabular_runs import Row, go_on, parser, timed
from benchmarks.tabular_tables import Score, all_tables

SCORES = (
    Score("nll", "NLL", best=True),
    Score("brier", "Brier score", best=True),
    Score("ece", "ECE", digits=3),
    Score("error", "share of errors", best=True, digits=3),
    Score("fit_s", "fit (s)", digits=1),
)


def measured(name: str, model: str, split: int, limit: float) -> Row:
    """Return the time and the scores of a model on one split of a set."""
    X, labels = SETS[name]()
    classes, y = np.unique(labels, return_inverse=True)
    rows, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=split, stratify=y)
    times, (probabilities, chosen) = timed(
        lambda: MODELS[model](X.iloc[rows], y[rows], split), lambda fitted: (fitted[0](X.iloc[test]), fitted[1]), limit
    )
    logs = torch.from_numpy(np.asarray(probabilities, np.float64)).clamp_min(1e-12).log()
    predictive, target = ClassificationPredictive(logs[None]), y[test]
    scores = {
        "nll": metrics.nll(predictive, target),
        "brier": metrics.brier(predictive, target),
        "ece": metrics.ece(predictive, target),
        "error": 1 - metrics.accuracy(predictive, target),
    }
    counted = {"rows": len(rows), "classes": len(classes), "rarest": round(float(np.bincount(y).min() / len(y)), 4)}
    return counted | times | {key: float(value) for key, value in scores.items()} | {"chosen": chosen}


def main() -> None:
    options = parser(__doc__, list(SETS), MODELS, "results/tabular_classes.json").parse_args()
    rows = go_on(options, lambda *unit: measured(*unit, limit=options.limit), NEEDED)
    print("\n\n".join(all_tables(rows, list(SETS), list(MODELS), SCORES, ratios=False)))


if __name__ == "__main__":
    main()
