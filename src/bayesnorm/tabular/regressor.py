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

from ..errors import BayesNormError, InputError
from ..likelihoods import Likelihood
from ..predictive import RegressionPredictive
from ..predictive.regression import require_level
from .estimator import TabularEstimator, as_inputs
from .intervals import IntervalLevels
from .targets import NumberTargets, Targets
from .training_rows import as_input_errors, real_targets, require_rows


@dataclass(kw_only=True, eq=False, repr=False)
class BayesNormRegressor(MultiOutputMixin, RegressorMixin, TabularEstimator):
    """Bayesian regression on a table: predictions with honest intervals.

    Batch-normalised networks, one for each fold of a cross-validation, which predict a number and its noise; samples of
    batch statistics (MCBN) add uncertainty about each. Encoding, layers, weight decay, dropout and epochs are chosen by rows
    that a network did not see, and so are noise and uncertainty: `choosing.py`; settings by rows are in `search_plan.py`.
    Numbers, text, categories, booleans, dates and missing values are taken as they are (`preprocessing.py`).

    Args:
        method: Where the uncertainty about each network comes from: "mcbn", "gaussian" (the same as a normal distribution of
            rank 64), "stochastic", "dropout" (in place of batch norm), or "ensemble" (from its members alone).
        encoding: What becomes of each number first: "plain", "bins 16" (piecewise linear, 16 bins) or "waves 8" (sines
            and cosines); None chooses, and so do several.
        hidden: Units of each hidden layer; None chooses.
        weight_decay: Weight decay of AdamW; None chooses, and so do several to choose from.
        batch_size: Number of rows M per training step; None decides by rows, and several are chosen from.
        epochs: Passes over the rows; None chooses.
        precision: Inverse noise variance in the target's own units, with heteroscedastic=False; None chooses.
        effective_batch_size: Batch size M' that sets the uncertainty of samples: "cross-validated" scales it to what fewer rows and other
            members say (`uncertainty_parts.py`), "elbo" takes the evidence lower bound on training rows, a number is taken as
            it is, and None is the training batch size. Dropout and ensembles have none.
        heteroscedastic: Whether networks predict the noise of every row, and not one for all.
        conformal: Whether intervals come with a guarantee for any data (`conformal.py`), for one target.
        dropout_rate: Share of units that are dropped in training; None chooses, and so do several.
        learning_rate: Largest step size of Adam.
        folds: Number of folds of cross-validation; None skips it, and then nothing may be left to choose.
        max_epochs: Most passes where their number is chosen; None decides by rows.
        samples: Number of networks that a prediction is averaged over, at least one of each member.
        members: Number of networks; None takes one for each fold and one more, on tables of up to 2,000 rows two for
            each. Fewer than folds leaves the others out, and only rows of theirs judge the model; 1 is a network with
            one held-out fold.
        fast: Whether to try one setting alone, for half as long.
        interruptible: Whether Ctrl-C, once a setting was chosen, ends training and keeps the networks that chose it.
        device: Where networks are trained: "cpu", "cuda", or "auto" for a GPU where there is one.
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
    heteroscedastic: bool = True
    conformal: bool = False

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
            mean, parts = held_out.predictive.mean.numpy(), self.selection_.uncertainty
            assert parts is not None
            target = mean + parts.shrinkage * (held_out.target - mean)
            self.interval_levels_ = IntervalLevels.fit(held_out.predictive, target, held_out.weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictive means in the shape of y, and with `return_std` standard deviations (uncertainty and noise)."""
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

        As wide as held-out rows were found to need (`intervals.py`), or with `conformal=True` as they guarantee
        (`conformal.py`); without cross-validation, and as `predict_dist(X).interval(level)`, it is the predictive's
        own.
        """
        if self.conformal:
            bounds = self._conformal_interval(X, require_level(level))
            return (bounds[0][:, 0], bounds[1][:, 0]) if self._flat else bounds
        lower, upper = self.interval_of(self.predict_dist(X), level)
        return self._like_y(lower), self._like_y(upper)

    def conformal_cdf(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Return which share of what `conformal=True` makes intervals of lies at or below y, (rows, outputs).

        Args:
            X: A table with the columns of training.
            y: A value for each row, or several, in the shape of y.
        """
        given = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        parts = zip(self.selection_.conformal, *self._members_of(X), given.T, strict=True)
        return np.stack([scores.cdf(mean, std, own) for scores, mean, std, own in parts], 1)

    def _conformal_interval(self, X: Any, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return intervals with a guarantee, two of (rows, outputs)."""
        parts = zip(self.selection_.conformal, *self._members_of(X), strict=True)
        found = [scores.interval(mean, std, level) for scores, mean, std in parts]
        lower, upper = (np.stack(bounds, 1) for bounds in zip(*found, strict=True))
        return lower, upper

    def _members_of(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what the members that have conformal scores say: means and deviations, (outputs, members, rows)."""
        scores = self.selection_.conformal
        if not scores:
            raise BayesNormError(
                "conformal: this estimator was fitted without it, or without cross-validation; fitting it again with "
                "conformal=True and folds=5 would work."
            )
        x, count = as_inputs(self._features_of(X)[0]), len(scores[0].scores)
        members = getattr(self.posterior_, "members", (self.posterior_,))[:count]
        said: list[Any] = [member.likelihood.predictive(member.executable.point(x)[None]) for member in members]
        mean, std = (torch.cat([getattr(each, part) for each in said]).numpy() for part in ("loc", "scale"))
        return np.moveaxis(mean, 2, 0), np.moveaxis(std, 2, 0)

    def interval_of(self, predictive: RegressionPredictive, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the interval of `predict_interval` for what `predict_dist` gave: two of (rows, outputs)."""
        level, levels = require_level(level), self.interval_levels_
        return predictive.interval(level) if levels is None else levels.interval(predictive, level)

    def uncertainty(self, X: Any) -> pd.DataFrame:
        """Return what there is to uncertainty about each row.

        `epistemic_std` (what more rows could take away) and `aleatoric_std` (noise), in the target's units and with a
        number behind for several outputs; `unlike`, whether the row is unlike those of training (`unlike_rows.py`);
        `why`, or ""; and `unseen`, the columns that hold what training never did.
        """
        return self.predict_with_uncertainty(X)[1]

    def _uncertainty_columns(self, predictive: RegressionPredictive) -> dict[str, NDArray[np.float64]]:
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
            return targets.likelihood, self.folds is not None
        noise = 1 / (float(self.precision) * targets.std.square())
        return targets.likelihood.with_noise(noise[0] if len(noise) == 1 else noise), False

    def _like_y(self, values: torch.Tensor) -> NDArray[np.float64]:
        """Return values (rows, outputs) in the shape of the targets of training."""
        found = values.numpy()
        return found[:, 0] if self._flat else found
