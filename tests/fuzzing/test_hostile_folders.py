"""A few cases of the attacks on run folders, maps folders and by kill -9; `python -m tests.fuzzing runs` tries more."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")
pytest.importorskip("typer", reason="needs typer: pip install typer rich")
pytest.importorskip("PIL", reason="needs Pillow: pip install pillow")
pytest.importorskip("jinja2", reason="needs Jinja2: pip install jinja2")

from .child import in_a_child
from .folders import Maps, Runs, read_hostile_folders
from .kills import Kills


@pytest.mark.parametrize(("cases", "count"), [(Runs, 24), (Maps, 24), (Kills, 8)])
def test_hostile_folders_are_refused_or_truthful(cases, count, tmp_path):
    def read_all():
        outcomes = read_hostile_folders(cases(tmp_path), range(1, 1 + count))
        assert not outcomes.faults, outcomes.as_json()

    in_a_child(read_all, more_memory=2**31)
