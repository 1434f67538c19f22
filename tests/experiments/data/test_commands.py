"""`python -m experiments data`: what is here, where it is looked for, and UCI tables as CSV."""

import csv
import json

import numpy as np
import pytest

from experiments import data
from experiments.data_commands import data_get as module


@pytest.fixture
def yacht(data_folder):
    (data_folder / "uci").mkdir()
    X, y = np.arange(12.0).reshape(4, 3) / 3, np.array([0.1, 1e30, -2.5, 7.0])
    np.savez(data_folder / "uci" / "yacht.npz", X=X, y=y)
    return X, y


def read(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_list(experiments, yacht, data_folder):
    lines = {line.split()[0]: line.split() for line in experiments("data", "list").out.splitlines()}
    assert lines["yacht"] == ["yacht", "table", str(data_folder / "uci")]
    assert lines["boston"] == ["boston", "table", "no"]
    assert lines["mnist"] == ["mnist", "images", "no"]
    told = {row["name"]: row for row in json.loads(experiments("data", "list", "--json").out)}
    assert told["yacht"] == {"name": "yacht", "kind": "table", "found": str(data_folder / "uci"), "part": None}
    assert told["cifar10"] == {"name": "cifar10", "kind": "images", "found": None, "part": None}
    assert {*data.UCI_SETS} < told.keys()


def test_get_prints_files_and_says_what_is_missing(experiments, data_folder, tmp_path, monkeypatch):
    asked = []

    def get(name, folder, *, force, tell):
        asked.append((name, folder, force))
        tell("some.tgz", 5, 10)
        return data.Outcome((tmp_path / "a.npz",), ("b.npz cannot be fetched: put it there.",) if force else ())

    monkeypatch.setattr(module, "get", get)
    ended = experiments("data", "get", "uci", "--to", tmp_path)
    assert (ended.code, ended.out, ended.err) == (0, f"{tmp_path / 'a.npz'}\n", "")
    ended = experiments("data", "get", "uci", "--force")
    assert (ended.code, ended.out) == (1, f"{tmp_path / 'a.npz'}\n")
    assert ended.err == (
        "b.npz cannot be fetched: put it there.\n"
        "error: 1 of 2 files of uci could not be downloaded. See the messages above.\n"
    )
    assert asked == [("uci", tmp_path, False), ("uci", None, True)]
    ended = experiments("data", "get", "imagenet")
    assert ended.code == 2
    assert "NAME must be one of cifar10, cifar100, mnist" in ended.err


def test_csv_of_a_uci_set(experiments, yacht, tmp_path):
    X, y = yacht
    out = tmp_path / "yacht.csv"
    ended = experiments("data", "csv", "yacht", "--out", out)
    assert (ended.code, ended.err) == (0, f"Wrote 4 rows and 4 columns to {out}.\n")
    header, *rows = read(out)
    assert header == ["x1", "x2", "x3", "y"]
    assert np.array_equal(np.array(rows, float), np.column_stack([X, y]))
