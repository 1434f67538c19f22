"""Reports on rows whose truth is known, with names that would break a careless page."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive
from bayesnorm.report import (
    Choice,
    ClassificationTest,
    Column,
    DriftReport,
    HeldOutRows,
    LearningCurve,
    MappedImage,
    MapsReport,
    Provenance,
    RegressionTest,
    Report,
    Table,
    TriedSetting,
    render,
)
from bayesnorm.shift import Drift, LayerDrift

HOSTILE = "<script>window.stolen=1</script>"
NAMES = ("age", HOSTILE, "town")
CLASSES = ("cat", "dog & fox", "<b>cow</b>")


def regression_test(rows: int = 150, scale: float = 1.0, seed: int = 0, noisy: bool = True) -> RegressionTest:
    """Targets from the very distributions that are predicted, if `scale` is 1; their spread goes from 0.2 to 2."""
    generator = np.random.default_rng(seed)
    mean = 10 * generator.normal(size=rows)
    std = np.exp(generator.uniform(np.log(0.2), np.log(2.0), rows)) if noisy else np.ones(rows)
    y = mean + std * generator.normal(size=rows)
    # Two samples a standard deviation's third to either side, and the rest of the variance as noise.
    apart, noise = scale * std / 3, scale * std * np.sqrt(8 / 9)
    loc = torch.from_numpy(np.stack([mean - apart, mean + apart]))[..., None]
    predictive = RegressionPredictive(loc, torch.from_numpy(np.stack([noise, noise]))[..., None])
    train_y = 10 * generator.normal(size=500)
    return RegressionTest.from_predictive(
        predictive, y, train_y=train_y, constant_variance=1.0, unusual=std > np.quantile(std, 0.9)
    )


def classification_test(
    rows: int = 150, sharper: float = 1.0, seed: int = 0, classes: Any = CLASSES
) -> ClassificationTest:
    """Classes from the very probabilities that are predicted, if `sharper` is 1."""
    generator = np.random.default_rng(seed)
    logits = 2.5 * generator.normal(size=(rows, len(classes)))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = (generator.random((rows, 1)) > probs.cumsum(1)).sum(1).clip(max=len(classes) - 1)
    log_probs = torch.log_softmax(sharper * torch.from_numpy(logits), 1)[None]
    train_y = generator.integers(len(classes), size=300)
    return ClassificationTest.from_predictive(ClassificationPredictive(log_probs), y, classes=classes, train_y=train_y)


def report_of(test: RegressionTest | ClassificationTest, **changes: Any) -> Report:
    """A report around a test, every text in it hostile."""
    rows, generator = len(test), np.random.default_rng(1)
    regression = isinstance(test, RegressionTest)
    towns = ("Aachen", "Bonn", f"{HOSTILE}")
    target = Column("price <i>", "number", -20.0, 0.1, 25.0) if regression else Column("animal", "category")
    columns = (
        Column("age", "number", 1.0, 40.0, 80.0, missing=3),
        Column(HOSTILE, "number", -1.0, 0.0, 1.0),
        Column("town", "category", categories=towns[:2]),
    )
    values = [
        (float(round(a)), None if place % 7 == 0 else float(b), towns[place % 3])
        for place, (a, b) in enumerate(zip(generator.uniform(1, 90, rows), generator.normal(size=rows), strict=True))
    ]
    usual = {"numbers": "bins 16", "hidden layers": "256-256-256", "dropout rate": 0.1, "batch size": 128}
    settings = tuple(TriedSetting({**usual, "weight decay": decay}, 1 / decay, 0.1) for decay in (0.1, 0.2))
    parts: dict[str, Any] = {
        "table": Table(f"data{HOSTILE}.csv", 1000, 700, 150, columns, target),
        "rows": HeldOutRows(NAMES, values, [3 * place + 1 for place in range(rows)]),
        "test": test,
        "choice": Choice(settings, 1, "mean CRPS", "lower", 5, 61.0, {"epochs": 140}),
        "provenance": Provenance({"bayesnorm": "0.1.0"}, "a CPU", "2026-01-02", f"bayesnorm fit {HOSTILE}", 99.0),
        "method": f"Monte Carlo Batch Normalization {HOSTILE}",
        "warnings": (f"12 rows {HOSTILE} were left out.",),
    }
    return Report(**(parts | changes))


@pytest.fixture(scope="session")
def regression_report() -> Report:
    return report_of(regression_test(), curve=LearningCurve((280, 560), (2.5, 1.6), 1.5, 0.4, 0.75, 100.0, "RMSE"))


@pytest.fixture(scope="session")
def classification_report() -> Report:
    curve = LearningCurve((280, 560), (0.5, 0.42), 0.4, 0.05, 0.75, 0.66, "Brier")
    return report_of(classification_test(), curve=curve)


@pytest.fixture(scope="session")
def pages(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Renders the report that a fixture makes, once for all tests."""
    return functools.cache(lambda kind: render(request.getfixturevalue(f"{kind}_report")))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures keep title and caption but are not drawn, which takes most of the time that a page needs."""
    monkeypatch.setattr("bayesnorm.report.pictures.themed_svg", lambda *_: "<svg></svg>")


@pytest.fixture
def make_regression() -> Callable[..., RegressionTest]:
    return regression_test


@pytest.fixture
def make_classification() -> Callable[..., ClassificationTest]:
    return classification_test


@pytest.fixture
def make_report() -> Callable[..., Report]:
    return report_of


@pytest.fixture(scope="session")
def drift_report() -> DriftReport:
    """Rows of which two columns moved, and a third is missing now and then."""
    tabular = pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")
    ColumnDrift, TableDrift = tabular.ColumnDrift, tabular.TableDrift
    shares = (("Bonn", 0.6, 0.1), ("<b>", 0.4, 0.9))
    number = ColumnDrift("$size$", "number", 1e-9, (0.0, 0.0), True, (50.0, 90.0), 2.0, 1.1)
    columns = (
        replace(number, edges=(0.0, 50.0, 100.0), training_shares=(0.5, 0.5), new_shares=(0.1, 0.9)),
        ColumnDrift(HOSTILE, "category", 1e-5, (0.0, 0.0), True, shares=shares),
        ColumnDrift("gaps", "number", 1e-4, (0.0, 0.5), True),
        ColumnDrift("calm", "number", 0.5, (0.0, 0.0), False, (1.0, 1.1), 0.1, 1.0),
    )
    layers = tuple(LayerDrift(f"network.{i}", p, 0.3, 1.2) for i, p in ((1, 1e-7), (4, 0.2)))
    result = TableDrift(1e-8, 60, columns, Drift(1e-8, 60, 3.0, layers), "", 0.05)
    return DriftReport(
        f"{HOSTILE}.csv", HOSTILE, result, Provenance({"torch": "2"}, "a machine", "2026-01-01", "a & b")
    )


@pytest.fixture(scope="session")
def maps_report() -> MapsReport:
    """One image of 4 x 2 pixels, whose uncertainty rises from left to right; its last pixel is wrong."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install pillow")

    def picture(values: list[list[int]], mode: str = "L") -> str:
        target = io.BytesIO()
        image.fromarray(np.array(values, np.uint8)).convert(mode).save(target, format="PNG")
        return "data:image/png;base64," + base64.b64encode(target.getvalue()).decode()

    uncertainty = [[0, 80, 160, 240]] * 2
    levels = np.bincount(np.array(uncertainty).ravel(), minlength=256)
    right = levels.copy()
    right[240] = 1
    photo = picture([[200] * 4] * 2, "RGB")
    shown = MappedImage(
        HOSTILE, photo, photo, picture(uncertainty), picture([[0] * 4, [0, 0, 0, 255]]), (4, 2), 0.4, accuracy=7 / 8
    )
    provenance = Provenance({"bayesnorm": "0"}, "a machine", "2026-01-01", "a command")
    return MapsReport("scenes", [shown], 1, levels, right, levels, [(HOSTILE, (1, 2, 3))], provenance)
