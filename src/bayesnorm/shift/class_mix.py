"""Run new examples layer by layer with torch, for `bayesnorm_runtime/class_mix.py`, which says what is estimated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesnorm_runtime import Layerwise, MixShift, Targets, chosen_examples, solve

from ..network import LayerTarget, mean_and_var, moved_statistics, no_moments, select_output
from ..posterior import Adaptation, AdaptedPosterior, BatchNormPosterior, class_probabilities, running_coordinates
from ..progress import long_progress
from .comparison import all_alike, require_batches, require_finite_statistics, row_statistics


def estimate_shift(
    posterior: BatchNormPosterior,
    x: Any,
    strength: float | None = None,
    earlier: Adaptation | None = None,
    before: np.ndarray | None = None,
) -> MixShift:
    """Estimate the shift of new examples.

    Args:
        posterior: A posterior with class statistics. The shift of an adapted one is that from the training data.
        x: The examples.
        strength: The share of the shift to apply, instead of an estimated one.
        earlier: The adaptation to earlier examples, which count too.
        before: Class probabilities of the network as it is, if they are there already, (n, K).
    """
    with long_progress("class mix") as tell:
        return solve(NetworkLayers(posterior, x, strength, earlier), before, tell)


class NetworkLayers(Layerwise):
    """Runs new examples through the network, with statistics that are chosen layer by layer."""

    def __init__(
        self,
        posterior: BatchNormPosterior,
        x: Any,
        strength: float | None = None,
        earlier: Adaptation | None = None,
    ) -> None:
        assert posterior.class_statistics is not None
        self._posterior = posterior
        self._strength = torch.tensor(-1.0 if strength is None else strength, dtype=torch.float64)
        self._network = row_statistics(posterior)
        x = self._network.input(x)
        self._x = x[torch.from_numpy(chosen_examples(len(x))).to(posterior.executable.device)]
        self._state = posterior.state(posterior.location) if isinstance(posterior, AdaptedPosterior) else {}
        batches, self._likelihood = require_batches(posterior), posterior.likelihood
        if posterior.validation is not None:
            self._likelihood = self._likelihood.with_noise(torch.tensor(posterior.validation.temperature))
        self._running = running_coordinates(posterior.model, batches.layers).cpu()
        super().__init__(
            batches.reference,
            posterior.class_statistics.moments,
            self._running.numpy(),
            len(self._x),
            len(self._x) == 1 or all_alike(self._x),
            posterior.validation,
            None if earlier is None else earlier.arrays,
        )
        self._targets: dict[str, LayerTarget] = {}
        self._shifts: list[tuple[Tensor, Tensor]] = []

    @staticmethod
    def inputs(posterior: BatchNormPosterior, x: Any) -> Any:
        """Return examples as the network takes them."""
        return row_statistics(posterior).input(x)

    def run(self) -> np.ndarray:
        self._targets = {}
        return self._probabilities()

    def run_towards(self, targets: Targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        whole = [torch.from_numpy(part) for part in (targets.expected, targets.noise, targets.earlier)]
        sizes = [layer.channels for layer in self._batches.layers]
        parts = zip(*(part.unflatten(0, (2, -1)).split(sizes, 1) for part in (self._running, *whole)), strict=True)
        weight = torch.tensor(targets.weight, dtype=torch.float64)
        self._targets = {
            layer.name: LayerTarget(center, expected, noise, earlier, weight, self._strength)
            for layer, (center, expected, noise, earlier) in zip(self._batches.layers, parts, strict=True)
        }
        self._shifts = []
        probs = self._probabilities()
        shift, strength = (torch.cat(part, -1) for part in zip(*self._shifts, strict=True))
        require_finite_statistics(shift)
        return probs, shift.flatten().numpy(), strength.flatten().numpy()

    def _probabilities(self) -> np.ndarray:
        measure = mean_and_var if self._targets else no_moments
        output = self._network.run_rule(self._x, self._statistics, measure)
        f = select_output(output, self._posterior.executable.output, len(self._x))
        require_finite_statistics(f)
        probs = class_probabilities(self._likelihood, f)
        assert probs is not None
        return probs.double().cpu().numpy()

    def _statistics(self, name: str, moments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the statistics that a layer normalises by, given the moments of its input."""
        running_mean, running_var, eps = self._network.running(name)
        if not self._targets:
            return (
                self._state.get(f"{name}.running_mean", running_mean),
                self._state.get(f"{name}.running_var", running_var),
            )
        mean, var, shift, strength = moved_statistics(moments[0].cpu(), moments[1].cpu(), eps, self._targets[name])
        self._shifts.append((shift, strength[:, None]))
        return mean.to(running_mean), var.to(running_var)
