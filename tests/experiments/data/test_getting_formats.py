"""The formats that data sets come in."""

import gzip
import io
import json
import shutil
import subprocess
import tarfile
import zipfile

import numpy as np
import pytest

from experiments.data.getting import formats

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
GREYS = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9], np.uint8)


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return [path]


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def idx_names(suffix=""):
    arrays = {"train": (GREYS, LABELS), "t10k": (GREYS[:2], LABELS[:2])}
    for word, (images, labels) in arrays.items():
        yield f"{word}-images-idx3-ubyte{suffix}", idx(images)
        yield f"{word}-labels-idx1-ubyte{suffix}", idx(labels)


def same(result, images, labels=LABELS):
    np.testing.assert_array_equal(result["train"][0], images)
    np.testing.assert_array_equal(result["train"][1], labels)
    np.testing.assert_array_equal(result["test"][0], images[:2])
    np.testing.assert_array_equal(result["test"][1], labels[:2])


@pytest.mark.parametrize("coarse", [b"", b"\x07"])
def test_cifar_binary(coarse, tmp_path):
    """Red, green and blue planes after the label, which CIFAR-100 has two of."""
    rows = [
        coarse + bytes([label]) + image.transpose(2, 0, 1).tobytes()
        for image, label in zip(COLOURS, LABELS, strict=True)
    ]
    members = {"d/1.bin": b"".join(rows[:4]), "d/2.bin": b"".join(rows[4:]), "d/test.bin": b"".join(rows[:2])}
    places = {"train": ["d/1.bin", "d/2.bin"], "test": ["d/test.bin"]}
    same(formats.cifar_binary(tar(tmp_path / "a.tar.gz", members), places, 1 + len(coarse)), COLOURS)


def test_cifar10_sheets(tmp_path):
    pillow = pytest.importorskip("PIL.Image")

    def png(images):
        stream = io.BytesIO()
        pillow.fromarray(images.reshape(len(images), 1024, 3)).save(stream, "PNG")
        return stream.getvalue()

    parts = np.array_split(COLOURS, 5)
    members = {f"package/data_batch_{i + 1}.png": png(part) for i, part in enumerate(parts)}
    members["package/test_batch.png"] = png(COLOURS[:2])
    members["package/train_lables.json"] = json.dumps(LABELS.tolist()).encode()
    members["package/test_lables.json"] = json.dumps(LABELS[:2].tolist()).encode()
    same(formats.cifar10_sheets(tar(tmp_path / "a.tgz", members)), COLOURS)


def test_idx(tmp_path):
    paths = []
    for name, content in idx_names(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(content))
        paths.append(tmp_path / name)
    same(formats.idx_files(paths), GREYS)
    same(formats.idx_in_npm(tar(tmp_path / "a.tgz", {f"package/data/{k}": v for k, v in idx_names()})), GREYS)
    with pytest.raises(ValueError, match="not an idx file"):
        formats.idx(b"<html>")
    with pytest.raises(ValueError, match="cannot reshape"):
        formats.idx(idx(GREYS)[:-1])


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_idx_in_deb(tmp_path):
    (tmp_path / "root" / "DEBIAN").mkdir(parents=True)
    (tmp_path / "root" / "DEBIAN" / "control").write_text(
        "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n"
    )
    (tmp_path / "root" / "usr" / "share").mkdir(parents=True)
    for name, content in idx_names(".gz"):
        (tmp_path / "root" / "usr" / "share" / name).write_bytes(gzip.compress(content))
    deb = tmp_path / "a.deb"
    subprocess.run(["dpkg-deb", "--build", tmp_path / "root", deb], check=True, capture_output=True)
    same(formats.idx_in_deb([deb]), GREYS)


def test_svhn(tmp_path):
    from scipy.io import savemat

    tens = np.where(LABELS == 3, 10, LABELS)
    paths = [tmp_path / "train.mat", tmp_path / "test.mat"]
    for path, count in zip(paths, (6, 2), strict=True):
        savemat(path, {"X": COLOURS[:count].transpose(1, 2, 3, 0), "y": tens[:count, None]})
    same(formats.svhn_matrices(paths), COLOURS, np.where(LABELS == 3, 0, LABELS))


def test_tables_of_text():
    for text, options in (
        ('"a";"b";"y"\n1;2.5;3\n-4;5;6\n', {"target": -1, "separator": ";"}),
        ("@relation a\n% words\n@data\n1,2.5,3\n-4,5,6\n", {"target": -1, "separator": ","}),
        (" 1  2.5   3 \n-4 5 6\n\n", {"target": 2}),
        ("3,1,2.5,0\n6,-4,5,0\n", {"target": 0, "separator": ",", "leave_out": 3}),
    ):
        for content in (text.encode(), gzip.compress(text.encode())):
            X, y = formats.text_table(content, **options)
            assert X.tolist() == [[1, 2.5], [-4, 5]]
            assert y.tolist() == [3, 6]


def test_tables_of_workbooks():
    cells = "<row><c t='s'><v>0</v></c><c t='s'><v>1</v></c></row>" + "".join(
        f"<row><c><v>{a}</v></c><c><v>{b}</v></c></row>" for a, b in ((161.85, 79.98611), (4, 5))
    )
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as workbook:
        workbook.writestr(
            "xl/worksheets/sheet2.xml", f"<worksheet xmlns='{space}'><sheetData>{cells}</sheetData></worksheet>"
        )
    X, y = formats.workbook_table(stream.getvalue(), 2)
    assert (X.tolist(), y.tolist()) == ([[161.85], [4]], [79.98611, 5])
    X, y = formats.workbook_table(stream.getvalue(), 2, (1, 2))
    assert (X.tolist(), y.tolist()) == ([[161.9], [4]], [79.99, 5])
