"""Maps of a folder of images: what is written is what is predicted, in the images' own size, once."""

import inspect
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("PIL", reason="needs Pillow: pip install pillow")
from PIL import Image
from safetensors.torch import save_file

import bayesnorm as bn
from bayesnorm.errors import BayesNormError
from bayesnorm.maps import ImageFiles, MapSettings, image_files, load_network, map_images, read_settings


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 3, 3, padding=1)
    ).eval()


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for kind, count, size in (("train", 8, (16, 24)), ("images", 3, (20, 31))):
        (tmp_path / kind).mkdir()
        for number in range(count):
            pixels = random.integers(0, 256, (*size, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / kind / f"{number}.png")
    return tmp_path


@pytest.fixture
def posterior(folder):
    training = ImageFiles(image_files(folder / "train"), SETTINGS)
    return bn.MCBN(4, states=8).fit(small(), training, bn.Categorical())


SETTINGS = MapSettings(classes=("a", "b", "c"), size=(16, 24), mean=(0.5,) * 3, std=(0.25,) * 3)
OWN_SIZE = MapSettings(multiple=8, mean=(0.5,) * 3, std=(0.25,) * 3)


def test_maps_are_those_of_the_prediction(folder, posterior):
    paths = image_files(folder / "images")
    results = {maps.path: maps for maps in map_images(posterior, paths, OWN_SIZE, folder / "out", samples=4)}
    for path in paths:
        pixels = torch.from_numpy(np.asarray(Image.open(path)).copy()).permute(2, 0, 1)[None] / 255
        padded = nn.functional.pad((pixels - 0.5) / 0.25, (0, 1, 0, 4), mode="reflect")
        expected = posterior.predict(padded, bn.MonteCarlo(4))
        labels = np.asarray(Image.open(results[path].labels))
        assert labels.shape == (20, 31)
        np.testing.assert_array_equal(labels, expected.probs.argmax(1)[0, :20, :31])
        uncertainty = np.asarray(Image.open(results[path].entropy))
        assert uncertainty.max() > 255, "16 bits"
        share = expected.entropy[0, :20, :31].numpy() / np.log(3)
        np.testing.assert_allclose(uncertainty / 65535, share, atol=2e-5)
        assert results[path].counts.sum() == labels.size
        assert results[path].mean_entropy == pytest.approx(share.mean(), abs=1e-5)
    lines = (folder / "out" / "images.csv").read_text().splitlines()
    doubts = [float(line.split(",")[1]) for line in lines[1:]]
    assert doubts == sorted(doubts, reverse=True)


def test_what_is_there_is_not_computed_again(folder, posterior):
    paths, out = image_files(folder / "images"), folder / "out"
    first = map_images(posterior, paths, SETTINGS, out, samples=4)
    written = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    again = map_images(posterior, paths, SETTINGS, out, samples=4)
    assert written == {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    assert [maps.mean_entropy for maps in again] == [maps.mean_entropy for maps in first]
    (out / "numbers" / "1.json").unlink()  # as a run leaves it that was killed before the last file
    seen = []
    map_images(posterior, paths, SETTINGS, out, samples=4, progress=lambda done, total: seen.append((done, total)))
    assert (out / "numbers" / "1.json").exists()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_stored_numbers_that_changed_are_computed_again(folder, posterior):
    paths, out = image_files(folder / "images")[:1], folder / "out"
    (expected,) = map_images(posterior, paths, SETTINGS, out, samples=4)
    numbers = out / "numbers" / "0.json"
    content = numbers.read_bytes()
    values = json.loads(content)
    for changed in (
        {**values, "mean_entropy": float("nan")},
        {**values, "mean_entropy": 0.5},
        {**values, "counts": [1]},
        {"digest": values["digest"]},
        [],
    ):
        numbers.write_text(json.dumps(changed))
        assert map_images(posterior, paths, SETTINGS, out, samples=4)[0].mean_entropy == expected.mean_entropy
        assert numbers.read_bytes() == content
    labels = expected.labels.read_bytes()
    expected.labels.write_bytes(b"damaged")
    map_images(posterior, paths, SETTINGS, out, samples=4)
    assert expected.labels.read_bytes() == labels
    other = map_images(posterior, paths, SETTINGS, out, samples=5)
    assert other[0].mean_entropy != expected.mean_entropy, "the number of samples is part of the key"


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_no_image_starts_another_program(folder, posterior, monkeypatch):
    def start(*_arguments, **_options):
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", start)
    (folder / "images" / "photo.png").write_bytes(EPS)
    with pytest.raises(
        BayesNormError, match=r"images: .*photo\.png cannot be read as an image \(it is none of BMP, GIF,"
    ):
        map_images(posterior, [folder / "images" / "photo.png"], SETTINGS, folder / "out", samples=4)


def test_images_that_are_too_large(folder, posterior, monkeypatch):
    paths, truth = image_files(folder / "images")[:1], folder / "truth"
    truth.mkdir()
    Image.new("1", (60, 60)).save(truth / "0.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow refuses images of twice as many
    with pytest.raises(BayesNormError, match=r"truth: .*0\.png cannot be read as an image .*decompression bomb"):
        map_images(posterior, paths, SETTINGS, folder / "out", samples=4, truth=truth)

    def fill(*_arguments, **_options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr("bayesnorm.maps.mapping.network_input", fill)
    with pytest.raises(BayesNormError, match=r"images: .*0\.png is too large for the memory"):
        map_images(posterior, paths, SETTINGS, folder / "out", samples=4)


def test_names_with_control_characters_are_refused(folder):
    (folder / "images" / "a\x1b[31m.png").write_bytes(b"")
    with pytest.raises(BayesNormError, match=r"'.*\\x1b\[31m\.png' has control characters"):
        image_files(folder / "images")


def test_truth_counts_right_pixels(folder, posterior):
    paths, truth = image_files(folder / "images"), folder / "truth"
    truth.mkdir()
    first = map_images(posterior, paths, SETTINGS, folder / "before", samples=4)
    for maps in first:
        labels = np.asarray(Image.open(maps.labels)).copy()
        labels[:5] = (labels[:5] + 1) % 3
        labels[5:7] = 9
        Image.fromarray(labels).save(truth / maps.labels.name)
    ignoring = MapSettings(**{**SETTINGS.as_json(), "ignore": 9})
    for maps in map_images(posterior, paths, ignoring, folder / "after", samples=4, truth=truth):
        assert maps.accuracy == pytest.approx(13 / 18)
        assert (maps.right <= maps.labelled).all()
    (truth / "0.png").unlink()
    with pytest.raises(BayesNormError, match=r"truth: .* has no file for 0"):
        map_images(posterior, paths, ignoring, folder / "other", truth=truth)


def test_tiles_give_the_same_maps(folder, posterior):
    paths = image_files(folder / "images")[:1]
    (whole,) = map_images(posterior, paths, OWN_SIZE, folder / "whole", samples=4)
    (tiled,) = map_images(posterior, paths, OWN_SIZE, folder / "tiled", samples=4, tile=(16, 16), overlap=8)
    np.testing.assert_array_equal(*(np.asarray(Image.open(maps.labels)) for maps in (whole, tiled)))
    np.testing.assert_allclose(*(np.asarray(Image.open(m.entropy)).astype(int) for m in (whole, tiled)), atol=3)


def test_images_that_cannot_be_read(folder, posterior):
    (folder / "images" / "3.png").write_bytes(b"no image")
    with pytest.raises(BayesNormError, match=r"images: .*3\.png cannot be read as an image"):
        map_images(posterior, image_files(folder / "images"), SETTINGS, folder / "out", samples=4)
    with pytest.raises(BayesNormError, match="has no images"):
        image_files(folder / "out" / "numbers")
    other = MapSettings(classes=("a", "b"), size=(16, 24))
    with pytest.raises(BayesNormError, match="name 2 classes, but the network has 3"):
        map_images(posterior, image_files(folder / "images")[:1], other, folder / "named", samples=4)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"sise": [1, 2]}, "sise.*classes"),
        ({"size": [0, 2]}, r"size\[0\]"),
        ({"mean": [0.5], "std": [1, 1, 1]}, "different lengths"),
        ({"std": [0, 1, 1]}, "above 0"),
        ({"colours": [[1, 2, 300]]}, "0 to 255"),
    ],
)
def test_settings_that_cannot_be_meant(tmp_path, content, words):
    (tmp_path / "maps.json").write_text(json.dumps(content))
    with pytest.raises(BayesNormError, match=words):
        read_settings(tmp_path / "maps.json")


