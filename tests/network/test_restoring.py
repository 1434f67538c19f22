"""Running a network leaves no trace: what its forward writes to, torch's generators, other threads' predictions."""

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesnorm as bn

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
ENGINES = [None, bn.MonteCarlo(5, vectorize=False), bn.SigmaPoints(2), bn.Delta()]


class Remembers(nn.Module):
    """Counts its calls and keeps a running average of its inputs, in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("memory", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        with torch.no_grad():
            self.memory.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.head(self.norm(x)) + self.memory.sum()


class Noisy(nn.Module):
    """Samples numbers of its own before and after the batch norm, also in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        h = self.norm(self.first(x + 0.3 * torch.randn_like(x)))
        return self.head(nn.functional.dropout(h, 0.3, training=True) + torch.rand_like(h))


def renormalising():
    """An embedding with `max_norm`, which shortens the vectors that are asked for."""
    return nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.BatchNorm1d(4), nn.Linear(4, 1))


def values(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize("kind", ["buffers", "embedding"])
def test_what_a_forward_writes_to_is_put_back(kind, engine):
    model, x = (Remembers(), X) if kind == "buffers" else (renormalising(), torch.arange(48) % 9)
    before = values(model.eval())
    posterior = bn.MCBN(batch_size=8, states=6).fit(model, x)
    first, again = (posterior.predict(x[:7], engine).mean for _ in range(2))
    bn.deterministic(model, bn.Gaussian()).predict(x)
    for name, value in values(model).items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(first, again), "a prediction does not depend on those before it"


class Fails(Remembers):
    """Writes to its buffers, samples numbers of its own, and raises an error from the call `first_error` on."""

    runs, first_error = 0, None

    def forward(self, x):
        outputs = super().forward(x + 0 * torch.rand_like(x))
        Fails.runs += 1
        if self.first_error is not None and self.runs >= self.first_error:
            raise OSError("out of paper")
        return outputs


USES = {
    "fit": lambda model, posterior: bn.MCBN(batch_size=8, states=16).fit(model, X),
    "drift": lambda model, posterior: bn.drift(posterior, X),
    **{
        f"predict with {engine}": lambda model, posterior, engine=engine: posterior.predict(X[:7], engine)
        for engine in ENGINES
    },
}


@pytest.mark.filterwarnings("ignore:.*cannot be vectorised:bayesnorm.BayesNormWarning")
@pytest.mark.parametrize("when", ["first", "last"])
@pytest.mark.parametrize("use", USES)
def test_a_forward_that_fails_leaves_what_it_wrote_as_it_was(use, when, monkeypatch, snapshot):
    """In the first look at the network, and in the last forward pass of a later call."""
    model = Fails().eval()
    posterior = bn.MCBN(batch_size=8, states=16).fit(model, X)
    for _ in range(2 if when == "last" else 0):
        monkeypatch.setattr(Fails, "runs", 0)
        USES[use](model, posterior)
    before, generator = snapshot(model), torch.get_rng_state()
    monkeypatch.setattr(Fails, "first_error", Fails.runs if when == "last" else 1)
    monkeypatch.setattr(Fails, "runs", 0)
    with pytest.raises((bn.BayesNormError, OSError), match="out of paper"):
        USES[use](model, posterior)
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), generator)


