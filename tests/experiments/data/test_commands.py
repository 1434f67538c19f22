"""`python -m experiments data`: what is here, where it is looked for, and UCI tables as CSV."""

from __future__ import annotations

import csv
import json
from functools import partial

import numpy as np
import pytest

from experiments import data
from experiments.data import DataNotFoundError
from experiments.data_commands import data_get as module
from experiments.data_commands.data_list import FILES


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


def test_a_set_with_a_missing_file_is_not_found(experiments, data_folder):
    (data_folder / "svhn").mkdir()
    for file in FILES["svhn"]:
        told = {row["name"]: row["found"] for row in json.loads(experiments("data", "list", "--json").out)}
        assert told["svhn"] is None
        (data_folder / file).touch()
    told = {row["name"]: row["found"] for row in json.loads(experiments("data", "list", "--json").out)}
    assert told["svhn"] == str(data_folder / "svhn")


def test_a_part_is_told_from_the_whole(experiments, data_folder):
    def told():
        rows = json.loads(experiments("data", "list", "--json").out)
        return next((row["found"], row["part"]) for row in rows if row["name"] == "cifar10")

    cache = data.cache_folder() / "cifar10"
    cache.mkdir(parents=True)
    (data_folder / "cifar10").mkdir()
    for file in ("train.npz", "test.npz"):
        assert told() == (None, None)
        (cache / file).touch()
    assert told() == (str(cache), None)
    for file in FILES["cifar10"]:
        (data_folder / file).touch()
    assert told() == (str(data_folder / "cifar10"), "the first 2,000 test and 5,000 training images")
    for file in ("train.npz", "test.npz"):
        (data_folder / "cifar10" / file).touch()
    assert told() == (str(data_folder / "cifar10"), None)


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


@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("cifar10", [lambda: data.load_cifar10("test", 1), lambda: data.load_cifar10("train", 1)]),
        ("svhn", [lambda: data.load_svhn(1)]),
        ("camvid", [partial(data.load_camvid, split, 1) for split in ("train", "val", "test")]),
        ("notmnist", [lambda: data.load_notmnist(1)]),
    ],
)
def test_the_listed_files_are_those_that_are_loaded(name, loads, require):
    require(*FILES[name])
    asked = set()
    find = data.images.find

    def watch(path):
        asked.add(str(path))
        return find(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.images, "find", watch)
        patch.setattr(data.images, "find_first", lambda *paths: find(paths[-1]))  # the part, whatever else is there
        for load in loads:
            try:
                load()
            except DataNotFoundError as error:  # pragma: no cover - a list that is wrong
                pytest.fail(str(error))
    assert asked == set(FILES[name])


def test_path(experiments, data_folder, tmp_path):
    lines = experiments("data", "path").out.splitlines()
    assert lines == [str(data_folder), f"{tmp_path / 'cache' / 'bayesnorm'}  (does not exist)"]
    told = json.loads(experiments("data", "path", "--json").out)
    assert told[0] == {"folder": str(data_folder), "exists": True}
    assert told[1]["exists"] is False


def test_csv_of_a_uci_set(experiments, yacht, tmp_path):
    X, y = yacht
    out = tmp_path / "yacht.csv"
    ended = experiments("data", "csv", "yacht", "--out", out)
    assert (ended.code, ended.err) == (0, f"Wrote 4 rows and 4 columns to {out}.\n")
    header, *rows = read(out)
    assert header == ["x1", "x2", "x3", "y"]
    assert np.array_equal(np.array(rows, float), np.column_stack([X, y]))


def test_csv_overwrites_only_when_told(experiments, refuses, yacht, tmp_path):
    out = tmp_path / "yacht.csv"
    out.write_text("mine")
    line = refuses("data", "csv", "yacht", "--out", out)
    assert line == f"error: --out: {out} exists already. Use --force to overwrite it, or choose another name.\n"
    assert out.read_text() == "mine"
    assert experiments("data", "csv", "yacht", "--out", out, "--force").code == 0
    assert len(read(out)) == 5


@pytest.mark.parametrize(
    ("name", "out", "code", "message"),
    [
        ("frob", "a.csv", 2, "NAME must be one of boston, concrete"),
        ("boston", "a.csv", 1, "data file 'uci/boston.npz' was not found"),
        ("boston", ".", 1, "is a folder. Pass the name of a file"),
        ("boston", "no/such/a.csv", 1, "does not exist. Create it first"),
    ],
)
def test_csv_refuses(refuses, data_folder, tmp_path, name, out, code, message):
    assert message in refuses("data", "csv", name, "--out", tmp_path / out, code=code)
    assert not (tmp_path / "a.csv").exists()
