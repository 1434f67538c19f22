"""The learning curves at a small size, and the bandit: that they run and say what they claim to say."""

import re
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from experiments import active_digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "thompson_sampling.py"


def test_areas_by_hand():
    ramp, flat = np.array([[0.0, 1.0, 1.0], [0.0, 0.5, 1.0]]), np.full((2, 3), 0.5)
    made = active_digits.LearningCurves(np.array([0, 10, 20]), {"random": flat, "x": ramp}, {"random": flat, "x": ramp})
    assert made.area("accuracy")["x"].tolist() == pytest.approx([0.75, 0.5])
    gain = made.against_random("accuracy")["x"]
    assert gain.mean == pytest.approx(0.125)
    assert gain.standard_error == pytest.approx(0.125)


def test_thompson_sampling(monkeypatch, capsys):
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 90
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--rounds", "240", "--seeds", "1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    regret = dict(re.findall(r"^(\w+) .* (\d+) ± 0$", capsys.readouterr().out, re.MULTILINE))
    assert list(regret) == ["thompson", "epsilon_greedy", "greedy"]
    for name, wrong in regret.items():
        assert 0 < int(wrong) < 0.9 * 240 - 2 * (240 * 0.09) ** 0.5, f"{name} learns: fewer than by chance"
