"""Image sets and the sheets they are stored in."""

import sys

import numpy as np
import pytest
import torch

from bayesnorm.errors import BayesNormError, FileFormatError, InputError, MissingExtraError
from experiments.data import (
    CAMVID_CLASSES,
    CAMVID_VOID,
    CIFAR10_CLASSES,
    find,
    load_camvid,
    load_cifar10,
    load_notmnist,
    load_svhn,
    to_network_input,
)

from ...marks import takes_long

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


def test_rows_choose_images_and_labels_alike(small_cifar10):
    for rows, expected in (
        (7, np.arange(7)),
        (COUNT, np.arange(COUNT)),
        (slice(95, 210, 5), np.arange(95, 210, 5)),
        (range(99, 102), np.arange(99, 102)),
        ([249, 0, 100, 100], np.array([249, 0, 100, 100])),
        (np.array([3, 1], dtype=np.uint8), np.array([3, 1])),
        ([], np.array([], dtype=int)),
    ):
        images, labels = load_cifar10("test", rows=rows)
        np.testing.assert_array_equal(images, small_cifar10[0][expected])
        np.testing.assert_array_equal(labels, small_cifar10[1][expected])


def test_bad_rows_are_refused_by_name(small_cifar10):
    for rows in (0, -1, 251, [250], [-1], [0.5], [[1]], "test", True, np.ones(COUNT, bool)):
        with pytest.raises(BayesNormError, match="rows must"):
            load_cifar10("test", rows=rows)


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


def test_missing_pillow_names_the_extra_and_only_sheets_need_it(small_cifar10, data_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install pillow") as caught:
        load_cifar10("test")
    assert "\n" not in str(caught.value)
    (data_folder / "notmnist").mkdir()
    np.savez(data_folder / "notmnist" / "notmnist_small.npz", x=np.ones((3, 28, 28), np.uint8), y=np.arange(3))
    assert load_notmnist()[0].shape == (3, 28, 28)


def test_pillows_guard_is_respected_and_never_changed(small_cifar10, monkeypatch):
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BayesNormError, match=r"MAX_IMAGE_PIXELS is 1000. Set it to at least 307200"):
        load_cifar10("test")
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize(("split", "count"), [("test", 2000), ("train", 5000)])
def test_real_cifar10(split, count, require):
    require("cifar10/labels.npz", "cifar10/test_first2000.webp", "cifar10/train_first5000.webp")
    images, labels = load_cifar10(split)
    assert images.shape == (count, 32, 32, 3)
    assert labels.shape == (count,)
    # CIFAR-10's well-known first images: cat, ship, ship, airplane / frog, truck, truck, deer.
    first = [CIFAR10_CLASSES[label] for label in labels[:4]]
    assert (
        first
        == {
            "test": ["cat", "ship", "ship", "airplane"],
            "train": ["frog", "truck", "truck", "deer"],
        }[split]
    )
    # First pixel of the first image, as in the original batch files.
    assert images[0, 0, 0].tolist() == {"test": [158, 112, 49], "train": [59, 62, 63]}[split]


def test_cifar10_channels_are_red_green_blue(require):
    """The published per-channel means of CIFAR-10's training set are .4914, .4822, .4465."""
    require("cifar10/labels.npz", "cifar10/train_first5000.webp")
    images, _ = load_cifar10("train")
    per_image = images.mean(axis=(1, 2)) / 255
    standard_error = per_image.std(axis=0) / len(images) ** 0.5
    assert (np.abs(per_image.mean(axis=0) - [0.4914, 0.4822, 0.4465]) < 4 * standard_error).all()


def test_real_svhn(require):
    require("svhn/labels.npz", "svhn/test_0.webp")
    images, labels = load_svhn()
    assert images.shape == (13016, 32, 32, 3)
    assert images.dtype == np.uint8
    assert labels[:5].tolist() == [5, 2, 1, 0, 6]
    assert np.bincount(labels).argmax() == 1  # the commonest digit of house numbers


def test_real_notmnist(require):
    require("notmnist/notmnist_small.npz")
    images, labels = load_notmnist()
    assert images.shape == (18724, 28, 28)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert set(np.bincount(labels)) == {1872, 1873}  # balanced over ten letters
    assert load_notmnist(rows=[18723])[1].tolist() == [labels[18723]]


@pytest.mark.parametrize(
    ("split", "count"), [pytest.param("train", 367, marks=takes_long), ("val", 101), ("test", 233)]
)
def test_real_camvid(split, count, require):
    require("camvid/labels_180x240.npz", f"camvid/{split}_180x240.webp")
    images, labels = load_camvid(split)
    assert images.shape == (count, 180, 240, 3)
    assert labels.shape == (count, 180, 240)
    assert set(np.unique(labels)) == {*range(len(CAMVID_CLASSES)), CAMVID_VOID}
    # Pictures and labels belong together: the sky is brighter than the road, and above it.
    sky, road = (labels == CAMVID_CLASSES.index(name) for name in ("sky", "road"))
    assert images[sky].mean() > images[road].mean() + 50
    assert np.nonzero(sky)[1].mean() < 60 < 120 < np.nonzero(road)[1].mean()
    # Experiments on other light go by this: the first 62 were filmed at dusk, but for those of "val".
    dark, dusk = images[:, ::8, ::8].mean((1, 2, 3)) < 70, 62 if split != "val" else 0
    assert dark[:dusk].sum() > 0.9 * dusk - 1
    assert dark[dusk:].mean() < 0.03


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


def test_grey_images_fill_three_channels():
    grey = np.random.default_rng(2).integers(0, 256, (2, 28, 28), dtype=np.uint8)
    torch.testing.assert_close(to_network_input(grey), to_network_input(np.stack([grey] * 3, axis=-1)))


def test_bad_images_are_refused_by_name():
    for images in (
        np.zeros((2, 4, 4, 3), np.float32),
        np.zeros((4, 4, 3), np.uint8),
        np.zeros((2, 3, 4, 4), np.uint8),
        np.zeros((4, 4), np.uint8),
    ):
        with pytest.raises(InputError, match=r"images must be .*got"):
            to_network_input(images)
