"""Running a network under many states: every way gives the numbers of one `functional_call` per draw."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import InputError, NetworkError
from bayesnorm.network import Executable
from bayesnorm.network.running.plan import default_block_bytes

from ..apply import Apply

TIGHT = {"rtol": 1e-9, "atol": 1e-10}
"""Double precision throughout this file; outputs are of order 1."""


def data(*shape, rows=40):
    return torch.randn(rows, *shape, dtype=torch.float64)


def fitted(model, x, **options):
    return bn.MCBN(batch_size=8, states=9).fit(model.double(), x, **options)


class WritesIntoPlain(nn.Module):
    """Writes a drawn value into a tensor that is the same for all samples."""

    def __init__(self):
        super().__init__()
        self.bn, self.head = nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:, 1:] = self.bn(x)[:, 1:]
        return self.head(out)


class AddsInPlace(nn.Module):
    """Adds a drawn value in place to something computed before the first draw."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn, self.head = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x):
        h = self.stem(x)
        normal = self.bn(h)
        h += normal
        return self.head(h)


def branching():
    """Control flow that depends on drawn values."""
    middle = nn.BatchNorm1d(4), Apply(lambda h: 3 * h if h[:, 0].mean() > 0.05 else h)
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Linear(4, 1))


def to_numpy():
    """Leaves PyTorch in the middle."""
    leave = Apply(lambda h: torch.from_numpy(h.detach().numpy().copy()).tanh())
    return nn.Sequential(nn.BatchNorm1d(3), leave, nn.Linear(3, 1))


@pytest.mark.parametrize("network", [branching, to_numpy, WritesIntoPlain, AddsInPlace])
def test_what_cannot_be_vectorised_runs_in_a_loop_with_one_warning(network, reference, snapshot):
    model, x = network(), data(3)
    posterior = fitted(model, x)
    before = snapshot(model)
    engine = bn.MonteCarlo(samples=9)
    with pytest.warns(bn.BayesNormWarning, match=f"{type(model).__name__} cannot be vectorised") as said:
        outputs = engine.outputs(posterior, x)
    assert len(said) == 1
    again, other_shape = engine.outputs(posterior, x), engine.outputs(posterior, x[:7])  # says nothing more
    expected = reference(model, posterior.sample(9), x)
    torch.testing.assert_close(outputs, expected, **TIGHT)
    torch.testing.assert_close(again, expected, **TIGHT)
    torch.testing.assert_close(other_shape, reference(model, posterior.sample(9), x[:7]), **TIGHT)
    assert snapshot(model) == before


class Recurrent(nn.Module):
    """Batch norm on both sides of a recurrent layer."""

    def __init__(self, kind):
        super().__init__()
        self.bn1, self.rnn = nn.BatchNorm1d(3), kind(3, 4, batch_first=True)
        self.bn2, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        h, _ = self.rnn(self.bn1(x.transpose(1, 2)).transpose(1, 2))
        return self.head(self.bn2(h[:, -1]))


@pytest.mark.parametrize(("kind", "layers"), [(nn.RNN, None), (nn.GRU, None), (nn.LSTM, None), (nn.LSTM, 1)])
@pytest.mark.filterwarnings("ignore:.*cannot be vectorised:bayesnorm.BayesNormWarning")
def test_recurrent_networks(kind, layers, reference):
    model, x = Recurrent(kind).double(), data(5, 3)
    posterior = bn.MCBN(batch_size=8, states=9, layers=layers).fit(model, x)
    outputs = bn.MonteCarlo(samples=9).outputs(posterior, x)
    torch.testing.assert_close(outputs, reference(model, posterior.sample(9), x), **TIGHT)


