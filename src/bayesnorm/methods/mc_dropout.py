"""Monte Carlo Dropout (Gal and Ghahramani, ICML 2016).

Training with dropout samples a mask m of units at every step. MC dropout takes a network under a random mask for a draw
from an approximate posterior, keeps dropping out when it predicts, and averages:

    p(y | x)  ~  1/T  sum_t  p(y | f(x; m_t)),     m_t ~ Bernoulli(1 - p) for every unit.

The predictive variance is the spread of f plus 1/precision. For a loss 1/N sum 1/2 (y - f)^2 + lambda |W|^2, a keep
rate q = 1 - p and a prior length-scale l, the paper ties them together: precision = l^2 q / (2 N lambda).

A draw holds one seed per dropout layer; the mask is a function of it (see `network/seeded_dropout.py`).

Gotchas:
- Everything but dropout is in evaluation mode, batch norm too.
- `consistent=True` gives all rows of a draw the same masks: a draw is then one function, smooth in x, and a row's
  prediction does not depend on the rows beside it. `consistent=False` gives every row masks of its own, as training
  does; a single row's samples have the same distribution either way, but those of two rows are then uncorrelated, and a
  row's masks go with its position in the batch.
- A layer that runs several times in a pass gets another mask each time.
- Rates are those that the network was trained with, unless you mean to change the uncertainty; `p` overrides them.
- Dropout that a forward calls itself (`F.dropout`, the `dropout` argument of an LSTM or of attention) has no layer to
  draw the mask of and is refused; `p={"module": 0}` says that it may stay off.
- The network must have been trained with dropout for any of this to mean much. `add_dropout` puts some in.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..arguments import require_function, require_number, require_positive, require_seed, require_whole
from ..errors import BayesNormError
from ..likelihoods import Likelihood, require_likelihood
from ..network import DropoutExecutable, Progress, RateChoice, TrainData, dropout_rates, example_rows, renamed_argument
from ..posterior import DropoutPosterior
from .looking import fitting_likelihood


@dataclass(frozen=True)
class MCDropout:
    """Monte Carlo dropout: samples are networks under random dropout masks.

    Args:
        p: The rate of all dropout layers, rates by layer name (the others keep their own; 0 leaves one off), or None
            for the layers' own.
        consistent: Whether all rows of a draw share its masks.
    """

    p: RateChoice = None
    consistent: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.consistent, bool):
            raise BayesNormError(f"consistent must be True or False, got {self.consistent!r}.")

    def fit(
        self,
        model: nn.Module,
        train_data: TrainData | None = None,
        likelihood: Likelihood | None = None,
        *,
        output: str | int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> DropoutPosterior:
        """Find the network's dropout layers; nothing is learned.

        Args:
            model: The trained network; never modified.
            train_data: Two of its rows are looked at, to find the default likelihood and dropout that cannot be drawn;
                None leaves the second to the first prediction.
            likelihood: How outputs become distributions of targets; None means `Gaussian()` for a network with one
                real output, and classification wants `Categorical()`.
            output: Which entry to use where the network returns a dict or a tuple.
            seed: Decides the random transforms that the rows may go through. Masks come from the seed of a prediction.
            progress: Called with (1, 1) when done.
        """
        seed = require_seed(seed)
        require_function("progress", progress)
        if likelihood is not None:
            require_likelihood(likelihood)
        rates = dropout_rates(model, self.p)
        executable = DropoutExecutable(model, output, rates=rates, consistent=self.consistent)
        if train_data is not None:
            example = example_rows(train_data, seed)
            with renamed_argument("x", "train_data"):
                executable.look(example)
            likelihood = fitting_likelihood(executable, example, likelihood)
        if likelihood is None:
            raise BayesNormError(
                "likelihood: none was given, and no train_data to look at the outputs for; pass Gaussian() for real "
                "targets or Categorical() for classes."
            )
        if progress is not None:
            progress(1, 1)
        return DropoutPosterior(executable, likelihood, rates, self.consistent)


def dropout_precision(length_scale: float, keep: float, rows: int, weight_decay: float) -> float:
    """The precision that weight decay stands for: l^2 q / (2 N lambda).

    It is in the units that the network was trained in: for targets divided by s, divide it by s^2.

    Args:
        length_scale: l, the prior length-scale of the functions; larger for smoother ones.
        keep: q = 1 - p, the probability of a unit to be kept.
        rows: N, how many rows the network was trained on.
        weight_decay: lambda of the loss 1/N sum 1/2 (y - f)^2 + lambda |W|^2. A torch optimiser's `weight_decay` is
            2 lambda where the loss is half the mean squared error, and 4 lambda where it is the whole.
    """
    length_scale = require_positive("length_scale", length_scale)
    weight_decay = require_positive("weight_decay", weight_decay)
    requirement = "a probability above 0 and up to 1"
    keep = require_number("keep", keep, above=0, most=1, requirement=requirement)
    rows = require_whole("rows", rows)
    return length_scale**2 * keep / (2 * rows * weight_decay)
