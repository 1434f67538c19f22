"""Networks that do odd things: the fast way gives what `functional_call` gives, or is not taken."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

import bayesnorm as bn
from bayesnorm.errors import NetworkError

X = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

METHODS = [bn.MCBN(batch_size=8, states=6), bn.GaussianBN(batch_size=8)]


def by_definition(posterior, n, x):
    states = posterior.sample(n)
    samples = [{name: value[i] for name, value in states.items()} for i in range(n)]
    return torch.stack([functional_call(posterior.model, state, (x,)) for state in samples])


class Unscaled(nn.Module):
    """Normalises its input, and brings its output back to the scale by the same statistics."""

    def __init__(self):
        super().__init__()
        self.norm, self.body = nn.BatchNorm1d(3, affine=False), nn.Linear(3, 3)

    def forward(self, x):
        return self.body(self.norm(x)) * self.norm.running_var.sqrt() + self.norm.running_mean


def test_statistics_that_are_used_outside_of_their_layer():
    for method in METHODS:
        posterior = method.fit(Unscaled().double().eval(), X, bn.Gaussian())
        with pytest.warns(bn.BayesNormWarning, match="cannot be vectorised over samples .*outside of their layers"):
            result = posterior.outputs(5, X)
        torch.testing.assert_close(result, by_definition(posterior, 5, X).detach(), rtol=1e-12, atol=0)


def test_delta_takes_no_derivatives_of_statistics_that_are_used_elsewhere_too():
    posterior = METHODS[0].fit(Unscaled().double().eval(), X, bn.Gaussian())
    with pytest.raises(NetworkError, match=r"model: its forward uses batch-norm statistics outside of their layers"):
        posterior.predict(X, bn.Delta())


class Force(nn.Module):
    """Minus the derivative of an energy by the positions, as networks of molecules have it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.energy = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            h = torch.tanh(self.first(x))
            energy = (self.energy(h) + h.sum(1, keepdim=True) * x[:, :1]).sum()
            return -torch.autograd.grad(energy, x)[0]


@pytest.mark.filterwarnings("ignore:.*cannot be vectorised:bayesnorm.BayesNormWarning")
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_forward_that_takes_derivatives(method, snapshot):
    model = Force().double().eval()
    before = snapshot(model)
    posterior = method.fit(model, X, bn.Gaussian())
    result = posterior.outputs(5, X)
    torch.testing.assert_close(result, by_definition(posterior, 5, X), rtol=1e-12, atol=0)
    assert (result.std(0) > 0).all()
    assert snapshot(model) == before


class EnablesGradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 1)

    @torch.enable_grad()
    def forward(self, x):
        return self.head(self.norm(x))


def test_predictions_are_no_part_of_a_graph():
    model = EnablesGradients().double().eval()
    for posterior in (bn.deterministic(model, bn.Gaussian()), bn.MCBN(batch_size=8, states=4).fit(model, X)):
        assert not posterior.predict(X).mean.requires_grad
