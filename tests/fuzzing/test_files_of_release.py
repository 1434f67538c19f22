"""Files that release 0.2.0 wrote, one of every kind, are read by this version and predict the same."""

import json
import shutil

import pytest
import torch

from .kinds import kinds
from .write_release import predictions_of_run, release_folder

WRITTEN = release_folder("0.2.0")
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())
KINDS = kinds()


def assert_same(numbers, expected):
    """Numbers in single precision, from another machine's arithmetic; `checkpoint` has trained on."""
    assert len(numbers) == len(expected)
    for array, values in zip(numbers, expected, strict=True):
        torch.testing.assert_close(
            array.flatten()[: len(values)].double(), torch.tensor(values).double(), rtol=1e-3, atol=1e-5
        )


def test_every_kind_of_file_of_this_version_is_there():
    assert {name.replace(" ", "_") for name in KINDS} | {"run"} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_file_of_the_release_is_read_and_gives_the_same_numbers(name, tmp_path):
    stem = name.replace(" ", "_")
    shutil.copy(WRITTEN / f"{stem}.bayesnorm", tmp_path / "file")
    assert_same(KINDS[name].use(tmp_path / "file"), EXPECTED[stem])


def test_a_run_of_the_release_predicts_the_same(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(WRITTEN / "run", run)
    numbers = predictions_of_run(run, WRITTEN / "run.csv", tmp_path / "predictions.csv")
    assert_same([torch.tensor(values, dtype=torch.float64) for values in numbers], EXPECTED["run"])
