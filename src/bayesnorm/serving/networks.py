"""A network with its posterior as a served model."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import BayesNormError
from ..posterior import Posterior
from ..predictive import ClassificationPredictive, RegressionPredictive
from ..shift import DriftMonitor
from .models import Batch, Tensor, datatype_of


class NetworkModel:
    """A posterior of a network with one input, as the server needs it.

    Regression: `mean`, `std`, `epistemic_std`, `aleatoric_std`, `lower` and `upper`. Classification: `probs`, `label`,
    `entropy` and `mutual_information`.

    Args:
        posterior: The posterior.
        shape: The shape of one example.
        name: The name in addresses.
        level: Probability of the interval from `lower` to `upper`.
        samples: Samples of a prediction; None for the posterior's default.
    """

    is_table = False

    def __init__(
        self, posterior: Posterior[Any], shape: tuple[int, ...], name: str, level: float, samples: int | None = None
    ) -> None:
        self.posterior, self.name, self.level, self.samples = posterior, name, level, samples
        single = posterior.executable.dtype != torch.float64
        self.inputs = (Tensor("input", "FP32" if single else "FP64", shape),)
        example = torch.zeros(2, *shape, dtype=posterior.executable.dtype)
        outputs = self.predict({"input": example.to(torch.float32 if single else torch.float64).numpy()})
        self.outputs = tuple(Tensor(output, datatype_of(array), array.shape[1:]) for output, array in outputs.items())
        try:
            self.monitor: DriftMonitor | None = DriftMonitor(posterior)
        except BayesNormError:  # no batch statistics to compare
            self.monitor = None

    def predict(self, batch: Batch) -> Batch:
        """Return the outputs of rows."""
        predictive = self.posterior.predict(torch.from_numpy(batch["input"]), samples=self.samples)
        tensors: dict[str, torch.Tensor]
        if isinstance(predictive, ClassificationPredictive):
            tensors = {name: getattr(predictive, name) for name in ("probs", "label", "entropy", "mutual_information")}
        elif isinstance(predictive, RegressionPredictive):
            lower, upper = predictive.interval(self.level)
            tensors = {"mean": predictive.mean, "std": predictive.std, "lower": lower, "upper": upper}
            tensors |= {"epistemic_std": predictive.epistemic.sqrt(), "aleatoric_std": predictive.aleatoric.sqrt()}
        else:
            raise BayesNormError(
                f"Predictions of {type(predictive).__name__} cannot be served. Serve a network with one output."
            )
        return {
            name: (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).cpu().numpy()
            for name, tensor in tensors.items()
        }

    def watch(self, batch: Batch) -> dict[str, float]:
        """Test rows for drift with the monitor."""
        return {} if self.monitor is None else monitor_numbers(self.monitor, torch.from_numpy(batch["input"]))


def monitor_numbers(monitor: DriftMonitor, inputs: torch.Tensor) -> dict[str, float]:
    """Return the state of a drift monitor after further inputs, by the names in `/metrics`."""
    watched = monitor.update(inputs)
    return {"evidence": watched.evidence, "alarm": float(watched.alarm), "p_value": watched.drift.p_value}
