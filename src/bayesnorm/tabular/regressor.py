"""Regression on tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from torch import Tensor

from ..errors import InputError
from ..likelihoods import Likelihood
from ..predictive import RegressionPredictive
from ..predictive.regression import require_level
from .estimator import TabularEstimator
from .intervals import IntervalLevels
from .targets import NumberTargets, Targets
from .training_rows import as_input_errors, real_targets, require_rows


@dataclass(kw_only=True, eq=False, repr=False)
class BayesNormRegressor(MultiOutputMixin, RegressorMixin, TabularEstimator):
    """Bayesian regression on a table: predictions with honest intervals.

    A batch-normalised network with two hidden layers of 50; weight decay, training batch size, epochs, noise and
    effective batch size are chosen by cross-validation (`choosing.py`; the settings by rows are in `search_plan.py`).
    Numbers, text, categories, booleans and missing values are taken as they are (`preprocessing.py`).

    Args:
        method: Where the doubt comes from: "mcbn", "gaussian" (the same as a normal distribution of rank 64),
            "stochastic", "dropout", or "ensemble".
        hidden: Units of each hidden layer.
        weight_decay: Weight decay lambda; None chooses, and so do several to choose from.
        batch_size: Number of rows M per training step; None chooses, and so do several.
        epochs: Passes over the rows at the full learning rate; None chooses. A fifth as many follow at lower ones.
        precision: Inverse noise variance in the target's own units; None chooses, one for each output.
        effective_batch_size: Batch size M' that sets the doubt: "crps" chooses by held-out CRPS, "elbo" by the evidence
            lower bound on training rows, a number is taken as it is, and None is the training batch size. Dropout and
            ensembles have none.
        heteroscedastic: Whether the network also predicts the noise of every row.
        dropout_rate: Share of units that method "dropout" drops; None chooses, and so do several.
        learning_rate: Step size of Adam.
        folds: Number of folds of cross-validation; None skips it, and then nothing may be left to choose.
        max_epochs: Most passes where their number is chosen; None decides by rows.
        patience: Epochs without a better held-out score before training stops; None is a fifth of the most.
        draws: Number of networks that a prediction is averaged over.
        members: Number of networks of an ensemble.
        random_state: Seed; the same number gives the same result.
        verbose: Whether to show progress on standard error, 1 or 0.

    Attributes:
        posterior_: The fitted bayesnorm posterior, from preprocessed inputs to targets in their own units.
        selection_: What was chosen, from what, with held-out predictions for every training row.
        preprocessing_: What turns tables into inputs of the network.
        interval_levels_: How wide intervals have to be, from held-out rows; None without cross-validation.
        likeness_, ranges_: What rows and columns are compared with to find those unlike training.
        training_columns_: What `drift` compares columns with; None for files of earlier versions.
        n_features_in_, feature_names_in_: Number and names of the columns of training.
        n_outputs_: Number of targets per row.
        seed_: Seed that all random numbers came from.
    """

    precision: float | None = None
    effective_batch_size: float | str | None = "crps"
    heteroscedastic: bool = False

    n_outputs_: int = field(init=False)
    interval_levels_: IntervalLevels | None = field(init=False)
    _flat: bool = field(init=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose and train.

        Args:
            X: A data frame or array; numbers, text, categories, booleans, missing values.
            y: Targets, (rows,), or (rows, outputs) for several.
            sample_weight: How much each row counts, in training and in every choice; a row of weight 0 is left out.
            groups: Which rows belong together, a label for each: no group is on both sides of a fold.
        """
        if y is None:
            raise InputError("y: requires y to be passed, but the target y is None; one number per row would work.")
        with as_input_errors():
            targets = real_targets(y)
        self._fit(X, targets, sample_weight, groups)
        held_out = self.selection_.out_of_fold
        self.interval_levels_ = None
        if held_out is not None and isinstance(held_out.predictive, RegressionPredictive):
            self.interval_levels_ = IntervalLevels.fit(held_out.predictive, held_out.target, held_out.weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictive means in the shape of y, and with `return_std` standard deviations (doubt and noise)."""
        predictive = self.predict_dist(X)
        mean = self._like_y(predictive.mean)
        return (mean, self._like_y(predictive.std)) if return_std else mean

    def predict_dist(self, X: Any) -> RegressionPredictive:
        """Return the predictive distribution of the target, (rows, outputs), in its own units.

        Args:
            X: A table with the columns of training.
        """
        found = super().predict_dist(X)
        assert isinstance(found, RegressionPredictive)
        return found

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the central interval that holds a target with probability `level`: (lower, upper), in the shape of y.

        As wide as held-out rows were found to need (`intervals.py`); without cross-validation, and as
        `predict_dist(X).interval(level)`, it is the predictive's own.
        """
        lower, upper = self.interval_of(self.predict_dist(X), level)
        return self._like_y(lower), self._like_y(upper)

    def interval_of(self, predictive: RegressionPredictive, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the interval of `predict_interval` for what `predict_dist` gave: two of (rows, outputs)."""
        level, levels = require_level(level), self.interval_levels_
        return predictive.interval(level) if levels is None else levels.interval(predictive, level)

    def doubt(self, X: Any) -> pd.DataFrame:
        """Return what there is to doubt about each row.

        `epistemic_std` (what more rows could take away) and `aleatoric_std` (noise), in the target's units and with a
        number behind for several outputs; `unlike`, whether the row is unlike those of training (`unlike_rows.py`);
        `why`, or ""; and `unseen`, the columns that hold what training never did.
        """
        return self.predict_with_doubt(X)[1]

    def _doubt_columns(self, predictive: RegressionPredictive) -> dict[str, NDArray[np.float64]]:
        stds = {"epistemic_std": predictive.epistemic.sqrt(), "aleatoric_std": predictive.aleatoric.sqrt()}
        return {
            name if self.n_outputs_ == 1 else f"{name}_{i}": std[:, i].numpy()
            for name, std in stds.items()
            for i in range(self.n_outputs_)
        }

    def _targets(self, y: NDArray[np.float64], rows: NDArray[np.int64], weights: Tensor | None) -> Targets:
        require_rows(len(rows))
        self.n_outputs_ = 1 if y.ndim == 1 else y.shape[1]
        self._flat = y.ndim == 1
        return NumberTargets.of(y[rows].reshape(len(rows), -1), weights, bool(self.heteroscedastic))

    def _likelihood(self, targets: Targets) -> tuple[Likelihood, bool]:
        assert isinstance(targets, NumberTargets)
        if self.precision is None:
            return targets.likelihood, not (self.folds is None and self.heteroscedastic)
        noise = 1 / (float(self.precision) * targets.std.square())
        return targets.likelihood.with_noise(noise[0] if len(noise) == 1 else noise), False

    def _like_y(self, values: torch.Tensor) -> NDArray[np.float64]:
        """Return values (rows, outputs) in the shape of the targets of training."""
        found = values.numpy()
        return found[:, 0] if self._flat else found
