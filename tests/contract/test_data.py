"""Functions that take inputs take data as people have them: loaders, data sets, generators, pairs, dicts, files."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import bayesnorm as bn
from bayesnorm.engines import batches as engine_batches
from bayesnorm.network.collecting import reading

ROWS = 70
X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, :1] + 0.3 * torch.randn(ROWS, 1, generator=torch.Generator().manual_seed(1))


class MapStyle(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return X[row], Y[row]


class Named(MapStyle):
    def __getitem__(self, row):
        return {"image": X[row], "label": Y[row]}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


def batches(size=16):
    return ((X[start : start + size], Y[start : start + size]) for start in range(0, ROWS, size))


def on_disk(tmp_path, mode):
    path = tmp_path / "x.bin"
    X.numpy().tofile(path)
    return np.memmap(path, np.float32, mode, shape=tuple(X.shape))


SOURCES = {
    "loader": lambda _: DataLoader(MapStyle(), batch_size=16),
    "shuffled loader": lambda _: DataLoader(MapStyle(), batch_size=16, shuffle=True, drop_last=True),
    "loader of dicts": lambda _: DataLoader(Named(), batch_size=16),
    "loader of a stream": lambda _: DataLoader(Stream(), batch_size=16),
    "map-style": lambda _: MapStyle(),
    "TensorDataset": lambda _: TensorDataset(X, Y),
    "stream": lambda _: Stream(),
    "generator": lambda _: batches(),
    "list of batches": lambda _: list(batches()),
    "tuple of batches": lambda _: tuple(map(list, batches())),
    "list of two batches": lambda _: list(batches(64)),
    "list of dicts": lambda _: [{"image": x, "label": y} for x, y in batches()],
    "pair": lambda _: (X, Y),
    "batch of a loader": lambda _: [X, Y],
    "dict": lambda _: {"image": X, "label": Y},
    "pair with a file": lambda tmp_path: (on_disk(tmp_path, "r"), Y.numpy()),
    "changeable file": lambda tmp_path: (on_disk(tmp_path, "r+"), Y),
}


@pytest.fixture(scope="module")
def posterior():
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    for start in range(40):
        model(X[start : start + 30])
    return bn.MCBN(batch_size=8, states=40).fit(model.eval(), X)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_function_takes_them_with_the_result_of_tensors(kind, posterior, tmp_path):
    def source():
        return SOURCES[kind](tmp_path)

    before = torch.get_rng_state()
    whole = posterior.predict(X, samples=4)
    assert torch.allclose(posterior.predict(source(), samples=4).mean, whole.mean, atol=1e-6)
    parts = list(posterior.predict_batches(source(), samples=4, keep="summary"))
    assert torch.allclose(torch.cat([part.mean for part in parts]), whole.mean, atol=1e-6)
    p_value = bn.drift(posterior, X).p_value
    assert bn.drift(posterior, source()).p_value == pytest.approx(p_value)
    assert bn.shift.DriftMonitor(posterior).update(source()).drift.p_value == pytest.approx(p_value)
    assert torch.allclose(bn.adapt(posterior, source()).location, bn.adapt(posterior, X).location)
    options = {"batch_size": False, "samples": 4, "refinements": 2}
    calibrated = bn.calibrate(posterior, X, Y, **options)
    result = bn.calibrate(posterior, source(), **options)
    assert result.likelihood.precision == pytest.approx(calibrated.likelihood.precision, rel=1e-4)
    assert torch.equal(before, torch.get_rng_state()), "the global generator is left alone"


@pytest.mark.parametrize("kind", SOURCES)
def test_fit_takes_them(kind, posterior, tmp_path):
    fitted = bn.MCBN(batch_size=8, states=4).fit(posterior.model, SOURCES[kind](tmp_path))
    assert fitted.rows == (32 if "stream" in kind or kind == "generator" else ROWS)


def test_lists_of_batches_without_targets_are_read_whole(posterior):
    for parts in ([x for x, _ in batches()], [[x] for x, _ in batches()], tuple({"input": x} for x, _ in batches())):
        assert posterior.predict(parts, samples=2).mean.shape == (ROWS, 1)
    # A pair of inputs and targets that look alike is not a list of batches, nor is one batch of a loader.
    assert len(posterior.predict((X, X), samples=2)) == len(posterior.predict([X, X], samples=2)) == ROWS
    assert len(posterior.predict(([X], [X]), samples=2)) == ROWS
    with pytest.raises(bn.BayesNormError, match=r"x: its first entry has 2 arrays, but forward\(input\) takes 1. Pass"):
        posterior.predict([(X, Y), (X, Y.double())])


def test_layers_and_batch_sizes_are_chosen_with_a_loader(posterior):
    loader = DataLoader(MapStyle(), batch_size=16)
    suggestion = bn.suggest_layers(posterior, loader, budget=float("inf"), samples=2)
    assert suggestion.best.score == bn.suggest_layers(posterior, X, Y, budget=float("inf"), samples=2).best.score
    choices = [bn.select_batch_size(posterior, data, batch_sizes=[8, 16], samples=2) for data in (loader, (X, Y))]
    assert choices[0].best.elbo == pytest.approx(choices[1].best.elbo, rel=1e-4)


def test_data_without_targets_cannot_calibrate(posterior):
    with pytest.raises(bn.BayesNormError, match=r"x has no targets for forward\(input\). Pass y"):
        bn.calibrate(posterior, DataLoader(X, batch_size=16))


@pytest.mark.parametrize("kind", ["loader", "generator", "pair with a file"])
def test_memory_for_many_examples_is_bounded(kind, posterior, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "POOL_BYTES", 20 * 3 * 4)
    with pytest.warns(bn.BayesNormWarning, match=r"x: (20 of 70|32) examples are used, as many as fit"):
        rows = bn.drift(posterior, SOURCES[kind](tmp_path)).rows
    assert rows in (20, 32)


def test_a_predictive_that_does_not_fit_is_refused_after_the_first_batch(posterior, monkeypatch):
    monkeypatch.setattr(engine_batches, "_half_of_memory", lambda: 4 * 2 * ROWS * 4 - 1)
    read = []

    class Watched(MapStyle):
        def __getitem__(self, row):
            read.append(row)
            return super().__getitem__(row)

    with pytest.raises(bn.BayesNormError, match=r"x: the predictive of all examples needs .*predict_batches"):
        posterior.predict(DataLoader(Watched(), batch_size=10), samples=4)
    assert len(read) == 10
    assert len(posterior.predict(DataLoader(Watched(), batch_size=10), samples=4, keep="summary")) == ROWS


def test_batches_come_one_by_one_from_an_endless_stream(posterior):
    endless = ((X[:5] + k, None) for k in itertools.count())
    first, second = itertools.islice(posterior.predict_batches(endless, samples=2), 2)
    assert torch.equal(first.mean, posterior.predict(X[:5], samples=2).mean)
    assert torch.equal(second.mean, posterior.predict(X[:5] + 1, samples=2).mean)


@pytest.mark.parametrize("likelihood", [bn.Gaussian(), bn.Categorical()])
@pytest.mark.parametrize("engine", [bn.MonteCarlo(4), bn.SigmaPoints(2), bn.Delta()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("keep", ["samples", "summary"])
def test_parts_join_for_every_engine(likelihood, engine, keep):
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    posterior = bn.MCBN(batch_size=8, states=4).fit(model, X, likelihood)
    joined = posterior.predict(batches(), engine, keep=keep)
    whole = posterior.predict(X, engine, keep=keep)
    assert type(joined) is type(whole)
    for name in ("mean", "epistemic", "aleatoric"):
        # Delta samples logits anew for every batch.
        loose = isinstance(engine, bn.Delta) and isinstance(likelihood, bn.Categorical)
        assert torch.allclose(getattr(joined, name), getattr(whole, name), atol=0.05 if loose else 1e-5)


def test_whole_numbers_get_the_networks_dtype_unless_it_takes_them(posterior):
    pixels = (10 * X.abs()).to(torch.uint8)
    expected = posterior.predict(pixels.float(), samples=4).mean
    for numbers in (pixels, pixels.long(), pixels.numpy(), TensorDataset(pixels)):
        assert torch.equal(posterior.predict(numbers, samples=4).mean, expected)
    bn.MCBN(batch_size=8, states=4).fit(posterior.model, pixels)
    assert bn.drift(posterior, pixels).p_value == bn.drift(posterior, pixels.float()).p_value
    classifier = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    fits = [bn.MCBN(8, states=4).fit(classifier, x, bn.Categorical()) for x in (pixels, pixels.float())]
    assert torch.equal(*(fit.predict(pixels, samples=4).probs for fit in fits))
    words = nn.Sequential(nn.Embedding(99, 4), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 1)).eval()
    fitted = bn.MCBN(batch_size=8, states=4).fit(words, pixels.long())
    assert torch.equal(fitted.predict(pixels.long()).mean, fitted.predict(pixels.int()).mean)


def test_targets_of_several_tasks_are_found_in_dicts():
    class Tasks(MapStyle):
        def __getitem__(self, row):
            return {"input": X[row], "size": Y[row], "kind": int(X[row, 0] > 0)}

    likelihood = bn.MultiTask({"size": (bn.Gaussian(), 1), "kind": (bn.Categorical(), 2)})
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    loader = DataLoader(Tasks(), batch_size=16)
    posterior = bn.MCBN(batch_size=8, states=4).fit(model, loader, likelihood)
    options = {"batch_size": False, "samples": 2}
    expected = bn.calibrate(posterior, X, {"size": Y, "kind": (X[:, 0] > 0).long()}, **options)
    assert bn.calibrate(posterior, loader, **options).likelihood == expected.likelihood
    assert posterior.predict(loader, samples=2)["kind"].probs.shape == (ROWS, 2)
