"""One unit of the benchmark: one data set at one batch size or dropout rate, from cross-validation to test scores.

Every unit goes the whole way, so that units need nothing of each other; which batch size or rate a split would have
chosen by its cross-validated RMSE is told when results are put together. All posteriors over batch-norm statistics
share the networks that MCBN's criterion chose, so that they differ in nothing but the posterior.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesnorm.stacked import Stack, StackedDraws, StackedRows, StackedStatistics, unit_moments

from .folds import Data
from .posteriors import BY_CRPS, BY_ELBO, CENTRED_BY_CRPS, MULTIPLES, batchnorm_draws, elbos
from .presets import PRECISIONS, preset_named
from .scoring import Drawn, Noise, scores
from .selection import DRAWN, POINT, Chosen, Setting, Validated, cross_validate, retrain

NAMES = {"bn": ("BN", "CUBN"), "dropout": ("DO", "CUDO")}
"""Of a family: the network alone, and constant uncertainty about the published method's mean."""

PASSES = (2, 5, 10, 25, 50, 100, 250)
"""T whose scores are kept too, at `PASSES_AT`."""

PASSES_AT = 128

POINTS = 1000
"""Test rows, at most, whose error and doubt are kept for a picture."""


@dataclass
class Networks:
    """Trained networks with the rows that they were trained on and are asked about."""

    stack: Stack
    train: StackedRows
    held: StackedRows

    def drawn(self, draws: StackedDraws) -> Drawn:
        return Drawn.of(self.held, self.stack.predict_under(draws, self.held))

    def moments(self, draws: StackedDraws) -> Drawn:
        return Drawn.of_moments(self.held, *self.stack.moments_under(draws, self.held))

    def point(self) -> Drawn:
        f = self.stack.predict(self.held)
        return Drawn.of(self.held, f[None])


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
    work = Unit(Setting(chosen_preset, data, family, setting, device))
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


