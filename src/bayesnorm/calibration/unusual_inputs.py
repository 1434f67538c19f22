"""Score how unusual single inputs are, with p-values from held-out data of the training distribution.

Scores of several kinds are computed together, because none is the best for all networks and data:

- `distance`: the statistics of one input at every batch-norm layer, over its pixels, compared with those of the
  reference. A *part* is the means of a layer, or the logarithms of its variances. Its distance is the mean over
  channels of squared deviations, each divided by its variance over the reference. The score is the mean over parts.
- `entropy`, `mutual_information`: of the predictive; `epistemic`: the summed standard deviations (regression).
- `energy`, `max_logit`: minus the log-sum-exp, and minus the largest, of the network's own logits.

The first half of the reference gives centre and variance of the distance. The second half gives p-values: the share of
its inputs whose score is at least as large, so p <= 0.05 holds for about 5 % of inputs like the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_number, require_seed
from ..engines import MonteCarlo
from ..errors import BayesNormError, InputError
from ..network import is_in_memory, single_input_statistics
from ..posterior import Posterior
from ..predictive import ClassificationPredictive, RegressionPredictive, at_least_single

# The fewest inputs of a reference: half of them give p-values, which are at least 1 / (half + 1).
LEAST_REFERENCE = 40


@dataclass(frozen=True, eq=False)
class OODScores:
    """How unusual inputs are. Larger scores are more unusual; smaller p-values are more unusual.

    Args:
        scores: The scores by name, (inputs,) each.
        p_values: For each score, the share of reference inputs with a score at least as large, (inputs,).
    """

    scores: Mapping[str, Tensor]
    p_values: Mapping[str, Tensor]

    def flagged(self, score: str = "distance", level: float = 0.05) -> Tensor:
        """Return which inputs are more unusual than all but a share `level` of in-distribution inputs.

        Args:
            score: The name of the score.
            level: The false-positive rate.
        """
        if score not in self.p_values:
            raise BayesNormError(f"score must be one of {', '.join(self.p_values)}, got {score!r}.")
        return self.p_values[score] <= require_number("level", level, above=0, below=1)

    def __repr__(self) -> str:
        flags = ", ".join(f"{name} {float((p <= 0.05).double().mean()):.0%}" for name, p in self.p_values.items())
        count = len(next(iter(self.p_values.values())))
        return f"OODScores({count:,} inputs; p <= 0.05 for: {flags})"


@torch.inference_mode(False)
@torch.no_grad()
def ood_scores(posterior: Posterior, x: Any, reference: Any, *, samples: int | None = None, seed: int = 0) -> OODScores:
    """Return how unusual each input is, by several scores, each with p-values.

    Unlike `drift`, which tests many examples together, it looks at every input alone. Use two scores: an input is
    unusual if the p-value of `distance` or that of `energy` is at most 0.025. `distance` detects images of another kind
    than in training. `energy` of an accurate network detects new classes that look like those of training. Mutual
    information is rarely the best score. Compare the scores on examples of both kinds if you have any.

    Args:
        posterior: The posterior.
        x: The inputs to score: a tensor, an array, or anything that `predict` takes, such as a `DataLoader`.
        reference: Inputs of the training distribution that the network was not trained on, at least 40, of any kind
            like `x`. More give finer p-values.
        samples: Number of samples. Default: None, as many as for a prediction.
        seed: Seed of the samples. Default: 0.
    """
    if not isinstance(posterior, Posterior):
        raise BayesNormError(f"posterior must be the result of a method's fit, got {type(posterior).__name__}.")
    engine = MonteCarlo(posterior.default_samples if samples is None else samples)
    seed, reference = require_seed(seed), posterior.executable.input(reference, "reference")
    if len(reference) < LEAST_REFERENCE:
        raise InputError(
            f"reference has {len(reference)} inputs, but at least {LEAST_REFERENCE} are needed. A thousand are better."
        )
    first, second = reference[::2], reference[1::2]
    kwargs = posterior.executable.forward_kwargs
    usual = single_input_statistics(posterior.model, first, kwargs)

    def score(inputs: Tensor) -> dict[str, Tensor]:
        scores = _output_scores(posterior, inputs, engine, seed)
        if usual:
            scores["distance"] = _distance(usual, single_input_statistics(posterior.model, inputs, kwargs))
        return scores

    inside = score(second)
    if is_in_memory(x, posterior.executable.form):
        parts = [score(posterior.executable.input(x))]
    else:
        parts = [score(posterior.executable.input(inputs)) for inputs, _ in posterior.executable.reader(x, seed)]
    outside = {name: torch.cat([part[name] for part in parts]) for name in inside}
    return OODScores(outside, {name: _p_values(inside[name], scores) for name, scores in outside.items()})


def _output_scores(posterior: Posterior, x: Tensor, engine: MonteCarlo, seed: int) -> dict[str, Tensor]:
    """Return the scores that depend on outputs alone."""
    predictive = engine.predict(posterior, x, seed)
    if isinstance(predictive, RegressionPredictive):
        return {"epistemic": predictive.epistemic.sqrt().flatten(1).sum(1)}
    if not isinstance(predictive, ClassificationPredictive):
        raise BayesNormError(f"posterior has a {type(predictive).__name__}. It must predict classes or numbers.")
    logits = at_least_single(posterior.executable.run(None, x))[0]
    scores = {"entropy": predictive.entropy, "mutual_information": predictive.mutual_information}
    if logits.dim() > 1 and logits.shape[1] > 1:
        scores |= {"energy": -logits.logsumexp(1), "max_logit": -logits.amax(1)}
    return {name: score.reshape(len(x), -1).mean(1) for name, score in scores.items()}


def _distance(reference: list[Tensor], parts: list[Tensor]) -> Tensor:
    """Return the mean over parts of the mean squared standardised deviation from the reference, (inputs,)."""
    distances = []
    for usual, part in zip(reference, parts, strict=True):
        variance = usual.var(0)
        varies = variance > 1e-12 * variance.max().clamp_min(1e-30)
        if bool(varies.any()):
            squares = (part - usual.mean(0)).square()[:, varies] / variance[varies]
            distances.append(squares.mean(1))
    return torch.stack(distances).mean(0)


def _p_values(inside: Tensor, scores: Tensor) -> Tensor:
    """Return (1 + the number of reference scores that are at least as large) / (1 + all reference scores)."""
    ordered = inside.double().sort().values
    larger = len(ordered) - torch.searchsorted(ordered, scores.double())
    return (1 + larger).double() / (1 + len(ordered))
