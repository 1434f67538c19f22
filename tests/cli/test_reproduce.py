"""`bayesnorm reproduce`: names, and arguments that go to the experiment."""

from __future__ import annotations

import importlib
import sys

import pytest

from experiments import teye_tables
from experiments.commands.reproduce import EXPERIMENTS


def test_alone_it_lists(bayesnorm):
    ended = bayesnorm("reproduce")
    names = [line.split()[0] for line in ended.out.splitlines()[2:]]
    assert names == ["teye-figure1", *EXPERIMENTS, *(f"teye-table{number}" for number in teye_tables.TABLES)]
    assert all(len(line.split()) > 3 for line in ended.out.splitlines()[2:])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_get_the_rest_of_the_arguments(bayesnorm, monkeypatch, name):
    module = importlib.import_module(f"experiments.{EXPERIMENTS[name][0]}")
    seen = []
    monkeypatch.setattr(module, "main", lambda: seen.append(sys.argv))
    before = sys.argv
    assert bayesnorm("reproduce", name, "gap", "--out", "here").code == 0
    assert seen == [[f"bayesnorm reproduce {name}", "gap", "--out", "here"]]
    assert sys.argv is before


def test_an_experiment_has_help_and_errors_of_its_own(bayesnorm):
    ended = bayesnorm("reproduce", "teye-figure3", "--help")
    assert ended.code == 0
    assert "usage: bayesnorm reproduce teye-figure3" in ended.out
    assert "folder for the pictures" in ended.out
    ended = bayesnorm("reproduce", "teye-figure3", "--frob")
    assert ended.code == 2
    assert "unrecognized arguments: --frob" in ended.err


def test_figure1(bayesnorm, tmp_path):
    pytest.importorskip("matplotlib")
    ended = bayesnorm("reproduce", "teye-figure1", "--out", tmp_path / "new" / "out", "--epochs", 2)
    picture = tmp_path / "new" / "out" / "teye_figure1.png"
    assert (ended.code, ended.out) == (0, f"{picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_tables(bayesnorm, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(teye_tables, "render", lambda *arguments: asked.append(arguments) or "the table")
    store = tmp_path / "store.sqlite"
    store.touch()
    assert bayesnorm("reproduce", "teye-table4").out == "the table\n"
    bayesnorm("reproduce", "teye-table11", "--rows", tmp_path / "rows.csv")
    bayesnorm("reproduce", "teye-table1", "--store", store)
    assert asked == [(4, None, None), (11, tmp_path / "rows.csv", None), (1, None, store)]
    ended = bayesnorm("reproduce", "teye-table1", "--rows", "a", "--store", "b")
    assert ended.code == 2
    assert "--rows and --store were given" in ended.err


def test_refuses(refuses, tmp_path):
    assert "NAME: 'teye-table2' was given; one of teye-figure1" in refuses("reproduce", "teye-table2", code=2)
    assert "there is no file" in refuses("reproduce", "teye-table4", "--store", tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()
    assert "none.csv" in refuses("reproduce", "teye-table4", "--rows", tmp_path / "none.csv")
