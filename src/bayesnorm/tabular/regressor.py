"""`BayesNormRegressor`: Bayesian regression on tables."""

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
from ..predictive import RegressionPredictive, require_level
from .checks import as_input_errors, real_targets, require_enough_rows
from .estimator import TabularEstimator, rounded
from .intervals import ConformalScores, IntervalLevels
from .model_file import ESTIMATORS
from .pool import Pool
from .pool_fitting import OtherKinds, pool_numbers
from .search_results import Selection
from .targets import NumberTargets, Targets


@dataclass(kw_only=True, eq=False, repr=False)
class BayesNormRegressor(MultiOutputMixin, RegressorMixin, TabularEstimator):
    """Predict a number for each row of a table, with calibrated intervals, by a Bayesian neural network.

    The model has members of three kinds: batch-normalised networks, boosted trees and a linear model, each with one or
    two members for each fold of a cross-validation. Each network predicts a mean and a noise level, and sampled batch
    statistics (Monte Carlo Batch Normalization, MCBN) add epistemic uncertainty. The disagreement of the kinds is
    epistemic uncertainty too. Cross-validation chooses the weights of the kinds, and the encoding, layers, weight
    decay, dropout and epochs of the networks. It calibrates the noise, the epistemic uncertainty and the intervals.

    Columns can contain numbers, text, categories, booleans, dates and missing values. No preprocessing is needed.

    ```python
    model = BayesNormRegressor(random_state=0).fit(X_train, y_train)
    model.predict(X_test)  # means
    model.predict_interval(X_test, level=0.9)  # lower and upper ends
    model.uncertainty(X_test)  # epistemic and aleatoric standard deviation, and which rows are unusual
    ```

    Args:
        method: Method for the epistemic uncertainty of each network: "mcbn" (samples statistics of training batches),
            "gaussian" (samples them from a normal distribution of rank 64), "stochastic" (samples each unit
            independently), "dropout" (Monte Carlo dropout, without batch norm) or "ensemble" (no sampling: only the
            disagreement of the networks). [default: "mcbn"]
        encoding: Encoding of each number: "plain", "bins 16" (piecewise linear with 16 bins) or "waves 8" (8 sines and
            cosines). Pass several to choose from. [default: None, chosen by cross-validation]
        hidden: Units of each hidden layer, such as (128, 128). [default: None, chosen by cross-validation]
        weight_decay: Weight decay of AdamW. Pass several to choose from. [default: None, chosen by cross-validation]
        batch_size: Number of rows per training step. Pass several to choose from. [default: None, set by the number of
            rows]
        epochs: Number of training epochs. [default: None, chosen by cross-validation]
        precision: Inverse noise variance in the units of y; needs heteroscedastic=False. [default: None, chosen by
            cross-validation]
        effective_batch_size: Effective batch size M', the batch size whose statistics would vary as much as the samples
            do. A smaller M' gives a larger epistemic uncertainty. "cross-validated" matches it to the epistemic error
            of held-out rows, "elbo" maximises the evidence lower bound on training rows, and None takes the training
            batch size. The methods "dropout" and "ensemble" ignore it. [default: "cross-validated"]
        heteroscedastic: Whether the networks predict a noise level for every row. If False, all rows share one noise
            level. [default: True]
        conformal: Whether `predict_interval` returns conformal intervals. Their coverage is guaranteed if new rows come
            from the training distribution. [default: False]
        dropout_rate: Fraction of units that dropout drops in training. Pass several to choose from. [default: None,
            chosen by cross-validation]
        learning_rate: Largest learning rate of AdamW. [default: 0.004]
        folds: Number of cross-validation folds. None skips cross-validation; every parameter that it would choose must
            then be given. [default: 5]
        max_epochs: Largest number of epochs to try. [default: None, set by the number of rows]
        samples: Number of samples in a prediction, at least one for each network. [default: 64]
        members: Number of networks. With fewer networks than folds, only the held-out rows of these folds calibrate the
            model. [default: None, 6 with 5 folds; with `networks_only` 10 up to 2,500 rows]
        networks_only: Whether all members are networks, as in the papers. [default: False]
        fast: Whether to train one configuration with half the training budget: 2 to 9 times faster, with a CRPS up to
            15 % worse. [default: False]
        interruptible: Whether Ctrl-C stops the training and keeps the networks of the chosen setting. [default: False]
        device: Training device: "cpu", "cuda", or "auto" for a GPU if available. [default: "cpu"]
        random_state: Random seed. The same seed gives the same model. [default: None, a random seed]
        verbose: Whether to show progress bars on standard error, 1 or 0. [default: 0]

    Attributes:
        posterior_: The fitted bayesnorm posterior of the networks, from preprocessed inputs to targets in the units of
            y.
        pool_: The boosted trees and linear models, and how they are combined with the networks; None with
            `networks_only=True` or without cross-validation.
        selection_: The settings that were tried and chosen, with cross-validated predictions of the training rows.
        preprocessing_: The map from tables to network inputs.
        interval_levels_: The calibration of the intervals; None without cross-validation.
        likeness_, ranges_: The statistics of training rows and columns that detect unusual rows.
        training_columns_: The counts of training columns that `drift` compares with.
        n_features_in_, feature_names_in_: Number and names of the training columns.
        n_outputs_: Number of targets per row.
        seed_: The seed of all random numbers.
    """

    precision: float | None = None
    heteroscedastic: bool = True
    conformal: bool = False

    n_outputs_: int = field(init=False)
    interval_levels_: IntervalLevels | None = field(init=False)
    _flat: bool = field(init=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose the settings by cross-validation, train the networks, and return this estimator.

        Args:
            X: A data frame (of pandas, polars or Arrow) or an array, with numbers, text, categories, booleans, dates
                and missing values.
            y: Targets, (rows,), or (rows, outputs) for several.
            sample_weight: Weight of each row in training and in cross-validation. Rows of weight 0 are left out.
            groups: A group label for each row. Rows of one group are never split between training and validation.
        """
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None. Pass one number per row.")
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
        """Return the predictive means, in the shape of y.

        Args:
            X: A table with the same columns as in training.
            return_std: Whether to also return the total standard deviations (epistemic and aleatoric).
        """
        predictive = self.predict_dist(X)
        mean = self._like_y(predictive.mean)
        return (mean, self._like_y(predictive.std)) if return_std else mean

    def predict_dist(self, X: Any) -> RegressionPredictive:
        """Return the predictive distribution of the target, (rows, outputs), in the units of y.

        Args:
            X: A table with the same columns as in training.
        """
        predictive = super().predict_dist(X)
        assert isinstance(predictive, RegressionPredictive)
        return predictive

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the central interval that contains the target with probability `level`.

        Held-out rows calibrate its width; with `conformal=True` it is a conformal interval. Without cross-validation it
        is `predict_dist(X).interval(level)`, which is not calibrated.

        Args:
            X: A table with the same columns as in training.
            level: Probability that the interval contains the target, between 0 and 1. [default: 0.9]

        Returns:
            The lower and upper ends, each in the shape of y.
        """
        if self.conformal:
            bounds = self._conformal_interval(X, require_level(level))
            return (bounds[0][:, 0], bounds[1][:, 0]) if self._flat else bounds
        lower, upper = self.interval_of(self.predict_dist(X), level)
        return self._like_y(lower), self._like_y(upper)

    def conformal_cdf(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Return the conformal CDF at y, (rows, outputs), which the conformal intervals are quantiles of.

        Args:
            X: A table with the same columns as in training.
            y: One value for each row and output, in the shape of the training targets.
        """
        targets = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        parts = zip(self.selection_.conformal, *self._members_of(X), targets.T, strict=True)
        return np.stack([scores.cdf(mean, std, values) for scores, mean, std, values in parts], 1)

    def _conformal_interval(self, X: Any, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the lower and upper ends of conformal intervals, each (rows, outputs)."""
        parts = zip(self.selection_.conformal, *self._members_of(X), strict=True)
        lower, upper = zip(*(scores.interval(mean, std, level) for scores, mean, std in parts), strict=True)
        return np.stack(lower, 1), np.stack(upper, 1)

    def _members_of(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return means and standard deviations of the members with conformal scores, each (outputs, members, rows)."""
        scores = self.selection_.conformal
        if not scores:
            raise BayesNormError(
                "Conformal intervals need an estimator that was fitted with conformal=True and cross-validation. Fit "
                "it again with conformal=True and folds=5."
            )
        mean, std = self._of_folds(self.preprocessing_.network_inputs(self._read(X).features), len(scores[0].scores))
        return np.moveaxis(mean.numpy(), 2, 0), np.moveaxis(std.numpy(), 2, 0)

    def _of_folds(self, inputs: NDArray[np.float64], count: int) -> tuple[Tensor, Tensor]:
        """Return the means and scales that the members of each fold predict, each (folds, rows, outputs)."""
        x, members = rounded(inputs), getattr(self.posterior_, "members", (self.posterior_,))[:count]
        parts: list[Any] = [member.likelihood.predictive(member.executable.point(x)[None]) for member in members]
        mean, scale = torch.cat([part.loc for part in parts]), torch.cat([part.scale for part in parts])
        return (mean, scale) if self.pool_ is None else self.pool_.of_folds(mean, scale, inputs)

    def interval_of(self, predictive: RegressionPredictive, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the interval of `predict_interval` for a predictive of `predict_dist`: two tensors (rows, outputs)."""
        level, levels = require_level(level), self.interval_levels_
        return predictive.interval(level) if levels is None else levels.interval(predictive, level)

    def uncertainty(self, X: Any) -> pd.DataFrame:
        """Return a data frame with the uncertainty of each row.

        - `epistemic_std`: the standard deviation that more training rows could reduce, in the units of y.
        - `aleatoric_std`: the standard deviation of the noise, in the units of y. With several outputs, both names end
          in the number of the output, such as `epistemic_std_0`.
        - `unusual`: whether the row differs clearly from the training rows; do not trust its prediction.
        - `reason`: how it differs, or "".
        - `unseen_columns`: columns with a value that does not occur in training, or "".

        Args:
            X: A table with the same columns as in training.
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
        require_enough_rows(len(rows))
        self.n_outputs_ = 1 if y.ndim == 1 else y.shape[1]
        self._flat = y.ndim == 1
        return NumberTargets.from_array(y[rows].reshape(len(rows), -1), weights, bool(self.heteroscedastic))

    def _likelihood(self, targets: Targets) -> tuple[Likelihood, bool]:
        assert isinstance(targets, NumberTargets)
        if self.precision is None:
            return targets.likelihood, self.folds is not None
        noise = 1 / (float(self.precision) * targets.std.square())
        return targets.likelihood.with_noise(noise[0] if len(noise) == 1 else noise), False

    def _pooled(self, others: OtherKinds, targets: Any) -> tuple[Pool, Selection]:
        likelihood, open_noise = self._likelihood(targets)
        return pool_numbers(others, targets, self.selection_, None if open_noise else likelihood.noise)

    def _conformal_scores(self, inputs: NDArray[np.float64]) -> tuple[ConformalScores, ...]:
        """Return the conformal scores of each target, from the members of each fold for its held-out rows."""
        held_out: Any = self.selection_.out_of_fold
        folds = int(held_out.fold.max()) + 1
        mean, scale = (part.numpy() for part in self._of_folds(inputs[held_out.rows], folds))
        places = [np.flatnonzero(held_out.fold == fold) for fold in range(folds)]
        scores = []
        for column in range(self.n_outputs_):
            means, scales = ([part[k, rows, column] for k, rows in enumerate(places)] for part in (mean, scale))
            scores.append(ConformalScores.fit(means, scales, [held_out.target[rows, column] for rows in places]))
        return tuple(scores)

    def _like_y(self, values: torch.Tensor) -> NDArray[np.float64]:
        """Return values, (rows, outputs), in the shape of the training targets."""
        return values[:, 0].numpy() if self._flat else values.numpy()


ESTIMATORS["BayesNormRegressor"] = BayesNormRegressor
