"""Mini-batches of every kind of training data, drawn as the paper samples them."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.network import mini_batches
from bayesnorm.network.collecting.batches import isolated_randomness

from ..apply import Apply

ROWS = 20
X = torch.stack([torch.arange(ROWS), 100 + torch.arange(ROWS)], 1).float()
"""Row i is (i, 100 + i): a batch tells which rows it holds."""
Y = torch.zeros(ROWS)


class MapStyle(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return X[row], Y[row]


class Plain:
    """Neither a Dataset nor a Sequence, but has rows."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return X[row].numpy()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


class Shuffled(IterableDataset):
    """Rows in an order of the global generator, drawn when iteration is asked for."""

    def __iter__(self):
        return iter(X[torch.randperm(ROWS)])


class Endless(IterableDataset):
    def __iter__(self):
        return (X[i % ROWS] for i in itertools.count())


class Jittered(Dataset):
    """A random transform out of all three global generators."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        noise = random.random() + np.random.rand() + torch.rand(()).item()  # noqa: NPY002
        return X[row] + 0.1 * noise


def doubled(rows):
    """A collate_fn that changes what is in a batch."""
    return 2 * torch.stack([x for x, _ in rows]), None


def frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X.numpy(), columns=["a", "b"], index=[f"row {i}" for i in range(ROWS)])


def rows_of(batch):
    """Row numbers in a batch; also checks that rows came whole."""
    assert torch.equal(batch[:, 1], batch[:, 0] + 100)
    return batch[:, 0].long().tolist()


SOURCES = {
    "tensor": lambda: X,
    "array": lambda: X.numpy(),
    "read-only array": lambda: np.broadcast_to(X.numpy(), X.shape),
    "backward array": lambda: X.numpy()[::-1],
    "Fortran array": lambda: np.asfortranarray(X.numpy()),
    "DataFrame": frame,
    "pair": lambda: (X, Y),
    "list pair": lambda: [X.numpy(), Y.tolist()],
    "TensorDataset": lambda: TensorDataset(X, Y),
    "map-style": MapStyle,
    "no Dataset": Plain,
    "Subset": lambda: Subset(MapStyle(), range(ROWS)),
    "loader": lambda: DataLoader(MapStyle(), batch_size=4),
    "shuffled loader": lambda: DataLoader(MapStyle(), batch_size=4, shuffle=True),
    "stream": Stream,
    "loader of a stream": lambda: DataLoader(Stream(), batch_size=4),
    "unbatched loader": lambda: DataLoader(
        MapStyle(), sampler=BatchSampler(SequentialSampler(X), 4, False), batch_size=None
    ),
    "batch sampler": lambda: DataLoader(MapStyle(), batch_sampler=BatchSampler(RandomSampler(X), 4, True)),
    "own batch sampler": lambda: DataLoader(
        MapStyle(), batch_sampler=[list(range(i, i + 4)) for i in range(0, ROWS, 4)]
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_data(kind):
    batches = mini_batches(SOURCES[kind](), 4, 60, seed=0)
    assert batches.rows == ROWS
    assert len(batches) == 60
    drawn = [rows_of(batch) for batch in batches]
    assert len(drawn) == 60
    assert all(len(rows) == len(set(rows)) == 4 for rows in drawn), "without replacement within a batch"
    assert len({tuple(rows) for rows in drawn}) > 50, "independently between batches"
    # 240 rows drawn in all; a row is missed by one batch with probability 16/20, by all with 0.8^60 = 1.5e-6.
    assert {row for rows in drawn for row in rows} == set(range(ROWS))
    again = [rows_of(batch) for batch in mini_batches(SOURCES[kind](), 4, 60, seed=0)]
    assert drawn == again
    assert drawn == [rows_of(batch) for batch in batches], "iterating twice gives the same batches"
    assert drawn != [rows_of(batch) for batch in mini_batches(SOURCES[kind](), 4, 60, seed=1)]


def test_every_row_has_the_same_chance():
    counts = torch.zeros(ROWS)
    for batch in mini_batches(X, 4, 2000, seed=0):
        counts[rows_of(batch)] += 1
    # A row is in a batch with probability 1/5: 2000 Bernoulli trials, standard error sqrt(2000 * 0.2 * 0.8) = 17.9.
    assert (counts - 400).abs().max() < 4 * 17.9


def test_an_endless_stream_is_read_only_as_far_as_needed():
    batches = mini_batches(Endless(), 4, 10, seed=0)
    assert batches.rows == 40
    assert all(batch.shape == (4, 2) for batch in batches)


def test_a_subset_sampler_is_kept_to_its_rows():
    loader = DataLoader(MapStyle(), batch_size=4, sampler=SubsetRandomSampler([1, 3, 5, 7, 9, 11]))
    batches = mini_batches(loader, None, 30, seed=0)
    assert batches.rows == 6
    assert {row for batch in batches for row in rows_of(batch)} == {1, 3, 5, 7, 9, 11}


def test_a_weighted_sampler_is_kept_to_its_weights():
    weights = [0.0] * 10 + [1.0] * 9 + [9.0]
    loader = DataLoader(MapStyle(), batch_size=4, sampler=WeightedRandomSampler(weights, 400))
    drawn = [row for batch in mini_batches(loader, None, 100, seed=0) for row in rows_of(batch)]
    assert min(drawn) >= 10
    # The pool holds 400 samples, of which row 19 has half; so do batches. Standard error of the pool's share 0.025,
    # of the batches' share about the pool's another 0.025.
    assert abs(drawn.count(19) / len(drawn) - 0.5) < 4 * 0.035


def test_a_loader_keeps_its_collate_fn_and_workers():
    for workers in (0, 2):
        loader = DataLoader(MapStyle(), batch_size=4, collate_fn=doubled, num_workers=workers)
        batches = list(mini_batches(loader, None, 3, seed=0))
        plain = list(mini_batches(X, 4, 3, seed=0))
        assert all(torch.equal(a, 2 * b) for a, b in zip(batches, plain, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_random_transforms_are_seeded_and_leave_the_global_generators_alone(workers):
    loader = DataLoader(Jittered(), batch_size=4, num_workers=workers)

    def draw(seed):
        with isolated_randomness(seed):
            return torch.stack(list(mini_batches(loader, None, 3, seed)))

    def states():
        return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()  # noqa: NPY002

    before = states()
    first = draw(0)
    assert states() == before
    random.seed(5)
    torch.manual_seed(5)
    assert torch.equal(first, draw(0))
    assert not torch.equal(first, draw(1))
    assert (first[..., 1] - first[..., 0] - 100).abs().max() < 1e-4


STREAMS = {
    "own sampler": lambda: DataLoader(TensorDataset(X), 4, sampler=WeightedRandomSampler(torch.ones(ROWS), ROWS)),
    "loader of a stream": lambda: DataLoader(Shuffled(), 4),
    "stream": Shuffled,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_read_with_randomness_of_its_own(kind):
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        drawn.append(torch.stack(list(mini_batches(STREAMS[kind](), 4, 3, seed=0))))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*drawn)


def test_batch_size_none_takes_the_loaders_own():
    assert mini_batches(DataLoader(MapStyle(), batch_size=7), None, 2, 0).batch_size == 7
    sampler = BatchSampler(RandomSampler(X), 5, True)
    assert mini_batches(DataLoader(MapStyle(), batch_sampler=sampler), None, 2, 0).batch_size == 5
    assert mini_batches(DataLoader(MapStyle(), batch_size=7), 3, 2, 0).batch_size == 3


def test_the_users_data_is_not_changed_by_a_network_that_writes_into_its_input():
    class Whole(Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, row):
            return row

    original = X.clone()
    loader = DataLoader(Whole(), batch_size=19, collate_fn=lambda rows: original[: len(rows)])
    bn.MCBN(batch_size=19, states=2).fit(
        nn.Sequential(Apply(lambda x: x.sub_(100).mul_(2)), nn.BatchNorm1d(2), nn.Linear(2, 1)), loader
    )
    assert torch.equal(original, X)


def test_other_things_are_no_training_data():
    for data in ("text", 3, None, object()):
        with pytest.raises(InputError, match=r"^train_data (must be|is) "):
            list(mini_batches(data, 4, 2, 0))


def test_at_most_once_gives_the_batches_or_every_row_once_if_these_are_fewer():
    few = mini_batches(X, 3, 5, seed=1)
    assert all(map(torch.equal, few.at_most_once(), few))
    many = [*mini_batches(X, 3, 7, seed=1).at_most_once()]
    assert sorted(map(len, many)) == [3, 3, 3, 3, 4, 4]
    assert torch.cat(many)[:, 0].sort().values.equal(X[:, 0])
    assert not torch.cat(many).equal(X)
