"""Bars of long operations."""

import time
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.compression import prune_channels
from bayesnorm.progress import long_progress
from bayesnorm.shift import DriftMonitor

pytest.importorskip("rich", reason="needs rich: pip install typer rich")


def shown(capsys, monkeypatch, seconds, terminal=True):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with long_progress("outer") as tell:
        now[0] = seconds
        tell(1, 3)
        with long_progress("inner") as inner:
            now[0] = 2 * seconds
            inner(1, 2)
        tell(2, 3)
    return capsys.readouterr().err


def test_a_bar_appears_after_two_seconds_and_only_the_outer_one(capsys, monkeypatch):
    text = shown(capsys, monkeypatch, 2.5)
    assert "outer" in text
    assert "inner" not in text


@pytest.mark.parametrize(("seconds", "terminal"), [(0.9, True), (2.5, False)])
def test_short_operations_and_files_get_no_bar(seconds, terminal, capsys, monkeypatch):
    assert shown(capsys, monkeypatch, seconds, terminal) == ""


def test_an_unknown_total_and_an_error_leave_the_next_bar_possible(capsys, monkeypatch):
    monkeypatch.setattr("bayesnorm.progress.QUIET_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(ZeroDivisionError), long_progress("first") as tell:
        tell(1 // 0, 0)
    with long_progress("second") as tell:
        tell(7, 0)
    assert "second" in capsys.readouterr().err


@pytest.fixture
def bars(monkeypatch):
    """The labels of bars, which appear at once."""
    shown = []
    monkeypatch.setattr("bayesnorm.progress.QUIET_SECONDS", -1.0)
    monkeypatch.setattr("bayesnorm.progress._can_show", lambda: True)

    def bar(label="training"):
        shown.append(label)
        return nullcontext(lambda done, total: None)

    monkeypatch.setattr("bayesnorm.progress.progress_bar", bar)
    return shown


CALLS = {
    "predict": lambda posterior, x, y: posterior.predict(x),
    "calibrate": bn.calibrate,
    "drift": lambda posterior, x, y: bn.drift(posterior, x),
    "adapt": lambda posterior, x, y: bn.adapt(posterior, x),
    "monitor": lambda posterior, x, y: DriftMonitor(posterior).update(x),
    "ood_scores": lambda posterior, x, y: bn.ood_scores(posterior, x, x),
    "suggest_layers": lambda posterior, x, y: bn.suggest_layers(posterior, x, y, budget=1e9),
    "select_batch_size": lambda posterior, x, y: bn.select_batch_size(posterior, (x, y)),
    "prune_channels": lambda posterior, x, y: prune_channels(posterior, x, multiply_adds=0.9),
    "diagnose": lambda posterior, x, y: bn.diagnose(posterior.model, x, 8, batches=20),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_function_that_may_take_long_shows_a_bar(name, bars, monkeypatch):
    for limit in (
        "collecting.normalising.MOST_ELEMENTS",
        "collecting.normalising.AT_ONCE",
        "running.plan.CPU_BLOCK_BYTES",
    ):
        monkeypatch.setattr(f"bayesnorm.network.{limit}", 64)
    monkeypatch.setattr("bayesnorm.compression.elimination.AT_ONCE", 64)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    x, y = torch.randn(300, 4), torch.randint(3, (300,))
    posterior = bn.MCBN(8, states=16).fit(network, x, bn.Categorical())
    bars.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bn.BayesNormWarning)  # the network is not trained
        CALLS[name](posterior, x, y)
    assert bars
