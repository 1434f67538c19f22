"""Where data files are looked for."""

import os
from pathlib import Path

import pytest

from bayesnorm.errors import BayesNormError
from experiments.data import DataNotFoundError, cache_folder, find


def test_first_folder_wins_and_later_ones_fill_in(tmp_path, monkeypatch):
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "cache" / "bayesnorm"]
    for folder in folders:
        folder.mkdir(parents=True)
    monkeypatch.setenv("BAYESNORM_DATA", os.pathsep.join(map(str, folders[:2])))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder, names in zip(folders, [["x"], ["x", "y"], ["x", "y", "z"]], strict=True):
        for name in names:
            (folder / name).write_text(folder.name)
    assert find("x") == folders[0] / "x"
    assert find(Path("y")) == folders[1] / "y"
    assert find("z") == folders[2] / "z"


def test_missing_file_says_what_where_and_what_to_do(data_folder):
    (data_folder / "uci").mkdir()  # a folder of the right name is not the file
    with pytest.raises(DataNotFoundError) as caught:
        find("uci")
    message = str(caught.value)
    assert "'uci'" in message
    assert str(data_folder) in message
    assert f"{cache_folder()} (does not exist)" in message
    assert "Set BAYESNORM_DATA" in message


def test_paths_outside_the_data_folders_are_refused(data_folder):
    for path in ("/etc/hostname", "../secret", "uci/../../secret"):
        (data_folder.parent / "secret").write_text("")
        with pytest.raises(BayesNormError, match="relative_path must be inside a data folder"):
            find(path)
