"""`posterior.to` returns a posterior over a copy of the network; the user's network stays as it is.

Precision stands for devices here, because the machines of the tests have one device.
The contract of methods has the same test for their posteriors.
"""

import pytest
import torch
from torch import nn

import bayesnorm as bn

ROWS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))
    model.train()(ROWS)
    return model.eval()


def statistics(model, **options):
    return bn.MCBN(batch_size=8, states=16, **options).fit(model, ROWS)


def combined():
    model = network()
    return bn.combine(statistics(model), bn.MCDropout().fit(model, ROWS))


KINDS = {
    "adapted": lambda: bn.adapt(statistics(network()), ROWS + 1),
    "combined": combined,
    "ensemble": lambda: bn.ensemble([statistics(network()), statistics(network(), center="batch")]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_another_precision(kind, tmp_path):
    posterior = KINDS[kind]()
    before = {name: value.clone() for name, value in posterior.model.state_dict().items()}
    double = posterior.to(torch.float64)
    assert double.model is not posterior.model
    assert double.executable.dtype == torch.float64
    first, second = posterior.predict(ROWS), double.predict(ROWS)
    assert first.mean.dtype == torch.float32
    assert second.mean.dtype == torch.float64
    torch.testing.assert_close(second.mean.float(), first.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second.epistemic.float(), first.epistemic, rtol=1e-3, atol=1e-6)
    double.save(tmp_path / "copy")
    assert torch.equal(bn.load(tmp_path / "copy", double.model).predict(ROWS).mean, second.mean)
    after = posterior.model.state_dict()
    assert all(value.dtype == after[name].dtype and torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("engine", [bn.SigmaPoints(rank=3), bn.Delta()], ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_engines_with_coordinates(engine, used):
    posterior = statistics(network())
    if used:
        posterior.predict(ROWS, engine)
    double = posterior.to(dtype=torch.float64)
    expected = posterior.predict(ROWS, engine)
    torch.testing.assert_close(double.predict(ROWS, engine).std.float(), expected.std, rtol=1e-3, atol=1e-5)


def test_drift_and_adaptation_of_a_copy():
    posterior = statistics(network())
    double = posterior.to("cpu", torch.float64)
    assert bn.drift(double, ROWS + 1).distance == pytest.approx(bn.drift(posterior, ROWS + 1).distance, rel=1e-3)
    assert bn.adapt(double, ROWS + 1).predict(ROWS).mean.dtype == torch.float64


def test_parts_share_one_copy():
    posterior = combined().to(torch.bfloat16)
    assert posterior.parts[0].model is posterior.parts[1].model is posterior.model
    assert torch.isfinite(posterior.predict(ROWS).mean).all()


def test_places_that_do_not_exist():
    posterior = statistics(network())
    with pytest.raises(bn.BayesNormError, match="dtype must be a floating dtype"):
        posterior.to(torch.int8)
    with pytest.raises(bn.BayesNormError, match="device='nowhere' cannot be used"):
        posterior.to("nowhere")
    with pytest.raises(bn.BayesNormError, match="meta device"):
        posterior.to("meta")
