"""Weights that change while a network runs are told; old and new ones are never mixed silently."""

import threading

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import WeightsChangedError

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
ENGINES = [None, bn.MonteCarlo(5, vectorize=False), bn.MonteCarlo(6, chunk=2), bn.SigmaPoints(2), bn.Delta()]
SAID = (
    "model: its weights changed while it was running.*trained in another thread.* Wait for the training to end, or use"
)


class Watched(nn.Module):
    """Calls a function of its own in every forward."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        meanwhile(self)
        return self.head(self.norm(x))


def nothing(_):
    pass


meanwhile = nothing


def trained(network):
    with torch.no_grad():
        network.head.weight.mul_(3).add_(1)


@pytest.fixture
def let(monkeypatch):
    """`let(function)`: what happens in every forward from now on."""
    return lambda function: monkeypatch.setitem(globals(), "meanwhile", function)


def once(number):
    """Train in one of the forwards to come."""
    left = [number]

    def function(network):
        left[0] -= 1
        if left[0] == 0:
            trained(network)

    return function


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("new", [True, False], ids=["at the first prediction", "later"])
def test_predictions(engine, new, let):
    posterior = bn.MCBN(batch_size=8, states=6).fit(Watched().eval(), X)
    if not new:
        posterior.predict(X, engine)
    for steps in (trained, once(1)):
        let(steps)
        with pytest.raises(WeightsChangedError, match=SAID):
            posterior.predict(X, engine)
        let(nothing)
        posterior.predict(X, engine)
    # What was found out about the network meanwhile is forgotten: no samples one by one, and no warning of them.
    fresh = bn.MCBN(batch_size=8, states=6).fit(posterior.model, X)
    assert torch.equal(posterior.predict(X).mean, fresh.predict(X).mean)


def test_steps_that_leave_no_trace_in_versions(let):
    posterior = bn.MCBN(batch_size=8, states=6).fit(Watched().eval(), X)
    optimiser = torch.optim.Adam(posterior.model.parameters(), fused=True)
    posterior.model(X).sum().backward()
    let(lambda _: optimiser.step())
    with pytest.raises(WeightsChangedError, match=SAID):
        posterior.predict(X, bn.MonteCarlo(5, vectorize=False))


def test_derivatives_of_weights_that_moved_on(let):
    posterior = bn.MCBN(batch_size=8, states=6).fit(Watched().eval(), X)
    posterior.predict(X, bn.Delta())
    moved = X.clone().requires_grad_()

    def after_the_forward(network):
        if torch.is_grad_enabled():
            network.norm.register_forward_hook(lambda *_: trained(posterior.model))

    let(after_the_forward)
    with pytest.raises(WeightsChangedError, match=SAID):
        posterior.predict(moved, bn.Delta())


@pytest.mark.parametrize("method", [bn.MCBN(batch_size=8, states=6), bn.GaussianBN(batch_size=8)], ids=str)
def test_fits(method, let):
    let(once(5))
    with pytest.raises(WeightsChangedError, match=SAID):
        method.fit(Watched().eval(), X)


def test_an_error_of_the_network_stays_its_own(let):
    def fails(_):
        raise OSError("out of paper")

    posterior = bn.deterministic(Watched().eval(), bn.Gaussian())
    let(fails)
    with pytest.raises(bn.BayesNormError, match="out of paper"):
        posterior.predict(X)


def test_a_network_that_clamps_its_weights_still_predicts(let):
    def clamped(network):
        with torch.no_grad():
            network.head.weight.clamp_(0)

    let(clamped)
    model = Watched().eval()
    posterior = bn.MCBN(batch_size=8, states=6).fit(model, X)
    for engine in ENGINES[:4]:
        assert torch.equal(posterior.predict(X, engine).mean, posterior.predict(X, engine).mean)


def test_weights_that_do_not_count_may_change(let):
    members = [Watched().eval() for _ in range(2)]
    posterior = bn.ensemble(members, bn.Gaussian())
    again = bn.DeepEnsemble(members=2, epochs=1).fit(members[0], (X, X[:, :1]))
    expected = again.predict(X).mean
    optimiser, stop = torch.optim.Adam(members[0].parameters(), lr=1e-3, fused=True), threading.Event()

    def train():
        while not stop.is_set():
            optimiser.zero_grad()
            members[0](X).square().mean().backward()
            optimiser.step()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(20):
            assert torch.equal(again.predict(X).mean, expected)
    finally:
        stop.set()
        thread.join()
    assert torch.isfinite(posterior.predict(X).mean).all()
