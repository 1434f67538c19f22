"""What does not depend on the draw is computed once, and what is handed out again is still right."""

import copy
import dataclasses
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.network.running.prefix import PrefixCache

TIGHT = {"rtol": 1e-9, "atol": 1e-10}


def data(*shape, rows=30):
    return torch.randn(rows, *shape, dtype=torch.float64)


class Counted(nn.Linear):
    """Counts how often it computes, in all copies together."""

    computed = 0

    def forward(self, x):
        Counted.computed += 1
        return super().forward(x)


class Stemmed(nn.Module):
    """Two linear layers, then batch norm twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        self.bn1, self.middle, self.bn2 = nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(F.relu(self.bn2(self.middle(F.relu(self.bn1(self.stem(x)))))))


class InPlaceOnKept(Stemmed):
    """Functional in-place operations write into outputs that the cache keeps."""

    def forward(self, x):
        h = F.relu_(self.stem(x))
        skip = h
        h = F.relu_(self.bn1(h))
        skip.mul_(2)
        return self.head(F.relu(self.bn2(self.middle(h) + skip)))


class InPlaceBeforeDraws(Stemmed):
    """Scales a kept output in place before the first draw: doing so twice would show."""

    def forward(self, x):
        h = self.stem(x).mul_(2).add_(1)
        return self.head(F.relu(self.bn2(self.middle(self.bn1(h)))))


class SkipFromStem(Stemmed):
    """Uses the stem's output after two drawn layers again."""

    def forward(self, x):
        stem = self.stem(x)
        h = self.bn2(self.middle(self.bn1(stem)))
        return self.head(F.relu(h + stem) + 0.5 * stem)


class CalledOften(Stemmed):
    """Modules called several times, before and after the first draw."""

    def forward(self, x):
        h = self.middle(self.middle(self.stem(x)) * 2)
        h = self.bn1(h)
        h = self.middle(h)
        h = self.bn2(self.middle(h) + self.stem(x * 0.5))
        return self.head(F.relu(h)) + self.head(self.middle(h))


class ChangesAfterwards(Stemmed):
    """Changes a kept output in place only after the last draw, where no later module would notice."""

    def forward(self, x):
        stem = self.stem(x)
        out = self.head(self.bn2(self.middle(self.bn1(stem))) + stem)
        stem.zero_()
        return out


class TupleStem(nn.Module):
    """A stem that returns a tuple and a dict."""

    def __init__(self):
        super().__init__()
        self.rnn, self.bn1, self.bn2, self.head = (
            nn.LSTM(3, 4, batch_first=True),
            nn.BatchNorm1d(4),
            nn.BatchNorm1d(4),
            nn.Linear(4, 1),
        )

    def forward(self, x):
        h, (last, cell) = self.rnn(x)
        return self.head(self.bn2(torch.tanh(self.bn1(last[-1])) + cell[-1] + h[:, 0]))


class ByHook(nn.Module):
    """An encoder whose features are picked up by forward hooks, as hook-built U-Nets do."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
        self.bn1, self.bn2, self.head = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.features = []
        self.encoder[1].register_forward_hook(self.keep)

    def keep(self, _module, _args, output):
        self.features.append(output)

    def forward(self, x):
        h = self.bn1(self.encoder(x))
        return self.head(self.bn2(h) + self.features.pop())


NETWORKS = {
    "stem": (Stemmed, (3,)),
    "in place on kept outputs": (InPlaceOnKept, (3,)),
    "in place before the samples": (InPlaceBeforeDraws, (3,)),
    "skip from the stem": (SkipFromStem, (3,)),
    "modules called often": (CalledOften, (3,)),
    "changes afterwards": (ChangesAfterwards, (3,)),
    "tuples": (TupleStem, (5, 3)),
    "features by hook": (ByHook, (3,)),
    "sequential": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Identity()),
            nn.ReLU(inplace=True),
            nn.BatchNorm1d(4),
            nn.ReLU(inplace=True),
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
            nn.ReLU(inplace=True),
            nn.Linear(4, 1),
        ),
        (3,),
    ),
    "shared module in a sequential": (
        lambda: (lambda shared: nn.Sequential(shared, nn.Tanh(), shared, nn.BatchNorm1d(3), shared, nn.Linear(3, 1)))(
            nn.Linear(3, 3)
        ),
        (3,),
    ),
    "batch norm first": (lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), (3,)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layers", [None, 1], ids=["all layers", "last layer"])
def test_numbers_are_those_of_whole_passes(name, layers, reference):
    build, shape = NETWORKS[name]
    model, x = build().double(), data(*shape)
    posterior = bn.MCBN(batch_size=8, states=7, layers=layers).fit(model, x)
    x = x[:4]
    expected = reference(model, posterior.sample(7), x)
    assert (expected.std(0) > 0).all()
    for vectorize, block_bytes in itertools.product((True, False), (None, 1)):
        engine = bn.MonteCarlo(samples=7, vectorize=vectorize, block_bytes=block_bytes)
        fresh = dataclasses.replace(posterior, executable=copy.copy(posterior.executable))  # knows no input yet
        for _ in range(2):  # the second time with what the first look told
            torch.testing.assert_close(engine.outputs(fresh, x), expected, **TIGHT)


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("hooked", [False, True])
def test_the_stem_is_computed_once(vectorize, hooked):
    model, x = Stemmed(), torch.randn(30, 3)
    model.stem[0] = Counted(3, 4)
    if hooked:
        model.stem[2].register_forward_hook(lambda _module, _args, _output: None)
    posterior = bn.MCBN(batch_size=8, states=7).fit(model, x)
    engine = bn.MonteCarlo(samples=50, vectorize=vectorize, chunk=5)
    engine.outputs(posterior, x)  # the first call for a shape also looks at two rows
    Counted.computed = 0
    engine.outputs(posterior, x)
    assert Counted.computed == 1


@pytest.mark.parametrize(("layers", "passes"), [(1, 1), (None, 10)])
def test_only_what_follows_the_first_drawn_layer_runs_per_draw(layers, passes):
    model, x = Stemmed(), torch.randn(30, 3)
    model.middle = Counted(4, 4)
    posterior = bn.MCBN(batch_size=8, states=7, layers=layers).fit(model, x)
    engine = bn.MonteCarlo(samples=10, vectorize=False)
    engine.outputs(posterior, x)
    Counted.computed = 0
    engine.outputs(posterior, x)
    assert Counted.computed == passes


def test_nothing_recorded_is_kept_after_a_prediction_or_an_error(calls):
    model, x = Stemmed(), torch.randn(30, 3)
    calls.watch(model.head)
    posterior = bn.MCBN(batch_size=8, states=7).fit(model, x)
    engine = bn.MonteCarlo(samples=7, vectorize=False)
    engine.outputs(posterior, x)
    assert not posterior.executable._network.prefix._memo
    calls.reset(limit=3)
    with pytest.raises(bn.BayesNormError, match="Boom"):
        engine.outputs(posterior, x)
    assert not posterior.executable._network.prefix._memo


def test_an_input_is_not_mistaken_for_another():
    model, x = Stemmed(), torch.randn(30, 3)
    posterior = bn.MCBN(batch_size=8, states=7).fit(model, x)
    first, other = posterior.predict(x).mean, posterior.predict(x + 1).mean
    assert not torch.allclose(first, other)
    assert torch.equal(posterior.predict(x).mean, first)


def test_a_wrapped_network_off_duty_is_itself():
    model, x = Stemmed().double().eval(), data(3)
    expected = model(x)
    PrefixCache(model)
    assert torch.equal(model(x), expected)
