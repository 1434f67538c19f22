"""Posterior files: written whole or not at all, and never believed."""

import json
import os
import pickle
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save as to_bytes, save_file
from torch import nn

import bayesnorm as bn
from bayesnorm import files
from bayesnorm.errors import FileFormatError


@pytest.fixture
def posterior(regression):
    return bn.MCBN(batch_size=8, states=4).fit(regression.model, regression.x, regression.likelihood)


@pytest.fixture
def saved(posterior, tmp_path):
    path = tmp_path / "net.bayesnorm"
    posterior.save(path)
    return path


def header_of(content):
    """(length of the header, header) of a safetensors file."""
    length = struct.unpack("<Q", content[:8])[0]
    return length, json.loads(content[8 : 8 + length])


def forged(path, change, honest_digest=True):
    """Rewrite a posterior file with `change(config, tensors)`; the digest made to fit, or left as it was."""
    tensors, config = files.read(path)
    before = header_of(path.read_bytes())[1]["__metadata__"]
    config = change(config, tensors) or config
    text = config if isinstance(config, str) else json.dumps(config)
    header = {**before, "config": text}
    if honest_digest:
        header["digest"] = files.content_digest(tensors, text)
    path.write_bytes(to_bytes(tensors, metadata=header))


def test_a_file_is_safetensors_with_a_json_header_and_no_data(saved, regression):
    content = saved.read_bytes()
    _, header = header_of(content)
    config = json.loads(header["__metadata__"]["config"])
    assert config["kind"] == "batchnorm"
    assert config["likelihood"] == {"kind": "Gaussian", "precision": 4.0}
    assert config["posterior"]["center"] == "running"
    assert set(header) >= {"__metadata__", "running", "batch_mean", "fluctuations.deviations"}
    assert regression.x[0].numpy().tobytes() not in content, "no training data"
    assert regression.model[0].weight.detach()[0].numpy().tobytes() not in content, "no weights"


def test_saving_over_an_older_file(saved, posterior, regression, tmp_path):
    other = posterior.at_batch_size(64).with_likelihood(bn.Gaussian(9.0))
    other.save(saved)
    loaded = bn.load(saved, regression.model)
    assert loaded.batch_size == 64
    assert loaded.likelihood == bn.Gaussian(9.0)
    assert os.listdir(tmp_path) == [saved.name]


@pytest.mark.parametrize("fails", ["replace", "fsync"])
def test_a_write_that_is_cut_off_leaves_the_old_file(saved, posterior, tmp_path, monkeypatch, fails):
    before = saved.read_bytes()

    def killed(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, fails, killed)
    with pytest.raises(KeyboardInterrupt):
        posterior.at_batch_size(64).save(saved)
    with pytest.raises(KeyboardInterrupt):
        posterior.save(tmp_path / "new")
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert os.listdir(tmp_path) == [saved.name], "no part of a file is left behind"


