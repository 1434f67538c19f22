"""One unit of the benchmark: one data set at one batch size or dropout rate, from cross-validation to test scores.

Every unit goes the whole way, so that units need nothing of each other; which batch size or rate a split would have
chosen by its cross-validated RMSE is told when results are put together. All posteriors over batch-norm statistics
share the networks that MCBN's criterion chose, so that they differ in nothing but the posterior.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bayesnorm.likelihoods import Gaussian
from bayesnorm.network import UnitMoments
from bayesnorm.posterior import Posterior
from bayesnorm.stacked import (
    Stack,
    StackedBatchNormPosterior,
    StackedEnsemble,
    StackedRows,
    fit_stacked,
    stacked_point,
)

from .asking import keeping
from .cross_validation import DRAWN, POINT, Chosen, Trial, Validated, cross_validate, retrain
from .folds import Data
from .posteriors import BY_CRPS, BY_ELBO, CENTRED_BY_CRPS, MULTIPLES, batchnorm_posteriors, elbos
from .presets import PRECISIONS, preset_named
from .scoring import Asked, Noise, scores

NAMES = {"bn": ("BN", "CUBN"), "dropout": ("DO", "CUDO")}
"""The names, in each family, of the network alone and of constant uncertainty about the published method's mean."""

PASSES = (2, 5, 10, 25, 50, 100, 250)
"""T whose scores are kept too, at `PASSES_AT`."""

PASSES_AT = 128

POINTS = 1000
"""Test rows, at most, whose error and uncertainty are kept for a picture."""


@dataclass
class Networks:
    """Trained networks with the rows that they were trained on and are asked about."""

    stack: Stack
    train: StackedRows
    held: StackedRows
    splits: int

    @classmethod
    def placed(cls, stack: Stack, train: StackedRows, held: StackedRows, splits: int) -> Networks:
        """Bring rows to where the networks are."""
        return cls(stack, train.to(stack.device, stack.dtype), held.to(stack.device, stack.dtype), splits)

    def asked(self, posterior: Posterior, samples: int) -> Asked:
        """Ask for the outputs of all samples, which are kept."""
        return Asked.of_stack(posterior, self.held, samples, self.splits)

    def moments(self, posterior: Posterior, samples: int) -> Asked:
        """Ask for moments over samples alone."""
        return Asked.of_stack(posterior, self.held, samples, self.splits, whole=False)

    def point(self) -> Asked:
        """Ask the networks as they are."""
        return self.asked(stacked_point(self.stack, self.train, Gaussian()), 1)


def run(preset: str, dataset: str, family: str, setting: float, device: str) -> dict[str, Any]:
    """Rows of results, and what pictures need.

    Args:
        preset: Of `PRESETS`.
        dataset: Of `UCI_SETS`.
        family: "bn" or "dropout".
        setting: The batch size, or the dropout rate.
        device: "cpu" or "cuda".
    """
    started = time.perf_counter()
    chosen_preset = preset_named(preset)
    data = Data(dataset, chosen_preset.splits, chosen_preset.folds)
    work = PaperRun(Trial(chosen_preset, data, family, setting, device))
    with torch.no_grad():
        work.run()
    return {
        "rows": work.rows,
        "curve": work.curve,
        "points": work.points,
        "hardware": torch.cuda.get_device_name() if device == "cuda" else None,
        "network_steps": work.network_steps,
        "training_seconds": work.training_seconds,
        "unit_seconds": time.perf_counter() - started,
    }


