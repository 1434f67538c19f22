"""Whole image sets, and parts of them."""

import dataclasses

import numpy as np
import pytest
import torch

from bayesnorm.errors import BayesNormError, FileFormatError, InputError
from experiments.data import (
    WHOLE_SETS,
    DataNotFoundError,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
    load_mnist,
    to_tensor,
)

LOADERS = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
}


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


@pytest.mark.parametrize("name", LOADERS)
def test_absent_sets_and_unknown_splits(name, data_folder):
    with pytest.raises(DataNotFoundError, match=f"{name}/train.npz"):
        LOADERS[name]("train")
    with pytest.raises(BayesNormError, match=r"split must be .*got 'val'"):
        LOADERS[name]("val")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": np.zeros((12, 28, 28), np.uint8), "y": np.zeros(12, int)},
            "has 12 images and 12 labels instead of all 30",
        ),
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


def test_tensors_have_channels_first():
    colours = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    assert torch.equal(to_tensor(colours), torch.from_numpy(colours).permute(0, 3, 1, 2))
    assert to_tensor(colours[..., 0]).shape == (2, 1, 4, 5)
    for bad in (colours.astype(float), colours[0, 0]):
        with pytest.raises(InputError, match="images must be uint8"):
            to_tensor(bad)