def test_a_new_file_has_the_usual_permissions(saved, tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    assert saved.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_that_is_not_there(posterior, tmp_path):
    with pytest.raises(FileFormatError, match=r"path: the folder .*missing does not exist"):
        posterior.save(tmp_path / "missing" / "net")
    with pytest.raises(FileFormatError, match=r"path: .* is a folder"):
        posterior.save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_text_paths_work(posterior, regression, tmp_path):
    posterior.save(str(tmp_path / "net"))
    assert bn.load(str(tmp_path / "net"), regression.model).rows == posterior.rows


def refused(path, model, snapshot, match="path: "):
    before, files_before = snapshot(model), sorted(os.listdir(path.parent))
    with pytest.raises(FileFormatError, match=match):
        bn.load(path, model)
    assert snapshot(model) == before
    assert sorted(os.listdir(path.parent)) == files_before


def test_truncated_at_any_length(saved, regression, snapshot):
    content = saved.read_bytes()
    length, _ = header_of(content)
    cuts = {0, 1, 7, 8, 9, length, 8 + length, 9 + length, len(content) - 1, *range(10, len(content), 97)}
    for cut in sorted(cuts):
        saved.write_bytes(content[:cut])
        refused(saved, regression.model, snapshot)
    saved.write_bytes(content + b"\0")
    refused(saved, regression.model, snapshot)


class Malice:
    """Pickled, it would write a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_foreign_files(saved, regression, snapshot, tmp_path):
    trap = tmp_path / "trap"
    foreign = [
        b"",
        b"hello",
        pickle.dumps(Malice(str(trap))),
        np.random.default_rng(0).bytes(5000),
        b"\xff" * 5000,
        b"\0" * 5000,
        struct.pack("<Q", 2**62) + b"{}",
        to_bytes({"a": torch.zeros(3)}),
        to_bytes({"a": torch.zeros(3)}, metadata={"format": "pt"}),
        to_bytes({"a": torch.zeros(3)}, metadata={"format": "bayesnorm-posterior"}),
        to_bytes({"a": torch.zeros(3)}, metadata={"format": "bayesnorm-posterior", "version": "2"}),
        to_bytes({"a": torch.zeros(3)}, metadata={"format": "bayesnorm-posterior", "version": "1"}),
    ]
    for content in foreign:
        saved.write_bytes(content)
        refused(saved, regression.model, snapshot)
    torch.save({"state": Malice(str(trap))}, saved)
    refused(saved, regression.model, snapshot)
    save_file(regression.model.state_dict(), saved)
    refused(saved, regression.model, snapshot)
    assert not trap.exists(), "nothing was executed"


def test_a_file_that_is_not_there(regression, snapshot, tmp_path):
    refused(tmp_path / "nothing", regression.model, snapshot, match=r"path: .*nothing is not a file")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", regression.model, snapshot, match=r"path: .*folder is not a file")


def test_flipped_bits_anywhere_in_the_tensors(saved, regression, snapshot):
    content = saved.read_bytes()
    start = 8 + header_of(content)[0]
    for position in [start, start + 1, *range(start + 5, len(content), 61), len(content) - 1]:
        altered = bytearray(content)
        altered[position] ^= 0x10
        saved.write_bytes(bytes(altered))
        refused(saved, regression.model, snapshot, match=r"path: .* was changed")


def test_edited_headers(saved, regression, snapshot):
    content = saved.read_bytes()
    for old, new in ((b'\\"rows\\": 80', b'\\"rows\\": 81'), (b"running", b"runnyng"), (b"Gaussian", b"Gaussien")):
        assert old in content
        saved.write_bytes(content.replace(old, new))
        refused(saved, regression.model, snapshot)


def without(*keys):
    def change(config, tensors):
        for key in keys:
            config.pop(key, None)
            config["posterior"].pop(key, None) if "posterior" in config else None
            tensors.pop(key, None)

    return change


def setting(where, key, value):
    def change(config, _tensors):
        (config[where] if where else config)[key] = value

    return change


def resized(name, *shape):
    def change(_config, tensors):
        tensors[name] = torch.zeros(*shape)

    return change


def filled(name, value):
    def change(_config, tensors):
        tensors[name] = torch.full_like(tensors[name], value)

    return change


FORGERIES = {
    "not json": lambda _c, _t: "no json",
    "a list": lambda _c, _t: "[1, 2]",
    "a number": lambda _c, _t: "3",
    "empty": lambda _c, _t: "{}",
    "no kind": without("kind"),
    "no likelihood": without("likelihood"),
    "no layers": without("layers"),
    "no centre": without("center"),
    "no deviations": without("fluctuations.deviations"),
    "no running": without("running"),
    "unknown kind": setting(None, "kind", "os.system"),
    "unhashable kind": setting(None, "kind", ["x"]),
    "unknown likelihood": setting("likelihood", "kind", "Evil"),
    "bad precision": setting("likelihood", "precision", -1.0),
    "likelihood is no dict": setting(None, "likelihood", "Gaussian"),
    "other likelihood field": setting("likelihood", "colour", "red"),
    "unknown fluctuations": setting("posterior", "fluctuations", "magic"),
    "unknown field": setting("posterior", "colour", "red"),
    "layers of nothing": setting("posterior", "layers", []),
    "layers of text": setting("posterior", "layers", "1"),
    "another layer": setting("posterior", "layers", [{"name": "7", "channels": 8, "eps": 1e-5}]),
    "wrong channels": setting("posterior", "layers", [{"name": "1", "channels": 3, "eps": 1e-5}]),
    "unknown centre": setting("posterior", "center", "left"),
    "bad batch size": setting("posterior", "batch_size", "many"),
    "negative batch size": setting("posterior", "batch_size", -4.0),
    "network is no dict": setting(None, "network", [1]),
    "short running": resized("running", 3),
    "long batch mean": resized("batch_mean", 99),
    "narrow deviations": resized("fluctuations.deviations", 4, 5),
    "flat deviations": resized("fluctuations.deviations", 28),
    "no batches": resized("fluctuations.deviations", 0, 28),
    "no numbers": filled("running", float("nan")),
    "infinite deviations": filled("fluctuations.deviations", float("inf")),
    "narrow components": resized("components", 3, 5),
    "short sensitivities": resized("sensitivities", 3, 1),
    "extra tensor": resized("fluctuations.more", 2),
}


def test_a_forged_file_whose_digest_fits(posterior, saved, regression, snapshot):
    posterior.with_directions(regression.x[:12]).save(saved)  # so that the file has all that one can have
    content, before = saved.read_bytes(), snapshot(regression.model)
    for name, forgery in FORGERIES.items():
        saved.write_bytes(content)
        forged(saved, forgery)
        with pytest.raises(bn.BayesNormError, match=r"^\w+: "):
            bn.load(saved, regression.model)
        assert snapshot(regression.model) == before, name


def test_forging_nothing_is_no_forgery(saved, regression):
    forged(saved, lambda config, tensors: None)
    bn.load(saved, regression.model)
    forged(saved, setting("posterior", "rows", 81), honest_digest=False)
    with pytest.raises(FileFormatError, match="was changed"):
        bn.load(saved, regression.model)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            lambda: nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6)),
            r"\d\.\w+ is .* there and absent here",
        ),
        (lambda: nn.Sequential(nn.Linear(3, 9, bias=False), nn.BatchNorm1d(9)), r"\(8, 3\) there and \(9, 3\) here"),
        (lambda: nn.Linear(3, 1), r"0\.weight is \(8, 3\) there and absent here"),
    ],
)
def test_another_architecture(other, said, saved, snapshot):
    refused(saved, other(), snapshot, match=rf"model does not match .*{said}")


def test_other_weights_of_the_same_architecture_are_warned_about(saved, regression):
    regression.model[1].running_mean += 1.0
    with pytest.warns(bn.BayesNormWarning, match="The running statistics of model differ") as said:
        bn.load(saved, regression.model)
    assert len(said) == 1
    assert said[0].filename == __file__, "points at the caller's line"


def test_another_dtype_of_the_same_network_is_no_other_network(saved, regression):
    double = regression.to(torch.float64)
    loaded = bn.load(saved, double.model)
    expected = bn.load(saved, regression.model).predict(regression.new_x).mean
    assert loaded.predict(double.new_x).mean.dtype == torch.float64
    torch.testing.assert_close(loaded.predict(double.new_x).mean, expected.double(), rtol=1e-4, atol=1e-5)
