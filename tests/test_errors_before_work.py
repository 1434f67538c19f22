"""What cannot work is refused before the work: at most a look at two or three rows comes first."""

import re

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y, CLASSES = X[:, :1], (X[:, 0] > 0).long()
NAN = float("nan")

# How many rows each pass of a network had.
PASSES = []


class Counted(nn.Module):
    """Notes how many rows come in."""

    def __init__(self, outputs=1):
        super().__init__()
        self.outputs = outputs
        self.network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(4, outputs)

    def forward(self, x):
        PASSES.append(x.shape[-2])
        return self.head(self.network(x))


class Named(Counted):
    """Returns a dict."""

    def forward(self, x):
        return {"mean": super().forward(x)}


def refused(said, call):
    """Check that the message begins with `said`, in which .* is for any text, and that the network hardly ran."""
    PASSES.clear()
    with pytest.raises(bn.BayesNormError, match="^" + re.escape(said).replace(r"\.\*", ".*")):
        call()
    assert max(PASSES, default=0) <= 3, "a look at a few rows was enough"
    assert len(PASSES) <= 6


FITS = {
    "MCBN": (bn.MCBN(batch_size=8, states=6), X),
    "GaussianBN": (bn.GaussianBN(batch_size=8), X),
    "StochasticBN": (bn.StochasticBN(batch_size=8, states=6), (X, Y)),
    "MCDropout": (bn.MCDropout(), X),
    "BayesByBackprop": (bn.BayesByBackprop(epochs=2), (X, Y)),
    "MNF": (bn.MNF(epochs=2), (X, Y)),
    "DeepEnsemble": (bn.DeepEnsemble(members=2, epochs=2), (X, Y)),
    "DeepEnsemble of MCBN": (bn.DeepEnsemble(2, bn.MCBN(batch_size=8, states=6), epochs=2), (X, Y)),
}


@pytest.mark.parametrize("name", FITS)
def test_every_fit(name):
    method, data = FITS[name]
    two = Counted(2).eval()

    def fit(model=two, train_data=data, likelihood=None, **options):
        return lambda: method.fit(model, train_data, likelihood, **options)

    refused("likelihood is needed, because the network has outputs of shape (2,)", fit())
    refused(
        "likelihood must be an object such as Gaussian() or Categorical(), got 'gaussian'.", fit(likelihood="gaussian")
    )
    refused(
        "Outputs of shape .*, 3) have 3 entries along axis 1, but an even number is needed",
        fit(Counted(3).eval(), likelihood=bn.HeteroscedasticGaussian()),
    )
    refused("precision has 3 numbers, but the outputs", fit(likelihood=bn.Gaussian((1.0, 2.0, 3.0))))
    refused("precision is 1e-45, which is too extreme", fit(Counted(1).eval(), likelihood=bn.Gaussian(1e-45)))
    refused("output='std', but the network returns", fit(Named().eval(), output="std"))


BATCHNORM = {name: method for name, (method, _) in FITS.items() if hasattr(method, "center")}


@pytest.mark.parametrize("name", BATCHNORM)
def test_batches_and_layers(name):
    kind, model = type(BATCHNORM[name]), Counted().eval()
    refused("layers: 'nowhere' is not", lambda: kind(batch_size=8, layers="nowhere").fit(model, X))
    refused("layers=2, but the network has", lambda: kind(batch_size=8, layers=2).fit(model, X))
    refused("batch_size=40, but train_data has only 40", lambda: kind(batch_size=40).fit(model, X))
    refused("batch_size=None uses", lambda: kind().fit(model, X))
    refused("train_data: x has 40 rows, but y has 39", lambda: kind(batch_size=8).fit(model, (X, Y[1:])))
    for method in (kind(batch_size=40), kind(batch_size=8, layers="nowhere")):
        said = "batch_size=40" if method.layers is None else "layers: 'nowhere'"
        refused(said, lambda method=method: bn.DeepEnsemble(2, method).fit(model, (X, Y)))


