"""`bayesnorm maps`: from a folder of images to maps, a list and a page."""

import json
import re
import sys

import numpy as np
import pytest

pytest.importorskip("PIL", reason="needs Pillow: pip install pillow")
from PIL import Image
from safetensors.torch import save_file
from torch import nn

MODULE = """
import torch
from torch import nn
MAPS = {"size": [16, 16], "classes": ["sky", "road <b>"], "output": "out", "ignore": 255}
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
    def forward(self, x):
        return {"out": self.body(x)}
def make():
    torch.manual_seed(0)
    return Network()
"""


def save_picture(path, seed):
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 20, 3), np.uint8)).save(path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    (tmp_path / "pixel_net.py").write_text(MODULE)
    for kind, count, channels in (("train", 6, (3,)), ("images", 2, (3,)), ("truth", 2, ())):
        (tmp_path / kind).mkdir()
        for number in range(count):
            high = 256 if channels else 2
            Image.fromarray(random.integers(0, high, (16, 20, *channels), np.uint8)).save(
                tmp_path / kind / f"{number}.png"
            )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "pixel_net", raising=False)
    return (
        "maps",
        "--model",
        "pixel_net:make",
        "--train",
        "train",
        "--images",
        "images",
        "--out",
        "out",
        "--batch-size",
        "3",
        "--states",
        "8",
        "--samples",
        "4",
    )


def test_from_folder_to_page(bayesnorm, files, tmp_path):
    ended = bayesnorm(*files, "--truth", "truth")
    assert ended.code == 0, ended.err
    assert "most uncertain" in ended.out
    assert sorted(path.name for path in (tmp_path / "out" / "entropy").iterdir()) == ["0.png", "1.png"]
    page = (tmp_path / "out" / "maps.html").read_text()
    assert "road &lt;b&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/jpeg") == 2
    assert "of the mistakes" in page
    again = bayesnorm(*files, "--truth", "truth", "--json")
    told = json.loads(again.out)
    assert [image["image"] for image in told["images"]]
    assert 0 <= told["accuracy"] <= 1


def test_a_folder_of_other_maps_is_refused(bayesnorm, files, tmp_path, refuses):
    assert bayesnorm(*files).code == 0
    assert "made with other inputs (method)" in refuses(*files[:-1], "5", code=2)
    state = {name: value + 1 for name, value in sys.modules["pixel_net"].make().state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    assert "made with other inputs (weights)" in refuses(*files, "--weights", "w.safetensors", code=2)
    save_picture(tmp_path / "train" / "3.png", 9)
    assert "made with other inputs (training images)" in refuses(*files, code=2)


def test_maps_are_those_of_the_content_of_the_images(bayesnorm, files, tmp_path):
    def entropy():
        ended = bayesnorm(*files, "--truth", "truth", "--json")
        assert ended.code == 0, ended.err
        told = json.loads(ended.out)
        return {entry["image"]: (entry["entropy"], entry["accuracy"]) for entry in told["images"]}

    first = entropy()
    save_picture(tmp_path / "images" / "0.png", 7)
    second = entropy()
    assert second["images/0.png"] != first["images/0.png"]
    assert second["images/1.png"] == first["images/1.png"]
    Image.fromarray(1 - np.asarray(Image.open(tmp_path / "truth" / "1.png"))).save(tmp_path / "truth" / "1.png")
    assert entropy()["images/1.png"][1] == pytest.approx(1 - first["images/1.png"][1])


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b'{"options": 3}', b"[" * 100_000, b"\xff"])
def test_a_damaged_list_of_options_is_refused(bayesnorm, files, tmp_path, refuses, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "maps.json").write_bytes(content)
    assert "maps.json is damaged or of an earlier version" in refuses(*files, code=2)


def test_a_changed_posterior_is_fitted_again(bayesnorm, files, tmp_path):
    assert bayesnorm(*files).code == 0
    path = tmp_path / "out" / "posterior.bayesnorm"
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"abc")
    assert bayesnorm(*files).code == 0
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("module", "words"),
    [("def make(:", "importing .* failed"), ("raise SystemExit(0)", "failed"), ("def make(): raise KeyError(3)", "3")],
)
def test_modules_that_fail(files, tmp_path, refuses, module, words):
    name = f"failing_{abs(hash(module))}"
    (tmp_path / f"{name}.py").write_text(module)
    assert re.search(words, refuses(*files[:2], f"{name}:make", *files[3:], code=1))


def test_refuses(files, refuses, tmp_path):
    for named in ("pixel_net", ".x:y"):
        assert "--model must be package.module:function, got" in refuses(*files[:2], named, *files[3:], code=1)
    assert "--method must be one of MCBN, GaussianBN, StochasticBN, got 'Laplace'" in refuses(
        *files, "--method", "Laplace", code=2
    )
    save_file(nn.Linear(2, 2).state_dict(), tmp_path / "other.safetensors")
    assert "--weights" in refuses(*files, "--weights", "other.safetensors", code=1)
    assert "--device: the network cannot run on 'abacus'" in refuses(*files, "--device", "abacus", code=2)
    assert "--out: pixel_net.py is a file" in refuses(*files, "--out", "pixel_net.py", code=2)
    (tmp_path / "loop").symlink_to("loop")
    assert "--out: loop is a symbolic link that leads to itself" in refuses(*files, "--out", "loop")
    (tmp_path / "own.json").write_text(json.dumps({"classes": ["a\ud800", "b"]}))
    assert "surrogates not allowed" in refuses(*files, "--settings", "own.json")