class PaperRun:
    """What `run` does, step by step."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.data, self.preset = trial, trial.data, trial.preset
        self.splits, self.seeds = len(self.data.splits), self.preset.seeds
        self.between = PRECISIONS[self.data.name]
        self.rows: list[dict[str, Any]] = []
        self.curve: list[dict[str, Any]] = []
        self.points: dict[str, list[float]] = {}
        self.network_steps, self.training_seconds = 0, 0.0

    def run(self) -> None:
        validated = cross_validate(self.trial)
        self.network_steps += validated.network_steps
        self.training_seconds = validated.seconds
        final = {name: self.final(chosen) for name, chosen in validated.chosen.items()}
        folds = {name: self.folds(validated, chosen) for name, chosen in validated.chosen.items()}
        point, drawn = validated.chosen[POINT], validated.chosen[DRAWN]
        alone, _ = NAMES[self.trial.family]
        self._scored(alone, point, folds[POINT].point(), final[POINT].point())
        if self.trial.family == "bn":
            self._batchnorm(drawn, folds[DRAWN], final[DRAWN])
            self._ensemble(point, final[POINT])
        else:
            self._dropout(drawn, folds[DRAWN], final[DRAWN])

    def folds(self, validated: Validated, chosen: Chosen) -> Networks:
        """The networks of cross-validation that were chosen."""
        return Networks.placed(chosen.stack, validated.train, validated.held, self.splits)

    def final(self, chosen: Chosen) -> Networks:
        """Every split's networks, one for each seed, trained on all its training rows with what was chosen."""
        folds = [whole for whole in self.data.whole for _ in self.seeds]
        seeds = [seed for _ in self.data.whole for seed in self.seeds]
        decays, epochs = (_repeated(values, len(self.seeds)) for values in (chosen.weight_decay, chosen.epochs))
        stack, train, steps = retrain(self.trial, folds, seeds, decays, [int(e) for e in epochs])
        self.network_steps += steps
        held = self.data.held_rows(folds, train)
        return Networks.placed(stack, train, held, self.splits)

    def _posteriors(self, networks: Networks) -> tuple[dict[str, StackedBatchNormPosterior], UnitMoments]:
        return batchnorm_posteriors(networks.stack, networks.train, self.trial.batch_size, self.preset.samples)

    def _batchnorm(self, chosen: Chosen, folds: Networks, final: Networks) -> None:
        (drawn, moments), (final_drawn, _) = self._posteriors(folds), self._posteriors(final)
        published = None
        for name in drawn:
            of_folds, asked = (
                folds.asked(drawn[name], self.preset.samples),
                final.asked(final_drawn[name], self.preset.samples),
            )
            noise = self._scored(name, chosen, of_folds, asked)
            if name == "MCBN":
                published = noise
                self._beside_constant(chosen, of_folds, asked, noise)
                if self.trial.batch_size == PASSES_AT:
                    self._fewer_passes(chosen, asked, noise)
        assert published is not None
        for name, base in ((BY_CRPS, "MCBN"), (CENTRED_BY_CRPS, "MCBN centred")):
            asked = folds.moments(drawn[base], self.preset.samples)
            calibrated = asked.calibrated(self.between, sizes=[m * self.trial.batch_size for m in MULTIPLES])
            sizes = asked.per_split(calibrated.batch_size)
            self._resized(name, chosen, folds, final, drawn[base], final_drawn[base], sizes)
        # Noise as if there were no other uncertainty: the precision beside MCBN's samples would depend on the M that is sought.
        precision = published.constant_crps.repeat_interleave(self.preset.folds)
        decays = torch.tensor([decay for decay in chosen.weight_decay for _ in range(self.preset.folds)])
        found = elbos(drawn["MCBN"], folds.train, moments, decays, precision, self.preset.samples)
        best = found.view(len(MULTIPLES), self.splits, -1).sum(2).argmax(0)
        sizes = torch.tensor(MULTIPLES)[best] * self.trial.batch_size
        self._resized(BY_ELBO, chosen, folds, final, drawn["MCBN"], final_drawn["MCBN"], sizes)
        self._sweep(folds, final, drawn["MCBN"], final_drawn["MCBN"])

    def _resized(
        self,
        name: str,
        chosen: Chosen,
        folds: Networks,
        final: Networks,
        posterior: StackedBatchNormPosterior,
        final_posterior: StackedBatchNormPosterior,
        sizes: Tensor,
    ) -> None:
        """Keep scores with an effective batch size of every split's own, (splits,)."""
        of_folds, asked = (
            networks.asked(at.at_batch_size(self._spread(sizes, networks)), self.preset.samples)
            for networks, at in ((folds, posterior), (final, final_posterior))
        )
        self._keep(name, chosen, asked, Noise.chosen(of_folds, self.between), sizes=sizes.tolist())

    def _spread(self, per_split: Tensor, networks: Networks) -> Tensor:
        return per_split.double().repeat_interleave(len(networks.stack) // self.splits)

    def _sweep(
        self,
        folds: Networks,
        final: Networks,
        posterior: StackedBatchNormPosterior,
        final_posterior: StackedBatchNormPosterior,
    ) -> None:
        """Keep test scores of MCBN at every M', with the precision that cross-validation chooses there."""
        for multiple in MULTIPLES:
            size = multiple * self.trial.batch_size
            of_folds = folds.moments(posterior.at_batch_size(size), self.preset.samples)
            noise = Noise.chosen(of_folds, self.between, by_pll=False)
            found = scores(final.moments(final_posterior.at_batch_size(size), self.preset.samples), noise)
            self.curve.append(
                {
                    "effective_batch_size": size,
                    "cv_crps": [round(float(v), 6) for v in noise.cv_crps],
                    **{
                        f"{name}_{part}": float(value)
                        for name in ("crps", "normalised_crps")
                        for part, value in _summary(found[name]).items()
                    },
                }
            )

    def _fewer_passes(self, chosen: Chosen, asked: Asked, noise: Noise) -> None:
        for passes in PASSES:
            if passes < asked.samples:
                self._keep("MCBN", chosen, replace(asked, samples=passes), noise, passes=passes)

    def _ensemble(self, chosen: Chosen, final: Networks) -> None:
        """Score networks of all seeds together; the noise is chosen with ensembles that were trained on the folds."""
        members = len(self.seeds)
        folds = [fold for fold in self.data.validated for _ in self.seeds]
        seeds = [seed for _ in self.data.validated for seed in self.seeds]
        each = self.preset.folds * members
        decays, epochs = (_repeated(values, each) for values in (chosen.weight_decay, chosen.epochs))
        stack, train, steps = retrain(self.trial, folds, seeds, decays, [int(e) for e in epochs])
        self.network_steps += steps
        held = self.data.held_rows(folds, train).to(stack.device, stack.dtype)
        of_folds = self._together(stack, train, held, members)
        self._scored("DeepEnsemble", chosen, of_folds, self._together(final.stack, final.train, final.held, members))

    def _together(self, stack: Stack, train: StackedRows, held: StackedRows, members: int) -> Asked:
        """Ask each `members` networks as one predictor."""
        posterior = StackedEnsemble.of(stack, members, train, Gaussian())
        y = held.take(torch.arange(0, len(stack), members)).own_targets.double()
        return Asked(keeping(posterior, whole=True), held, y, members, self.splits)

    def _dropout(self, chosen: Chosen, folds: Networks, final: Networks) -> None:
        of_folds, asked = (
            networks.asked(fit_stacked(self.trial.method, networks.stack, networks.train), self.preset.samples)
            for networks in (folds, final)
        )
        noise = self._scored("MCDropout", chosen, of_folds, asked)
        self._beside_constant(chosen, of_folds, asked, noise)

    def _scored(self, method: str, chosen: Chosen, of_folds: Asked, asked: Asked) -> Noise:
        """Keep test scores with the noise that is chosen on the folds' held rows."""
        noise = Noise.chosen(of_folds, self.between)
        self._keep(method, chosen, asked, noise)
        return noise

    def _beside_constant(self, chosen: Chosen, of_folds: Asked, asked: Asked, noise: Noise) -> None:
        """Keep constant uncertainty about the published method's mean; and, for a picture, errors and standard
        deviations of the first network's test rows, sorted by uncertainty."""
        _, constant = NAMES[self.trial.family]
        self._scored(constant, chosen, of_folds.constant(), asked.constant())
        predictive = asked.matched(asked.each_network(noise.crps))
        rows = ~asked.y[0].isnan().flatten()
        std, error = predictive.std[0].flatten()[rows], (asked.y - predictive.mean)[0].flatten()[rows]
        order = std.argsort()[:: max(1, -(-len(std) // POINTS))]
        self.points = {
            "error": [float(f"{v:.4g}") for v in error[order].tolist()],
            "std": [float(f"{v:.5g}") for v in std[order].tolist()],
            "constant_std": [float(noise.constant_crps[0] ** -0.5)],
        }

    def _keep(
        self,
        method: str,
        chosen: Chosen,
        asked: Asked,
        noise: Noise,
        sizes: list[float] | None = None,
        passes: int | None = None,
    ) -> None:
        found = {name: value.tolist() for name, value in scores(asked, noise).items()}
        each = asked.networks // self.splits
        for i in range(asked.networks):
            split, seed = divmod(i, each)
            self.rows.append(
                {
                    "split": self.data.splits[split],
                    "seed": self.seeds[seed] if each == len(self.seeds) else 0,
                    "method": method,
                    "passes": passes,
                    **{name: values[i] for name, values in found.items()},
                    "effective_batch_size": sizes[split] if sizes else None,
                    "weight_decay": chosen.weight_decay[split],
                    "epochs": chosen.epochs[split],
                    "cv_rmse": chosen.cv_rmse[split],
                }
            )


def _repeated(values: Sequence[float], times: int) -> list[float]:
    return [value for value in values for _ in range(times)]


def _summary(values: Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "error": float(values.std() / len(values) ** 0.5)}
