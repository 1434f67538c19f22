"""Choose the batch size by the evidence lower bound (ELBO; Mukhoti, Dokania, Torr and Gal, 2020).

The batch size M is a variational parameter of MCBN: q_M has the variances of batch statistics, which are proportional
to 1/M. With N training examples,

    ELBO(M) = sum_i E_q[log p(y_i | x_i, w)]  -  KL(q_M || p),

where q_M is the central-limit Gaussian of every unit, and p is the prior that weight decay implies (flat on means; its
constant is left out, because it is the same for all M). The first term is estimated on some training examples and
scaled to all of them.

The ELBO only needs training data. It finds the q_M that is closest to the exact posterior over the statistics, given
the network, and usually selects a size near the batch size of training. Validation scores find the uncertainty that is
most accurate on new data, which may be larger. If you have validation data, use `calibrate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from torch import Tensor

from ..arguments import as_number, require_positive, require_seed, require_whole
from ..engines import MonteCarlo, require_finite
from ..errors import BayesNormError, InputError
from ..likelihoods import Gaussian, Likelihood
from ..network import as_tensor, renamed_argument
from ..posterior import BatchNormPosterior, Posterior
from ..predictive import ClassificationPredictive, MultiTaskPredictive, P_co, Predictive, as_targets, at_least_single
from ..progress import long_progress
from ..theory import GaussianPrior, UnitGaussians, kl_divergence, unit_gaussians, weight_decay_prior
from ..words import ShortRepr
from .sampled_outputs import mean_score, require_scorable

BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)

Source = BatchNormPosterior[P_co] | Callable[[int], BatchNormPosterior[P_co]]


@dataclass(frozen=True)
class BatchSizeRow:
    """The results for one batch size.

    Args:
        batch_size: The batch size M.
        elbo: `log_likelihood - kl`.
        log_likelihood: Sum over all N training examples of E_q[log p(y | x, w)], in nats.
        kl: KL(q_M || p) over all units, without the flat prior's constant, in nats.
        uncertainty: Mean mutual information (classification, in nats) or mean epistemic variance (regression) on those
            examples; NaN for several tasks, which have no common unit.
        validation: Mean validation NLL (classification) or CRPS (regression), or None.
    """

    batch_size: float
    elbo: float
    log_likelihood: float
    kl: float
    uncertainty: float
    validation: float | None


@dataclass(frozen=True, repr=False)
class BatchSizeChoice(ShortRepr, Generic[P_co]):
    """The batch size with the highest ELBO, and the results for all batch sizes."""

    posterior: BatchNormPosterior[P_co]
    rows: tuple[BatchSizeRow, ...]

    @property
    def best(self) -> BatchSizeRow:
        return max(self.rows, key=lambda row: row.elbo)

    @property
    def batch_size(self) -> float:
        """The chosen batch size."""
        return self.best.batch_size

    def table(self) -> str:
        """Return the results as a text table, with the chosen size marked."""
        validated = self.rows[0].validation is not None
        head = f"{'batch size':>10} {'ELBO':>14} {'log-likelihood':>15} {'KL':>12} {'epistemic':>10}"
        lines = [head + (f" {'validation':>11}" if validated else "")]
        for row in self.rows:
            line = f"{row.batch_size:>10g} {row.elbo:>14.1f} {row.log_likelihood:>15.1f} {row.kl:>12.1f} "
            line += f"{row.uncertainty:>10.3g}"
            line += f" {row.validation:>11.4f}" if row.validation is not None else ""
            lines.append(line + (" <- chosen" if row is self.best else ""))
        return "\n".join(lines)

    __str__ = table


def select_batch_size(
    source: Source[P_co],
    data: Any,
    *,
    batch_sizes: Sequence[float] = BATCH_SIZES,
    weight_decay: float = 1e-4,
    prior: GaussianPrior | None = None,
    train_rows: int | None = None,
    validation: tuple[Any, Any] | None = None,
    samples: int = 40,
    seed: int = 0,
) -> BatchSizeChoice[P_co]:
    """Choose the batch size with the highest evidence lower bound (ELBO); it only needs training data.

    Returns a `BatchSizeChoice` with the posterior at the chosen batch size, and a table of all candidates. If you have
    validation data, use `calibrate` instead.

    Reference: Mukhoti, Dokania, Torr and Gal, "On batch normalisation for approximate Bayesian inference", 2020.

    Args:
        source: A posterior, whose effective batch size is varied (post hoc, with one trained network). Or a function
            that returns the posterior for a batch size: one fitted with real batches of that size, or one of a network
            that was retrained with it.
        data: Training data to estimate the bound on: (x, y), or for a posterior anything that `fit` takes with targets.
            A few thousand examples are enough.
        batch_sizes: Candidates for M. Default: powers of two from 8 to 1024.
        weight_decay: The lambda of training, for the prior: the loss is the mean of (y - f)^2 / 2 (or of the cross
            entropy) + lambda / 2 |W|^2, as in torch's optimisers and in `train`. It changes the bound, but hardly its
            maximum as long as N tau lambda times the units' variance is far below M. Default: 0.0001.
        prior: A prior instead of the one that weight decay implies. Default: None.
        train_rows: The number N of training examples in the bound. Default: None, as many as the posterior was fitted
            on.
        validation: Validation data (x, y), scored in addition to the bound. Default: None.
        samples: Number of samples. Default: 40.
        seed: Seed of the samples. Default: 0.
    """
    sizes = _require_sizes(batch_sizes, whole=_require_source(source))
    x, y = _require_pair("data", data, source)
    if len(x) < 3:
        raise InputError(f"data has {len(x)} rows, but at least 3 are needed. A few hundred are better.")
    if train_rows is not None:
        train_rows = require_whole("train_rows", train_rows)
    if prior is None:
        weight_decay = require_positive("weight_decay", weight_decay)
    seed, engine = require_seed(seed), MonteCarlo(samples)
    validation_pair = None if validation is None else _require_pair("validation", validation, source)
    candidates: list[tuple[BatchSizeRow, BatchNormPosterior[P_co]]] = []
    units: UnitGaussians | None = None
    with long_progress("select_batch_size") as tell:
        for done, size in enumerate(sizes, start=1):
            posterior = source.at_batch_size(size) if isinstance(source, BatchNormPosterior) else source(int(size))
            if not isinstance(posterior, BatchNormPosterior):
                raise BayesNormError(
                    f"source returned a {type(posterior).__name__}. It must be a posterior over batch-norm "
                    "statistics, or a function that returns one per batch size."
                )
            if not candidates:
                _require_computable(posterior, x, y, validation_pair, seed)
            if units is None or callable(source):  # all effective sizes of one posterior share its moments
                rows = min(posterior.fitted_batch_size, len(x) - 1)
                with renamed_argument("train_data", "data"):
                    names, forward_kwargs = (
                        [layer.name for layer in posterior.layers],
                        posterior.executable.forward_kwargs,
                    )
                    units = unit_gaussians(posterior.model, x, rows, layers=names, forward_kwargs=forward_kwargs)
            total = train_rows or posterior.rows
            against = prior or weight_decay_prior(total, _precision(posterior.likelihood), weight_decay / 2)
            kl = float(kl_divergence(units.at_batch_size(posterior.batch_size), against).sum())
            f = at_least_single(engine.outputs(posterior, x, seed))
            predictive = posterior.likelihood.predictive(f)
            require_finite(posterior, x, f, predictive)
            fit = float(total) * _expected_log_likelihood(posterior.likelihood, f, y)
            score = None if validation_pair is None else mean_score(posterior, *validation_pair, None, samples, seed)
            candidates.append(
                (BatchSizeRow(float(size), fit - kl, fit, kl, _uncertainty(predictive), score), posterior)
            )
            tell(done, len(sizes))
    best = max(candidates, key=lambda pair: pair[0].elbo)
    return BatchSizeChoice(best[1], tuple(row for row, _ in candidates))


def _require_computable(posterior: BatchNormPosterior, x: Tensor, y: Tensor, validation: Any, seed: int) -> None:
    """Raise an error if the bound or the score cannot be computed for this data. It runs two examples of each."""
    inputs = posterior.executable.input(x, "data")
    with renamed_argument("x", "data"):
        f = at_least_single(MonteCarlo(1).outputs(posterior, inputs[:2], seed))[:, :1]
    _expected_log_likelihood(posterior.likelihood, f.expand(1, len(x), *f.shape[2:]), y)
    if validation is not None:
        rows = posterior.executable.input(validation[0], "validation")
        require_scorable([(posterior, rows, validation[1])], posterior.likelihood, None, seed)


def _expected_log_likelihood(likelihood: Likelihood, f: Tensor, y: Tensor) -> float:
    """Return the mean over samples and examples of log p(y | f), for each sample separately, not for their mixture."""
    target = y.to(device=f.device, dtype=f.dtype if y.is_floating_point() else y.dtype)
    repeated = target.expand(len(f), *target.shape).flatten(0, 1)
    return -float(likelihood.loss(f.flatten(0, 1), repeated))


def _uncertainty(predictive: Predictive) -> float:
    if isinstance(predictive, ClassificationPredictive):
        return float(predictive.mutual_information.mean())
    if isinstance(predictive, MultiTaskPredictive):
        return math.nan
    return float(predictive.epistemic.mean())


def _precision(likelihood: Likelihood) -> float:
    """Return the prior's tau. For classes it is 1, because their loss is already in nats."""
    if not isinstance(likelihood, Gaussian):
        return 1.0
    numbers = likelihood.precision if isinstance(likelihood.precision, tuple) else (likelihood.precision,)
    return math.fsum(numbers) / len(numbers)


