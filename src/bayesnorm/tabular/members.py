"""Evaluate the members of a model on their held-out rows: the parts of uncertainty, the noise, and predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..calibration import SampledOutputs, significantly_better
from ..likelihoods import Likelihood
from ..predictive import ClassificationPredictive
from .conformal import ConformalScores
from .held_out import HeldOut
from .networks import BATCH_STATISTICS
from .noise import SeenRows, noise_for
from .search_plan import Setting
from .search_results import OutOfFold
from .targets import LEAST_TEMPERATURE, NumberTargets
from .trainer import Trainer
from .uncertainty_parts import LARGEST, UncertaintyParts

# Range of the temperature.
TEMPERATURES = (LEAST_TEMPERATURE, 20.0)

# Number of standard errors subtracted from the measured disagreement of two members.
SURE = 2.0

# Largest number of training rows for measuring the disagreement on training rows.
SEEN_ROWS = 2_000


@dataclass(frozen=True, eq=False)
class CalibratedMembers:
    """What the held-out rows determine about a model.

    Args:
        likelihood: The likelihood, in standard units.
        batch_size: The effective batch size; None if the method has none.
        uncertainty: The parts of uncertainty; None without held-out rows.
        out_of_fold: Predictions of the held-out rows; None without them.
        conformal: The conformal scores of each target; empty for classes and without held-out rows.
    """

    likelihood: Likelihood
    batch_size: float | None
    uncertainty: UncertaintyParts | None
    out_of_fold: OutOfFold | None
    conformal: tuple[ConformalScores, ...] = ()


@dataclass(frozen=True, eq=False)
class Members:
    """The members of a model, in rounds of folds.

    Args:
        trainer: The rows and targets.
        likelihood: The likelihood, in standard units.
        noise: Whether to choose the noise.
        setting: How the members were trained.
        rounds: The networks, each with its held-out rows.
    """

    trainer: Trainer
    likelihood: Likelihood
    noise: bool
    setting: Setting
    rounds: tuple[HeldOut, ...]

    def judged(self, curve: dict[int, Tensor], size: float | Literal["cross-validated"] | None) -> CalibratedMembers:
        """Estimate the parts of uncertainty and the noise.

        Args:
            curve: Squared errors of single networks, by number of training rows.
            size: The effective batch size. "cross-validated" scales the samples to the epistemic uncertainty that the
                members' disagreement does not explain; None takes the training batch size.
        """
        targets, whole_rounds = self.trainer.targets, self._whole_rounds
        members = sum(len(held.test_rows) for held in self.rounds)
        outputs = torch.stack(
            [held.in_order(held.outputs(), 1) for held in whole_rounds]
        )  # (rounds, samples, rows, outputs)
        drawn = targets.points(outputs).var(1).mean(0) if outputs.shape[1] > 1 else None  # (rows, columns)
        points = torch.stack([held.in_order(targets.points(held.points()), 0) for held in whole_rounds])
        bounded = not isinstance(targets, NumberTargets)
        uncertainty = UncertaintyParts.estimate(
            curve, self._disagreement(), members, len(whole_rounds), bounded=bounded
        )
        batch_size: float | None = None
        if self.trainer.method in BATCH_STATISTICS:
            assert drawn is not None
            wanted = (
                uncertainty.batch_size(self.setting.batch_size, float(drawn.mean()))
                if size == "cross-validated"
                else size
            )
            batch_size = float(wanted or self.setting.batch_size)
            drawn = drawn * (self.setting.batch_size / batch_size)
        rows = whole_rounds[0].rows.sort().values
        conformal: tuple[ConformalScores, ...] = ()
        if isinstance(targets, NumberTargets):
            likelihood, predictive = self._of_numbers(targets, outputs, points.mean(0), drawn, uncertainty, rows)
            conformal = self._scores(likelihood)
        else:
            batch_size, likelihood, predictive = self._of_classes(batch_size, rows, open_size=size == "cross-validated")
        return CalibratedMembers(likelihood, batch_size, uncertainty, self._out_of_fold(rows, predictive), conformal)

    def _scores(self, likelihood: Likelihood) -> tuple[ConformalScores, ...]:
        """Return the conformal scores of each target, from the first round's members without sampling."""
        held = self.rounds[0]
        predictive: Any = likelihood.predictive(held.points()[None])
        y, sizes = self.trainer.targets.values[held.rows], [len(rows) for rows in held.test_rows]
        parts = [values.double().split(sizes) for values in (predictive.loc[0], predictive.scale[0], y)]
        return tuple(
            ConformalScores.fit(*([own[:, column].numpy() for own in part] for part in parts))
            for column in range(y.shape[1])
        )

    @property
    def _whole_rounds(self) -> list[HeldOut]:
        """The rounds with the same held-out rows as the first."""
        return [held for held in self.rounds if len(held.rows) == len(self.rounds[0].rows)]

    def _of_numbers(
        self,
        targets: NumberTargets,
        outputs: Tensor,
        mean: Tensor,
        drawn: Tensor | None,
        uncertainty: UncertaintyParts,
        rows: Tensor,
    ) -> tuple[Likelihood, Any]:
        """Return the likelihood of a regression, and predictions of the held-out rows in standard units."""
        mean = mean.double()
        std = torch.ones_like(mean)
        if targets.heteroscedastic:
            std = outputs[..., targets.columns :].double().exp().mean((0, 1)).sqrt()
        spread = std.square() if drawn is None else drawn.double()
        between = uncertainty.between * spread / spread.mean().clamp_min(torch.finfo(torch.float64).tiny)
        own = torch.zeros_like(mean) if drawn is None else drawn.double()
        y = targets.values[rows]
        weights = None if targets.weights is None else targets.weights[rows].double()
        seen = SeenRows(mean, own + between, std, mean + uncertainty.shrinkage * (y - mean), weights)
        likelihood = noise_for(seen, self.likelihood) if self.noise else self.likelihood
        return likelihood, seen.predictive(likelihood)

    def _of_classes(
        self, batch_size: float | None, rows: Tensor, *, open_size: bool
    ) -> tuple[float | None, Likelihood, ClassificationPredictive]:
        """Return the effective batch size, the likelihood with the temperature of the lowest NLL, and predictions.

        Samples with the estimated epistemic uncertainty can still make probabilities worse, because a few rows decide
        both. The batch size then grows until the NLL is within one standard error of the NLL without samples.
        """
        best = self._tempered(batch_size, rows)
        if batch_size is None or not open_size:
            return batch_size, *best
        y, (_, without) = self.trainer.targets.values[rows], self._tempered(LARGEST * self.setting.batch_size, rows)
        while batch_size < LARGEST * self.setting.batch_size:
            if not significantly_better(-best[1].log_prob(y), -without.log_prob(y), 1.0):
                break
            batch_size *= 4
            best = self._tempered(batch_size, rows)
        return batch_size, *best

    def _tempered(self, batch_size: float | None, rows: Tensor) -> tuple[Likelihood, ClassificationPredictive]:
        """Return the likelihood with the temperature of the lowest NLL for a batch size, and predictions."""
        targets = self.trainer.targets
        outputs = torch.cat([held.in_order(held.outputs(batch_size), 1) for held in self._whole_rounds])
        y, likelihood = targets.values[rows], self.likelihood
        if self.noise:
            weights = None if targets.weights is None else targets.weights[rows]
            scores = SampledOutputs([outputs], [y], likelihood, "nll", weights)
            likelihood = likelihood.with_noise(scores.best_noise(TEMPERATURES, refinements=16, grid=21)[0])
        predictive = likelihood.predictive(outputs)
        assert isinstance(predictive, ClassificationPredictive)
        return likelihood, predictive

    def _disagreement(self) -> float:
        """Return the variance of members around their mean on held-out rows.

        With two rounds, two members have not seen a row, and their variance counts. With one round, the variance of the
        members that were trained on a row is used, which is slightly too small. If the second round is one member, a
        few rows can dominate, so standard errors are subtracted: too small a value makes intervals slightly too wide,
        but too large a value makes them far too narrow.
        """
        targets, first = self.trainer.targets, self.rounds[0]
        if len(self.rounds) == 1:
            return self._disagreement_on_seen_rows()
        said = torch.full((len(self.rounds), len(self.trainer.x), targets.points(first.points()).shape[1]), torch.nan)
        said = said.double()
        for number, held in enumerate(self.rounds):
            said[number, held.rows] = targets.points(held.points()).double()
        count = (~said[..., :1].isnan()).sum(0)
        several = count[:, 0] > 1
        said, count = said[:, several], count[several]
        variance = ((said - said.nanmean(0)).square().nansum(0) / (count - 1)).mean(1)
        mean = float(variance.mean())
        if len(self._whole_rounds) > 1:
            return mean
        return max(0.0, mean - SURE * float(variance.std()) / len(variance) ** 0.5)

    def _disagreement_on_seen_rows(self) -> float:
        """Return the variance of members around their mean on training rows; 0 with fewer than three members."""
        (held,), targets = self.rounds, self.trainer.targets
        if len(held.test_rows) < 3:
            return 0.0
        places = torch.linspace(0, len(held.rows) - 1, min(SEEN_ROWS, len(held.rows))).long().unique()
        rows = held.rows[places]
        fold = held.folds[places]
        every = replace(held, test_rows=[rows] * len(held.test_rows))
        f = targets.points(every.points()).double().view(len(held.test_rows), len(rows), -1)
        saw = (fold != torch.arange(len(held.test_rows))[:, None])[..., None]
        mean = (f * saw).sum(0) / saw.sum(0)
        return float((((f - mean).square() * saw).sum(0) / (saw.sum(0) - 1)).mean())

    def _out_of_fold(self, rows: Tensor, predictive: Any) -> OutOfFold:
        targets, held = self.trainer.targets, self._whole_rounds[0]
        fold = held.folds[held.rows.argsort()]
        target = targets.values[rows]
        if isinstance(targets, NumberTargets):
            target, predictive = targets.in_own_values(target), targets.in_own_predictive(predictive)
        weight = None if targets.weights is None else targets.weights[rows].numpy()
        return OutOfFold(rows.numpy(), fold.numpy(), target.numpy(), weight, predictive)