class Several(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.bn, self.a, self.b = kind, nn.BatchNorm1d(3), nn.Linear(3, 1), nn.Linear(3, 2)

    def forward(self, x):
        h = self.bn(x)
        a, b = self.a(h), self.b(h)
        return {"dict": {"a": a, "b": b}, "tuple": (a, b), "list": [a, b]}[self.kind]


@pytest.mark.parametrize(("kind", "first", "second"), [("dict", "a", "b"), ("tuple", 0, 1), ("list", 0, 1)])
def test_an_entry_of_several_outputs(kind, first, second, tmp_path):
    model, x = Several(kind), data(3)
    posterior = fitted(model, x, output=first)
    assert posterior.predict(x).mean.shape == (40, 1)
    both = fitted(model, x, output=second, likelihood=bn.Gaussian())
    assert both.predict(x).mean.shape == (40, 2)
    expected = model.eval()(x)[second].detach()
    torch.testing.assert_close(both.executable.point(x), expected)
    both.save(tmp_path / "p")
    assert bn.load(tmp_path / "p", model).predict(x).mean.shape == (40, 2)


def test_an_entry_that_is_not_there():
    for kind, output, entries in (
        ("dict", None, "'a', 'b'"),
        ("dict", "c", "'a', 'b'"),
        ("tuple", 2, "0, 1"),
        ("tuple", None, "0, 1"),
    ):
        with pytest.raises(NetworkError, match=f"output={output!r}, but .* {entries}"):
            fitted(Several(kind), data(3), output=output)


def centred():
    """Every row's output depends on the other rows."""
    return nn.Sequential(Apply(lambda x: x - x.mean(0)), nn.BatchNorm1d(3), nn.Linear(3, 1))


def test_rows_that_depend_on_each_other_are_not_split(reference):
    model, x = centred(), data(3)
    posterior = fitted(model, x)
    for rows, block_bytes in ((2, 1), (3, 1), (40, 1), (40, 100), (40, 2**20)):
        expected = reference(model, posterior.sample(5), x[:rows])
        outputs = bn.MonteCarlo(samples=5, block_bytes=block_bytes).outputs(posterior, x[:rows])
        torch.testing.assert_close(outputs, expected, **TIGHT)


@pytest.mark.parametrize(("most", "tried"), [(2, [9, 4, 2, 2, 2, 2, 1]), (0, [9, 4, 2, 1])])
def test_fewer_samples_at_once_where_memory_is_short(most, tried, reference, monkeypatch):
    """Another process may have taken what was free when blocks were planned."""
    model, x = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), data(3)
    posterior, engine = fitted(model, x), bn.MonteCarlo(samples=9)
    engine.outputs(posterior, x)  # what a first look finds out is known
    vmap, seen = torch.vmap, []

    def short(function, **options):
        def run(*states):
            seen.append(len(states[0]))
            if seen[-1] > most:
                raise torch.OutOfMemoryError
            return vmap(function, **options)(*states)

        return run

    monkeypatch.setattr(torch, "vmap", short)
    if most:
        outputs = engine.outputs(posterior, x)
        torch.testing.assert_close(outputs, reference(model, posterior.sample(9), x), **TIGHT)
    else:
        with pytest.raises(torch.OutOfMemoryError):
            engine.outputs(posterior, x)
    assert seen == tried


@pytest.mark.parametrize(("free", "expected"), [(2**33, 2**29), (2**37, 2**30), (0, 1)])
def test_a_gpu_is_left_to_others_as_well(free, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**38))
    assert default_block_bytes(torch.device("cuda"), 2**40) == expected


def test_a_gpu_is_not_asked_for_its_free_memory_if_a_prediction_needs_little(monkeypatch):
    monkeypatch.delattr(torch.cuda, "mem_get_info")
    assert default_block_bytes(torch.device("cuda"), 2**20) >= 2**20


class ReadsBatch(nn.Module):
    """A forward that reads x.shape[0]."""

    def __init__(self):
        super().__init__()
        self.bn, self.head = nn.BatchNorm1d(3), nn.Linear(6, 1)

    def forward(self, x):
        rows = x.shape[0]
        h = self.bn(x.reshape(rows * 2, 3)).view(rows, 6)
        position = torch.zeros(rows, 6, dtype=x.dtype)
        assert len(h) == len(position)
        return self.head(h + position)


@pytest.mark.parametrize("block_bytes", [1, 300, 2**20])
def test_a_forward_that_reads_the_batch_size(block_bytes, reference):
    model, x = ReadsBatch(), data(6)
    posterior = fitted(model, x)
    outputs = bn.MonteCarlo(samples=5, block_bytes=block_bytes).outputs(posterior, x)
    torch.testing.assert_close(outputs, reference(model, posterior.sample(5), x), **TIGHT)


def writes_into_input():
    return nn.Sequential(Apply(lambda x: x.mul_(2).add_(1)), nn.BatchNorm1d(3), nn.Linear(3, 1))


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("network", [writes_into_input, lambda: nn.Sequential(nn.ReLU(inplace=True), centred())])
def test_a_network_that_writes_into_its_input(network, vectorize, reference):
    model, x = network(), data(3)
    original = x.clone()
    posterior = fitted(model, x)
    outputs = bn.MonteCarlo(samples=5, vectorize=vectorize).outputs(posterior, x)
    assert torch.equal(x, original), "the caller's array is the caller's"
    torch.testing.assert_close(outputs, reference(model, posterior.sample(5), x), **TIGHT)


LAYOUTS = []


class SeesLayouts(nn.Module):
    """A convolutional network that notes in LAYOUTS whether its features come channels-last."""

    def __init__(self, flatten, features):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.flatten, self.head = flatten, nn.Linear(features, 1)

    def forward(self, x):
        h = self.conv2(torch.relu(self.bn1(self.conv1(x))))
        LAYOUTS.append(h.stride(1) == 1)
        return self.head(self.flatten(torch.relu(self.bn2(h))))


