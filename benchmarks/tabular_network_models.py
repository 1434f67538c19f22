"""Networks of `tabular` from pytabkit: 19 quantiles trained with pinball loss; the mean is that of the quantiles."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.tabular_forecasts import QUANTILES, Fit, Forecast, Predict, Values, by_quantiles

LOSS = f"multi_pinball({','.join(f'{level:g}' for level in QUANTILES)})"
WIDE_ROWS = 2_000
"""Number of rows up to which TabM has its default width; above, a fit would take many minutes."""


def fitted(make: Callable[..., Any], X: Values, y: Values, seed: int, **settings: Any) -> Predict:
    """Fit a network of pytabkit, which stops early on rows that it holds out; return a function for new rows."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    model = make(device="cpu", random_state=seed, n_threads=1, train_metric_name=LOSS, val_metric_name=LOSS, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice printed by Lightning
        model.fit(X.astype(np.float32), y.astype(np.float32))

    def predict(X: Values) -> Forecast:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return by_quantiles(model.predict(X.astype(np.float32)))

    return predict


def realmlp(folds: int) -> Fit:
    """Return a function that fits RealMLP with its defaults: one network, or the average of one for each fold."""

    def fit(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
        from pytabkit import RealMLP_TD_Regressor

        return fitted(RealMLP_TD_Regressor, X, y, seed, n_cv=folds), f"{folds} networks" if folds > 1 else ""

    return fit


def tabm(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit TabM with piecewise-linear embeddings; return a function for new rows, and its width."""
    from pytabkit import TabM_D_Regressor

    width = 512 if len(X) <= WIDE_ROWS else 128
    return fitted(TabM_D_Regressor, X, y, seed, num_emb_type="pwl", d_block=width), f"width {width}"