def _require_source(source: Any) -> bool:
    """Return whether `source` is called for every size, which must then be whole numbers."""
    if isinstance(source, BatchNormPosterior):
        return False
    if isinstance(source, Posterior) or not callable(source):
        raise BayesNormError(
            "source must be a posterior over batch-norm statistics, or a function that returns one per batch size, "
            f"got {type(source).__name__}."
        )
    return True


def _require_sizes(batch_sizes: Sequence[float], whole: bool) -> list[float]:
    values = list(batch_sizes) if isinstance(batch_sizes, Iterable) else []
    sizes = [size for size in map(as_number, values) if size is not None and 0 < size < math.inf]
    if len(sizes) < max(2, len(values)):
        raise BayesNormError(f"batch_sizes must be two or more positive numbers, got {batch_sizes!r}.")
    for size in sizes:
        if whole and size != int(size):
            raise BayesNormError(
                f"batch_sizes must be whole numbers if source is a function of real batch sizes, got {size}."
            )
    return sorted(sizes)


def _require_pair(name: str, data: Any, source: Source) -> tuple[Tensor, Tensor]:
    is_pair = isinstance(data, tuple | list)
    if isinstance(source, Posterior):
        form = source.executable.form
        if not is_pair or form.required > 1 or form.lists_batches(data):
            x, y = source.executable.labelled(data, None, name)
            return x, as_targets(y, x.device)
    if is_pair and len(data) == 2:
        x = as_tensor(data[0], name)
        y = as_targets(data[1], x.device)
        if y.shape[:1] == x.shape[:1]:
            return x, y
    raise InputError(f"{name} must be a pair (x, y) with one target per row of x, got {type(data).__name__}.")
