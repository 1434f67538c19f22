"""Whole image sets, and parts of them."""

import dataclasses

import numpy as np
import pytest

from bayesnorm.errors import BayesNormError, FileFormatError
from experiments.data import WHOLE_SETS, DataNotFoundError, load_cifar10, load_cifar100, load_fashion_mnist, load_mnist

LOADERS = {"cifar10": load_cifar10, "cifar100": load_cifar100, "mnist": load_mnist, "fashion-mnist": load_fashion_mnist}


@pytest.fixture
def small(monkeypatch):
    """Sets of 40 training and 30 test images."""
    for name, made in WHOLE_SETS.items():
        monkeypatch.setitem(WHOLE_SETS, name, dataclasses.replace(made, splits={"train": 40, "test": 30}))


def put(folder, name, split, count=None):
    made = WHOLE_SETS[name]
    generator = np.random.default_rng(len(split))
    count = made.splits[split] if count is None else count
    x = generator.integers(0, 256, (count, *made.shape), dtype=np.uint8)
    y = generator.integers(0, made.classes, count).astype(np.uint8)
    (folder / name).mkdir(parents=True, exist_ok=True)
    np.savez(folder / name / f"{split}.npz", x=x, y=y)
    return x, y


def put_part(folder, of="cifar10", name="test_first2000"):
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install pillow")
    (folder / of).mkdir(parents=True, exist_ok=True)
    sheet = np.random.default_rng(3).integers(0, 256, (32, 3200, 3), dtype=np.uint8)
    pillow.fromarray(sheet).save(folder / of / f"{name}.webp", lossless=True)
    np.savez(folder / of / "labels.npz", **{name: np.arange(20) % 10})


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_whole_sets_come_back_as_they_were(name, split, small, data_folder):
    x, y = put(data_folder, name, split)
    images, labels = LOADERS[name](split)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(images, x)
    np.testing.assert_array_equal(labels, y)
    images, labels = LOADERS[name](split, [7, 3])
    np.testing.assert_array_equal(images, x[[7, 3]])
    np.testing.assert_array_equal(labels, y[[7, 3]])


def test_the_first_folder_decides_unless_all_images_are_wanted(small, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESNORM_DATA", str(tmp_path / "part"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put_part(tmp_path / "part")
    assert len(load_cifar10("test")[0]) == 20
    with pytest.raises(DataNotFoundError) as caught:
        load_cifar10("test", whole=True)
    assert f"{tmp_path / 'part' / 'cifar10'} has only the first 2,000 of 30" in str(caught.value)
    assert "`python -m experiments data get cifar10` to download all" in str(caught.value)
    with pytest.raises(
        BayesNormError, match=r"rows must be a number of images from 1 to 20, got 25\. .* has only the first"
    ):
        load_cifar10("test", 25)
    x, _ = put(tmp_path / "cache" / "bayesnorm", "cifar10", "test")
    assert len(load_cifar10("test")[0]) == 20
    np.testing.assert_array_equal(load_cifar10("test", whole=True)[0], x)
    put(tmp_path / "part", "cifar10", "test")
    assert len(load_cifar10("test")[0]) == 30


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((12, 28, 28), np.uint8), "y": np.zeros(12, int)}, "has 12 images and 12 labels instead of"),
        ({"x": np.zeros((30, 28, 28), np.uint8), "y": np.zeros(29, int)}, "has 30 images and 29 labels"),
        ({"x": np.zeros((30, 28, 28)), "y": np.zeros(30, int)}, r"images \(30, 28, 28\) of float64"),
        ({"x": np.zeros((30, 27, 28), np.uint8), "y": np.zeros(30, int)}, r"instead of \(30, 28, 28\) of uint8"),
        ({"x": np.zeros((30, 28, 28), np.uint8), "y": np.full(30, 10)}, "labels other than 0 to 9"),
    ],
)
def test_half_or_foreign_files_are_told(arrays, message, small, data_folder):
    (data_folder / "mnist").mkdir()
    np.savez(data_folder / "mnist" / "test.npz", **arrays)
    with pytest.raises(FileFormatError, match=message) as caught:
        load_mnist("test")
    assert str(data_folder / "mnist" / "test.npz") in str(caught.value)
    assert "python -m experiments data get mnist --force" in str(caught.value)
