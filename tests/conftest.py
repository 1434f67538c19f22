"""What tests share: one thread, small trained networks, and a bit-for-bit look at a network."""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Compiled files are kept, also where the environment says otherwise: every worker compiles a thousand of them in ten
# seconds, and every process that a test starts needs one or two.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

import bayesnorm as bn
from experiments.data import DataNotFoundError, find

settings.register_profile("same-every-time", derandomize=True, deadline=None)  # machines are busy at times
settings.register_profile("explore", derandomize=False, deadline=None)  # pytest --hypothesis-profile explore
settings.load_profile("same-every-time")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded_globals():
    """Tests may build networks with torch's own initialisation; it is the same every time."""
    torch.manual_seed(20180218)


@dataclasses.dataclass(frozen=True)
class Task:
    """A trained network with its data; `model` is a fresh copy for every test."""

    name: str
    model: nn.Module
    x: Tensor
    y: Tensor
    likelihood: bn.Likelihood
    new_x: Tensor
    new_y: Tensor
    out: tuple[int, ...]
    """Shape of one output of the network."""

    @property
    def regression(self) -> bool:
        return isinstance(self.likelihood, bn.Gaussian)

    def to(self, dtype: torch.dtype) -> Task:
        return dataclasses.replace(
            self,
            model=copy.deepcopy(self.model).to(dtype),
            x=self.x.to(dtype),
            y=self.y.to(dtype) if self.regression else self.y,
            new_x=self.new_x.to(dtype),
            new_y=self.new_y.to(dtype) if self.regression else self.new_y,
        )


TASKS = ("regression", "multi_output", "classification", "per_pixel")


def _train(model: nn.Module, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor], steps: int) -> None:
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        rows = torch.randperm(len(x), generator=generator)[:16]
        optimiser.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        optimiser.step()
    optimiser.zero_grad()
    model.eval()


def _mlp(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(3, 8, bias=False),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 6),
        nn.BatchNorm1d(6, affine=False),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(6, outputs),
    )


def _build(name: str) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "per_pixel":
            model: nn.Module = nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1, bias=False),
                nn.BatchNorm2d(4),
                nn.ReLU(inplace=True),
                nn.Conv2d(4, 5, 3, padding=1),
                nn.BatchNorm2d(5),
                nn.ReLU(inplace=True),
                nn.Dropout2d(0.3),
                nn.Conv2d(5, 3, 1),
            )
            x = torch.randn(66, 2, 4, 5)
            y = (x[:, 0] > 0.3).long() + (x[:, 1] > 0).long()
        else:
            model = _mlp({"regression": 1, "multi_output": 2, "classification": 3}[name])
            x = torch.randn(86, 3)
            f = torch.stack([torch.sin(2 * x[:, 0]) + x[:, 1], x[:, 2] * x[:, 0]], 1)
            f = f + 0.2 * torch.randn_like(f)
            y = {
                "regression": f[:, :1],
                "multi_output": f,
                "classification": (f[:, 0] > -0.5).long() + (f[:, 0] > 0.5).long(),
            }[name]
        train, new = slice(6, None), slice(0, 6)
        loss = nn.functional.mse_loss if y.is_floating_point() else nn.functional.cross_entropy
        _train(model, x[train], y[train], loss, steps=60)
    likelihood = {
        "regression": bn.Gaussian(precision=4.0),
        "multi_output": bn.Gaussian(precision=(4.0, 9.0)),
        "classification": bn.Categorical(),
        "per_pixel": bn.Categorical(temperature=1.5),
    }[name]
    out = {"regression": (1,), "multi_output": (2,), "classification": (3,), "per_pixel": (3, 4, 5)}[name]
    return Task(name, model, x[train], y[train], likelihood, x[new], y[new], out)


@pytest.fixture(scope="session")
def _built() -> dict[str, Task]:
    return {name: _build(name) for name in TASKS}


