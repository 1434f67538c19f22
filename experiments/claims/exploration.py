"""The claim of a lecture that uncertainty balances exploration and exploitation, on the bandit of the example."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path

from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column, mean, p_value, significantly_above

EXAMPLE = Path(__file__).parents[2] / "examples" / "thompson_sampling.py"
ROUNDS = 800
POLICIES = ("thompson", "epsilon_greedy", "greedy")


def measure(seed: int) -> Numbers:
    """Return the number of wrong buttons of each policy after all rounds."""
    example = runpy.run_path(str(EXAMPLE))
    return {name: float(example["play"](example[name], ROUNDS, seed)[-1]) for name in POLICIES}


def judge(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether Thompson sampling makes significantly fewer mistakes than each other policy."""
    gains = {
        name: [a - b for a, b in zip(column(runs, name), column(runs, "thompson"), strict=True)]
        for name in POLICIES[1:]
    }
    wins = [significantly_above(values) for values in gains.values()]
    shown = ", ".join(f"{mean(runs, name):.0f} ({name.replace('_', '-')})" for name in POLICIES)
    tests = ", ".join(f"{p_value(values):.1g}" for values in gains.values())
    word = HOLDS if all(wins) else PARTLY if any(wins) else FAILS
    return Verdict(word, f"wrong buttons of {ROUNDS}: {shown}; p = {tests} against the other two")


CLAIM = Claim(
    "thompson-sampling",
    "lecture on uncertainty in vision",
    "uncertainty helps to balance exploration and exploitation",
    "holds if acting on one sample makes significantly fewer mistakes than acting on the mean, and than random "
    "exploration (t-tests over seeds, 5 %); partly if than one of them",
    measure,
    judge,
)
