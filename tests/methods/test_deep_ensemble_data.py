"""Deep ensembles take every kind of training data, and leave the global generators alone."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(60, 3, generator=GENERATOR), torch.randn(60, 1, generator=GENERATOR)

DATA = {
    "pair": lambda: (X, Y),
    "arrays": lambda: (X.numpy(), Y.numpy()),
    "data set": lambda: TensorDataset(X, Y),
    "loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True),
}


@pytest.mark.parametrize("kind", DATA)
def test_data_of_every_kind_with_the_default_likelihood(kind):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    before = torch.get_rng_state()
    posterior = bn.DeepEnsemble(members=2, epochs=1).fit(model, DATA[kind]())
    assert torch.equal(torch.get_rng_state(), before)
    assert posterior.likelihood == bn.Gaussian()
    assert posterior.predict(X).mean.shape == (60, 1)


BAD = {"not a number": (torch.full_like(X, torch.nan), Y), "one row": (X[:1], Y[:1]), "other inputs": (X[:, :2], Y)}


@pytest.mark.parametrize("likelihood", [None, bn.Gaussian()], ids=["default", "given"])
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *itertools.product((bn.DeepEnsemble(members=2, epochs=1), bn.BayesByBackprop(epochs=1), bn.MCBN(8)), BAD),
        (bn.MCDropout(), "not a number"),
        (bn.MCDropout(), "other inputs"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_errors_name_the_argument_as_fit_has_it(method, kind, likelihood):
    """`train`, which has its own name for it, and the network's own look at inputs do not show through."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 1))
    with pytest.raises(bn.BayesNormError, match=r"^train_data\b"):
        method.fit(model, BAD[kind], likelihood)