FLATTENINGS = {
    "mean": (lambda h: h.mean(dim=(2, 3)), 4, True),
    "view": (lambda h: h.view(len(h), -1), 100, False),  # refuses any other layout
    "adaptive pool": (lambda h: nn.functional.adaptive_avg_pool2d(h, 1).flatten(1), 4, True),  # warns under vmap
}


@pytest.mark.parametrize("layers", [None, 1])
@pytest.mark.parametrize("kind", FLATTENINGS)
def test_images_run_channels_last_where_the_network_takes_it(kind, layers, reference, recwarn):
    flatten, features, taken = FLATTENINGS[kind]
    model, x = SeesLayouts(flatten, features).double(), data(2, 5, 5)
    posterior = fitted(model, x)
    posterior = posterior if layers is None else posterior.at_layers(layers)
    bn.MonteCarlo(samples=5).outputs(posterior, x)
    LAYOUTS.clear()
    outputs = bn.MonteCarlo(samples=5).outputs(posterior, x)
    if layers:  # what comes before the drawn layer runs first, and once
        assert LAYOUTS[0] is taken
    torch.testing.assert_close(outputs, reference(model, posterior.sample(5), x), **TIGHT)
    looped = bn.MonteCarlo(samples=5, vectorize=False).outputs(posterior, x)
    torch.testing.assert_close(outputs, looped, **TIGHT)
    assert not [str(w.message) for w in recwarn]


def test_one_output_without_an_axis(reference):
    model, x = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1), nn.Flatten(0)), data(3)
    posterior = fitted(model, x)
    assert posterior.predict(x).mean.shape == (40,)
    outputs = bn.MonteCarlo(samples=5).outputs(posterior, x)
    torch.testing.assert_close(outputs, reference(model, posterior.sample(5), x), **TIGHT)


def test_integer_inputs_stay_integers(reference):
    mean = Apply(lambda h: h.mean(1))
    model, x = nn.Sequential(nn.Embedding(7, 3), mean, nn.BatchNorm1d(3), nn.Linear(3, 1)), torch.randint(0, 7, (40, 4))
    posterior = fitted(model, x)
    outputs = bn.MonteCarlo(samples=5).outputs(posterior, x)
    torch.testing.assert_close(outputs, reference(model, posterior.sample(5), x), **TIGHT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_networks(dtype, reference):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).to(dtype), data(3)
    posterior = bn.MCBN(batch_size=8, states=9).fit(model, x)
    wide = {name: value.to(dtype) for name, value in posterior.sample(9).items()}
    outputs = bn.MonteCarlo(samples=9).outputs(posterior, x)
    assert outputs.dtype == dtype
    # A few roundings at values of order 1, each of the dtype's epsilon.
    expected = reference(model, wide, x.to(dtype))
    torch.testing.assert_close(outputs, expected, rtol=0, atol=4 * torch.finfo(dtype).eps)
    assert torch.isfinite(posterior.predict(x).mean).all()


def test_states_may_override_parameters_as_well(reference):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).double().eval()
    x = data(3, rows=6)
    states = {
        "1.running_mean": data(4, rows=5),
        "1.weight": data(4, rows=5),
        "3.weight": data(1, 4, rows=5),
        "3.bias": data(1, rows=5),
    }
    for chosen in (states, {"1.bias": data(4, rows=5)}, {"3.bias": states["3.bias"]}, {"0.bias": data(4, rows=5)}):
        outputs = Executable(model).run(chosen, x)
        torch.testing.assert_close(outputs, reference(model, chosen, x), **TIGHT)


def test_under_one_state_is_differentiable():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double().eval()
    x = data(3, rows=6)
    executable = Executable(model)

    def of_mean(mean):
        return executable.derivable(
            {"1.running_mean": mean, "1.running_var": torch.full((4,), 0.7, dtype=torch.float64)}, x
        ).sum()

    assert torch.autograd.gradcheck(of_mean, torch.randn(4, dtype=torch.float64, requires_grad=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_states_of_another_architecture():
    for states in ({"9.running_mean": torch.zeros(2, 4)}, {"1.running_mean": torch.zeros(2, 5)}):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        with pytest.raises(NetworkError, match=r"states: '.*running_mean' of shape .* does not fit"):
            Executable(model).run(states, torch.randn(3, 3))


def test_a_network_that_returns_another_number_of_rows():
    with pytest.raises(NetworkError, match=r"model: it returned shape \(\) for \d+ inputs"):
        fitted(nn.Sequential(nn.BatchNorm1d(3), Apply(torch.mean)), data(3))


def test_a_failing_forward_names_the_input():
    posterior = fitted(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), data(3))
    with pytest.raises(InputError, match=r"x: the network's forward failed on input of shape \(2, 5\)"):
        posterior.predict(torch.zeros(2, 5))
