"""`BayesNormClassifier`: Bayesian classification on tables."""

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
from .checks import as_input_errors, require_enough_rows
from .estimator import TabularEstimator
from .model_file import ESTIMATORS
from .pool import Pool
from .pool_fitting import OtherKinds, pool_classes
from .search_results import Selection
from .targets import LabelTargets, Targets


@dataclass(kw_only=True, eq=False, repr=False)
class BayesNormClassifier(ClassifierMixin, TabularEstimator):
    """Classify the rows of a table with a Bayesian neural network that returns calibrated probabilities.

    The estimator works like `BayesNormRegressor`, with a softmax output. A temperature replaces the noise level, and
    cross-validation compares settings by the negative log-likelihood (NLL) of held-out rows.

    ```python
    model = BayesNormClassifier(random_state=0).fit(X_train, y_train)
    model.predict_proba(X_test)  # class probabilities, (rows, classes)
    model.uncertainty(X_test)  # entropy, mutual information, and which rows are unusual
    ```

    Args:
        temperature: Number that divides the logits. [default: None, chosen by cross-validation]
        method, encoding, hidden, weight_decay, batch_size, epochs, effective_batch_size, dropout_rate, learning_rate:
            See `BayesNormRegressor`.
        folds: Number of stratified cross-validation folds. None skips cross-validation; every parameter that it would
            choose must then be given. [default: 5]
        max_epochs, samples, members, networks_only, fast: See `BayesNormRegressor`.
        interruptible, device, random_state, verbose: See `BayesNormRegressor`.

    Attributes:
        classes_: The labels, in the order of the probabilities.
        posterior_, pool_, selection_, preprocessing_, likeness_, ranges_, training_columns_: See `BayesNormRegressor`.
        n_features_in_, feature_names_in_, seed_: See `BayesNormRegressor`.
    """

    temperature: float | None = None

    classes_: NDArray[Any] = field(init=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose the settings by cross-validation, train the networks, and return this estimator.

        Args:
            X: A data frame (of pandas, polars or Arrow) or an array, with numbers, text, categories, booleans, dates
                and missing values.
            y: Labels, numbers or text, with at least two different values.
            sample_weight: Weight of each row in training and in cross-validation. Rows of weight 0 are left out.
            groups: A group label for each row. Rows of one group are never split between training and validation.
        """
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None. Pass one label per row.")
        with as_input_errors():
            labels = column_or_1d(
                check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_all_finite=False), warn=True
            )
            absent = pd.isna(labels)
            if absent.any():
                raise InputError(f"Input y contains NaN in row {int(absent.argmax())}. Drop rows without a label.")
            check_array(labels, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
            check_classification_targets(labels)
        return self._fit(X, labels, sample_weight, groups)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row, (rows,)."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the labels, (rows, labels), in the order of `classes_`."""
        return self.proba_of(self.predict_dist(X))

    def proba_of(self, predictive: ClassificationPredictive) -> NDArray[np.float64]:
        """Return the probabilities of `predict_proba` for a predictive of `predict_dist`; each row sums to 1."""
        return (predictive.probs / predictive.probs.sum(1, keepdim=True)).numpy()

    def predict_dist(self, X: Any) -> ClassificationPredictive:
        """Return the predictive distribution over the class numbers.

        Args:
            X: A table with the same columns as in training.
        """
        predictive = super().predict_dist(X)
        assert isinstance(predictive, ClassificationPredictive)
        return predictive

    def uncertainty(self, X: Any) -> pd.DataFrame:
        """Return a data frame with the uncertainty of each row.

        - `entropy`: the total uncertainty, in nats.
        - `mutual_information`: its epistemic part, which more training rows could reduce, in nats.
        - `unusual`: whether the row differs clearly from the training rows; do not trust its prediction.
        - `reason`: how it differs, or "".
        - `unseen_columns`: columns with a value that does not occur in training, or "".

        Args:
            X: A table with the same columns as in training.
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
                f"y has only one class, {quoted(str(self.classes_[0]))}, in all {len(rows)} rows. Pass at least two "
                "classes."
            )
        require_enough_rows(len(rows))
        return LabelTargets(torch.from_numpy(numbers.astype(np.int64)), weights, len(self.classes_))

    def _pooled(self, others: OtherKinds, targets: Any) -> tuple[Pool, Selection]:
        return pool_classes(others, targets, self.selection_, fixed=self.temperature is not None)

    def _likelihood(self, targets: Targets) -> tuple[Likelihood, bool]:
        if self.temperature is None:
            return targets.likelihood, True
        return targets.likelihood.with_noise(torch.tensor(float(self.temperature))), False


ESTIMATORS["BayesNormClassifier"] = BayesNormClassifier
