"""`get`: which source is taken, what is written, and what is said where nothing can be had."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bayesnorm.errors import FileFormatError
from experiments.data import cache_folder, get, load_mnist, load_uci, whole_sets
from experiments.data.getting.files import SourceUnreachable
from experiments.data.getting.get import SETS, content_digest
from experiments.data.getting.sources import Origin, Target

X, Y = np.arange(12.0).reshape(4, 3), np.arange(4.0)


@dataclasses.dataclass(frozen=True)
class File:
    """A stand-in for a download: `comes` is None where it cannot be reached."""

    name: str
    comes: bytes | None = b"table"
    checksum: str | None = "md5:0"

    def fetch(self, folder, tell):
        path = folder / self.name
        if not path.exists():
            if self.comes is None:
                raise SourceUnreachable(f"{self.name} cannot be reached")
            path.write_bytes(self.comes)
            tell(self.name, 5, 5)
        return path

    def by_hand(self):
        return f"the file {self.name}"


def read(paths):
    if paths[0].read_bytes() != b"table":
        raise ValueError("no table")
    return [(X, Y)]


@pytest.fixture
def sets(monkeypatch):
    """`sets(File(...), File(...))`: a set called yacht of one table, with these files as its sources."""

    def put(*files, digest=None):
        origins = tuple(Origin((file,), read) for file in files)
        monkeypatch.setitem(SETS, "yacht", (Target({"uci/yacht.npz": digest}, ("X", "y"), origins),))

    return put


def test_written_where_the_loaders_look(sets, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BAYESNORM_DATA", raising=False)
    sets(File("a"), digest=content_digest((X, Y)))
    told = []
    value = get("yacht", tell=lambda *words: told.append(words))
    assert value.written == (cache_folder() / "uci" / "yacht.npz",)
    assert not value.missing
    np.testing.assert_array_equal(load_uci("yacht")[0], X)
    assert told == [("a", 5, 5)]
    assert [path.name for path in cache_folder().iterdir()] == ["uci"]  # the download is gone
    assert get("yacht").written == value.written
    assert len(told) == 1  # what is there is not fetched
    (cache_folder() / "uci" / "yacht.npz").write_bytes(b"half")
    get("yacht", force=True)
    np.testing.assert_array_equal(load_uci("yacht")[1], Y)


def test_what_cannot_be_had_is_told_and_taken_when_it_was_put_there(sets, tmp_path):
    sets(File("a", None), File("b", None))
    value = get("yacht", tmp_path)
    assert not value.written
    assert value.missing == (
        "uci/yacht.npz cannot be downloaded (a cannot be reached; b cannot be reached). To add the data by hand, put "
        f"the file a or the file b into {tmp_path / 'downloads'} and run the same command again.",
    )
    assert not (tmp_path / "uci").exists()
    (tmp_path / "downloads").mkdir(exist_ok=True)
    (tmp_path / "downloads" / "b").write_bytes(b"table")
    assert get("yacht", tmp_path).written
    assert (tmp_path / "downloads" / "b").exists()  # it is not ours


def test_a_broken_file_is_an_error_that_names_it_and_nothing_is_written(sets, tmp_path):
    sets(File("a.csv", b"half"), File("b"))
    with pytest.raises(FileFormatError, match=r"a\.csv in .*downloads: cannot be read \(no table\)"):
        get("yacht", tmp_path)
    assert not (tmp_path / "uci").exists()
    sets(File("c.csv"), digest="other")
    with pytest.raises(FileFormatError, match=r"c\.csv .* the content is not that of uci/yacht\.npz"):
        get("yacht", tmp_path)
    assert not (tmp_path / "uci").exists()


def test_a_page_in_place_of_a_file_without_checksum_is_passed_over(sets, tmp_path):
    sets(File("a", b"<html>", None), File("b"))
    assert get("yacht", tmp_path).written
    sets(File("a", b"<html>", None))
    (told,) = get("yacht", tmp_path, force=True).missing
    assert "cannot be read (no table)" in told


def test_a_set_of_images_has_to_be_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESNORM_DATA", str(tmp_path))
    small = dataclasses.replace(whole_sets.WHOLE_SETS["mnist"], splits={"train": 5, "test": 3})
    monkeypatch.setitem(whole_sets.WHOLE_SETS, "mnist", small)

    def put(test):
        arrays = [(np.ones((n, 28, 28), np.uint8), np.zeros(n, np.uint8)) for n in (5, test)]
        origin = Origin((File("a"),), lambda _paths: arrays)
        files = {"mnist/train.npz": None, "mnist/test.npz": None}
        monkeypatch.setitem(SETS, "mnist", (Target(files, ("x", "y"), (origin,)),))

    put(test=2)
    with pytest.raises(FileFormatError, match="has 2 images and 2 labels instead of all 3 of test"):
        get("mnist", tmp_path)
    assert not (tmp_path / "mnist").exists()
    put(test=3)
    get("mnist", tmp_path)
    assert load_mnist("train")[0].shape == (5, 28, 28)
