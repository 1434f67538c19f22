"""One case per likelihood and shape of its outputs; every likelihood of the package must have one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

import bayesnorm as bn

ROWS = 5


@dataclasses.dataclass(frozen=True)
class Case:
    """A likelihood with outputs and targets that it takes."""

    name: str
    likelihood: bn.Likelihood
    outputs: int
    """Along the first output axis."""
    classes: int = 0
    """0 for real targets."""
    pixels: tuple[int, ...] = ()

    @property
    def tasks(self) -> bool:
        return isinstance(self.likelihood, bn.MultiTask)

    @property
    def targets(self) -> int:
        """Numbers of a row's (or pixel's) target."""
        return self.likelihood.target_columns(self.outputs)

    def f(self, n: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64, rows: int = ROWS) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        shape = (n, rows, self.outputs, *self.pixels)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    def y(self, seed: int = 1, dtype: torch.dtype = torch.float64, rows: int = ROWS) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if self.classes:
            return torch.randint(0, self.classes, (rows, *self.pixels), generator=generator)
        shape = (rows, self.targets, *self.pixels)
        y = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        if self.tasks:
            y[:, 0] = torch.randint(0, 3, (rows, *self.pixels), generator=generator)
        return y.to(dtype)


VECTORS = [
    Case("Gaussian", bn.Gaussian(4.0), 1),
    Case("Gaussian of three", bn.Gaussian((4.0, 9.0, 0.5)), 3),
    Case("Laplace", bn.Laplace(0.7), 2),
    Case("StudentT", bn.StudentT(3.0, 0.5), 2),
    Case("StudentT of two", bn.StudentT(5.0, (0.5, 2.0)), 2),
    Case("HeteroscedasticGaussian", bn.HeteroscedasticGaussian(), 2),
    Case("HeteroscedasticGaussian of two", bn.HeteroscedasticGaussian((1.5, 0.8)), 4),
    Case("HeteroscedasticGaussian with a floor", bn.HeteroscedasticGaussian(0.5, floor=(0.3, 2.0)), 4),
    Case("HeteroscedasticLaplace", bn.HeteroscedasticLaplace(1.2), 4),
    Case("HeteroscedasticStudentT", bn.HeteroscedasticStudentT(0.8, df=5.0, floor=0.4), 2),
    Case("Categorical", bn.Categorical(1.5), 3, classes=3),
    Case("Categorical of one", bn.Categorical(), 1, classes=2),
    Case("VarianceScaledCategorical", bn.VarianceScaledCategorical(1.5, slope=0.7, mean=-0.2, std=0.5), 3, classes=3),
    Case("LogitNoise", bn.LogitNoise(1.2, samples=16), 6, classes=3),
    Case("LogitNoise of one", bn.LogitNoise(samples=16), 2, classes=2),
    Case("LogitNoise shared", bn.LogitNoise(samples=16, per_class=False), 4, classes=3),
    Case("MultiTask", bn.MultiTask({"label": (bn.Categorical(), 3), "depth": bn.HeteroscedasticGaussian()}), 5),
    Case(
        "MultiTask real", bn.MultiTask({"label": (bn.Categorical(), 3), "a": (bn.Gaussian((4.0, 1.0), axis=1), 2)}), 5
    ),
]
LIKE_OTHERS = ("HeteroscedasticGaussian", "HeteroscedasticGaussian with a floor", "LogitNoise of one")
"""Their maps are those of a case beside them, with other numbers."""
MAPS = [
    dataclasses.replace(case, name=f"{case.name} per pixel", pixels=(2, 3))
    for case in VECTORS
    if not isinstance(case.likelihood, bn.Gaussian | bn.Laplace | bn.StudentT) and case.name not in LIKE_OTHERS
] + [
    Case("Gaussian per pixel", bn.Gaussian((4.0, 9.0), axis=1), 2, pixels=(2, 3)),
    Case("Laplace per pixel", bn.Laplace(0.7), 2, pixels=(2, 3)),
    Case("StudentT per pixel", bn.StudentT(3.0, (0.5, 1.0, 2.0), axis=1), 3, pixels=(2, 3)),
]


def _named(case: Case) -> str:
    return case.name.replace(" ", "-")


@pytest.fixture(params=[*VECTORS, *MAPS], ids=_named)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def all_cases() -> list[Case]:
    return [*VECTORS, *MAPS]


@pytest.fixture(params=VECTORS, ids=_named)
def vector_case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=[case for case in [*VECTORS, *MAPS] if not case.classes and not case.tasks], ids=_named)
def real_case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=[case for case in VECTORS if not case.classes and not case.tasks], ids=_named)
def real_vector_case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=[case for case in [*VECTORS, *MAPS] if case.classes], ids=_named)
def class_case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=MAPS, ids=_named)
def map_case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=[case for case in [*VECTORS, *MAPS] if not case.tasks], ids=_named)
def alone_case(request: pytest.FixtureRequest) -> Case:
    """Without several tasks, each of which has missing targets of its own."""
    return request.param
