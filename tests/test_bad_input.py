"""Bad input gives a `BayesNormError` that names the argument and what was found; nothing is changed or written."""

import os
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bayesnorm as bn
from bayesnorm.errors import InputError, NetworkError

from .apply import Apply

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
NAN = float("nan")


def net(**options):
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, **options), nn.ReLU(), nn.Linear(4, 1))


@pytest.fixture
def refused(snapshot, tmp_path, monkeypatch):
    """`refused(model, match, call)`: the call is refused with this message, and leaves no trace."""
    monkeypatch.chdir(tmp_path)

    def check(model, match, call, kind=bn.BayesNormError):
        before = snapshot(model)
        with pytest.raises(kind, match=match):
            call()
        assert snapshot(model) == before, "the model is as it was"
        assert os.listdir(tmp_path) == [], "nothing is written"

    return check


def fit(model, data=X, **options):
    return bn.MCBN(**{"batch_size": 8, "states": 4, **options}).fit(model, data)


@pytest.mark.parametrize(
    "model",
    [nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4))],
)
def test_no_batchnorm_layer(model, refused):
    refused(
        model,
        r"model: it has no batch-norm layer .*its modules are .*Linear.* Pass a network",
        lambda: fit(model),
        NetworkError,
    )


def test_no_network_at_all():
    for model in (None, "model", lambda x: x, 3):
        with pytest.raises(NetworkError, match=rf"model must be a torch.nn.Module, got {type(model).__name__}"):
            fit(model)


def test_a_layer_without_running_statistics(refused):
    model = net(track_running_stats=False)
    refused(model, r"model: batch-norm layer '1' has no running statistics", lambda: fit(model), NetworkError)


def test_a_layer_without_running_statistics_that_is_left_out_is_no_problem():
    model = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), net())
    posterior = fit(model, layers="1.1")
    assert [layer.name for layer in posterior.layers] == ["1.1"]


def test_one_layer_under_two_names(refused):
    shared = nn.BatchNorm1d(3)
    model = nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(3, 1))
    refused(model, r"model: batch-norm layer '0' is called 2 times", lambda: fit(model), NetworkError)


@pytest.mark.parametrize(
    ("size", "data"),
    [(1000, X), *((40, data) for data in (X, (X, X[:, 0]), TensorDataset(X), DataLoader(TensorDataset(X), 4)))],
)
def test_batch_size_not_below_the_rows(size, data, refused):
    model = net()
    said = rf"batch_size={size}, but train_data has only 40 examples.*Use at most 39"
    refused(model, said, lambda: fit(model, data, batch_size=size), InputError)


def test_a_loader_whose_own_batch_holds_everything(refused):
    model, loader = net(), DataLoader(TensorDataset(X), batch_size=40)
    refused(
        model, r"batch_size=40, but train_data has only 40", lambda: fit(model, loader, batch_size=None), InputError
    )


