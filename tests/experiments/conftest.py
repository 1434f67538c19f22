"""What tests of experiments share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("typer", reason="needs typer: pip install typer rich")

from bayesnorm.plots import save_figure
from bayesnorm.theory import diagnose
from experiments import evidence
from experiments.app import run
from experiments.data import CAMVID_VOID, WHOLE_SETS
from experiments.networks import SegNet, UNet
from experiments.segmentation import frames, plans

from ..ended_commands import Command, command, refusal


@pytest.fixture(scope="module", autouse=True)
def coarse_pictures() -> Iterator[None]:
    """Pictures of few pixels, which are written in a fraction of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "save_figure", partial(save_figure, dpi=20))
        yield


@pytest.fixture
def experiments(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`experiments("show", "bench.sqlite")`: runs the command in this process."""
    return command(run, capsys, monkeypatch)


@pytest.fixture
def refuses(experiments: Command) -> Callable[..., str]:
    """`refuses("show", "none.sqlite", code=1)`: one line of error, no traceback, nothing else; gives the line."""
    return refusal(experiments)


@pytest.fixture
def small_sets(data_folder, monkeypatch):
    """`small_sets("mnist", train=48, test=20)`: whole sets of few images, whose class is how bright they are."""

    def make(*names, **splits):
        for number, name in enumerate(names):
            made = dataclasses.replace(WHOLE_SETS[name], splits=splits)
            monkeypatch.setitem(WHOLE_SETS, name, made)
            (data_folder / name).mkdir()
            for split, count in splits.items():
                y = np.arange(count) % 10
                noise = np.random.default_rng([number, count]).integers(0, 20, (count, *made.shape))
                bright = y.reshape(-1, *[1] * len(made.shape))
                np.savez(data_folder / name / f"{split}.npz", x=(noise + 23 * bright).astype(np.uint8), y=y)

    return make


@pytest.fixture
def road_scenes(monkeypatch):
    """Ten training and six test frames of 24 x 32 pixels in place of CamVid, and networks as small as that.

    Frames are patches whose colour tells their class.
    """

    def load(split, rows=None):
        count = frames.FRAMES[split]
        generator = np.random.default_rng(len(split))
        y = np.repeat(generator.integers(0, 4, (count, 6, 4)), 4, 1).repeat(8, 2)
        x = (50 * y + 20)[..., None] + generator.integers(0, 40, (*y.shape, 3))
        y[:, -1] = CAMVID_VOID
        chosen = slice(None) if rows is None else rows
        return x.astype(np.uint8)[chosen], y[chosen]

    monkeypatch.setitem(plans.NETWORKS, "small-unet", partial(UNet, width=4, depth=1))
    monkeypatch.setitem(plans.NETWORKS, "small-segnet", partial(SegNet, width=4, stages=(1, 1)))
    monkeypatch.setattr(frames, "FRAMES", {"train": 10, "val": 6, "test": 6})
    monkeypatch.setattr(frames, "load_camvid", load)
    monkeypatch.setattr(frames, "DUSK_FRAMES", {"train": 3, "val": 0, "test": 2})


@pytest.fixture(scope="session")
def diagnosis():
    """Skewed inputs: of 12 + 6 units some are rejected, and some are not."""
    x = torch.randn(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)
    )
    return diagnose(model.double(), x, (8, 40), batches=100)


@pytest.fixture(scope="session")
def epochs(diagnosis):
    return {1: diagnosis, 10: diagnosis}
