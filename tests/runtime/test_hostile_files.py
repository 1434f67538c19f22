"""Changed files and wrong inputs give an error that says what is wrong, never a crash."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import random

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm_runtime import Network

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VALUES = (None, -1, 0, 2**70, 1e308, "x", "\u2047", [], {}, [[]], True, ["1", "1"])


def with_metadata(path, metadata=None, arrays=None) -> bytes:
    """Return the bytes of a file with other metadata."""
    model = onnx.load(path)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    if metadata is not None:
        properties["bayesnorm"] = metadata
    if arrays is not None:
        properties["bayesnorm_arrays"] = arrays
    onnx.helper.set_model_props(model, properties)
    return model.SerializeToString()


def places(value, path=()):
    """Yield the paths of all entries of nested JSON values."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from places(entry, (*path, key))


def use(content: bytes, x: np.ndarray) -> None:
    """Open a file and use it; wrong numbers are allowed, but only errors of the package."""
    with contextlib.suppress(bn.BayesNormError):
        network = Network(content, threads=1)
        if network.watches:
            _ = network.drift(x).expected_error
            network.adapt(x).predict(x)
        network.predict(x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that overflow
def test_changed_metadata_give_clear_errors(perceptron):
    network, x = Network(perceptron.path), perceptron.shifted[:40].numpy()
    generator = random.Random(0)
    every = list(places(network.metadata))
    for place in generator.sample(every, 60):
        changed = json.loads(json.dumps(network.metadata))
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        if isinstance(inner, dict) and generator.random() < 0.3:
            del inner[place[-1]]
        else:
            inner[place[-1]] = generator.choice(VALUES)
        use(with_metadata(perceptron.path, json.dumps(changed)), x)


def test_damaged_files_are_refused(perceptron, tmp_path):
    content = perceptron.path.read_bytes()
    for damaged in (b"", b"not a model", content[:2000], content[: len(content) // 2]):
        with pytest.raises(bn.BayesNormError, match="is not an ONNX file"):
            Network(damaged)
    for metadata in ("{", "[]", "[" * 100_000, "{}", '{"posterior": 1}'):
        with pytest.raises(bn.BayesNormError):
            Network(with_metadata(perceptron.path, metadata))
    pickled = io.BytesIO()
    np.savez(pickled, running=np.array([{}], dtype=object))
    packed = [base64.b64encode(pickled.getvalue()).decode(), "", "???", base64.b64encode(b"PK\x03\x04").decode()]
    for arrays in packed:
        with pytest.raises(bn.BayesNormError, match="arrays in the metadata cannot be read"):
            Network(with_metadata(perceptron.path, arrays=arrays))
    with pytest.raises(bn.BayesNormError, match=r"none\.onnx does not exist"):
        Network(tmp_path / "none.onnx")


@pytest.mark.parametrize("name", ["batches.centers", "batches.variance", "classes.counts", "points", "location"])
def test_changed_arrays_are_refused(perceptron, name):
    arrays = Network(perceptron.path)._file.arrays()
    for value in (np.full_like(arrays[name], np.nan), arrays[name][..., :-1], arrays[name].astype(np.int64)):
        file = io.BytesIO()
        np.savez(file, **arrays | {name: value})
        with pytest.raises(bn.BayesNormError, match="was changed or is incomplete"):
            Network(with_metadata(perceptron.path, arrays=base64.b64encode(file.getvalue()).decode()))


def test_adapted_statistics_belong_to_their_file(perceptron, convolutions, tmp_path):
    network, path = Network(perceptron.path), tmp_path / "adapted"
    with pytest.raises(bn.BayesNormError, match="not adapted, so there is nothing to save"):
        network.save_adaptation(path)
    network.adapt(perceptron.shifted.numpy()).save_adaptation(path)
    with pytest.raises(bn.BayesNormError, match="belongs to another model file"):
        Network(convolutions.path).with_adaptation(path)
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[:-200], b"x" * 50):
        path.write_bytes(damaged)
        with pytest.raises(bn.BayesNormError, match="is not a file of adapted statistics"):
            network.with_adaptation(path)
    with pytest.raises(bn.BayesNormError, match="cannot be written"):
        network.adapt(perceptron.shifted.numpy()).save_adaptation(tmp_path / "none" / "adapted")


def test_wrong_inputs_are_refused(perceptron):
    network, x = Network(perceptron.path), perceptron.usual.numpy()
    wrong = {
        r"must have the shape \(n, 12\), got \(150, 3\)": x[:, :3],
        r"must have the shape \(n, 12\), got \(0, 12\)": x[:0],
        r"has NaN or infinite values": np.full_like(x, np.nan),
        r"must be an array of numbers, got 'text'": "text",
        r"x has 2 arrays, but the network has 1 inputs": (x, x),
        r"x has the inputs y, but the file has input": {"y": x},
    }
    for message, value in wrong.items():
        for call in (network.predict, network.drift, network.adapt):
            with pytest.raises(bn.BayesNormError, match=message):
                call(value)
    with pytest.raises(bn.BayesNormError, match="strength must be a number from 0 to 1"):
        network.adapt(x, strength=2)
    with pytest.raises(bn.BayesNormError, match="outputs has 'median', but the file has probs"):
        network.predict(x, outputs=["median"])
    with pytest.raises(bn.BayesNormError, match="NaN or infinite statistics"):
        network.drift(np.full_like(x, 3e38))


def test_what_cannot_be_watched_is_refused_before_the_export(perceptron, tmp_path):
    posterior, x = perceptron.posterior, perceptron.usual
    path = tmp_path / "net.onnx"
    cases = {
        r"watch=True needs an ONNX file": (posterior, tmp_path / "net.pt2"),
        r"cannot be used with a AdaptedPosterior. Pass posterior.original": (bn.adapt(posterior, x), path),
        r"cannot be used with a EnsemblePosterior.* one by one": (bn.ensemble([posterior, posterior]), path),
    }
    few = bn.MCBN(32, states=4).fit(posterior.model, torch.randn(99, 12), bn.Categorical())
    cases[r"watch=True needs a record of how training batches vary"] = (few, path)
    for message, (refused, target) in cases.items():
        with pytest.raises(bn.BayesNormError, match=message):
            bn.export(refused, target, x[:9], engine=bn.MonteCarlo(2), watch=True)
        assert not target.exists()


def test_plain_files_predict_but_do_not_watch(tmp_path):
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    x = torch.randn(64, 3)
    posterior = bn.MCBN(8).fit(network, x)
    bn.export(posterior, tmp_path / "net.onnx", x[:9], samples=2, outputs=["predictive_mean"])
    plain = Network(tmp_path / "net.onnx")
    assert not plain.watches
    expected = posterior.predict(x, engine=bn.MonteCarlo(2)).mean
    np.testing.assert_allclose(plain.predict(x.numpy())["predictive_mean"], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(bn.BayesNormError, match=r"does not watch its inputs. Export it again"):
        plain.drift(x.numpy())
