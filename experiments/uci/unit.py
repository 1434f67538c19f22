"""Compute one unit of the benchmark: one data set at one batch size or dropout rate, from cross-validation to scores.

Every unit is complete, so units do not depend on each other. The batch size or rate that a split chooses by its
cross-validated RMSE is determined when results are combined. All posteriors over batch-norm statistics share the
networks that MCBN's criterion chose, so they differ only in the posterior.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bayesnorm.network import UnitMoments
from bayesnorm.posterior import shuffled_rounds
from bayesnorm.tabular.stacked import Stack, StackedRows

from ..stacked_networks import BatchNormSampler, StackedSampler, fit_stacked, in_target_units, own_targets
from .cross_validation import DRAWN, POINT, Chosen, Trial, Validated, cross_validate, retrain
from .folds import Data
from .posteriors import BY_CRPS, BY_ELBO, CENTRED_BY_CRPS, MULTIPLES, batchnorm_posteriors, elbos
from .presets import PRECISIONS, preset_named
from .scoring import Asked, Noise, scores

NAMES = {"bn": ("BN", "CUBN"), "dropout": ("DO", "CUDO")}
"""The names, in each family, of the network alone and of constant uncertainty with the published method's mean."""

PASSES = (2, 5, 10, 25, 50, 100, 250)
"""Further T whose scores are stored, at `PASSES_AT`."""

PASSES_AT = 128

POINTS = 1000
"""Most test rows whose error and uncertainty are stored for a plot."""


@dataclass
class Networks:
    """Trained networks with their training rows and their test rows."""

    stack: Stack
    train: StackedRows
    held: StackedRows
    splits: int

    @classmethod
    def placed(cls, stack: Stack, train: StackedRows, held: StackedRows, splits: int) -> Networks:
        """Return rows on the networks' device."""
        return cls(stack, train.to(stack.device, stack.dtype), held.to(stack.device, stack.dtype), splits)

    @property
    def targets(self) -> Tensor:
        """Return the test rows' targets, (E, n, 1), padded with NaN."""
        return own_targets(self.held).double()

    def asked(self, sampler: StackedSampler, samples: int) -> Asked:
        """Return predictions with the outputs of all samples stored."""
        return Asked.from_outputs(lambda n: sampler.outputs(self.held, n).double(), self.targets, samples, self.splits)

    def moments(self, sampler: StackedSampler, samples: int) -> Asked:
        """Return predictions with moments over samples only."""
        return Asked(None, lambda n: sampler.moments(self.held, n), self.targets, samples, self.splits)

    def point(self) -> Asked:
        """Return predictions of the deterministic networks."""
        executable = in_target_units(self.stack, self.train)
        return Asked.from_outputs(lambda _: executable.point(self.held)[None].double(), self.targets, 1, self.splits)