def test_a_network_with_noise_of_its_own_gives_the_same_numbers_however_samples_are_chunked():
    posterior = bn.MCBN(batch_size=8, states=16).fit(Noisy().eval(), X)
    expected = bn.MonteCarlo(16).outputs(posterior, X)
    assert torch.equal(bn.MonteCarlo(16).outputs(posterior, X), expected), "the first call looks at the network too"
    others = [bn.MonteCarlo(16, chunk=5), bn.MonteCarlo(16, vectorize=False), bn.MonteCarlo(16, block_bytes=300)]
    for engine in others:
        torch.testing.assert_close(engine.outputs(posterior, X), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(bn.MonteCarlo(16).outputs(posterior, X[[0] * 4])[:, 0], expected[:, 0].mean())


@pytest.mark.parametrize("same", [True, False], ids=["one posterior", "one each"])
def test_threads_get_their_own_predictions(same):
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)).eval()
    posteriors = [bn.MCBN(batch_size=8, states=16).fit(model, X)] * 4
    if not same:
        posteriors = [bn.MCBN(batch_size=8, states=16).fit(copy.deepcopy(model), X) for _ in posteriors]
    inputs = [torch.randn(30, 4, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    expected = [posterior.predict(x).mean for posterior, x in zip(posteriors, inputs, strict=True)]
    before, wrong = torch.get_rng_state(), []

    def work(number):
        try:
            for _ in range(10):
                result = posteriors[number].predict(inputs[number]).mean
                if not torch.equal(result, expected[number]):
                    wrong.append(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda posterior: pickle.loads(pickle.dumps(posterior))])
def test_a_copy_of_a_posterior_samples_too(way):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 1)).eval()
    for method in (bn.MCBN(batch_size=8, states=16), bn.MCDropout()):
        posterior = method.fit(model, X)
        copied = way(posterior)
        result, expected = copied.predict(X), posterior.predict(X)
        assert (expected.epistemic > 0).all()
        assert torch.equal(result.mean, expected.mean)
        assert torch.equal(result.epistemic, expected.epistemic)
        with torch.no_grad():
            copied.model[0].weight.zero_()
        assert torch.equal(posterior.predict(X).mean, expected.mean), "the copy has a network of its own"


class KeepsPlainTensors(nn.Module):
    """Its memory is an attribute, not a buffer."""

    def __init__(self):
        super().__init__()
        self.norm, self.head, self.memory = nn.BatchNorm1d(4), nn.Linear(4, 1), torch.zeros(4)

    def forward(self, x):
        self.memory.add_(1)
        return self.head(self.norm(x))


class AdaptsStatistics(nn.Module):
    """Normalises by the batch in evaluation mode too, by which torch updates running statistics unseen."""

    def __init__(self):
        super().__init__()
        self.norm, self.adapting, self.head = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(
            F.batch_norm(self.norm(x), self.adapting.running_mean, self.adapting.running_var, None, None, True)
        )


class TrainsItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        self.train()
        return self.head(self.norm(x))


@pytest.mark.filterwarnings("ignore:.*cannot be vectorised:bayesnorm.BayesNormWarning")
@pytest.mark.parametrize("kind", [KeepsPlainTensors, AdaptsStatistics, TrainsItself])
def test_what_a_forward_changes_unseen_is_put_back(kind, snapshot):
    model = kind().eval()
    tensors = [*model.state_dict().values(), *(v for v in vars(model).values() if isinstance(v, torch.Tensor))]
    before, whole = [tensor.clone() for tensor in tensors], snapshot(model)
    posterior = bn.MCBN(batch_size=8, states=6).fit(model, X)
    for engine in ENGINES:
        for _ in range(2):
            with contextlib.suppress(bn.BayesNormError):
                posterior.predict(X[:7], engine)
            assert all(torch.equal(tensor, was) for tensor, was in zip(tensors, before, strict=True)), engine
    bn.GaussianBN(batch_size=8).fit(model, X)
    bn.deterministic(model, bn.Gaussian()).predict(X)
    assert all(torch.equal(tensor, was) for tensor, was in zip(tensors, before, strict=True))
    assert snapshot(model) == whole


class Unpooled(nn.Module):
    """As in SegNet; torch has no rule for it under vmap, and says so."""

    def __init__(self):
        super().__init__()
        self.norm, self.pool, self.unpool = nn.BatchNorm2d(2), nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        return self.unpool(*self.pool(self.norm(x))).mean((1, 2, 3))[:, None]


def test_torch_does_not_complain_of_our_vmap_and_still_does_of_others(recwarn):
    x = torch.randn(40, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    posterior = bn.MCBN(batch_size=8, states=6).fit(Unpooled().eval(), x)
    posterior.predict(x)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="performance drop"):
        torch.vmap(Unpooled().eval())(x[None])
