"""Predictions that keep no samples: of every kind of posterior and likelihood, in bounded memory, and in tiles."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.errors import NotFiniteError
from bayesnorm.predictive import ClassificationSummary

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Single precision, outputs of order 1."""

FEW = bn.MonteCarlo(samples=4, block_bytes=1)
"""One row and one draw at a time."""


def assert_summary_is_that_of_the_samples(posterior, x, engine=FEW):
    samples, summary = posterior.predict(x, engine), posterior.predict(x, engine, keep="summary")
    assert isinstance(summary, ClassificationSummary)
    for name in ("probs", "epistemic", "aleatoric", "entropy", "expected_entropy", "mutual_information"):
        torch.testing.assert_close(getattr(summary, name), getattr(samples, name), **CLOSE, msg=name)


@pytest.fixture(scope="module")
def fitted(module_task):
    return bn.MCBN(batch_size=8, states=16).fit(module_task.model, module_task.x, bn.Categorical())


@pytest.fixture(scope="module")
def module_task(_built):
    return _built["per_pixel"]


def uncertain(slope=0.4):
    return bn.VarianceScaledCategorical(1.3, slope=slope, mean=-3.0, std=0.5)


def test_posteriors_of_every_make(fitted, module_task):
    x = module_task.new_x
    other = bn.MCBN(batch_size=8, states=16).fit(copy.deepcopy(module_task.model), module_task.x, bn.Categorical())
    small = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).eval()
    dropout = bn.MCDropout(consistent=False).fit(module_task.model, module_task.x, bn.Categorical())
    made = {
        "temperature": fitted.with_likelihood(bn.Categorical(2.0)),
        "temperature by uncertainty": fitted.with_likelihood(uncertain()),
        "ensemble": bn.ensemble([fitted, other]),
        "several architectures": bn.ensemble([fitted, bn.deterministic(small, bn.Categorical())]),
        "combined": bn.combine(fitted, dropout),
        "late layers": fitted.at_layers(1),
        "point": bn.deterministic(module_task.model, bn.Categorical()),
        "adapted": bn.adapt(fitted, module_task.x[:16]),
    }
    for name, posterior in made.items():
        try:
            assert_summary_is_that_of_the_samples(posterior, x)
        except AssertionError as error:
            raise AssertionError(name) from error
    tempered = made["temperature by uncertainty"].predict(x, FEW)
    assert (tempered.log_probs - made["temperature"].predict(x, FEW).log_probs).abs().max() > 0.01


def test_likelihoods_that_listen_hear_all_samples_within_tasks_and_engines(fitted, module_task):
    posterior, x = fitted.with_likelihood(uncertain()), module_task.new_x[:2]
    for engine in (bn.SigmaPoints(rank=2, chunk=1), bn.Delta()):
        assert_summary_is_that_of_the_samples(posterior, x, engine)
    tasks = fitted.with_likelihood(bn.MultiTask({"side": (bn.Gaussian(), 1), "label": (uncertain(), 2)}))
    samples, summary = tasks.predict(x, FEW), tasks.predict(x, FEW, keep="summary")
    for part in ("mean", "epistemic"):
        for name in ("side", "label"):
            torch.testing.assert_close(getattr(summary, part)[name], getattr(samples, part)[name], **CLOSE)


def test_a_compiled_posterior_runs_as_many_samples_at_once_as_fit(fitted, module_task, monkeypatch):
    from bayesnorm.network.running import compiled

    sizes = []

    def identity(run, **_):
        return lambda x, scale, shift: sizes.append(len(scale)) or run(x, scale, shift)

    monkeypatch.setattr(torch, "compile", identity)
    posterior, x = fitted.compile(), module_task.new_x
    expected = fitted.predict(x, bn.MonteCarlo(7))
    predictive = posterior.predict(x, bn.MonteCarlo(7), keep="summary")
    torch.testing.assert_close(predictive.probs, expected.probs, **CLOSE)
    assert set(sizes) == {7}
    row = 6 * 5 * 4 * 5 * 4  # bytes of the largest activation: rows, channels, pixels
    monkeypatch.setattr(compiled, "GRAPH_BYTES", 3 * row)
    monkeypatch.setattr(compiled, "default_block_bytes", lambda device, needed: 1)
    sizes.clear()
    for keep in ("samples", "summary"):
        predictive = posterior.predict(x, bn.MonteCarlo(7), keep=keep)
        torch.testing.assert_close(predictive.probs, expected.probs, **CLOSE)
        torch.testing.assert_close(predictive.epistemic, expected.epistemic, **CLOSE)
    assert set(sizes) == {3}, "seven samples are three graphs of three, which share some"


class LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest tensor that an operation makes."""

    most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.most = max(self.most, tensor.untyped_storage().nbytes())
        return result


def test_memory_does_not_grow_with_the_number_of_samples(module_task):
    # No tensor is larger for more samples: not even that of the samples themselves, of which a small network has few.
    posterior = bn.MCBN(batch_size=8, states=16).fit(module_task.model, module_task.x, bn.Categorical())
    x = torch.randn(2, 2, 20, 24)
    posterior.predict(x, FEW)  # which looks at a few rows

    def largest(samples, keep):
        engine = bn.MonteCarlo(samples, block_bytes=1)
        with LargestTensor() as seen:
            posterior.predict(x, engine, keep=keep)
        return seen.most

    assert largest(4, "summary") == largest(12, "summary")
    assert largest(12, "samples") == 3 * largest(4, "samples")


def test_what_is_not_finite_is_refused(fitted, module_task):
    with pytest.raises(NotFiniteError, match="row 1"):
        fitted.predict(torch.stack([module_task.new_x[0], module_task.new_x[1] * 1e38]), FEW, keep="summary")


def test_networks_of_several_output_shapes_are_refused(fitted):
    odd = bn.deterministic(nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)).eval(), bn.Categorical())
    with pytest.raises(bn.BayesNormError, match="members return outputs of different shapes"):
        bn.ensemble([fitted, odd]).predict(torch.randn(2, 2, 4, 5), keep="summary")


class Pooled(nn.Module):
    """Pools twice by 2 and unpools again; its receptive field is 3 + 2 * 2 * 3 + 4 * 2 = 22 pixels at most."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2))
        self.last = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1))

    def forward(self, x):
        pool, unpool = nn.functional.max_pool2d, nn.functional.max_unpool2d
        h, first = pool(self.first(x), 2, return_indices=True)
        shape = h.shape[-2:]
        h, second = pool(self.second(h), 2, return_indices=True)
        h = unpool(h, second, 2, output_size=shape)
        return self.last(unpool(h, first, 2, output_size=x.shape[-2:]))


@pytest.fixture(scope="module")
def pooled():
    torch.manual_seed(0)
    network = Pooled()
    network(torch.randn(32, 1, 12, 12))  # running statistics
    return network.eval(), torch.randn(40, 1, 16, 16)


@pytest.mark.parametrize("method", [bn.MCBN(8, states=16), bn.MCDropout(consistent=False)], ids=["MCBN", "MCDropout"])
def test_tiles_with_enough_overlap_are_the_whole_image(pooled, method):
    network, x = pooled
    posterior, images = method.fit(network, x, bn.Categorical()), torch.randn(1, 1, 71, 50)
    whole = posterior.predict(images, FEW, keep="summary", seed=5)
    for tile, overlap in ((40, 24), ((32, 44), 28)):
        tiled = posterior.predict(images, FEW, keep="summary", seed=5, tile=tile, overlap=overlap)
        assert tiled.probs.shape == whole.probs.shape
        for name in ("probs", "epistemic", "entropy", "mutual_information"):
            torch.testing.assert_close(getattr(tiled, name), getattr(whole, name), **CLOSE, msg=name)
    rough = posterior.predict(images, FEW, keep="summary", seed=5, tile=24, overlap=0)
    seam = (rough.probs - whole.probs)[..., 8:16].abs().amax((0, 1, 3))
    assert seam[23:25].max() > 1e-3, "tiles that share nothing do not see past their edges"
    assert seam[8:16].max() < 1e-5, "the middle of a tile does not see them"
    uncut = posterior.predict(images, FEW, keep="summary", seed=5, tile=(80, 50))
    assert torch.equal(uncut.probs, whole.probs)


def test_tiles_of_gaussian_and_multi_task_predictions(pooled):
    network, x = pooled
    images = torch.randn(1, 1, 40, 8)
    posterior = bn.MCBN(8, states=16).fit(network, x, bn.Gaussian())
    options = {"keep": "summary", "tile": (32, 8), "overlap": 24}
    for engine in (bn.Delta(), bn.SigmaPoints(2)):
        whole, tiled = posterior.predict(images, engine), posterior.predict(images, engine, **options)
        torch.testing.assert_close(tiled.variance, whole.variance, **CLOSE)
        assert metrics.rmse(tiled, whole.mean) < 1e-5
    tasks = bn.MultiTask({"side": (bn.Gaussian(), 1), "label": (bn.Categorical(), 2)})
    whole, tiled = (posterior.with_likelihood(tasks).predict(images, FEW, **extra) for extra in ({}, options))
    torch.testing.assert_close(tiled["label"].entropy, whole["label"].entropy, **CLOSE)


def test_options_that_do_not_work(fitted):
    for options, message in (
        ({"keep": "all"}, r'keep must be "samples" or "summary", got .all.'),
        ({"tile": 8}, r'tile is given with keep="samples". Use .*keep="summary"'),
        ({"overlap": 8}, r"overlap is given without tile"),
        ({"keep": "summary", "tile": 0}, r"tile must be .*got 0"),
        ({"keep": "summary", "tile": (8, 8, 8)}, r"tile must be .*got \(8, 8, 8\)"),
        ({"keep": "summary", "tile": 8, "overlap": 8}, r"overlap must be a whole number from 0 to 7.* got 8"),
    ):
        with pytest.raises(bn.BayesNormError, match=message):
            fitted.predict(torch.randn(2, 2, 12, 12), **options)


def test_tiles_are_for_images(regression):
    posterior = bn.MCBN(batch_size=8, states=16).fit(regression.model, regression.x)
    with pytest.raises(bn.BayesNormError, match="tile needs images"):
        posterior.predict(regression.new_x, keep="summary", tile=8)
    flat = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    posterior = bn.MCBN(batch_size=8, states=16).fit(flat, torch.randn(24, 1, 8, 8), bn.Categorical())
    with pytest.raises(bn.BayesNormError, match=r"tile needs a network .* 8 x 8 pixels .* shape \(2,\)"):
        posterior.predict(torch.randn(2, 1, 12, 12), keep="summary", tile=8)
