"""Examine a network and its data: what works with them, what it costs on this machine, and what is recommended."""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import require_seed, require_whole
from ..engines import Delta, Engine, MonteCarlo, SigmaPoints
from ..errors import BayesNormError, BayesNormWarning, InputError, NetworkError
from ..likelihoods import Categorical, Gaussian
from ..methods import MCBN
from ..network import (
    Executable,
    TrainData,
    call_network,
    dtype_of,
    example_rows,
    find_batchnorm,
    find_dropout,
    forward_arguments,
    mini_batches,
    output_entries,
    own_copy,
    require_python,
    unwrap,
)
from ..posterior import BatchNormPosterior
from ..theory import diagnose
from ..words import format_count
from .report import Finding, Grade, NetworkReport

# Other layers that normalise, whose statistics are not those of batches.
OTHER_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm, nn.RMSNorm)
# Batches whose statistics are collected, examples of a timed prediction, and timed predictions (the fastest counts).
STATES, ROWS, TIMES = 32, 8, 5
# Running statistics further from those of the data, in standard deviations, do not belong to the data.
FAR = 0.5


def doctor(
    model: nn.Module,
    data: TrainData | None = None,
    *,
    batch_size: int | None = None,
    output: str | int | None = None,
    forward_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> NetworkReport:
    """Examine a network and its training data, and return a report; what fails is a line of the report.

    It fits `MCBN` on a few batches and times every engine, so it takes some seconds. The network is not modified.

    Args:
        model: The trained network.
        data: Training data, as `fit` takes them. Default: None; only the layers are examined.
        batch_size: The batch size of training. Default: None; that of a `DataLoader`, otherwise 32 or fewer.
        output: The entry to examine if the network returns several. Default: None, the first that works.
        forward_kwargs: Further arguments of the network's forward, the same in every call. Default: None.
        seed: Seed of the batches.
    """
    if not isinstance(model, nn.Module):
        raise BayesNormError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    if batch_size is not None:
        batch_size = require_whole("batch_size", batch_size, 2, requirement="the batch size of training, at least 2")
    seed = require_seed(seed)
    examination = _Examination(model, data, batch_size, output, dict(forward_kwargs or {}), seed)
    with warnings.catch_warnings(), torch.inference_mode(False):
        warnings.simplefilter("ignore")
        examination.run()
    return NetworkReport(type(unwrap(model)).__name__, tuple(examination.findings), tuple(examination.advice()))


@dataclass
class _Examination:
    model: nn.Module
    data: Any
    batch_size: int | None
    output: str | int | None
    forward_kwargs: dict[str, Any]
    seed: int
    findings: list[Finding] = field(default_factory=list)
    posterior: BatchNormPosterior[Any] | None = None
    vectorised = False
    far = 0.0  # distance of the running statistics from those of the data, in standard deviations
    milliseconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Examine everything that can be examined."""
        self.attempt("network", self.network)
        self.attempt("layers", self.layers)
        if self.data is None:
            self.note("data", "none were passed, so nothing was run", "note")
        elif find_batchnorm(unwrap(self.model)):
            self.attempt("fit", self.fit)
        if self.posterior is None:
            return
        self.attempt("vectorised", self.vectorisation)
        self.attempt("export", self.export)
        for name, engine in _engines().items():
            self.attempt(name, lambda name=name, engine=engine: self.cost(name, engine))  # type: ignore[misc]
        self.attempt("memory", self.memory)
        self.attempt("running statistics", self.running_statistics)
        self.attempt("batch statistics", self.batch_statistics)

    def note(self, subject: str, text: str, grade: Grade = "good") -> None:
        """Add a finding."""
        self.findings.append(Finding(subject, text, grade))

    def attempt(self, subject: str, examine: Callable[[], None]) -> None:
        """Run one examination; if it fails, the reason is a finding."""
        try:
            examine()
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            kind = "" if isinstance(error, BayesNormError) else f"{type(error).__name__}: "
            self.note(subject, f"failed: {kind}{text}", "problem")

    def network(self) -> None:
        """Report size, device and dtype."""
        count = sum(parameter.numel() for parameter in self.model.parameters())
        size = sum(tensor.numel() * tensor.element_size() for tensor in self.model.state_dict().values())
        device = next((tensor.device for tensor in self.model.state_dict().values()), "no device")
        kind = str(dtype_of(unwrap(self.model))).removeprefix("torch.")
        text = f"{type(unwrap(self.model)).__name__}, {count:,} parameters, {size / 2**20:.1f} MiB, {kind}, {device}"
        self.note("network", text)

    def layers(self) -> None:
        """Report the layers that can be sampled, and other normalisation."""
        network = unwrap(self.model)
        require_python(network)
        batchnorm, dropout = find_batchnorm(network), find_dropout(network)
        others = Counter(type(module).__name__ for module in network.modules() if isinstance(module, OTHER_NORMS))
        if batchnorm:
            channels = sum(layer.num_features for layer in batchnorm.values())
            self.note("batch norm", f"{format_count(len(batchnorm), 'layer')}, {channels:,} channels")
        else:
            self.note("batch norm", "none, so MCBN, GaussianBN and StochasticBN do not apply", "problem")
        if others:
            counts = ", ".join(f"{count} {kind}" for kind, count in others.items())
            self.note(
                "other norms", f"{counts}: their statistics are of single examples, so nothing is sampled", "note"
            )
        if dropout:
            self.note("dropout", f"{format_count(len(dropout), 'layer')}: MCDropout applies")

    def fit(self) -> None:
        """Run two examples, choose an output, and fit MCBN on a few batches."""
        executable = Executable(self.model, self.output, self.forward_kwargs)
        rows = example_rows(self.data, self.seed, executable.form)
        self.output = self.output if self.output is not None else self.first_output(executable.input(rows))
        executable = Executable(self.model, self.output, self.forward_kwargs)
        shape = executable.point(rows).shape[1:]
        entry = "" if self.output is None else f", entry {self.output!r}"
        self.note("output", f"shape {tuple(shape)} for each example{entry}")
        size = self.size(executable)
        likelihood: Any = Categorical() if shape.numel() > 1 else Gaussian()
        options: Any = {"output": self.output, "forward_kwargs": self.forward_kwargs, "seed": self.seed}
        before = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", BayesNormWarning)
            self.posterior = MCBN(size, states=STATES).fit(self.model, self.data, likelihood, **options)
        seconds = time.perf_counter() - before
        names = [layer.name for layer in self.posterior.layers]
        total = len(find_batchnorm(unwrap(self.model)))
        left = "" if len(names) == total else f"; {total - len(names)} others do not run, or were frozen in training"
        range_text = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        text = f"{format_count(len(names), 'layer')} sampled, {range_text}{left}. {STATES} batches of "
        self.note("fit", f"{text}{size} examples take {seconds:.1f} s", "note" if left else "good")
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.note("fit warns", text, "note")

    def first_output(self, x: Any) -> str | int | None:
        """Return the name or position of the first tensor that the network returns; None if it returns one tensor."""
        with torch.no_grad():
            result = call_network(own_copy(unwrap(self.model), self.forward_kwargs).eval(), x, "data")
        if isinstance(result, Tensor):
            return None
        entries = output_entries(result)
        names = [name for name, value in entries.items() if isinstance(value, Tensor) and value.shape[:1] == (len(x),)]
        if not names:
            kinds = ", ".join(type(value).__name__ for value in entries.values()) or "no entries"
            raise NetworkError(
                f"model: it returns {type(result).__name__} with {kinds}, and no tensor with one entry per example. "
                "Wrap the network in a module that returns such a tensor, as the scores of a detector before boxes are "
                "chosen."
            )
        return names[0]

    def size(self, executable: Executable) -> int:
        """Return the batch size of the caller or of a loader, or one for which there are enough examples."""
        size = self.batch_size or getattr(self.data, "batch_size", None)
        if size is not None:
            return int(size)
        for size in (32, 8):
            with contextlib.suppress(InputError):
                mini_batches(self.data, 2 * size, 1, self.seed, executable.form)
                break
        else:
            size = 2
        self.note("batch size", f"{size} is assumed. Pass batch_size=, the batch size of training", "note")
        return size

    def examples(self) -> Any:
        """Return a few training examples, on the network's device."""
        assert self.posterior is not None
        rows = self.posterior.output_directions.rows
        assert rows is not None
        return rows[:ROWS]

    def vectorisation(self) -> None:
        """Report whether samples run together, or the reason why not."""
        assert self.posterior is not None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.posterior.predict(self.examples(), engine=MonteCarlo(samples=4))
        reasons = [text for text in (str(warning.message) for warning in caught) if "cannot be vectorised" in text]
        self.vectorised = not reasons
        self.note("vectorised", reasons[0] if reasons else "yes, samples run together", "note" if reasons else "good")

    def export(self) -> None:
        """Try `torch.export` on a copy of the network."""
        args, kwargs = forward_arguments(self.examples())
        before = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):  # torch prints the whole graph of a failure
            network = own_copy(unwrap(self.model)).eval()
            torch.export.export(network, args, {**kwargs, **self.forward_kwargs}, strict=False)
        self.note("torch.export", f"works ({time.perf_counter() - before:.1f} s)")

    def cost(self, name: str, engine: Engine | None) -> None:
        """Time one forward pass, or one engine after a first prediction."""
        assert self.posterior is not None
        posterior, x = self.posterior, self.examples()

        def predict() -> Any:
            return posterior.executable.point(x) if engine is None else posterior.predict(x, engine=engine)

        predict()
        times = []
        for _ in range(TIMES):
            _settle(x)
            before = time.perf_counter()
            predict()
            _settle(x)
            times.append(1000 * (time.perf_counter() - before))
        self.milliseconds[name] = min(times)
        text = f"{self.milliseconds[name]:.3g} ms for {format_count(len(x), 'example')}"
        if engine is not None and FORWARD in self.milliseconds:
            text += f", {self.milliseconds[name] / self.milliseconds[FORWARD]:.3g} times one forward pass"
        self.note(name, text)

    def memory(self) -> None:
        """Report the size of the posterior's file, and of the outputs of 64 samples."""
        assert self.posterior is not None
        with tempfile.TemporaryDirectory() as folder:
            self.posterior.save(Path(folder) / "posterior")
            stored = (Path(folder) / "posterior").stat().st_size
        outputs = self.posterior.executable.point(self.examples())[0]
        sampled = 64 * outputs.numel() * outputs.element_size()
        text = f"posterior of {STATES} batches {stored / 2**20:.2g} MiB; outputs of 64 samples "
        text += f"{sampled / 2**10:.3g} KiB for each example"
        if self.examples().is_cuda:
            text += f"; at most {torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB of the GPU so far"
        self.note("memory", text)

    def running_statistics(self) -> None:
        """Compare the running statistics with those of the data: data scaled otherwise than in training differ."""
        assert self.posterior is not None
        posterior = self.posterior
        mean, log_var = (posterior.running.double() - posterior.batch_mean.double()).chunk(2)
        std = (posterior.batch_mean.double().chunk(2)[1] / 2).exp()
        self.far = float((mean / std).square().mean().sqrt())
        ratio = float((log_var / 2).mean().exp())
        fits = self.far <= FAR and 0.5 < ratio < 2
        text = (
            f"means are {self.far:.2f} standard deviations from those of the data, spreads {ratio:.2f} times as large"
        )
        self.far = 0.0 if fits else max(self.far, FAR)
        self.note("running statistics", text, "good" if fits else "problem")

    def batch_statistics(self) -> None:
        """Run `diagnose` at the batch size of the fit."""
        assert self.posterior is not None
        result = diagnose(
            self.model,
            self.data,
            self.posterior.fitted_batch_size,
            batches=STATES,
            layers=[layer.name for layer in self.posterior.layers],
            output=self.output,
            forward_kwargs=self.forward_kwargs,
            seed=self.seed,
        ).at()
        rejected = statistics.fmean(layer.mean.fitted_rejected for layer in result.layers)
        text = f"the normal distribution is rejected for {rejected:.0%} of the channels' means (5 % by chance); "
        text += f"if all statistics were independent, the outputs would have {1 - result.variance_lost:.0%} of their "
        self.note("batch statistics", text + "variance")

    def advice(self) -> Iterator[str]:
        """Yield what to do, and why."""
        if any(finding.subject == "layers" for finding in self.findings):  # their examination failed
            yield "Pass the nn.Module that the network was made from."
            return
        if not find_batchnorm(unwrap(self.model)):
            if not find_dropout(unwrap(self.model)):
                yield "bn.add_dropout(model, 0.1), a few epochs of training, then bn.MCDropout(): it has no batch norm."
            yield from self.without_batch_norm()
            return
        if self.posterior is None:
            if self.data is None:
                yield "Pass training data: bn.doctor(model, data)."
                return
            yield "Mend what failed above, or leave the layer out with MCBN(layers=...). If neither is possible:"
            yield from self.without_batch_norm()
            return
        if self.far:
            yield (
                "First make data and network fit: scale the data as in training, and load the trained weights. The "
                "running statistics are not those of these data."
            )
        size = self.posterior.fitted_batch_size
        yield (
            f"posterior = bn.MCBN(batch_size={size}).fit(model, train_data, likelihood), then bn.calibrate(posterior, "
            "x_val, y_val): without calibration, no method's probabilities can be trusted."
        )
        costs = {name: self.milliseconds[name] for name in _engines() if name in self.milliseconds and name != FORWARD}
        if costs:
            cheapest = min(costs, key=costs.__getitem__)
            times = costs[cheapest] / self.milliseconds.get(FORWARD, costs[cheapest])
            yield (
                f"{cheapest} is the cheapest engine here ({times:.2g} times one forward pass). "
                "bn.suggest_layers(posterior, x_val, y_val, budget=1.5) finds how many late layers are enough."
            )
        if not self.vectorised:
            yield "Samples run one by one. SigmaPoints(rank=8) needs only 16 forward passes."

    def without_batch_norm(self) -> Iterator[str]:
        """Yield the methods that need no statistics of batches."""
        if find_dropout(unwrap(self.model)):
            yield "bn.MCDropout().fit(model, None, likelihood): the network has dropout layers."
        yield "bn.DeepEnsemble(members=5), if training several networks is possible."
        yield "bn.calibrate(bn.deterministic(model, likelihood), x_val, y_val) at least: temperature scaling."


FORWARD = "one forward pass"


def _engines() -> dict[str, Engine | None]:
    return {
        FORWARD: None,
        "MonteCarlo(64)": MonteCarlo(samples=64),
        "SigmaPoints(8)": SigmaPoints(rank=8),
        "Delta()": Delta(),
    }


def _settle(x: Any) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