@pytest.mark.parametrize("name", ["BayesByBackprop", "MNF", "DeepEnsemble"])
def test_targets_that_cannot_be_trained_on(name):
    method, _ = FITS[name]
    one, three = Counted().eval(), Counted(3).eval()
    late = torch.cat([CLASSES[:-1], torch.tensor([7])])
    hole = torch.cat([Y[:-1], torch.tensor([[NAN]])])
    refused(
        "y must be class numbers from 0 to 2, but 1 of 40 values are not, such as 7. ",
        lambda: method.fit(three, (X, late), bn.Categorical()),
    )
    refused(
        "y must be class numbers from 0 to 2, but 1 of 40 values are not, such as 7. ",
        lambda: method.fit(three, TensorDataset(X, late), bn.Categorical()),
    )
    refused(
        "y must be class numbers from 0 to 2, but 23 of 40 values are not, such as 0.5. ",
        lambda: method.fit(three, (X, late / 2), bn.Categorical()),
    )
    refused("y .*1 .*NaN", lambda: method.fit(one, (X, hole)))
    refused("y has shape", lambda: method.fit(one, (X, X)))
    refused("train_data: x has 40 rows, but y has 39", lambda: method.fit(one, (X, Y[1:])))
    refused(
        "train_data must be a pair (x, y) with targets, got Tensor." if name != "DeepEnsemble" else "y is needed",
        lambda: method.fit(one, X),
    )
    method.fit(one, DataLoader(TensorDataset(X, Y), batch_size=8))


def test_calibrate():
    posterior = bn.MCBN(batch_size=8, states=6).fit(Counted().eval(), X)
    classes = bn.MCBN(batch_size=8, states=6).fit(Counted(2).eval(), X, bn.Categorical())
    pair = bn.MCBN(batch_size=8, states=6).fit(Counted(2).eval(), X, bn.Gaussian())
    late = torch.cat([CLASSES[:-1], torch.tensor([7])])
    hole = torch.cat([Y[:-1], torch.tensor([[NAN]])])
    calibrate = bn.calibrate
    refused(
        'score must be "crps" or "pll" for a RegressionPredictive, got \'nll\'.',
        lambda: calibrate(posterior, X, Y, score="nll"),
    )
    refused(
        "score must be \"nll\" for a ClassificationPredictive, got 'crps'.",
        lambda: calibrate(classes, X, CLASSES, score="crps"),
    )
    refused("y has shape (39, 1)", lambda: calibrate(posterior, X, Y[1:]))
    refused("y has shape (40, 1)", lambda: calibrate(pair, X, Y))
    refused("y has classes from 0 to 7, but the network has classes 0 to 1.", lambda: calibrate(classes, X, late))
    refused("y has shape (40,) and torch.float32", lambda: calibrate(classes, X, CLASSES + 0.5))
    refused("y .*1 .*NaN", lambda: calibrate(posterior, X, hole))
    refused("y .*1 .*NaN", lambda: calibrate(posterior, folds=[(posterior, X, Y), (posterior, X, hole)]))
    refused(
        "noise must be True, False or (low, high), two positive numbers, got (1, 0).",
        lambda: calibrate(posterior, X, Y, noise=(1, 0)),
    )
    refused("batch_size must be a positive number, got -1.", lambda: calibrate(posterior, X, Y, batch_size=[8, -1]))
    refused("x: the network's forward failed", lambda: calibrate(posterior, X[:, :2], Y))


def test_select_batch_size():
    posterior = bn.MCBN(batch_size=8, states=6).fit(Counted().eval(), X)
    hole = torch.cat([Y[:-1], torch.tensor([[NAN]])])
    bad_row = torch.cat([X[:-1], torch.full((1, 3), NAN)])

    def select(data=(X, Y), **options):
        return lambda: bn.select_batch_size(posterior, data, **options)

    refused("validation must be a pair (x, y) with one target per row of x, got tuple.", select(validation=(X, Y[1:])))
    refused("y has shape (40, 2)", select(validation=(X, X[:, :2])))
    refused("y .*1 .*NaN", select((X, hole)))
    refused("y has shape (40, 3)", select((X, X)))
    refused("data has 3 NaN", select((bad_row, Y)))
    for sizes in ([8], [8, -1], 8):
        refused(f"batch_sizes must be two or more positive numbers, got {sizes}.", select(batch_sizes=sizes))


def test_suggest_layers():
    posterior = bn.MCBN(batch_size=8, states=6).fit(Counted().eval(), X)
    refused("y has shape (39, 1)", lambda: bn.suggest_layers(posterior, X, Y[1:]))
    refused(
        'score must be "crps" or "pll" for a RegressionPredictive, got \'nll\'.',
        lambda: bn.suggest_layers(posterior, X, Y, score="nll"),
    )
    refused(
        "noise must be True, False or (low, high), two positive numbers, got 3.",
        lambda: bn.suggest_layers(posterior, X, Y, noise=3),
    )