class Unit:
    """What `run` does, step by step."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.data, self.preset = setting, setting.data, setting.preset
        self.splits, self.seeds = len(self.data.splits), self.preset.seeds
        self.between = PRECISIONS[self.data.name]
        self.rows: list[dict[str, Any]] = []
        self.curve: list[dict[str, Any]] = []
        self.points: dict[str, list[float]] = {}
        self.network_steps, self.training_seconds = 0, 0.0

    def run(self) -> None:
        validated = cross_validate(self.setting)
        self.network_steps += validated.network_steps
        self.training_seconds = validated.seconds
        final = {name: self.final(chosen) for name, chosen in validated.chosen.items()}
        folds = {name: self.folds(validated, chosen) for name, chosen in validated.chosen.items()}
        point, drawn = validated.chosen[POINT], validated.chosen[DRAWN]
        alone, _ = NAMES[self.setting.family]
        self._scored(alone, point, folds[POINT].point(), final[POINT].point())
        if self.setting.family == "bn":
            self._batchnorm(drawn, folds[DRAWN], final[DRAWN])
            self._ensemble(point, final[POINT])
        else:
            self._dropout(drawn, folds[DRAWN], final[DRAWN])

    def folds(self, validated: Validated, chosen: Chosen) -> Networks:
        """The networks of cross-validation that were chosen."""
        stack = chosen.stack
        return Networks(stack, *(rows.to(stack.device, stack.dtype) for rows in (validated.train, validated.held)))

    def final(self, chosen: Chosen) -> Networks:
        """Every split's networks, one for each seed, trained on all its training rows with what was chosen."""
        folds = [whole for whole in self.data.whole for _ in self.seeds]
        seeds = [seed for _ in self.data.whole for seed in self.seeds]
        decays, epochs = (_repeated(values, len(self.seeds)) for values in (chosen.weight_decay, chosen.epochs))
        stack, train, steps = retrain(self.setting, folds, seeds, decays, [int(e) for e in epochs])
        self.network_steps += steps
        held = self.data.held_rows(folds, train)
        return Networks(stack, *(rows.to(stack.device, stack.dtype) for rows in (train, held)))

    def _statistics(self, networks: Networks) -> StackedStatistics:
        return networks.stack.batch_statistics(networks.train, self.setting.batch_size, self.preset.draws, seed=0)

    def _batchnorm(self, chosen: Chosen, folds: Networks, final: Networks) -> None:
        of_folds, of_final = self._statistics(folds), self._statistics(final)
        units, final_units = (unit_moments(n.stack, n.train, self.setting.batch_size) for n in (folds, final))
        draws, final_draws = batchnorm_draws(of_folds, units, seed=1), batchnorm_draws(of_final, final_units, seed=1)
        published = None
        for name in draws:
            of_rows, drawn = folds.drawn(draws[name]), final.drawn(final_draws[name])
            noise = self._scored(name, chosen, of_rows, drawn)
            if name == "MCBN":
                published = noise
                self._beside_constant(chosen, of_rows, drawn, noise)
                if self.setting.batch_size == PASSES_AT:
                    self._fewer_passes(chosen, drawn, noise)
        assert published is not None
        centred = [(BY_CRPS, "MCBN"), (CENTRED_BY_CRPS, "MCBN centred")]
        for name, base in centred:
            self._resized(name, chosen, folds, final, draws[base], final_draws[base], self._by_crps(folds, draws[base]))
        # Noise as if there were no other doubt: the precision beside MCBN's draws would depend on the M that is sought.
        precision = published.constant_crps.repeat_interleave(self.preset.folds)
        decays = torch.tensor([decay for decay in chosen.weight_decay for _ in range(self.preset.folds)])
        found = elbos(folds.stack, folds.train, draws["MCBN"], units, decays, precision)
        best = found.view(len(MULTIPLES), self.splits, -1).sum(2).argmax(0)
        self._resized(BY_ELBO, chosen, folds, final, draws["MCBN"], final_draws["MCBN"], best)
        self._sweep(folds, final, draws["MCBN"], final_draws["MCBN"])

    def _by_crps(self, folds: Networks, draws: StackedStatistics) -> Tensor:
        """The number of the multiple M' / M of every split with the least cross-validated CRPS."""
        reached = [
            Noise.chosen(folds.moments(self._at(draws, multiple)), self.between, self.splits).cv_crps
            for multiple in MULTIPLES
        ]
        return torch.stack(reached).argmin(0)

    def _resized(
        self,
        name: str,
        chosen: Chosen,
        folds: Networks,
        final: Networks,
        draws: StackedStatistics,
        final_draws: StackedStatistics,
        best: Tensor,
    ) -> None:
        """Scores with an effective batch size of every split's own, by number in `MULTIPLES`."""
        sizes = torch.tensor(MULTIPLES)[best.cpu()] * self.setting.batch_size
        noise = Noise.chosen(folds.drawn(draws.at_batch_size(self._spread(sizes, folds))), self.between, self.splits)
        drawn = final.drawn(final_draws.at_batch_size(self._spread(sizes, final)))
        self._keep(name, chosen, drawn, noise, sizes=sizes.tolist())

    def _spread(self, per_split: Tensor, networks: Networks) -> Tensor:
        return per_split.double().repeat_interleave(len(networks.stack) // self.splits)

    def _at(self, draws: StackedStatistics, multiple: float) -> StackedStatistics:
        return draws.at_batch_size(multiple * self.setting.batch_size)

    def _sweep(
        self, folds: Networks, final: Networks, draws: StackedStatistics, final_draws: StackedStatistics
    ) -> None:
        """Test scores of MCBN at every M', with the precision that cross-validation chooses there."""
        for multiple in MULTIPLES:
            noise = Noise.chosen(folds.moments(self._at(draws, multiple)), self.between, self.splits)
            found = scores(final.moments(self._at(final_draws, multiple)), noise)
            self.curve.append(
                {
                    "effective_batch_size": multiple * self.setting.batch_size,
                    "cv_crps": [round(float(v), 6) for v in noise.cv_crps],
                    **{
                        f"{name}_{part}": float(value)
                        for name in ("crps", "normalised_crps")
                        for part, value in _summary(found[name]).items()
                    },
                }
            )

    def _fewer_passes(self, chosen: Chosen, drawn: Drawn, noise: Noise) -> None:
        assert drawn.f is not None
        for passes in PASSES:
            if passes < len(drawn.f):
                f = drawn.f[:passes]
                mean = f.double().mean(0)
                some = Drawn(drawn.rows, mean, (f.double() - mean).square().mean(0), f)
                self._keep("MCBN", chosen, some, noise, passes=passes)

    def _ensemble(self, chosen: Chosen, final: Networks) -> None:
        """Networks of all seeds together; the noise is chosen with ensembles that were trained on the folds."""
        members = len(self.seeds)
        folds = [fold for fold in self.data.validated for _ in self.seeds]
        seeds = [seed for _ in self.data.validated for seed in self.seeds]
        each = self.preset.folds * members
        decays, epochs = (_repeated(values, each) for values in (chosen.weight_decay, chosen.epochs))
        stack, train, steps = retrain(self.setting, folds, seeds, decays, [int(e) for e in epochs])
        self.network_steps += steps
        held = self.data.held_rows(folds, train).to(stack.device, stack.dtype)
        of_folds = _together(held, stack.predict(held), members)
        together = _together(final.held, final.stack.predict(final.held), members)
        self._scored("DeepEnsemble", chosen, of_folds, together)

    def _dropout(self, chosen: Chosen, folds: Networks, final: Networks) -> None:
        of_folds = folds.drawn(self.setting.draws(folds.stack, folds.train))
        drawn = final.drawn(self.setting.draws(final.stack, final.train))
        noise = self._scored("MCDropout", chosen, of_folds, drawn)
        self._beside_constant(chosen, of_folds, drawn, noise)

    def _scored(self, method: str, chosen: Chosen, of_folds: Drawn, drawn: Drawn) -> Noise:
        """Keep test scores with the noise that is chosen on the folds' held rows."""
        noise = Noise.chosen(of_folds, self.between, self.splits)
        self._keep(method, chosen, drawn, noise)
        return noise

    def _beside_constant(self, chosen: Chosen, of_folds: Drawn, drawn: Drawn, noise: Noise) -> None:
        """Constant uncertainty about the published method's mean; and, for a picture, errors and standard deviations of
        the first network's test rows, sorted by doubt."""
        _, constant = NAMES[self.setting.family]
        self._scored(constant, chosen, of_folds.constant(), drawn.constant())
        std = (drawn.var[0] + 1 / noise.crps[0]).sqrt()
        order = std.argsort()[:: max(1, -(-len(std) // POINTS))]
        self.points = {
            "error": [float(f"{v:.4g}") for v in drawn.error[0][order].tolist()],
            "std": [float(f"{v:.5g}") for v in std[order].tolist()],
            "constant_std": [float(noise.constant_crps[0] ** -0.5)],
        }

    def _keep(
        self,
        method: str,
        chosen: Chosen,
        drawn: Drawn,
        noise: Noise,
        sizes: list[float] | None = None,
        passes: int | None = None,
    ) -> None:
        found = {name: value.tolist() for name, value in scores(drawn, noise).items()}
        each = len(drawn.mean) // self.splits
        for i in range(len(drawn.mean)):
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


def _together(rows: StackedRows, f: Tensor, members: int) -> Drawn:
    """Each `members` networks as one predictor that draws one of them."""
    raw = rows.in_raw_units(f).squeeze(-1)
    joint = raw.view(-1, members, raw.shape[-1]).transpose(0, 1)
    first = rows.take(torch.arange(0, len(raw), members))
    mean = joint.double().mean(0)
    return Drawn(first, mean, (joint.double() - mean).square().mean(0), joint)


def _repeated(values: Sequence[float], times: int) -> list[float]:
    return [value for value in values for _ in range(times)]


def _summary(values: Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "error": float(values.std() / len(values) ** 0.5)}
