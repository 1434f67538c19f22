"""Monte Carlo Dropout (Gal and Ghahramani, ICML 2016).

Training with dropout samples a mask m of units at every step. MC dropout treats a network under a random mask as a
sample from an approximate posterior. It keeps dropout on for predictions, and averages:

    p(y | x)  ~  1/T  sum_t  p(y | f(x; m_t)),     m_t ~ Bernoulli(1 - p) for every unit.

The predictive variance is the variance of f plus 1/precision. For the loss 1/N sum 1/2 (y - f)^2 + lambda |W|^2, a keep
rate q = 1 - p and a prior length-scale l, the paper gives precision = l^2 q / (2 N lambda).

A sample contains one seed per dropout layer, which determines the mask (see `network/running/seeded_dropout.py`).

Notes:
- Everything except dropout is in evaluation mode, including batch norm.
- `consistent=True` uses the same masks for all examples of a sample. A sample is then one smooth function of x, and a
  prediction does not depend on the other examples in the batch. `consistent=False` uses different masks for every
  example, as in training. Samples for a single example have the same distribution either way, but samples for two
  examples are then uncorrelated, and the masks depend on the position in the batch.
- A layer that runs several times in a forward pass gets a different mask each time.
- Keep the dropout rates of training, unless you want to change the uncertainty; `p` overrides them.
- Dropout inside a forward (`F.dropout`, the `dropout` argument of an LSTM or of attention) has no layer whose mask
  could be sampled, and raises an error. `p={"module": 0}` allows such dropout and keeps it off.
- The network must have been trained with dropout. `add_dropout` adds dropout layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..arguments import require_flag
from ..errors import BayesNormError, InputError
from ..likelihoods import Likelihood
from ..network import (
    DropoutExecutable,
    Progress,
    RateChoice,
    TrainData,
    dropout_rates,
    example_rows,
    is_in_memory,
    renamed_argument,
)
from ..posterior import DropoutPosterior
from .fitting import P, checked_seed, fitting_likelihood


@dataclass(frozen=True)
class MCDropout:
    """Monte Carlo dropout: sample networks under random dropout masks.

    Use it for networks that were trained with dropout layers. `fit(model, train_data, likelihood)` trains nothing and
    returns a `DropoutPosterior`; the model is not modified.

    Reference: Gal and Ghahramani, "Dropout as a Bayesian approximation", ICML 2016.

    Args:
        p: Dropout rate of all layers, or a dict of rates by layer name (0 turns a layer off; others keep their rates).
            Default: None, the layers' own rates.
        consistent: Whether all examples of a sample share its masks. Default: True.
    """

    p: RateChoice = None
    consistent: bool = True

    def __post_init__(self) -> None:
        require_flag("consistent", self.consistent)

    def fit(
        self,
        model: nn.Module,
        train_data: TrainData | None = None,
        likelihood: Likelihood[P] | None = None,
        *,
        output: str | int | None = None,
        forward_kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> DropoutPosterior[P]:
        """Return the posterior over masks of the network's dropout layers. Nothing is trained.

        Args:
            model: The trained network. It is never modified.
            train_data: Two of its examples determine the default likelihood and reveal dropout that cannot be sampled.
                Default: None, such dropout is found at the first prediction.
            likelihood: How outputs become distributions of targets. Pass `Categorical()` for classification. Default:
                None, `Gaussian()` for a network with one real output; this needs `train_data`.
            output: The entry to use if the network returns a dict or a tuple. Default: None.
            forward_kwargs: Further arguments of the network's forward, the same in every call. Default: None.
            seed: Seed of random transforms in `train_data`. Masks depend on the seed of a prediction. Default: 0.
            progress: Called with (1, 1) at the end. Default: None.
        """
        seed = checked_seed(seed, likelihood, progress)
        rates = dropout_rates(model, self.p)
        executable = DropoutExecutable(
            model, output, rates=rates, consistent=self.consistent, forward_kwargs=forward_kwargs
        )
        if train_data is not None:
            example = example_rows(train_data, seed, executable.form)
            with renamed_argument("x", "train_data"):
                try:
                    example = executable.input(example)
                    executable.look(example)
                except InputError:
                    if not is_in_memory(train_data, executable.form):
                        raise
                    example = executable.input(train_data)  # for a network of a whole graph
                    executable.look(example)
            likelihood = fitting_likelihood(executable, example, likelihood)
        if likelihood is None:
            raise BayesNormError(
                "likelihood is needed if train_data is not given. Pass Gaussian() for real targets, or Categorical() "
                "for classes."
            )
        if progress is not None:
            progress(1, 1)
        return DropoutPosterior(executable, likelihood, rates, self.consistent)
