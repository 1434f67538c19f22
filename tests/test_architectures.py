"""The benchmark of architectures: it finds what works, and says why something does not."""

import json
import os
import sys
import time
from dataclasses import asdict

import pytest
import torch
from torch import nn

import benchmarks.architectures
from benchmarks.architectures import STEPS, outcome, try_network
from benchmarks.architectures_networks import Architecture


class Roots(nn.Module):
    """Has an operation between batch norm and outputs that channels cannot be pruned through."""

    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=(2, 3)).cumsum(1)


def test_every_step_is_tried_and_a_refusal_is_quoted(tmp_path):
    torch.manual_seed(0)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    plain = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), *head
    )
    odd = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), Roots(), nn.Linear(8, 3))
    x = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert try_network(plain.eval(), x, tmp_path) == dict.fromkeys(STEPS, "yes")
    outcomes = try_network(odd.eval(), x, tmp_path)
    assert "no channel that can be pruned" in outcomes.pop("prune")
    assert set(outcomes.values()) == {"yes"}


def test_without_a_posterior_the_other_steps_are_not_tried(tmp_path):
    outcomes = try_network(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval(), torch.randn(32, 3, 2, 2), tmp_path)
    assert "no batch-norm layer" in outcomes["fit"]
    assert outcomes["predict"] == outcomes["save/load"] == "no posterior"


ARCHITECTURE = Architecture("timm", "family", "name", 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_what_does_not_end_before_the_deadline_is_no_result_and_a_crash_is_one(monkeypatch):
    monkeypatch.setattr(benchmarks.architectures, "network_and_images", lambda *_: time.sleep(60))
    assert outcome(ARCHITECTURE, time.monotonic() - 1) is None
    assert outcome(ARCHITECTURE, time.monotonic() + 0.2) is None
    monkeypatch.setattr(benchmarks.architectures, "network_and_images", lambda *_: os._exit(5))
    row = outcome(ARCHITECTURE, time.monotonic() + 100)
    assert row["name"] == "name"
    assert set(row["steps"].values()) == {"the process ended with code 5"}


def test_a_run_continues_from_another_file_and_keeps_which_machine_a_result_comes_from(monkeypatch, tmp_path):
    step = dict.fromkeys(STEPS, "yes")
    other = asdict(ARCHITECTURE) | {"name": "other"}
    first = {"machines": [{"device": "a"}], "chosen": [asdict(ARCHITECTURE), other], "architectures": []}
    first["architectures"].append(other | {"pixels": 32, "steps": step, "machine": 0})
    (tmp_path / "first.json").write_text(json.dumps(first))
    run = {
        "machine": lambda _: {"device": "b"},
        "version": lambda _: "1",
        "import_libraries": lambda: None,
        "exists": lambda _: True,
        "outcome": lambda entry, _: asdict(entry) | {"pixels": 64, "steps": step},
    }
    for name, replacement in run.items():
        monkeypatch.setattr(benchmarks.architectures, name, replacement)
    second = tmp_path / "folder" / "second.json"
    arguments = ["architectures", "--start-from", str(tmp_path / "first.json"), "--out", str(second)]
    monkeypatch.setattr(sys, "argv", arguments)
    benchmarks.architectures.main()
    content = json.loads(second.read_text())
    rows = {row["name"]: row for row in content["architectures"]}
    assert rows["name"]["pixels"] == 64
    assert rows["other"]["pixels"] == 32
    assert content["machines"][rows["name"]["machine"]]["device"] == "b"
    assert content["machines"][rows["other"]["machine"]]["device"] == "a"
    assert json.loads((tmp_path / "first.json").read_text()) == first
