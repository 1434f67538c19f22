"""The examples run, and so does the Python of README and docs; names that pages mention exist.

Python blocks of a page are run in order in one namespace, which begins with stand-ins for what a reader has: a trained
network with its rows, and a classifier with its images. A block that needs more says so in a comment just before it:
`<!-- needs: cuda -->` or `<!-- needs: data -->`.
"""

from __future__ import annotations

import copy
import functools
import re
import runpy
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from matplotlib import pyplot
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm.calibration import late_layers
from bayesnorm.tabular import estimator
from bayesnorm.tabular.search_plan import plan_for
from experiments.data import DataNotFoundError, find

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?:<!-- needs: (?P<needs>\w+) -->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
EVERY_PAGE = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
# The method of CONTRIBUTING.md is a file of the package: tests/contract/ runs it.
PAGES = [name for name in EVERY_PAGE if name != "CONTRIBUTING.md" and BLOCK.search((ROOT / name).read_text("utf-8"))]
RESNET_FILES = (
    "resnet_cifar10/resnet32.safetensors",
    "cifar10/labels.npz",
    "cifar10/train_first5000.webp",
    "cifar10/test_first2000.webp",
)


def missing(need: str) -> str | None:
    """Why a block or example cannot be run here, or None."""
    if need == "cuda":
        return None if torch.cuda.is_available() else "needs a GPU"
    assert need == "data", f"unknown need {need!r}"
    try:
        for file in RESNET_FILES:
            find(file)
    except DataNotFoundError as error:
        return f"needs real data: {error}"
    return None


def blocks():
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))):
            yield page, number, match["needs"], match["code"]


@functools.cache
def stand_ins() -> dict[str, object]:
    """What the pages take for granted: `model` with rows, and `classifier` with images, both small to be fast."""
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = torch.sin(2 * x[:, :1]) + 0.2 * torch.randn(400, 1)
    model = nn.Sequential(
        nn.Linear(3, 20), nn.BatchNorm1d(20), nn.ReLU(),
        nn.Linear(20, 20), nn.BatchNorm1d(20), nn.ReLU(),
        nn.Linear(20, 1),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        rows = torch.randperm(300)[:32]
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
        optimiser.step()
    pixels, labels = torch.randn(200, 3, 8, 8), torch.randint(5, (200,))
    classifier = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5),
    )  # fmt: skip
    optimiser = torch.optim.Adam(classifier.parameters(), lr=1e-2)
    for _ in range(20):  # so that it predicts several classes
        images = torch.randperm(100)[:64]
        optimiser.zero_grad()
        nn.functional.cross_entropy(classifier(pixels[images]), labels[images]).backward()
        optimiser.step()
    return {
        "model": model.eval(),
        "x_train": x[:300],
        "y_train": y[:300],
        "x_val": x[300:],
        "y_val": y[300:],
        "x_new": torch.randn(6, 3),
        "classifier": classifier.eval(),
        "train_loader": DataLoader(TensorDataset(pixels[:100], labels[:100]), batch_size=64),
        "val_loader": DataLoader(TensorDataset(pixels[110:], labels[110:]), batch_size=64),
        "test_loader": DataLoader(TensorDataset(pixels[100:110], labels[100:110]), batch_size=4),
        "images": pixels[100:110],
        "images_val": pixels[110:],
        "labels_val": labels[110:],
    }


