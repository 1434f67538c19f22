"""What Delta cannot work on is told in the words of the other engines, and never guessed at."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import InputError, NetworkError

from ..apply import Apply

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def posterior():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 1)).eval()
    return bn.MCBN(batch_size=8, states=8).fit(model, X)


@pytest.mark.parametrize("engine", [bn.MonteCarlo(4), bn.SigmaPoints(2), bn.Delta()], ids=lambda e: type(e).__name__)
def test_inputs_that_the_network_does_not_take(posterior, engine):
    for x in (X[:, :3], X[0], torch.stack([X, X])):
        with pytest.raises(InputError, match=r"x: the network's forward failed on input of shape .*Pass input"):
            posterior.predict(x, engine)


def test_rows_that_do_not_stay_apart():
    """Every row holds several views, which batch norm sees one by one."""
    views, mean = Apply(lambda x: x.reshape(-1, 2)), Apply(lambda f: f.reshape(-1, 3).mean(1, keepdim=True))
    model = nn.Sequential(views, nn.BatchNorm1d(2), nn.Linear(2, 1), mean).eval()
    posterior = bn.MCBN(batch_size=8, states=8).fit(model, X)
    with pytest.raises(NetworkError, match=r"model: .*cannot be run .*engine=MonteCarlo\(\)"):
        posterior.predict(X, bn.Delta())
    state = {name: value[0] for name, value in posterior.sample(1).items()}
    expected = torch.func.functional_call(posterior.model, state, (X,))
    torch.testing.assert_close(bn.MonteCarlo(1).outputs(posterior, X)[0], expected)
    assert (posterior.predict(X, bn.SigmaPoints(4)).epistemic > 0).all()


def test_weights_that_autograd_may_not_keep():
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).eval()
    posterior = bn.MCBN(batch_size=8, states=8).fit(model, X)
    assert (posterior.predict(X).epistemic > 0).any()
    with pytest.raises(
        NetworkError, match=r"model: .*cannot be run with derivatives .*Inference tensors.*MonteCarlo\(\)"
    ):
        posterior.predict(X, bn.Delta())


class FrozenBody(nn.Module):
    """The usual way to train a head only: no derivatives for the rest, whose batch norm is drawn all the same."""

    def __init__(self, how):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(10, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        self.how = how

    def forward(self, x):
        if self.how == "detach":
            return self.head(self.body(x).detach())
        with torch.no_grad():
            h = self.body(x)
        return self.head(h)


@pytest.mark.parametrize("how", ["no_grad", "detach"])
def test_derivatives_that_a_forward_cuts_off_are_not_taken_for_zero(how):
    model = FrozenBody(how).eval()
    posterior = bn.MCBN(batch_size=8, states=32).fit(model, X)
    with pytest.raises(NetworkError, match=r"model: .*statistics of 'body.1', but its forward blocks their"):
        posterior.predict(X, bn.Delta())
    assert posterior.output_directions.components is None, (
        "directions of the head alone would leave out most of the variance"
    )
    assert torch.isfinite(bn.MCBN(batch_size=8, layers=1).fit(model, X).predict(X, bn.Delta()).epistemic).all()


def test_dead_units_have_no_derivatives_and_are_no_reason_to_refuse():
    model = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)).eval()
    model[1].bias.data.fill_(-1e3)
    posterior = bn.MCBN(batch_size=8, states=8).fit(model, X)
    assert (posterior.predict(X, bn.Delta()).epistemic == 0).all()


def test_outputs_without_any_derivative():
    detached = Apply(lambda h: h.detach().sum(1, keepdim=True))
    posterior = bn.MCBN(batch_size=8, states=8).fit(nn.Sequential(nn.BatchNorm1d(6), detached).eval(), X)
    with pytest.raises(NetworkError, match=r"model: its outputs depend on the statistics of '0'"):
        posterior.predict(X, bn.Delta())