def run(preset: str, dataset: str, family: str, setting: float, device: str) -> dict[str, Any]:
    """Return rows of results, and the data of plots.

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
    """The steps of `run`."""

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
        point, drawn = validated.chosen[POINT], validated.chosen[DRAWN]
        drawn_folds, drawn_final = self.folds(validated, drawn), self.final(drawn)
        if self.preset.only_mcbn:
            self._published("MCBN", drawn, drawn_folds, drawn_final)
            return
        point_final = self.final(point)
        alone, _ = NAMES[self.trial.family]
        self._scored(alone, point, self.folds(validated, point).point(), point_final.point())
        if self.trial.family == "bn":
            self._batchnorm(drawn, drawn_folds, drawn_final)
            self._ensemble(point, point_final)
        else:
            self._published("MCDropout", drawn, drawn_folds, drawn_final)

    def folds(self, validated: Validated, chosen: Chosen) -> Networks:
        """Return the chosen networks of cross-validation."""
        return Networks.placed(chosen.stack, validated.train, validated.held, self.splits)

    def final(self, chosen: Chosen) -> Networks:
        """Return every split's networks, one per seed, trained on all its training rows with the chosen settings."""
        folds = [whole for whole in self.data.whole for _ in self.seeds]
        seeds = [seed for _ in self.data.whole for seed in self.seeds]
        decays, epochs = (_repeated(values, len(self.seeds)) for values in (chosen.weight_decay, chosen.epochs))
        stack, train, steps = retrain(self.trial, folds, seeds, decays, [int(e) for e in epochs])
        self.network_steps += steps
        held = self.data.held_rows(folds, train)
        return Networks.placed(stack, train, held, self.splits)

    def _posteriors(self, networks: Networks) -> tuple[dict[str, BatchNormSampler], UnitMoments]:
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
            sizes = self._best_sizes(folds, drawn[base])
            self._resized(name, chosen, folds, final, drawn[base], final_drawn[base], sizes)
        # Noise without other uncertainty: the precision with MCBN's samples would depend on the M to be found.
        precision = published.constant_crps.repeat_interleave(self.preset.folds)
        decays = torch.tensor([decay for decay in chosen.weight_decay for _ in range(self.preset.folds)])
        result = elbos(drawn["MCBN"], folds.train, moments, decays, precision, self.preset.samples)
        best = result.view(len(MULTIPLES), self.splits, -1).sum(2).argmax(0)
        sizes = torch.tensor(MULTIPLES)[best] * self.trial.batch_size
        self._resized(BY_ELBO, chosen, folds, final, drawn["MCBN"], final_drawn["MCBN"], sizes)
        self._sweep(folds, final, drawn["MCBN"], final_drawn["MCBN"])

    def _best_sizes(self, folds: Networks, sampler: BatchNormSampler) -> Tensor:
        """Return the effective batch size of every split with the lowest CRPS at its best precision, (splits,)."""
        sizes = [multiple * self.trial.batch_size for multiple in MULTIPLES]
        asked = [folds.moments(sampler.at_batch_size(size), self.preset.samples) for size in sizes]
        values = torch.stack([one.best_precision(self.between)[1] for one in asked])
        return torch.tensor(sizes, dtype=torch.float64)[values.argmin(0)]

    def _resized(
        self,
        name: str,
        chosen: Chosen,
        folds: Networks,
        final: Networks,
        posterior: BatchNormSampler,
        final_posterior: BatchNormSampler,
        sizes: Tensor,
    ) -> None:
        """Add scores with an effective batch size for every split, (splits,)."""
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
        posterior: BatchNormSampler,
        final_posterior: BatchNormSampler,
    ) -> None:
        """Add test scores of MCBN at every M', with the precision that cross-validation chooses there."""
        for multiple in MULTIPLES:
            size = multiple * self.trial.batch_size
            of_folds = folds.moments(posterior.at_batch_size(size), self.preset.samples)
            noise = Noise.chosen(of_folds, self.between, by_pll=False)
            result = scores(final.moments(final_posterior.at_batch_size(size), self.preset.samples), noise)
            self.curve.append(
                {
                    "effective_batch_size": size,
                    "cv_crps": [round(float(v), 6) for v in noise.cv_crps],
                    **{
                        f"{name}_{part}": float(value)
                        for name in ("crps", "normalised_crps")
                        for part, value in _summary(result[name]).items()
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
        count = self.preset.folds * members
        decays, epochs = (_repeated(values, count) for values in (chosen.weight_decay, chosen.epochs))
        stack, train, steps = retrain(self.trial, folds, seeds, decays, [int(e) for e in epochs])
        self.network_steps += steps
        held = self.data.held_rows(folds, train).to(stack.device, stack.dtype)
        of_folds = self._together(stack, train, held, members)
        self._scored("DeepEnsemble", chosen, of_folds, self._together(final.stack, final.train, final.held, members))

    def _together(self, stack: Stack, train: StackedRows, held: StackedRows, members: int) -> Asked:
        """Return each `members` networks as one predictor, of which a sample is one member."""

        def outputs(n: int) -> Tensor:
            f = in_target_units(stack, train).point(held)
            return f.view(-1, members, *f.shape[1:]).movedim(1, 0)[shuffled_rounds(members, n, 0)].double()

        y = own_targets(held.take(torch.arange(0, len(stack), members))).double()
        return Asked.from_outputs(outputs, y, members, self.splits)

    def _published(self, method: str, chosen: Chosen, folds: Networks, final: Networks) -> None:
        """Score the published method of the family beside constant uncertainty."""
        of_folds, asked = (
            networks.asked(fit_stacked(self.trial.method, networks.stack, networks.train), self.preset.samples)
            for networks in (folds, final)
        )
        noise = self._scored(method, chosen, of_folds, asked)
        self._beside_constant(chosen, of_folds, asked, noise)

    def _scored(self, method: str, chosen: Chosen, of_folds: Asked, asked: Asked) -> Noise:
        """Add test scores with the noise that is chosen on the folds' held-out rows."""
        noise = Noise.chosen(of_folds, self.between)
        self._keep(method, chosen, asked, noise)
        return noise

    def _beside_constant(self, chosen: Chosen, of_folds: Asked, asked: Asked, noise: Noise) -> None:
        """Add scores of constant uncertainty with the published method's mean, and the data of a plot.

        The plot shows errors and standard deviations of the first network's test rows, sorted by uncertainty.
        """
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
        results = {name: value.tolist() for name, value in scores(asked, noise).items()}
        count = asked.networks // self.splits
        for i in range(asked.networks):
            split, seed = divmod(i, count)
            self.rows.append(
                {
                    "split": self.data.splits[split],
                    "seed": self.seeds[seed] if count == len(self.seeds) else 0,
                    "method": method,
                    "passes": passes,
                    **{name: values[i] for name, values in results.items()},
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
