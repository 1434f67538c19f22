"""Evaluate the members of a model on their held-out rows: the parts of uncertainty, the noise, and predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..calibration import SampledOutputs, significantly_better
from ..likelihoods import Likelihood
from ..predictive import ClassificationPredictive
from .held_out import HeldOut, Split
from .intervals import ConformalScores, OutOfFold
from .networks import BATCH_STATISTICS
from .noise import SeenRows, noise_for
from .search_results import LARGEST, Selection, UncertaintyParts
from .targets import LEAST_TEMPERATURE, NumberTargets
from .trainer import Trainer

# Range of the temperature.
TEMPERATURES = (LEAST_TEMPERATURE, 20.0)

# Number of standard errors subtracted from the measured disagreement of two members.
SURE = 2.0

# Largest number of training rows for measuring the disagreement on training rows.
SEEN_ROWS = 2_000


@dataclass(frozen=True, eq=False)
class Members:
    """The members of a model, in rounds of folds.

    Args:
        rounds: The networks, each with its held-out rows.
        likelihood: The likelihood, in standard units.
        noise: Whether to choose the noise.
    """

    rounds: tuple[HeldOut, ...]
    likelihood: Likelihood
    noise: bool

    @property
    def trainer(self) -> Trainer:
        """The rows and targets of all members."""
        return self.rounds[0].trainer

    def calibrated(
        self, selection: Selection, curve: dict[int, Tensor], size: float | Literal["cross-validated"] | None
    ) -> tuple[Likelihood, Selection]:
        """Return the likelihood in standard units, and a selection with what the held-out rows determine.

        Args:
            selection: The settings that were tried.
            curve: Squared errors of single networks, by number of training rows.
            size: The effective batch size. "cross-validated" scales the samples to the epistemic uncertainty that the
                members' disagreement does not explain; None takes the training batch size.
        """
        targets, rounds = self.trainer.targets, self._whole_rounds
        rows = rounds[0].rows.sort().values
        outputs = torch.stack([held.in_order(held.outputs(), 1) for held in rounds])  # (rounds, samples, rows, outputs)
        variance = targets.points(outputs).var(1).mean(0) if outputs.shape[1] > 1 else None  # (rows, columns)
        parts = UncertaintyParts.estimate(
            curve,
            self._disagreement(),
            members=sum(len(held.split) for held in self.rounds),
            asked=len(rounds),
            bounded=not isinstance(targets, NumberTargets),
        )
        batch_size: float | None = None
        if self.trainer.method in BATCH_STATISTICS:
            assert variance is not None
            trained = rounds[0].setting.batch_size
            batch_size = float(
                (parts.batch_size(trained, float(variance.mean())) if _is_open(size) else size) or trained
            )
            variance = variance * (trained / batch_size)
        conformal: tuple[ConformalScores, ...] = ()
        predictive: Any
        if isinstance(targets, NumberTargets):
            seen = self._seen_rows(targets, outputs, variance, parts, rows)
            likelihood = noise_for(seen, self.likelihood) if self.noise else self.likelihood
            predictive, conformal = seen.predictive(likelihood), self._scores(likelihood)
        else:
            batch_size, likelihood, predictive = self._classes(batch_size, rows, open_size=_is_open(size))
        return likelihood, replace(
            selection,
            effective_batch_size=batch_size,
            uncertainty=parts,
            conformal=conformal,
            out_of_fold=self._out_of_fold(rows, predictive),
        )

    def _scores(self, likelihood: Likelihood) -> tuple[ConformalScores, ...]:
        """Return the conformal scores of each target, from the first round's members without sampling."""
        held = self.rounds[0]
        predictive: Any = likelihood.predictive(held.points()[None])
        y, sizes = self.trainer.targets.values[held.rows], [len(rows) for rows in held.split.test_rows]
        parts = [values.double().split(sizes) for values in (predictive.loc[0], predictive.scale[0], y)]
        return tuple(
            ConformalScores.fit(*([values[:, column].numpy() for values in part] for part in parts))
            for column in range(y.shape[1])
        )

    @property
    def _whole_rounds(self) -> list[HeldOut]:
        """The rounds with the same held-out rows as the first."""
        return [held for held in self.rounds if len(held.rows) == len(self.rounds[0].rows)]

    def _seen_rows(
        self, targets: NumberTargets, outputs: Tensor, variance: Tensor | None, parts: UncertaintyParts, rows: Tensor
    ) -> SeenRows:
        """Return the held-out rows of a regression as new rows for the whole model, from its sampled outputs."""
        points = [held.in_order(targets.points(held.points()), 0) for held in self._whole_rounds]
        mean = torch.stack(points).mean(0).double()
        std = torch.ones_like(mean)
        if targets.heteroscedastic:
            std = outputs[..., targets.columns :].double().exp().mean((0, 1)).sqrt()
        spread = std.square() if variance is None else variance.double()
        uncertainty = parts.between * spread / spread.mean().clamp_min(torch.finfo(torch.float64).tiny)
        if variance is not None:
            uncertainty = variance.double() + uncertainty
        y = targets.values[rows]
        weights = None if targets.weights is None else targets.weights[rows].double()
        return SeenRows(mean, uncertainty, std, mean + parts.shrinkage * (y - mean), weights)

    def _classes(
        self, batch_size: float | None, rows: Tensor, *, open_size: bool
    ) -> tuple[float | None, Likelihood, ClassificationPredictive]:
        """Return the effective batch size, the likelihood with the temperature of the lowest NLL, and predictions.

        Samples with the estimated epistemic uncertainty can still make probabilities worse, because a few rows decide
        both. The batch size then grows until the NLL is within one standard error of the NLL without samples.
        """
        best = self._tempered(batch_size, rows)
        if batch_size is None or not open_size:
            return batch_size, *best
        y, most = self.trainer.targets.values[rows], LARGEST * self.rounds[0].setting.batch_size
        _, without = self._tempered(most, rows)
        while batch_size < most and significantly_better(-best[1].log_prob(y), -without.log_prob(y), 1.0):
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
        if len(self.rounds) == 1:
            return self._disagreement_on_seen_rows()
        points = [self.trainer.targets.points(held.points()).double() for held in self.rounds]
        answers = points[0].new_full((len(points), len(self.trainer.x), points[0].shape[1]), torch.nan)
        for answer, held, values in zip(answers, self.rounds, points, strict=True):
            answer[held.rows] = values
        count = (~answers[..., :1].isnan()).sum(0)
        several = count[:, 0] > 1
        answers, count = answers[:, several], count[several]
        variance = ((answers - answers.nanmean(0)).square().nansum(0) / (count - 1)).mean(1)
        mean = float(variance.mean())
        if len(self._whole_rounds) > 1:
            return mean
        return max(0.0, mean - SURE * float(variance.std()) / len(variance) ** 0.5)

    def _disagreement_on_seen_rows(self) -> float:
        """Return the variance of members around their mean on training rows; 0 with fewer than three members."""
        (held,), count = self.rounds, len(self.rounds[0].split)
        if count < 3:
            return 0.0
        places = torch.linspace(0, len(held.rows) - 1, min(SEEN_ROWS, len(held.rows))).long().unique()
        rows, fold = held.rows[places], held.folds[places]
        asked = replace(held, split=Split(held.split.train_rows, (rows,) * count))
        points = self.trainer.targets.points(asked.points()).double().view(count, len(rows), -1)
        trained = (fold != torch.arange(count)[:, None])[..., None]
        mean = (points * trained).sum(0) / trained.sum(0)
        return float((((points - mean).square() * trained).sum(0) / (trained.sum(0) - 1)).mean())

    def _out_of_fold(self, rows: Tensor, predictive: Any) -> OutOfFold:
        targets, held = self.trainer.targets, self._whole_rounds[0]
        fold = held.folds[held.rows.argsort()]
        target = targets.in_own_values(targets.values[rows]).numpy()
        weight = None if targets.weights is None else targets.weights[rows].numpy()
        return OutOfFold(rows.numpy(), fold.numpy(), target, weight, targets.in_own_predictive(predictive))


def _is_open(size: float | str | None) -> bool:
    """Return whether held-out rows choose the effective batch size."""
    return size == "cross-validated"
