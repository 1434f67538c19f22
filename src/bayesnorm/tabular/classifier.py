"""Classification on tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from ..errors import InputError, quoted
from ..likelihoods import Likelihood
from ..predictive import ClassificationPredictive
from .estimator import TabularEstimator
from .targets import LabelTargets, Targets
from .training_rows import as_input_errors, require_rows


@dataclass(kw_only=True, eq=False, repr=False)
class BayesNormClassifier(ClassifierMixin, TabularEstimator):
    """Bayesian classification on a table: probabilities that mean what they say.

    It works as `BayesNormRegressor` does, with a softmax: the temperature takes the place of the noise, and choices are
    made by the held-out negative log-likelihood (NLL).

    Args:
        temperature: What logits are divided by; None chooses.
        method, encoding, hidden, weight_decay, batch_size, epochs, effective_batch_size, dropout_rate, learning_rate:
            The same as in `BayesNormRegressor`.
        folds: Number of folds of cross-validation, with the classes spread evenly; None skips it, and then nothing may
            be left to choose.
        max_epochs, samples, members, fast, interruptible, device, random_state, verbose: The same as in
            `BayesNormRegressor`.

    Attributes:
        classes_: The labels, in the order of probabilities.
        posterior_, selection_, preprocessing_, likeness_, training_columns_, n_features_in_, feature_names_in_, seed_:
            The same as in `BayesNormRegressor`.
    """

    temperature: float | None = None

    classes_: NDArray[Any] = field(init=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose and train.

        Args:
            X: A data frame or array; numbers, text, categories, booleans, missing values.
            y: Labels: numbers or text, at least two different ones.
            sample_weight: How much each row counts, in training and in every choice; a row of weight 0 is left out.
            groups: Which rows belong together, a label for each: no group is on both sides of a fold.
        """
        if y is None:
            raise InputError("y: requires y to be passed, but the target y is None; one label per row would work.")
        with as_input_errors():
            labels = column_or_1d(
                check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_all_finite=False), warn=True
            )
            absent = pd.isna(labels)
            if absent.any():
                raise InputError(f"y: Input y contains NaN in row {int(absent.argmax())}; drop rows without a label.")
            check_array(labels, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
            check_classification_targets(labels)
        return self._fit(X, labels, sample_weight, groups)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities of the labels, (rows, labels), in the order of `classes_`."""
        return self.proba_of(self.predict_dist(X))

    def proba_of(self, predictive: ClassificationPredictive) -> NDArray[np.float64]:
        """Return the probabilities of `predict_proba` for what `predict_dist` gave; those of a row sum to 1."""
        return (predictive.probs / predictive.probs.sum(1, keepdim=True)).numpy()

    def predict_dist(self, X: Any) -> ClassificationPredictive:
        """Return the predictive distribution of the class numbers.

        Args:
            X: A table with the columns of training.
        """
        found = super().predict_dist(X)
        assert isinstance(found, ClassificationPredictive)
        return found

    def uncertainty(self, X: Any) -> pd.DataFrame:
        """Return what there is to uncertainty about each row.

        `entropy` (all uncertainty) and `mutual_information` (what more rows could take away), in nats; `unlike`, whether the
        row is unlike those of training (`unlike_rows.py`); `why`, or ""; and `unseen`, the columns that hold what
        training never did.
        """
        return self.predict_with_uncertainty(X)[1]

    def _uncertainty_columns(self, predictive: ClassificationPredictive) -> dict[str, NDArray[np.float64]]:
        return {
            "entropy": predictive.entropy.numpy(),
            "mutual_information": predictive.mutual_information.clamp_min(0).numpy(),
        }

    def _targets(self, y: NDArray[Any], rows: NDArray[np.int64], weights: Tensor | None) -> Targets:
        self.classes_, numbers = np.unique(y[rows], return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y: holds the one class {quoted(str(self.classes_[0]))} in all {len(rows)} rows; two would work."
            )
        require_rows(len(rows))
        return LabelTargets(torch.from_numpy(numbers.astype(np.int64)), weights, len(self.classes_))

    def _likelihood(self, targets: Targets) -> tuple[Likelihood, bool]:
        if self.temperature is None:
            return targets.likelihood, True
        return targets.likelihood.with_noise(torch.tensor(float(self.temperature))), False
