"""Data of every kind give the same training; bad data are refused by name."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from bayesnorm.errors import InputError
from bayesnorm.training import train

from .small_training import global_states, weights

ROWS, SIZE = 43, 8
X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, :1] - X[:, 1:2]
EPOCHS, SEED = 3, 7


class Pairs(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return X[row], Y[row]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


class Jittered(Pairs):
    """A random transform out of all three global generators."""

    def __getitem__(self, row):
        noise = random.random() + np.random.rand() + torch.rand(()).item()  # noqa: NPY002
        return X[row] + 0.1 * noise, Y[row]


class SameOrder:
    """A sampler with the order that tensors are taken in."""

    def __init__(self):
        self.order = torch.Generator().manual_seed(SEED)

    def __len__(self):
        return ROWS

    def __iter__(self):
        return iter(torch.randperm(ROWS, generator=self.order).tolist())


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


def trained(data, y=None, model=None, **options):
    model = copy.deepcopy(model or network())
    train(model, data, y, **{"loss": mse_loss, "epochs": EPOCHS, "seed": SEED, **options})
    return weights(model)


def frames():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X.double().numpy()), pandas.DataFrame(Y.numpy())


SAME = {
    "pair": lambda: ((X, Y), SIZE),
    "list": lambda: ([X, Y], SIZE),
    "arrays of doubles": lambda: ((X.double().numpy(), Y.double().numpy()), SIZE),
    "data frames": lambda: (frames(), SIZE),
    "TensorDataset": lambda: (TensorDataset(X, Y), SIZE),
    "Dataset": lambda: (Pairs(), SIZE),
    "loader": lambda: (DataLoader(Pairs(), SIZE, sampler=SameOrder()), None),
    "loader without leftovers": lambda: (DataLoader(Pairs(), SIZE, sampler=SameOrder(), drop_last=True), SIZE),
    "batch sampler": lambda: (DataLoader(Pairs(), batch_sampler=BatchSampler(SameOrder(), SIZE, False)), None),
}


def test_every_kind_of_data_trains_the_same():
    for kind in SAME:
        data, batch_size = SAME[kind]()
        assert torch.equal(trained(data, batch_size=batch_size), trained(X, Y, batch_size=SIZE))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", SAME)
def test_data_are_brought_to_the_network(kind):
    data, batch_size = SAME[kind]()
    result = trained(data, batch_size=batch_size, model=network().cuda())
    torch.testing.assert_close(result, trained(X, Y, batch_size=SIZE), rtol=1e-3, atol=1e-4)


class Measured(Stream):
    def __len__(self):
        return ROWS


def test_a_stream_may_know_its_length():
    for data, batch_size in ((Measured(), SIZE), (DataLoader(Measured(), SIZE), None)):
        assert torch.equal(trained(data, batch_size=batch_size), trained(Stream(), batch_size=SIZE))


def test_a_stream_is_taken_as_it_comes():
    in_order = DataLoader(Pairs(), SIZE, shuffle=False)
    assert torch.equal(trained(Stream(), batch_size=SIZE), trained(in_order))
    assert torch.equal(trained(DataLoader(Stream(), SIZE)), trained(in_order))


LOADERS = {
    "shuffled": lambda: DataLoader(Pairs(), SIZE, shuffle=True),
    "its own generator": lambda: DataLoader(Pairs(), SIZE, shuffle=True, generator=torch.Generator().manual_seed(1)),
    "its sampler's generator": lambda: DataLoader(
        Pairs(), SIZE, sampler=RandomSampler(Pairs(), generator=torch.Generator().manual_seed(1))
    ),
    "random transform": lambda: DataLoader(Jittered(), SIZE, shuffle=True),
    "random data set": Jittered,
}


@pytest.mark.parametrize("kind", LOADERS)
def test_the_seed_decides_what_a_loader_samples(kind):
    made = LOADERS[kind]()
    batch_size = SIZE if kind == "random data set" else None
    before = global_states()
    first = trained(made, batch_size=batch_size)
    assert global_states() == before
    assert torch.equal(first, trained(made, batch_size=batch_size)), "again with the same loader"
    assert torch.equal(first, trained(LOADERS[kind](), batch_size=batch_size))
    assert not torch.allclose(first, trained(made, batch_size=batch_size, seed=SEED + 1))


def test_a_loaders_own_generator_is_left_alone():
    generator = torch.Generator().manual_seed(1)
    torch.rand(3, generator=generator)
    before = generator.get_state()
    sampler = RandomSampler(Pairs(), generator=generator)
    for made in (
        DataLoader(Pairs(), SIZE, shuffle=True, generator=generator),
        DataLoader(Pairs(), SIZE, sampler=sampler),
    ):
        trained(made)
        assert torch.equal(generator.get_state(), before)
        with pytest.raises(InputError) as refusal:  # and with it the frames that it went through
            trained(made, model=nn.Linear(2, 1))
        assert torch.equal(generator.get_state(), before), refusal


@pytest.mark.parametrize(
    ("loader", "sizes"),
    [
        (lambda: DataLoader(Pairs(), 10), [10] * 4),
        (lambda: DataLoader(Pairs(), 100), [43]),
        (lambda: DataLoader(Pairs(), batch_sampler=[[0, 1, 2], [3, 4]]), [3, 2]),
    ],
)
def test_a_loaders_leftovers_are_dropped(loader, sizes):
    seen = []
    model = network()
    model.register_forward_pre_hook(lambda _module, args: seen.append(len(args[0])))
    train(model, loader(), loss=mse_loss, epochs=1)
    assert seen == sizes


def test_epochs_of_a_shuffled_loader_differ():
    seen = []
    model = network()
    model.register_forward_pre_hook(lambda _module, args: seen.append(args[0][0].tolist()))
    train(model, DataLoader(Pairs(), ROWS, shuffle=True, generator=torch.Generator()), loss=mse_loss, epochs=4)
    assert len({tuple(row) for row in seen}) > 1


def test_class_labels_stay_whole_numbers():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    history = train(model, X.numpy(), (Y[:, 0] > 0).long().numpy(), loss=cross_entropy, epochs=2, batch_size=SIZE)
    assert history.stopped == 2


BAD = {
    "no batch size": ((X, Y), None, {}, "batch_size is needed if data is a tuple"),
    "another batch size": (
        DataLoader(Pairs(), 8),
        None,
        {"batch_size": 9},
        r"batch_size is 9, but the DataLoader has batch size 8",
    ),
    "targets of a loader": (DataLoader(Pairs(), 8), Y, {}, "y must be left out if data is a DataLoader"),
    "no targets": (X, None, {"batch_size": 8}, r"y is needed if data is an array of inputs \(Tensor\)"),
    "three": ((X, Y, Y), None, {"batch_size": 8}, r"data must be a pair \(x, y\), got a tuple of 3 entries"),
    "rows that disagree": (X, Y[1:], {"batch_size": 8}, "data: x has 43 rows, but y has 42"),
    "NaN": (X.log(), Y, {"batch_size": 8}, "data has .* NaN or infinite values"),
    "words": (X, ["a"] * ROWS, {"batch_size": 8}, "y has dtype <U1"),
    "one row": (X[:1], Y[:1], {"batch_size": 8}, "data has 1 row, but at least 2"),
    "nothing": ("data.csv", None, {"batch_size": 8}, "data must be .* got str"),
    "a number": (3, None, {"batch_size": 8}, "data must be .* got int"),
    "x alone in a loader": (DataLoader(X, 8), None, {}, "data must have .* pairs of tensors .*, got Tensor"),
    "names in a loader": (
        DataLoader([(X[0], "a"), (X[1], "b")], 2),
        None,
        {},
        r"data must have .* pairs of tensors \(x, y\), got (list|tuple)\(Tensor, (list|tuple)\)",
    ),
    "empty loader": (DataLoader(Pairs(), batch_sampler=[]), None, {}, "data has no batch in epoch 1"),
    "validation by loader": (
        (X, Y),
        None,
        {"batch_size": 8, "validation": Pairs()},
        r"validation must be a pair .* got Pairs.*evaluate=",
    ),
    "validation rows": (
        (X, Y),
        None,
        {"batch_size": 8, "validation": (X, Y[1:])},
        "validation: x has 43 rows, but y has 42",
    ),
}


def test_bad_data():
    for case in BAD:
        data, y, options, message = BAD[case]
        with pytest.raises(InputError, match=message):
            train(network(), data, y, loss=mse_loss, epochs=1, **options)
