"""Compiled prediction gives the plain numbers, compiles once per shape, and steps aside where it cannot work.

`torch.compile` itself takes seconds, so most tests put an identity in its place: what is looked at then is everything
around it (the rewritten copy, folding, the kept graphs). One test compiles in earnest.
"""

import copy
import warnings

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.network import CompiledExecutable
from bayesnorm.network.running import compiled

from ..apply import Apply

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Single precision, outputs of order 1: the same sums in another order."""


class Residual(nn.Module):
    """A tiny convolutional network with a skip connection from the stem."""

    def __init__(self, outputs=3):
        super().__init__()
        self.stem, self.stem_bn = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv, self.bn = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.head_bn, self.head = nn.BatchNorm1d(4), nn.Linear(4, outputs)

    def forward(self, x):
        stem = self.stem(x)
        h = self.stem_bn(stem).relu()
        h = (self.bn(self.conv(h)) + h + stem).relu()
        return self.head(self.head_bn(h.mean((2, 3))))


class WritesIntoPlain(nn.Module):
    """Cannot be vectorised over samples."""

    def __init__(self):
        super().__init__()
        self.first, self.bn, self.head = nn.BatchNorm1d(3), nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x):
        h = self.first(x)
        out = torch.zeros_like(h)
        out[:, 1:] = self.bn(h)[:, 1:]
        return self.head(out)


def images(n, seed=0):
    return torch.randn(n, 2, 5, 4, generator=torch.Generator().manual_seed(seed))


def rows(n, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


def mlp(*middle):
    return nn.Sequential(
        nn.Linear(3, 8),
        nn.BatchNorm1d(8),
        nn.Tanh(),
        *middle,
        nn.Linear(8, 6),
        nn.BatchNorm1d(6),
        nn.Tanh(),
        nn.Linear(6, 1),
    ).eval()


def fitted(model, x, **options):
    likelihood = bn.Gaussian() if isinstance(model, nn.Sequential) else bn.Categorical()
    return bn.MCBN(batch_size=8, states=12, **options).fit(model.eval(), x, likelihood)


class Compiler:
    """Stands in for `torch.compile`: gives the function back, counts, and fails on request."""

    def __init__(self):
        self.count, self.options, self.failure = 0, [], None

    def __call__(self, function, **options):
        self.count += 1
        self.options.append(options)
        if self.failure is None:
            return function

        def fail(*_args):
            raise self.failure

        return fail


@pytest.fixture
def compiler(monkeypatch):
    stand_in = Compiler()
    monkeypatch.setattr(torch, "compile", stand_in)
    return stand_in


def outputs(posterior, x, samples=6, seed=1):
    return bn.MonteCarlo(samples=samples).outputs(posterior, x, seed)


def test_really_compiled_it_is_the_plain_network():
    """The one test that compiles: a small convolutional network, as every kernel takes the compiler a second."""
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 1))
    posterior = fitted(network, images(40))
    fast = posterior.compile(mode="default")
    x = images(5, seed=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch's own, while compiling
        warnings.filterwarnings("ignore", category=FutureWarning)
        result = outputs(fast, x)
        again = outputs(fast, x + 0.5, seed=2)
    assert all(graph is not None for graph in fast.executable._graphs.values()), "the compiled way was taken"
    torch.testing.assert_close(result, outputs(posterior, x), **CLOSE)
    torch.testing.assert_close(again, outputs(posterior, x + 0.5, seed=2), **CLOSE)


NETWORKS = {"mlp": (mlp, rows), "residual": (Residual, images)}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layers", [None, 2, 1])
def test_the_numbers_are_the_plain_ones(name, layers, compiler):
    """All layers: samples folded into the batch. Late layers: samples as a vmap axis."""
    make, data = NETWORKS[name]
    posterior = fitted(make(), data(40), layers=layers)
    fast = posterior.compile()
    for n in (5, 1):
        x = data(n, seed=1)
        torch.testing.assert_close(outputs(fast, x), outputs(posterior, x), **CLOSE)
    assert compiler.count == 2
    assert list(fast.executable._graphs.values()).count(None) == 0
    assert compiler.options[0] == {"mode": "reduce-overhead", "dynamic": False}


@pytest.mark.parametrize(("layers", "folded"), [(None, True), (2, False)])
def test_samples_are_folded_into_the_batch_only_from_the_first_layer_on(layers, folded, compiler):
    model = Residual()
    sizes = []
    model.conv.register_forward_pre_hook(lambda _module, args: sizes.append(args[0].shape[0]))
    fast = fitted(model, images(40), layers=layers).compile()
    outputs(fast, images(5))
    sizes.clear()
    outputs(fast, images(5))
    assert sizes == ([6 * 5] if folded else [5])


def test_a_repeated_shape_does_not_compile_again(compiler):
    posterior = fitted(mlp(), rows(40)).compile()
    for seed in range(3):
        for n in (4, 2):
            outputs(posterior, rows(n, seed=seed), seed=seed)
    assert compiler.count == 2
    outputs(posterior, rows(4), samples=7)
    assert compiler.count == 3, "another number of samples is another shape"


def test_other_posteriors_over_the_same_graph(compiler):
    """The effective batch size and the likelihood change without compiling again."""
    posterior = fitted(mlp(), rows(40))
    fast = posterior.compile()
    outputs(fast, rows(4))
    at = fast.at_batch_size(100).with_likelihood(bn.Gaussian(9.0))
    torch.testing.assert_close(outputs(at, rows(4)), outputs(posterior.at_batch_size(100), rows(4)), **CLOSE)
    assert compiler.count == 1


def test_as_many_graphs_as_are_kept_and_the_oldest_goes(compiler, monkeypatch):
    monkeypatch.setattr(compiled, "GRAPHS", 3)
    posterior = fitted(mlp(), rows(40)).compile()
    for n in (1, 2, 3, 1, 4):  # 1 is used again, so 2 is the oldest when 4 comes
        outputs(posterior, rows(n))
    stored = posterior.executable._graphs
    assert sorted(shape[0] for _, _, shape, _ in stored) == [1, 3, 4]
    assert compiler.count == 4
    outputs(posterior, rows(1))
    assert compiler.count == 4
    outputs(posterior, rows(2))
    assert compiler.count == 5


def test_graphs_do_not_use_up_torchs_limit(monkeypatch):
    """torch counts compilations per code object and gives up after eight; every graph has one of its own."""
    seen = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: seen.append(function.__code__) or function)
    posterior = fitted(mlp(), rows(40)).compile()
    for n in range(1, 11):
        outputs(posterior, rows(n))
    assert len({id(code) for code in seen}) == 10


@pytest.mark.parametrize("message", ["no compiler here\nand more", ""])
def test_what_cannot_be_compiled_runs_as_before_and_says_so_once(compiler, message, snapshot):
    compiler.failure = RuntimeError(message)
    model = mlp()
    posterior = fitted(model, rows(40))
    before = snapshot(model)
    fast = posterior.compile()
    with pytest.warns(bn.BayesNormWarning, match=r"could not be compiled.*numbers are the same") as caught:
        results = [outputs(fast, rows(n)) for n in (4, 4, 2)]
    for n, value in zip((4, 4, 2), results, strict=True):
        assert torch.equal(value, outputs(posterior, rows(n)))
    assert len(caught) == 1
    assert compiler.count == 2, "a shape that failed is not tried again"
    assert "\n" not in str(caught[0].message)
    assert snapshot(model) == before


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_rows_that_depend_on_each_other_run_as_before(compiler, share):
    posterior = fitted(mlp(Apply(lambda h: h - share * h.mean(0))), rows(40))
    fast = posterior.compile()
    with pytest.warns(bn.BayesNormWarning, match=r"gives other numbers when compiled.*depend on other examples"):
        result = outputs(fast, rows(5))
    assert torch.equal(result, outputs(posterior, rows(5)))
    late = fitted(mlp(Apply(lambda h: h - share * h.mean(0))), rows(40), layers=1)
    torch.testing.assert_close(outputs(late.compile(), rows(5)), outputs(late, rows(5)), **CLOSE)


def test_what_cannot_be_vectorised_runs_as_before(compiler):
    model = WritesIntoPlain()
    posterior = fitted(model, rows(40), layers=1)
    with pytest.warns(bn.BayesNormWarning, match="cannot be vectorised"):
        expected = outputs(posterior, rows(4))
    with pytest.warns(bn.BayesNormWarning):
        result = outputs(posterior.compile(), rows(4))
    torch.testing.assert_close(result, expected, **CLOSE)


class Activated(nn.BatchNorm1d):
    def forward(self, input):
        return super().forward(input).relu()


def test_layers_of_ones_own_kind_are_left_to_the_plain_way(compiler):
    model = nn.Sequential(nn.Linear(3, 4), Activated(4), nn.Linear(4, 1))
    posterior = fitted(model, rows(40))
    assert torch.equal(outputs(posterior.compile(), rows(4)), outputs(posterior, rows(4)))
    assert compiler.count == 0


def test_asking_for_a_loop_or_for_chunks_gets_them(compiler):
    posterior = fitted(mlp(), rows(40))
    fast = posterior.compile()
    engines = (bn.MonteCarlo(6, vectorize=False), bn.MonteCarlo(6, chunk=2), bn.MonteCarlo(6, block_bytes=64))
    for engine in engines:
        torch.testing.assert_close(engine.outputs(fast, rows(4)), engine.outputs(posterior, rows(4)), **CLOSE)
    assert compiler.count == 0


def test_weights_are_those_of_the_time_of_compiling(compiler):
    model = mlp()
    posterior = fitted(model, rows(40))
    expected = {(n, seed): outputs(posterior, rows(n), seed=seed) for n in (4, 2) for seed in (1, 2)}
    fast = posterior.compile()
    outputs(fast, rows(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    for (n, seed), value in expected.items():  # an old shape and a new one, old samples and new ones
        torch.testing.assert_close(outputs(fast, rows(n), seed=seed), value, **CLOSE)
    assert not torch.allclose(outputs(posterior, rows(4)), expected[4, 1]), "the plain posterior follows the network"


def test_a_network_that_was_changed_in_shape_is_compiled_anew(compiler):
    model = mlp()
    posterior = fitted(model, rows(40))
    fast = posterior.compile()
    outputs(fast, rows(4))
    model[6] = nn.Linear(6, 1)
    torch.testing.assert_close(outputs(fast, rows(4)), outputs(posterior, rows(4)), **CLOSE)
    assert compiler.count == 2


def test_low_precision_is_close(compiler):
    posterior = fitted(Residual(), images(40))
    fast = posterior.compile(dtype=torch.bfloat16)
    x = images(8, seed=1)
    result, expected = outputs(fast, x), outputs(posterior, x)
    assert result.dtype == torch.float32
    # Rounding to 8 digits, relative 2^-8 = 0.4 %, in some ten operations one after another.
    assert (result - expected).abs().max() < 10 * 2**-8 * expected.abs().max()
    assert not torch.equal(result, expected)
    assert list(fast.executable._graphs.values()).count(None) == 0


def test_other_engines_work_on_a_compiled_posterior(compiler):
    posterior = fitted(mlp(), rows(40))
    fast = posterior.compile()
    for engine in (bn.Delta(), bn.SigmaPoints(rank=3)):
        result, expected = (p.predict(rows(4), engine) for p in (fast, posterior))
        torch.testing.assert_close(result.mean, expected.mean, **CLOSE)
        torch.testing.assert_close(result.epistemic, expected.epistemic, **CLOSE)


def test_the_users_network_is_bit_identical(compiler, snapshot, tmp_path):
    model = Residual().train()
    model.stem.requires_grad_(False)
    posterior = bn.MCBN(batch_size=8, states=12).fit(model, images(40), bn.Categorical())
    before, tf32 = snapshot(model), torch.backends.cudnn.allow_tf32
    fast = posterior.compile(dtype=torch.bfloat16, tf32=not tf32)
    outputs(fast, images(4))
    assert snapshot(model) == before
    assert torch.backends.cudnn.allow_tf32 is tf32
    assert fast.model is model
    fast.save(tmp_path / "posterior")
    loaded = bn.load(tmp_path / "posterior", copy.deepcopy(model))
    assert torch.equal(outputs(loaded, images(4)), outputs(posterior, images(4)))


def test_drawn_maps_are_kept_for_the_same_samples_only(compiler):
    posterior = fitted(mlp(), rows(40)).compile()
    executable = posterior.executable
    outputs(posterior, rows(4))
    stored = executable._samples
    outputs(posterior, rows(4, seed=3))
    assert executable._samples is stored
    outputs(posterior, rows(4), seed=5)
    assert executable._samples is not stored


def test_a_dtype_is_floating():
    for dtype in (torch.int32, torch.bool):
        with pytest.raises(bn.BayesNormError, match=r"dtype must be a floating dtype such as torch.bfloat16, got"):
            CompiledExecutable(mlp(), dtype=dtype)