@pytest.fixture
def make_task(_built: dict[str, Task]) -> Callable[[str], Task]:
    """`make_task("regression")` and the others of `TASKS`, with a network of the test's own."""

    def make(name: str) -> Task:
        task = _built[name]
        return dataclasses.replace(task, model=copy.deepcopy(task.model))

    return make


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest, make_task: Callable[[str], Task]) -> Task:
    return make_task(request.param)


@pytest.fixture
def regression(make_task: Callable[[str], Task]) -> Task:
    return make_task("regression")


@pytest.fixture
def classification(make_task: Callable[[str], Task]) -> Task:
    return make_task("classification")


def _bits(tensor: Tensor | None) -> Any:
    if tensor is None or tensor.device.type == "meta":
        return None
    plain = tensor.detach().cpu().contiguous().flatten()
    return tuple(tensor.shape), str(tensor.dtype), plain.view(torch.uint8).numpy().tobytes()


def take_snapshot(model: nn.Module) -> dict[str, Any]:
    """All that a call could leave changed in a network, in a form that `==` compares bit for bit."""
    seen: dict[str, Any] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        attributes = vars(module)
        seen[name] = {
            "identity": (id(module), type(module), module.training),
            "attributes": sorted(attributes),
            "hooks": {key: dict(value) for key, value in attributes.items() if key.endswith("_hooks")},
            "parameters": {
                key: p if p is None else (id(p), p.data_ptr(), p.requires_grad, _bits(p), _bits(p.grad))
                for key, p in module._parameters.items()
            },
            "buffers": {
                key: b if b is None else (id(b), b.data_ptr(), b.requires_grad, _bits(b))
                for key, b in module._buffers.items()
            },
            "children": {key: id(child) for key, child in module._modules.items()},
            "plain": {key: value for key, value in attributes.items() if isinstance(value, int | float | str)},
        }
    return seen


@pytest.fixture
def snapshot() -> Callable[[nn.Module], dict[str, Any]]:
    """`before = snapshot(model); ...; assert snapshot(model) == before`."""
    return take_snapshot


class Calls:
    """Counts module calls, in the network and in every copy of it; raises from call `limit` on."""

    class Boom(Exception):
        """What a network's forward raises."""

    def __init__(self) -> None:
        self.count = 0
        self.limit: int | None = None

    def watch(self, *modules: nn.Module) -> Calls:
        for module in modules:
            module.register_forward_pre_hook(lambda _module, _args: self._called())
        return self

    def _called(self) -> None:
        self.count += 1
        if self.limit is not None and self.count >= self.limit:
            raise self.Boom(f"call {self.count}")

    def reset(self, limit: int | None = None) -> None:
        self.count, self.limit = 0, limit


@pytest.fixture
def calls() -> Calls:
    """`calls.watch(*modules)`: hooks of the user's own, which a private copy keeps (functions are not copied)."""
    return Calls()


@pytest.fixture
def reference() -> Callable[..., Tensor]:
    """Outputs under n states by law 1's definition: one `functional_call` per draw, nothing else."""

    def run(model: nn.Module, states: dict[str, Tensor], x: Tensor) -> Tensor:
        network = copy.deepcopy(model).eval()
        samples = len(next(iter(states.values())))
        with torch.no_grad():
            return torch.stack(
                [
                    torch.func.functional_call(network, {k: v[i] for k, v in states.items()}, (x.clone(),))
                    for i in range(samples)
                ]
            )

    return run


@pytest.fixture
def require() -> Callable[..., None]:
    """`require("uci/boston.npz", ...)` skips the test, saying why, where one of the files is not found."""

    def check(*relative_paths: str) -> None:
        for relative_path in relative_paths:
            if relative_path.endswith(".webp"):
                pytest.importorskip("PIL", reason="needs Pillow: pip install pillow")
            try:
                find(relative_path)
            except DataNotFoundError as error:
                pytest.skip(f"needs real data: {error}")

    return check


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only one in `BAYESNORM_DATA`; the cache folder does not exist."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("BAYESNORM_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder
