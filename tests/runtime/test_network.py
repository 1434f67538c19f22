"""Files that watch their inputs give the drift, the expected error and the adapted predictions of torch."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import bayesnorm as bn
from bayesnorm_runtime import Network
from experiments.data import load_cifar10, to_network_input
from experiments.networks import load_cifar_resnet

from ..marks import takes_long

onnxruntime = pytest.importorskip("onnxruntime")

CASES = ["perceptron", "convolutions"]


@pytest.fixture(params=CASES)
def case(request):
    return request.getfixturevalue(request.param)


def require_same_drift(mine, expected, rtol: float = 1e-4):
    """Compare two results of drift; p-values by their logarithms, which single precision moves in the fifth digit."""
    assert mine.rows == expected.rows
    assert mine.distance == pytest.approx(expected.distance, rel=1e-5)
    np.testing.assert_allclose(np.log(mine.p_value), np.log(expected.p_value), rtol=rtol, atol=1e-4)
    assert mine.first_layer == expected.first_layer
    for layer, target in zip(mine.layers, expected.layers, strict=True):
        assert layer.name == target.name
        np.testing.assert_allclose(np.log(layer.p_value), np.log(target.p_value), rtol=rtol, atol=1e-4)
        assert layer.mean_shift == pytest.approx(target.mean_shift, rel=1e-4, abs=1e-5)
        assert layer.spread_ratio == pytest.approx(target.spread_ratio, rel=1e-5)
    assert mine.cause == expected.cause
    if expected.class_mix is None:
        assert mine.expected_error is mine.class_mix is None
        return
    np.testing.assert_allclose(mine.class_mix, expected.class_mix, atol=1e-5)
    for when in ("before", "after"):
        for name in ("value", "low", "high"):
            value, target = (getattr(getattr(result.expected_error, when), name) for result in (mine, expected))
            assert value == pytest.approx(target, abs=1e-5)
    assert mine.expected_error.usual == expected.expected_error.usual


def require_same_predictions(values, predictive):
    for name in values:
        expected = {
            "predictive_mean": lambda: predictive.mean,
            "epistemic_std": lambda: predictive.epistemic.sqrt(),
        }.get(name, lambda name=name: getattr(predictive, name))()
        np.testing.assert_allclose(values[name], expected.numpy(), rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("inputs", ["usual", "shifted"])
def test_drift_is_that_of_torch_for_one_group_and_for_several(case, inputs):
    network, x = Network(case.path), getattr(case, inputs)
    for rows in (3, len(x)):
        require_same_drift(network.drift(x[:rows].numpy()), bn.drift(case.posterior, x[:rows]))
    assert bn.drift(case.posterior, case.shifted).p_value < 1e-3 < bn.drift(case.posterior, case.usual).p_value


@pytest.mark.parametrize("strength", [None, 0.6])
def test_adapted_predictions_are_those_of_torch(case, strength):
    network, x = Network(case.path), case.shifted
    require_same_predictions(network.predict(x.numpy()), case.posterior.predict(x, engine=case.engine))
    once, expected = network.adapt(x[:60].numpy(), strength), bn.adapt(case.posterior, x[:60], strength=strength)
    twice, expected_twice = once.adapt(x[60:].numpy(), strength), bn.adapt(expected, x[60:], strength=strength)
    for mine, target in ((once, expected), (twice, expected_twice)):
        assert mine.adapted
        assert mine.decision == target.decision
        statistics = target.state(target.location)
        for name, value in mine.layer_statistics(x.numpy()).items():
            assert value[0].shape == statistics[f"{name}.running_mean"].shape
        require_same_predictions(mine.predict(x.numpy()), target.predict(x, engine=case.engine))
        require_same_drift(mine.drift(x.numpy()), bn.drift(target, x))
    assert not network.adapted
    assert network.predict(x.numpy())[network.outputs[0]].tolist() != once.predict(x.numpy())[once.outputs[0]].tolist()


def test_usual_inputs_leave_a_classifier_as_it_is(perceptron):
    network, x = Network(perceptron.path), perceptron.usual.numpy()
    same = network.adapt(x)
    assert same.decision == bn.adapt(perceptron.posterior, perceptron.usual).decision
    assert same.decision.startswith("Left as it was")
    np.testing.assert_allclose(same.predict(x)["probs"], network.predict(x)["probs"], atol=1e-6)


def test_layer_statistics_are_those_of_the_network(perceptron):
    network, x = Network(perceptron.path), perceptron.usual
    model = perceptron.posterior.model
    with torch.no_grad():
        h = model[:4](x)
    mean, var = network.layer_statistics(x.numpy())["4"]
    np.testing.assert_allclose(mean, h.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(var, h.var(0, correction=0), rtol=1e-4)


def test_statistics_are_computed_only_if_asked_and_the_file_names_no_path(perceptron):
    session = onnxruntime.InferenceSession(perceptron.path, providers=["CPUExecutionProvider"])
    feeds = {"input": perceptron.usual.numpy()}
    names = [output.name for output in session.get_outputs()]
    plain = dict(zip(names, session.run(None, feeds), strict=True))
    asked = dict(zip(names, session.run(None, feeds | {"watch_layers": np.array(True)}), strict=True))
    assert plain["1.input_mean"].shape == (0,)
    assert asked["1.input_mean"].shape == (30,)
    np.testing.assert_array_equal(plain["probs"], asked["probs"])
    assert not re.search(rb"\.py\b|site-packages|/src/", perceptron.path.read_bytes())


@takes_long
def test_sigma_points_keep_the_directions_of_the_file(convolutions, tmp_path):
    posterior, x = convolutions.posterior, convolutions.shifted
    bn.export(posterior, tmp_path / "net.onnx", x[:9], engine=bn.SigmaPoints(4), watch=True)
    network = Network(tmp_path / "net.onnx").adapt(x.numpy())
    values, expected = network.predict(x.numpy()), bn.adapt(posterior, x).predict(x, engine=bn.SigmaPoints(4))
    np.testing.assert_allclose(values["predictive_mean"], expected.mean, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(values["epistemic_std"], expected.epistemic.sqrt(), rtol=0.5, atol=1e-3)


@takes_long
def test_a_trained_resnet_is_watched_and_adapted_as_in_torch(tmp_path, require):
    require("resnet_cifar10/resnet20.safetensors", "cifar10/labels.npz", "cifar10/test_first2000.webp")
    network, images = load_cifar_resnet(20), to_network_input(load_cifar10("test", rows=832)[0])
    train, test = images[:768], images[768:]
    engine = bn.MonteCarlo(4)
    posterior = bn.MCBN(32, states=24, layers=1).fit(network, train, bn.Categorical())
    bn.export(posterior, tmp_path / "net.onnx", train[:9], engine=engine, watch=True)
    mine = Network(tmp_path / "net.onnx")
    for x in (test, 0.4 * test + 0.3):
        require_same_drift(mine.drift(x.numpy()), bn.drift(posterior, x), rtol=1e-3)
        adapted, expected = mine.adapt(x.numpy()), bn.adapt(posterior, x)
        assert adapted.decision == expected.decision
        probs = adapted.predict(x.numpy())["probs"]
        np.testing.assert_allclose(probs, expected.predict(x, engine=engine).probs, atol=1e-5)
