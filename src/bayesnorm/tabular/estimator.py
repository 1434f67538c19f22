"""The base class of `BayesNormRegressor` and `BayesNormClassifier`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from ..engines import MonteCarlo
from ..errors import BayesNormError, InputError, NotComparableError, warn
from ..likelihoods import Likelihood
from ..posterior import Posterior
from ..predictive import Predictive
from ..shift import adapt, drift
from .checks import as_input_errors, check_frame, check_parameters, device_named, group_numbers, row_weights
from .choosing import Chooser
from .column_checks import MOST_COLUMNS, ColumnScreen
from .data_frames import as_pandas
from .explaining import PAIRS, UncertaintyExplanation, explain_uncertainty, usual_row
from .fast_networks import FastNetworks
from .held_out import Split
from .intervals import ConformalScores, OutOfFold
from .model_file import posterior_from, posterior_parts, write_estimator
from .networks import BATCH_STATISTICS
from .pool import Pool
from .pool_fitting import OtherKinds
from .preprocessing import Preprocessing, TableRows
from .search_plan import PLANNED, folds_for, folds_of_groups, plan_for
from .search_results import Selection
from .table_drift import TableDrift, column_drift, table_drift
from .targets import NumberTargets, Targets
from .trainer import Trainer
from .training_columns import TrainingColumns
from .unusual_rows import Likeness, Ranges, reasons

# Number of folds for the detection of unusual rows if there is no cross-validation.
LIKENESS_FOLDS = 5

# Number of rows from which on networks run in single precision.
FAST_ROWS = 512


@dataclass(kw_only=True, eq=False, repr=False)
class TabularEstimator(BaseEstimator):
    """A Bayesian neural network for tables; see `BayesNormRegressor` and `BayesNormClassifier`.

    The dataclass writes the constructor: scikit-learn requires that it stores every parameter unchanged.
    """

    method: str = "mcbn"
    encoding: str | Sequence[str] | None = None
    hidden: Sequence[int] | None = None
    weight_decay: float | Sequence[float] | None = None
    batch_size: int | Sequence[int] | None = None
    epochs: int | None = None
    effective_batch_size: float | str | None = "cross-validated"
    dropout_rate: float | Sequence[float] | None = None
    learning_rate: float = 4e-3
    folds: int | None = 5
    max_epochs: int | None = None
    samples: int = 64
    members: int | None = None
    networks_only: bool = False
    fast: bool = False
    interruptible: bool = False
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    posterior_: Posterior = field(init=False)
    pool_: Pool | None = field(init=False)
    selection_: Selection = field(init=False)
    preprocessing_: Preprocessing = field(init=False)
    likeness_: Likeness = field(init=False)
    ranges_: Ranges = field(init=False)
    training_columns_: TrainingColumns = field(init=False)
    n_features_in_: int = field(init=False)
    seed_: int = field(init=False)
    _fast: Any = field(init=False)

    @abstractmethod
    def _targets(self, y: Any, rows: NDArray[np.int64], weights: Tensor | None) -> Targets:
        """Return the targets of the networks, from checked targets, and store what predictions need."""

    @abstractmethod
    def _likelihood(self, targets: Targets) -> tuple[Likelihood, bool]:
        """Return the likelihood in standard units, and whether to choose its noise."""

    @abstractmethod
    def _pooled(self, others: OtherKinds, targets: Any) -> tuple[Pool, Selection]:
        """Return the combination of the networks with other kinds of members, and the selection with its results."""

    def _conformal_scores(self, inputs: NDArray[np.float64]) -> tuple[ConformalScores, ...]:
        """Return the conformal scores of each target for the inputs of the training rows; () for classes."""
        return ()

    @abstractmethod
    def _uncertainty_columns(self, predictive: Any) -> dict[str, NDArray[np.float64]]:
        """Return the uncertainty columns of every row, by name."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any = None) -> Self:
        """Choose the settings and train the networks; `y` has been checked."""
        check_parameters(self.get_params(deep=False))
        X = as_pandas(X)
        self._check_table(X, reset=True)
        with as_input_errors():
            check_consistent_length(X, y)
        numbers, weights = row_weights(sample_weight, len(y))
        targets = self._targets(y, numbers, weights)
        X = X.iloc[numbers] if isinstance(X, pd.DataFrame) else np.asarray(X)[numbers]
        self.preprocessing_ = Preprocessing.fit(X)
        table = self.preprocessing_.read(X)
        self.training_columns_ = TrainingColumns.fit(table.values)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        classes = targets.values.numpy() if targets.values.dim() == 1 else None
        generator, count = np.random.default_rng(self.seed_), self.folds or LIKENESS_FOLDS
        folds = folds_for(len(numbers), count, generator, classes)
        self.likeness_ = Likeness.fit(table.features, folds)
        self.ranges_ = Ranges.fit(table.values)
        new_folds = partial(folds_for, len(numbers), count, generator, classes)
        if groups is not None:
            new_folds = partial(folds_of_groups, group_numbers(groups, len(y), numbers), count, generator)
            folds = new_folds()
        chooser = self._chooser(table.features, targets, folds, new_folds)
        if self.preprocessing_.used is not None:
            warn(self.preprocessing_.screening_words)
        self.posterior_, self.selection_ = chooser.fit()
        self.pool_ = None
        if self.selection_.out_of_fold is not None and not self.networks_only:
            split = split_of(self.selection_.out_of_fold, len(numbers))
            inputs = self.preprocessing_.network_inputs(table.features)
            bars = self._likelihood(targets)[1] and getattr(self, "heteroscedastic", False)
            others = OtherKinds.fit(inputs, targets, split, chooser.trainer.screen, self.seed_, row_wise=bars)
            self.pool_, self.selection_ = self._pooled(others, targets)
            if getattr(self, "conformal", False):
                self.selection_ = replace(self.selection_, conformal=self._conformal_scores(inputs))
        if self.selection_.out_of_fold is not None:
            self.selection_.out_of_fold.rows[:] = numbers[self.selection_.out_of_fold.rows]
        return self

    def _chooser(
        self,
        features: NDArray[np.float64],
        targets: Targets,
        folds: list[NDArray[np.int64]],
        new_folds: Callable[[], list[NDArray[np.int64]]],
    ) -> Chooser:
        """Return the `Chooser` for the constructor's parameters.

        Args:
            features: Features of the training rows.
            targets: Their targets.
            folds: Row numbers of the folds of the first round.
            new_folds: A function that splits the rows into new folds.
        """
        rows = len(features) if self.folds is None else len(features) - max(len(fold) for fold in folds)
        plan_of = partial(
            plan_for,
            rows,
            classes=not isinstance(targets, NumberTargets),
            dropout=self.method == "dropout",
            **{name: getattr(self, name) for name in PLANNED},
        )
        plan = plan_of(inputs=features.shape[1])
        largest = max(setting.batch_size for setting in plan.settings)
        if largest >= rows:
            raise InputError(
                f"batch_size={largest}, but only {rows} rows are left for training. Use at most batch_size={rows - 1}."
            )
        if self.folds is None:
            everything = (torch.arange(rows),) * int(self.members or 1)
            rounds = [Split(everything, everything)]
        else:
            members = int(self.members or len(folds) + min(plan.again, len(folds)))
            rounds = [_split(folds, members)]
            while (missing := members - sum(map(len, rounds))) > 0:
                rounds.append(_split(new_folds(), missing))
        screen = self._screen(features, targets, [rows for split in rounds for rows in split.train_rows])
        x = self.preprocessing_.network_inputs(features)
        likelihood, noise = self._likelihood(targets)
        size: Any = self.effective_batch_size
        trainer = Trainer(
            x=torch.from_numpy(x).float(),
            targets=targets,
            method=self.method,
            learning_rate=float(self.learning_rate),
            seed=self.seed_,
            device=device_named(self.device),
            verbose=bool(self.verbose),
            screen=screen,
        )
        return Chooser(
            trainer=trainer,
            plan=plan_of(inputs=x.shape[1]),
            rounds=tuple(rounds),
            likelihood=likelihood,
            noise=noise,
            effective_batch_size=size if size in ("cross-validated", "elbo", None) else float(size),
            interruptible=bool(self.interruptible),
            folds=0 if self.folds is None else len(folds),
        )

    def _screen(self, features: NDArray[np.float64], targets: Targets, lists: list[Tensor]) -> ColumnScreen | None:
        """Return what chooses the columns of a wide table, and store which features are used; None for other tables.

        Args:
            features: Features of the training rows.
            targets: Their targets.
            lists: The training rows of each network.
        """
        groups = self.preprocessing_.groups
        if len(np.unique(groups)) <= min(MOST_COLUMNS, len(features)):
            return None
        screen = ColumnScreen(features, groups, targets)
        used = tuple(np.flatnonzero(np.any([screen.chosen(rows) for rows in lists], 0)).tolist())
        self.preprocessing_ = replace(self.preprocessing_, used=used)
        return replace(screen, used=used)

    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of the target, in the units of y.

        Args:
            X: A table with the same columns as in training.
        """
        return self._predictive_of(self._read(X).features)

    def predict_with_uncertainty(self, X: Any) -> tuple[Predictive, pd.DataFrame]:
        """Return the results of `predict_dist` and `uncertainty`, at the cost of one of them.

        Args:
            X: A table with the same columns as in training.
        """
        table = self._read(X)
        predictive = self._predictive_of(table.features)
        frame = pd.DataFrame(self._uncertainty_columns(predictive), index=table.index)
        frame["reason"] = reasons(self.preprocessing_, self.likeness_, self.ranges_, table)
        frame.insert(len(frame.columns) - 1, "unusual", frame["reason"] != "")
        frame["unseen_columns"] = table.unseen_columns
        return predictive, frame

    def uncertainty_of(self, predictive: Any) -> pd.DataFrame:
        """Return the uncertainty columns of `uncertainty` for a predictive of `predict_dist`."""
        return pd.DataFrame(self._uncertainty_columns(predictive))

    def drift(self, X: Any) -> TableDrift:
        """Test new rows for drift from the training rows: overall, in each column, and in the network.

        No targets are needed. An exact two-sample test compares each column with the counts stored in training, and
        `bayesnorm.drift` compares the batch statistics in the network. The methods "dropout" and "ensemble" have no
        batch statistics, so only columns are compared, and `without_network` says so. After `adapt`, the network is
        compared with the rows it was adapted to, and columns still with the training rows.

        Args:
            X: A table with the same columns as in training, and at least one row.
        """
        table = self._read(X)
        columns = map(column_drift, self.preprocessing_.columns, self.training_columns_.columns, table.values)
        network, why = None, f"method {self.method!r} has no batch statistics to compare"
        if self.method in BATCH_STATISTICS:
            try:
                network, why = drift(self.posterior_, self._inputs(table.features)), ""
            except NotComparableError as error:
                why = str(error)
        row_reasons = reasons(self.preprocessing_, self.likeness_, self.ranges_, table)
        unlike = np.array(row_reasons, dtype=object) != ""
        return table_drift(list(columns), network, why, unlike)

    def explain_uncertainty(
        self, X: Any, *, pairs: int = PAIRS, output: int = 0, baseline: Any = None
    ) -> UncertaintyExplanation:
        """Explain which columns cause the epistemic uncertainty of each row, by Shapley values.

        Args:
            X: A table with the same columns as in training.
            pairs: Pairs of sampled column orders. With d columns, each row costs at most 2 * pairs * (d - 1) + 1
                predictions. With few columns all subsets are used, and the result is exact.
            output: The output to explain, if a regression has several.
            baseline: A table with one row to compare with. [default: None, the medians and most common categories of
                the training rows]
        """
        table = self._read(X)
        if baseline is None:
            baseline = usual_row(self.preprocessing_, self.training_columns_)
        else:
            baseline = as_pandas(baseline)
            self._check_table(baseline, reset=False)
        return explain_uncertainty(
            self._predict_inputs,
            self.preprocessing_,
            table,
            baseline,
            pairs=pairs,
            output=output,
            seed=self.seed_,
        )

    def adapt(self, X: Any, *, strength: float | None = None) -> Self:
        """Return a new estimator whose batch statistics are adapted to unlabelled rows; this one is unchanged.

        See `bayesnorm.adapt`. Only the batch statistics of the networks change, which count as much as the weight of
        the networks (`selection_.kinds`). Boosted trees, the linear model, preprocessing, the detection of unusual
        rows, the noise, the effective batch size and the interval levels stay those of training. Intervals therefore
        keep their coverage only if the errors after adapting are as large as before.

        Args:
            X: A table with the same columns as in training, such as the rows to predict.
            strength: Fraction of the shift to correct at every layer, from 0 to 1. [default: None, estimated from the
                rows]
        """
        features = self._read(X).features
        if self.method not in BATCH_STATISTICS:
            raise BayesNormError(
                f"adapt needs batch statistics, but method={self.method!r} has none. Fit with method "
                f"{', '.join(BATCH_STATISTICS[:-1])} or {BATCH_STATISTICS[-1]}."
            )
        adapted = clone(self)
        posterior = adapt(self.posterior_, self._inputs(features), strength=strength)
        vars(adapted).update(vars(self), posterior_=posterior)
        return adapted

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one safetensors file, without any training rows.

        `bayesnorm.tabular.load` reads it. The loaded estimator predicts the same, but its `selection_.out_of_fold` is
        None.

        Args:
            path: The file to write.
        """
        write_estimator(self, path)

    def _predictive_of(self, features: NDArray[np.float64]) -> Predictive:
        """Return the predictive distribution for rows of features."""
        return self._predict_inputs(self.preprocessing_.network_inputs(features))

    def _predict_inputs(self, inputs: NDArray[np.float64]) -> Predictive:
        """Return the predictive distribution for inputs of the network, (rows, inputs)."""
        if self.pool_ is None:
            return self._by_networks(inputs)
        return self.pool_.predictive(partial(self._by_networks, inputs), inputs)

    def _by_networks(self, inputs: NDArray[np.float64]) -> Predictive:
        """Return the predictive distribution of the networks for their inputs.

        Many rows are predicted in single precision: the difference is below 1e-5 of a row's standard deviation.
        """
        if len(inputs) >= FAST_ROWS and (networks := self._fast_networks()) is not None:
            outputs = networks.outputs(torch.from_numpy(inputs).float())
            if bool(outputs.isfinite().all()):
                return self.posterior_.likelihood.predictive(outputs)
        return self.posterior_.predict(rounded(inputs), MonteCarlo(self._samples), seed=self.seed_)

    def _fast_networks(self) -> FastNetworks | None:
        """Return the networks in single precision for the current posterior; None if it is of another kind."""
        key = self.posterior_, self._samples, self.seed_
        latest = vars(self).get("_fast")
        if latest is None or latest[0] is not key[0] or latest[1:3] != key[1:]:
            fast = FastNetworks.from_posterior(*key) if self.posterior_.executable.device.type == "cpu" else None
            latest = self._fast = (*key, fast)
        return latest[3]

    def _inputs(self, features: NDArray[np.float64]) -> Tensor:
        """Return the network's inputs for features."""
        return rounded(self.preprocessing_.network_inputs(features))

    @property
    def _samples(self) -> int:
        """Number of samples in a prediction, at least one for each member."""
        networks = len(getattr(self.posterior_, "members", (None,)))
        return networks if self.method == "ensemble" else max(self.samples, networks)

    def _read(self, X: Any) -> TableRows:
        """Return the values and features of a table, which must have the columns of training."""
        check_is_fitted(self)
        X = as_pandas(X)
        self._check_table(X, reset=False)
        return self.preprocessing_.read(X)

    def _check_table(self, X: Any, *, reset: bool) -> None:
        """Store the number and names of a table's columns (`reset=True`), or compare them with those of training."""
        with as_input_errors():
            check_frame(X)
            if isinstance(X, pd.DataFrame):
                validate_data(self, X, reset=reset, skip_check_array=True)
            else:
                validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in super().__getstate__().items() if name != "_fast"}
        if "posterior_" in state:  # its copy of the network contains functions that cannot be pickled
            state["posterior_"] = posterior_parts(self.posterior_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "posterior_" in state:
            tensors, config = state["posterior_"]
            self.posterior_ = posterior_from(tensors, config, self.method, self.selection_.chosen)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")


def rounded(inputs: NDArray[np.float64]) -> Tensor:
    """Return inputs rounded to float32, as in training, and stored as float64."""
    return torch.from_numpy(inputs).float().double()


def split_of(held_out: OutOfFold, rows: int) -> Split:
    """Return the rows of the folds of held-out predictions, each trained on all rows of other folds."""
    folds = [torch.from_numpy(held_out.rows[held_out.fold == k]) for k in range(int(held_out.fold.max()) + 1)]
    missing = torch.from_numpy(np.setdiff1d(np.arange(rows), held_out.rows))
    return Split.from_folds([*folds, missing]).first(len(folds))


def _split(folds: list[NDArray[np.int64]], count: int) -> Split:
    """Return the rows of the networks of the first folds."""
    return Split.from_folds([torch.from_numpy(fold) for fold in folds]).first(count)
