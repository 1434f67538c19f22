"""Data sets: where they are looked for, how tables and images are read, and parts of whole sets."""

import dataclasses
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesnorm.errors import BayesNormError, FileFormatError
from experiments.data import (
    CIFAR10_CLASSES,
    UCI_SETS,
    WHOLE_SETS,
    DataNotFoundError,
    cache_folder,
    find,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
    load_mnist,
    load_uci,
    to_network_input,
)


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


SHAPES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine": (1599, 11),
    "yacht": (308, 6),
}


@pytest.mark.parametrize("name", UCI_SETS)
def test_shapes_and_types(name, require):
    require(f"uci/{name}.npz")
    X, y = load_uci(name)
    assert X.shape == SHAPES[name]
    assert y.shape == SHAPES[name][:1]
    assert X.dtype == y.dtype == np.float64
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()


def saved(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


X, OBJECTS = np.ones((30, 2)), np.array([{"code": 1}], dtype=object)
DAMAGED = [
    b"",
    b"not an archive",
    saved(X=X, y=X[:, 0])[:300],
    saved(X=OBJECTS, y=X[:1, 0]),
    saved(X=X),
    saved(X=X, y=X),
]


@pytest.mark.parametrize("content", DAMAGED, ids=len)
def test_damaged_or_foreign_file_is_a_clear_error(content, data_folder):
    (data_folder / "uci").mkdir()
    (data_folder / "uci" / "yacht.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"yacht\.npz"):
        load_uci("yacht")


COUNT = 250  # two and a half rows of a sheet with 100 images to a row


@pytest.fixture
def small_cifar10(data_folder):
    """A CIFAR-10 folder of 250 random test images; returns what was put in."""
    image_module = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install pillow")
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
    labels = generator.integers(0, 10, COUNT).astype(np.uint8)
    sheet = np.zeros((3 * 32, 100 * 32, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        top, left = 32 * (i // 100), 32 * (i % 100)
        sheet[top : top + 32, left : left + 32] = image
    folder = data_folder / "cifar10"
    folder.mkdir()
    image_module.fromarray(sheet).save(folder / "test_first2000.webp", lossless=True)
    np.savez(folder / "labels.npz", test_first2000=labels)
    return images, labels


def test_sheet_is_cut_exactly(small_cifar10):
    images, labels = load_cifar10("test")
    np.testing.assert_array_equal(images, small_cifar10[0])
    np.testing.assert_array_equal(labels, small_cifar10[1])
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: path.write_bytes(path.read_bytes()[:-5000]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("no picture"),
        lambda path: np.savez(path.with_name("labels.npz"), test_first2000=np.zeros(301, np.uint8)),
    ],
)
def test_damaged_or_unfitting_sheet_is_a_clear_error(damage, small_cifar10):
    damage(find("cifar10/test_first2000.webp"))
    with pytest.raises(FileFormatError, match=r"test_first2000\.webp cannot be read as a WebP sheet"):
        load_cifar10("test")


@pytest.mark.parametrize(("split", "count"), [("test", 2000), ("train", 5000)])
def test_real_cifar10(split, count, require):
    require("cifar10/labels.npz", "cifar10/test_first2000.webp", "cifar10/train_first5000.webp")
    images, labels = load_cifar10(split)
    assert images.shape == (count, 32, 32, 3)
    assert labels.shape == (count,)
    # CIFAR-10's well-known first images: cat, ship, ship, airplane / frog, truck, truck, deer.
    first = [CIFAR10_CLASSES[label] for label in labels[:4]]
    assert first == {"test": ["cat", "ship", "ship", "airplane"], "train": ["frog", "truck", "truck", "deer"]}[split]
    # First pixel of the first image, as in the original batch files.
    assert images[0, 0, 0].tolist() == {"test": [158, 112, 49], "train": [59, 62, 63]}[split]


def test_network_input_is_normalised_per_channel():
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    x = to_network_input(images)
    assert x.shape == (3, 3, 5, 4)
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    expected = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / std
    torch.testing.assert_close(x, expected)


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


def put_part(folder, dataset="cifar10", name="test_first2000"):
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install pillow")
    (folder / dataset).mkdir(parents=True, exist_ok=True)
    sheet = np.random.default_rng(3).integers(0, 256, (32, 3200, 3), dtype=np.uint8)
    pillow.fromarray(sheet).save(folder / dataset / f"{name}.webp", lossless=True)
    np.savez(folder / dataset / "labels.npz", **{name: np.arange(20) % 10})


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
    with pytest.raises(BayesNormError, match=r"rows must be a number of images from 1 to 20, got 25\. .* has only"):
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