# Whatever batch size stands best with stand-ins for a user's network.
@pytest.mark.filterwarnings("ignore:Temperature scaling alone:bayesnorm.BayesNormWarning")
@pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")
@pytest.mark.filterwarnings("ignore:The smaller network gives:bayesnorm.BayesNormWarning")
@pytest.mark.filterwarnings("ignore:temperature. .* scored best:bayesnorm.BayesNormWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Costs are measured, and a busy machine is no fault of the page.
    monkeypatch.setattr(late_layers, "prediction_cost", lambda posterior, _x, _samples: 1 + 0.5 * len(posterior.layers))
    # Nor does a table have to be learned well.
    brief = {"max_epochs": 4, "fast": True}
    monkeypatch.setattr(estimator, "plan_for", lambda *rows, **options: plan_for(*rows, **{**options, **brief}))
    names, left_out = {"torch": torch, **copy.deepcopy(stand_ins())}, []
    results = [(number, need, code) for where, number, need, code in blocks() if where == page]
    assert results, "a page has Python"
    for number, need, code in results:
        why = missing(need) if need else None
        if why is None:
            exec(compile(code, f"{page}, block {number}", "exec"), names)
        else:
            left_out.append((number, why))
    pyplot.close("all")
    assert len(left_out) < len(results)
    for number, why in left_out:
        assert why.startswith("needs"), f"block {number}"


@pytest.mark.parametrize(
    ("page", "number", "need"), [(page, number, need) for page, number, need, _ in blocks() if need]
)
def test_blocks_with_a_need(page, number, need):
    """Shows, as a skip with its reason, what the test above had to leave out."""
    why = missing(need)
    if why is not None:
        pytest.skip(f"{page}, block {number}: {why}")


@pytest.mark.parametrize(
    "page",
    [page for page in EVERY_PAGE if page != "CHANGELOG.md"],  # which lists old names
)
def test_names_of_a_page_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    names = set(re.findall(r"\bbn\.(\w+)", text)) - {"MyBN"}
    assert not {name for name in names if not hasattr(bn, name)}


def test_the_table_of_attributes_is_whole_and_true():
    text = (ROOT / "docs" / "getting_started" / "your_network.md").read_text(encoding="utf-8")
    table = text.split("| attribute | regression |")[1].split("\n\n")[0]
    kinds = {1: bn.RegressionPredictive, 2: bn.ClassificationPredictive}
    said: dict[type, set[str]] = {kind: set() for kind in kinds.values()}
    for row in table.splitlines()[2:]:
        _, first, *cells, _ = row.split("|")
        for column, kind in kinds.items():
            if cells[column - 1].strip():
                said[kind] |= set(re.findall(r"`(\w+)", first))
    held = {"loc", "scale", "noise", "weights", "log_probs", "targets", "observed"}  # what a predictive is made of
    for kind, names in said.items():
        assert names == {name for name in dir(kind) if not name.startswith("_")} - held, kind.__name__


@dataclass
class Ended:
    """How an example ended, as a shell sees it."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example as a program in this process, which has torch loaded; warnings are errors."""

    def run_here(example: str, *arguments: str) -> Ended:
        path = ROOT / "examples" / example
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        code: object = 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as end:
                code = end.code
        told = capsys.readouterr()
        if isinstance(code, str):  # as Python does
            return Ended(1, told.out, f"{told.err}{code}\n")
        return Ended(int(code or 0), told.out, told.err)

    return run_here


def test_your_network(run):
    done = run("your_network.py")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:8]]
    uncertainty = {float(row[0]): float(row[3]) for row in rows}
    assert uncertainty[4.0] > 2 * uncertainty[1.0] > 0, "more uncertainty where it has seen nothing"
    assert all(float(row[4]) < float(row[1]) < float(row[6]) for row in rows)
    assert "same predictions" in done.stdout


def test_how_good_is_my_uncertainty(run):
    """The numbers of its output, with room for another machine's arithmetic over some thousand training steps."""
    source = (ROOT / "examples" / "how_good_is_my_uncertainty.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 50
    done = run("how_good_is_my_uncertainty.py")
    assert done.returncode == 0, done.stderr
    text = done.stdout

    def numbers(pattern):
        match = re.search(pattern, text)
        assert match, pattern
        return [float(number) for number in match.groups()]

    noise_std, effective = numbers(r"noise std ([\d.]+), effective batch size (\d+)")
    rmse, crps = numbers(r"RMSE ([\d.]+), CRPS ([\d.]+)")
    by_crps, by_pll = numbers(r"CRPS (-?[\d.]+) %, log-likelihood (-?[\d.]+) %")
    assert (15 < noise_std < 45, 2 <= effective <= 16, 2 < by_crps < 15, 0 < by_pll < 15) == (True,) * 4
    assert (rmse, crps) == (pytest.approx(62.8, abs=3), pytest.approx(36.0, abs=2))
    assert 84 <= numbers(r"contain (\d+)%")[0] <= 98  # 95 % of 88 rows: a standard error of 2.3
    lost = [float(number) for number in re.findall(r"would lose (\d+)% of the outputs' variance", text)]
    assert len(lost) == 2
    assert max(lost) < 60


def test_trained_resnet_says_in_one_line_what_is_missing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESNORM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run("trained_resnet.py")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "resnet_cifar10/resnet32.safetensors" in line
    assert "BAYESNORM_DATA" in line


def test_trained_resnet(run):
    why = missing("data")
    if why is not None:
        pytest.skip(why)
    pytest.importorskip("PIL", reason="needs Pillow: pip install pillow")
    done = run("trained_resnet.py", "--images", "40", "--samples", "4", "--states", "8")
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith(("softmax", "MCBN"))]
    assert len(table) == 5
    # 20 images at an error of about 7 %: more than 6 wrong has a probability below 0.001.
    assert all(float(line.split()[-3]) >= 0.7 for line in table)