class Rows(Dataset):
    """A data set of `rows`, whatever they are."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


EMPTY = {
    "tensor": lambda: X[:0],
    "array": lambda: X[:0].numpy(),
    "pair": lambda: (X[:0], X[:0, 0]),
    "dataset": lambda: Rows([]),
    "stream": lambda: Stream([]),
    "loader": lambda: DataLoader(Rows([]), batch_size=8),
    "loader of a stream": lambda: DataLoader(Stream([]), batch_size=8),
    "number": lambda: torch.tensor(3.0),
    "NumPy number": lambda: np.array(3.0),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_empty_data(kind, refused):
    model = net()
    refused(model, r"train_data (is empty|has shape)", lambda: fit(model, EMPTY[kind]()), InputError)


class Thing:
    pass


NOT_TENSORS = {
    "dict rows": lambda: Rows([{"x": row, "z": row} for row in X]),
    "text rows": lambda: Rows(["text"] * 40),
    "object rows": lambda: Rows([Thing()] * 40),
    "ragged rows": lambda: Rows([torch.zeros(2 + i % 2) for i in range(40)]),
    "dict batches": lambda: DataLoader(TensorDataset(X), 8, collate_fn=lambda rows: {"x": rows}),
    "text batches": lambda: DataLoader(TensorDataset(X), 8, collate_fn=lambda rows: "text"),
    "dict stream": lambda: Stream([{"x": row, "z": row} for row in X]),
    "ragged stream": lambda: Stream([torch.zeros(2 + i % 2) for i in range(40)]),
    "objects": lambda: np.array([Thing()] * 40),
    "text": lambda: np.array([["a", "b", "c"]] * 40),
    "complex": lambda: X.to(torch.complex64),
    "too few rows": lambda: DataLoader(TensorDataset(X), 8, collate_fn=lambda rows: torch.zeros(3, 3)),
    "rows of x and y differ": lambda: (X, X[:7]),
    "y a number": lambda: (X, torch.tensor(1.0)),
    "a dict": lambda: {"x": X, "z": X},
    "a string": lambda: "train.csv",
    "nothing": lambda: None,
}


@pytest.mark.parametrize("kind", NOT_TENSORS)
def test_batches_that_are_not_tensors(kind, refused):
    model = net()
    refused(model, r"^train_data\b.*\w", lambda: fit(model, NOT_TENSORS[kind]()), InputError)


def test_a_data_set_that_fails_names_the_argument(refused):
    class Broken(Rows):
        def __getitem__(self, row):
            raise FileNotFoundError("image 7 is gone")

    model = net()
    refused(model, r"train_data: Broken .*image 7 is gone", lambda: fit(model, Broken(X)), InputError)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(NAN, "array"), (NAN, "pair"), (NAN, "loader"), *((bad, "tensor") for bad in (NAN, float("inf"), -float("inf")))],
)
def test_nan_or_infinity_in_training_data(bad, kind, refused):
    x = X.clone()
    x[:, 1] = bad
    data = {"tensor": x, "array": x.numpy(), "pair": (x, x[:, 0]), "loader": DataLoader(TensorDataset(x), 8)}[kind]
    model = net()
    refused(model, r"train_data has 8 NaN or infinite values out of 24", lambda: fit(model, data), InputError)


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
def test_nan_or_infinity_in_x(bad, refused):
    model = net()
    posterior = fit(model)
    x = X[:5].clone()
    x[2, 1] = bad
    for data in (x, x.numpy(), x.double(), x.tolist()):
        refused(model, r"x has 1 NaN or infinite values out of 15", lambda g=data: posterior.predict(g), InputError)


def test_a_number_too_large_for_the_networks_dtype_is_infinity(refused):
    model = net()
    posterior = fit(model)
    x = X[:5].double()
    x[0, 0] = 1e300
    refused(model, r"x has 1 NaN or infinite", lambda: posterior.predict(x), InputError)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("0.weight", NAN),
        ("0.weight", float("inf")),
        ("1.running_mean", NAN),
        ("1.running_var", NAN),
        ("1.weight", NAN),
        ("3.bias", NAN),
    ],
)
def test_nan_or_infinity_in_the_weights(name, bad, refused):
    model = net()
    with torch.no_grad():
        model.state_dict()[name].view(-1)[0] = bad
    refused(model, rf"model: {name} has 1 NaN or infinite values out of \d+", lambda: fit(model), NetworkError)


def test_infinity_that_appears_in_a_statistic(refused):
    """Finite input and weights, infinite activations."""
    huge = Apply(lambda h: torch.exp(1000 * h.abs()))
    model = nn.Sequential(nn.BatchNorm1d(3), huge, nn.BatchNorm1d(3), nn.Linear(3, 1))
    said = r"model: a statistic of batch-norm layer '2' is NaN or infinite in 4 of 4 batches"
    refused(model, said, lambda: fit(model), NetworkError)


@pytest.mark.parametrize("shape", [(5, 4), (5,), (5, 3, 2), (0, 3), ()])
def test_x_of_another_shape(shape, refused):
    model = net()
    posterior = fit(model)
    result = r", ".join(map(str, shape))
    refused(model, rf"^x\b.* shape \({result}", lambda: posterior.predict(torch.zeros(shape)), InputError)


def test_training_data_of_another_shape(refused):
    model = net()
    refused(model, r"train_data: .*shape \(2, 5\)", lambda: fit(model, torch.zeros(40, 5)), InputError)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(5, 3, dtype=torch.complex64),
        np.array([["a", "b", "c"]]),
        np.array([[None, 1, 2]]),
        "text",
        None,
        [[1.0, 2.0], [3.0]],
        {"x": X, "z": X},
    ],
    ids=str,
)
def test_x_of_another_dtype(x, refused):
    model = net()
    posterior = fit(model)
    refused(model, r"^x\b.*\w", lambda: posterior.predict(x), InputError)


def test_other_devices(refused):
    model = net()
    posterior = fit(model)
    meta = torch.zeros(5, 3, device="meta")
    refused(model, r"x is on the meta device", lambda: posterior.predict(meta), InputError)
    refused(model, r"train_data is on the meta device", lambda: fit(model, meta.expand(40, 5, 3)[:, 0]), InputError)
    empty = net().to("meta")
    refused(empty, r"model: its tensors are on the meta device", lambda: fit(empty), NetworkError)
    split = net()
    split[3].to("meta")
    refused(split, r"model: its tensors are on cpu, meta", lambda: fit(split), NetworkError)


def test_a_scripted_network():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(net())
    with pytest.raises(NetworkError, match="model: it is a TorchScript module"):
        fit(scripted)


def test_every_error_of_the_package_is_one():
    from bayesnorm import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, bn.BayesNormError | bn.BayesNormWarning) for kind in kinds)


def test_a_network_whose_weights_have_no_shape_yet():
    with pytest.raises(NetworkError, match=r"model: 0.weight is not initialised yet. Run the network once"):
        bn.deterministic(nn.Sequential(nn.LazyLinear(1)), bn.Gaussian())


def test_centres():
    for center in ("mean", None):
        with pytest.raises(bn.BayesNormError) as raised:
            bn.MCBN(batch_size=8, center=center)
        expected = '"running" (the network\'s running statistics) or "batch" (as published)'
        assert str(raised.value) == f"center must be {expected}, got {center!r}."


@pytest.mark.parametrize("engine", [64, "delta", bn.Delta])
def test_engines(engine, refused):
    model = net()
    posterior = fit(model)
    said = r"^engine must be an object such as MonteCarlo\(samples=256\), got .*"
    refused(model, said, lambda: posterior.predict(X, engine))


@pytest.mark.parametrize(
    "call",
    [
        lambda model, likelihood: bn.deterministic(model, likelihood),
        lambda model, likelihood: bn.ensemble([model, net()], likelihood),
        lambda model, likelihood: fit(model).with_likelihood(likelihood),
    ],
    ids=["deterministic", "ensemble", "with_likelihood"],
)
def test_likelihoods(call, refused):
    model = net()
    for likelihood in (bn.Gaussian, "gaussian", 4.0):
        said = r"^likelihood must be .*Gaussian\(\) or Categorical\(\).*, got .*"
        refused(model, said, lambda likelihood=likelihood: call(model, likelihood))


def test_levels():
    predictive = fit(net()).predict(X)
    for level in (0, 1, -0.5, NAN, "a", None, [0.1, 0.9], torch.tensor([0.1, 0.9])):
        for function in (predictive.interval, predictive.quantile):
            with pytest.raises(InputError) as raised:
                function(level)
            assert str(raised.value) == f"level must be a probability strictly between 0 and 1, got {level!r}."
    expected = predictive.quantile(0.75)
    for level in (np.float32(0.75), np.float64(0.75), torch.tensor(0.75)):
        assert torch.equal(predictive.quantile(level), expected)


def test_sparse_inputs(refused):
    model = net()
    posterior = fit(model)
    said = r"^x is a torch.sparse_coo tensor. Pass a dense one, such as x.to_dense"
    for engine in (None, bn.Delta()):
        refused(model, said, lambda engine=engine: posterior.predict(X.to_sparse(), engine), InputError)
    refused(model, r"^train_data is a torch.sparse_coo tensor", lambda: fit(model, X.to_sparse()), InputError)


def test_a_module_is_no_choice_of_layers(refused):
    model = net()
    said = r"^layers must be names, a predicate, a whole number or None, got BatchNorm1d"
    refused(model, said, lambda: fit(model, layers=model[1]), NetworkError)
