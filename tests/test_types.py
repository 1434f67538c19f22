"""The Python of README and docs passes a type checker as a reader's program would.

`python tests/test_types.py FOLDER` writes one program per page, for other type checkers (`make pyright`).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bayesnorm as bn
from tests.test_examples import ROOT, blocks, stand_ins

PRELUDE = "what_readers_have"

CLAIMS = """
from typing import assert_type

import numpy as np
import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.posterior import AdaptedPosterior, BatchNormPosterior, DropoutPosterior, EnsemblePosterior, Posterior


def claims(model: nn.Module, x: Tensor, array: np.ndarray, some: Posterior) -> None:
    method = bn.MCBN(batch_size=32)
    regression = assert_type(method.fit(model, x), BatchNormPosterior[bn.RegressionPredictive])
    classes = assert_type(method.fit(model, (x, x), bn.Categorical()), BatchNormPosterior[bn.ClassificationPredictive])
    tasks = method.fit(model, array, bn.MultiTask({"a": bn.Gaussian()}))
    assert_type(tasks.predict(x), bn.MultiTaskPredictive)
    assert_type(regression.predict(array, bn.Delta(), keep="summary").interval(0.9), tuple[Tensor, Tensor])
    assert_type(bn.calibrate(classes, x, x).at_layers(2).predict(x).entropy, Tensor)
    regression.predict(x).entropy  # type: ignore[attr-defined]
    classes.predict(x).interval()  # type: ignore[attr-defined]
    bn.metrics.nll(regression.predict(x), x)  # type: ignore[arg-type]

    assert_type(bn.adapt(classes, x), AdaptedPosterior[bn.ClassificationPredictive])
    dropout = assert_type(bn.MCDropout().fit(model, x), DropoutPosterior[bn.RegressionPredictive])
    assert_type(bn.adapt(bn.combine(regression, dropout), x).predict(x), bn.RegressionPredictive)
    members = assert_type(bn.ensemble([classes, classes]), EnsemblePosterior[bn.ClassificationPredictive])
    assert_type(bn.adapt(members, x), EnsemblePosterior[bn.ClassificationPredictive])
    assert_type(bn.ensemble([model, model], bn.Categorical()), EnsemblePosterior[bn.ClassificationPredictive])
    assert_type(bn.suggest_layers(classes, x, x).posterior.predict(x), bn.ClassificationPredictive)
    assert_type(bn.select_batch_size(classes, (x, x)).posterior, BatchNormPosterior[bn.ClassificationPredictive])
    assert_type(bn.deterministic(model, bn.LearnedNoise(bn.Laplace()).likelihood()).predict(x), bn.RegressionPredictive)
    assert_type(classes.to("cuda", torch.bfloat16).predict(x)[x > 0], bn.ClassificationPredictive)

    bn.load("posterior.bayesnorm", model).predict(x).entropy
    loaded: Posterior[bn.ClassificationPredictive] = bn.load("posterior.bayesnorm", model)
    assert_type(loaded.predict(x), bn.ClassificationPredictive)
    assert_type(some.predict(x), bn.Predictive)
    assert_type(bn.with_noise_head(nn.Sequential()), nn.Sequential)
    packages = (bn.active, bn.compression, bn.plots, bn.report, bn.shift, bn.tabular, bn.theory, bn.training)
    bn.no_such_name  # type: ignore[attr-defined]
"""


def write_programs(folder: Path) -> list[Path]:
    """Write a program for each page, after the variables that a page takes for granted, and one with claims."""
    folder = folder / "pages"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    kinds = {name: type(value) for name, value in stand_ins().items()}
    lines = [f"{name}: {kind.__module__}.{kind.__qualname__}" for name, kind in kinds.items()]
    declared = "\n".join(lines).replace("DataLoader", "DataLoader[object]")
    (folder / f"{PRELUDE}.py").write_text(f"import torch\nimport torch.utils.data.dataloader\n\n{declared}\n")
    programs: dict[str, list[str]] = {}
    for page, _, _, code in blocks():
        start = ["import torch", f"from . import {PRELUDE}", *(f"{name} = {PRELUDE}.{name}" for name in kinds)]
        code = code.replace(", memory_format=torch.channels_last", "")  # torch's types of Module.to lack it
        programs.setdefault(re.sub(r"\W", "_", page.removesuffix(".md")), start).append(code)
    for name, parts in programs.items():
        (folder / f"{name}.py").write_text("\n".join(parts))
    (folder / "claims.py").write_text(CLAIMS)
    return [folder / f"{name}.py" for name in (*programs, "claims")]


def checked(*programs: Path) -> str:
    """Return the errors that mypy reports."""
    # The settings and the cache of `make typecheck`, which has already checked the package.
    command = (sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary")
    environment = os.environ | {"MYPYPATH": "src"}
    return subprocess.run([*command, *programs], cwd=ROOT, env=environment, capture_output=True, text=True).stdout


def test_readme_and_docs_and_the_types_of_results(tmp_path):
    pytest.importorskip("mypy")
    programs = write_programs(tmp_path)
    assert "README" in {path.stem for path in programs}
    assert checked(*programs) == ""


def test_packages_are_names():
    for name in ("active", "maps", "plots", "report", "tabular"):
        assert getattr(bn, name).__name__ == f"bayesnorm.{name}"
    assert bn.__getattr__("plots") is bn.plots
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        bn.__getattr__("no_such_name")


if __name__ == "__main__":
    write_programs(Path(sys.argv[1]))