def test_a_settings_file_without_end():
    with pytest.raises(BayesNormError, match=r"cannot be read as a JSON file \(it has more than 33,554,432 bytes\)"):
        read_settings(Path("/dev/zero"))


def test_colours_can_be_told_apart():
    assert len(set(MapSettings().class_colours(40))) == 40
    assert MapSettings(colours=((1, 2, 3),)).class_colours(3)[0] == (1, 2, 3)


class Runs:
    def __reduce__(self):
        return (print, ("code of the file has run",))


def test_weights_from_files(tmp_path, monkeypatch, capsys):
    lines = ["import torch", "from torch import nn", inspect.getsource(small).replace("def small", "def make")]
    (tmp_path / "own_net.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    state = {f"module.{name}": value + 1 for name, value in small().state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        network, _ = load_network("own_net:make", tmp_path / name)
        assert torch.equal(network[0].bias, small()[0].bias + 1)
        assert not network.training
    with (tmp_path / "bad.pt").open("wb") as file:
        pickle.dump(Runs(), file)
    with pytest.raises(BayesNormError, match=r"--weights: .* cannot be read as tensors only"):
        load_network("own_net:make", tmp_path / "bad.pt")
    assert "has run" not in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "w.pt") as plain, zipfile.ZipFile(tmp_path / "small.pt", "w") as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name), zipfile.ZIP_DEFLATED)
    with pytest.raises(BayesNormError, match=r"ValueError: torch\.save does not compress"):
        load_network("own_net:make", tmp_path / "small.pt")
    with pytest.raises(BayesNormError, match="is not a file"):
        load_network("own_net:make", Path("/dev/zero"))
    for change, words in {
        torch.complex64: "has complex numbers, but the network has real numbers",
        torch.int64: "has whole numbers, but the network has real numbers",
    }.items():
        torch.save({name: value.to(change) for name, value in state.items()}, tmp_path / "cast.pt")
        with pytest.raises(BayesNormError, match=words):
            load_network("own_net:make", tmp_path / "cast.pt")
    torch.save({3: state["module.0.weight"]}, tmp_path / "numbered.pt")
    with pytest.raises(BayesNormError, match="is not a dict of tensors"):
        load_network("own_net:make", tmp_path / "numbered.pt")
    torch.save({"0.weight": state["module.0.weight"]}, tmp_path / "part.pt")
    with pytest.raises(BayesNormError, match=r"has no 0\.bias"):
        load_network("own_net:make", tmp_path / "part.pt")
    for named, words in {
        "own_net": "package.module:function",
        "own_net:no": "no function no",
        "nowhere:make": "cannot be",
    }.items():
        with pytest.raises(BayesNormError, match=words):
            load_network(named, None)
