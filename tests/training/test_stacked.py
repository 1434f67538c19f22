"""Stacks: every network comes out, and predicts, as if it were alone."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import bayesnorm as bn
from bayesnorm.errors import BayesNormError, InputError, NetworkError
from bayesnorm.nets import Rescaled, paper_mlp
from bayesnorm.training import train
from bayesnorm.training.stacked import Scales, Stack, StackedRows, half_squared_error, loop, passes, train_stacked

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
INPUTS = 4
COUNTS = 90, 90, 75, 90, 90
SEEDS, DECAYS, RATES = [3, 4, 3, 3, 3], [0.0, 1e-2, 1e-4, 1e-1, 0.0], [0.1, 0.3, 0.0, 0.1, 0.2]
"""Networks 0 and 3 draw the same orders and masks; 4 the same orders, but masks of its own."""


def batchnorm(_rate, seed):
    return paper_mlp(INPUTS, hidden=(12, 10), seed=seed)


def dropout(rate, seed):
    torch.manual_seed(seed)
    layers = nn.Dropout(rate), nn.Linear(INPUTS, 12), nn.ReLU(), nn.Dropout(rate), nn.Linear(12, 1)
    return nn.Sequential(*layers)


def mixed(rate, seed):
    """All kinds of layers, in an unusual order, nested."""
    torch.manual_seed(seed)
    inner = nn.Sequential(
        nn.LeakyReLU(0.1, inplace=True), nn.Linear(12, 10, bias=False), nn.BatchNorm1d(10, momentum=0.3)
    )
    head = nn.Sequential(nn.Dropout(rate), nn.Tanh(), nn.Linear(10, 1))
    return nn.Sequential(nn.BatchNorm1d(INPUTS), nn.Linear(INPUTS, 12), nn.GELU(), inner, head)


FAMILIES = {"batch norm": batchnorm, "dropout": dropout, "mixed": mixed}


def data(n=100, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(n, INPUTS, generator=generator, dtype=dtype) + 5
    noise = torch.randn(n, 1, generator=generator, dtype=dtype)
    return x, 10 * torch.sin(x[:, :1]) + x[:, 1:2] + 0.3 * noise


def task(family="batch norm", dtype=torch.float32, counts=COUNTS):
    """Networks of different rates, and rows of different numbers of them."""
    networks = [FAMILIES[family](rate, i).to(dtype) for i, rate in zip(range(len(counts)), RATES, strict=False)]
    generator = torch.Generator().manual_seed(1)
    x, y = data(dtype=dtype)
    picked = [torch.randperm(100, generator=generator) for _ in counts]
    rows = StackedRows.of(x, y, [p[:n] for p, n in zip(picked, counts, strict=True)], standardise=True)
    held_out = StackedRows.of(x, y, [p[n:] for p, n in zip(picked, counts, strict=True)], standardise=rows.scales)
    return networks, rows, held_out


def own(rows, i):
    """One network's rows, in its units."""
    mine = rows.take(torch.tensor([i]))
    n = int(mine.lengths[0])
    return mine.inputs()[0, :n], mine.targets()[0, :n]


def half_mse(f, y):
    return 0.5 * mse_loss(f, y)


def alone(network, rows, i, **options):
    model = copy.deepcopy(network)
    options = {"loss": half_mse, "batch_size": 16, "seed": SEEDS[i], "weight_decay": DECAYS[i], **options}
    return model, train(model, *own(rows, i), **options)


def together(networks, rows, **options):
    stack = Stack.of(networks)
    count = len(networks)
    options = {"batch_size": 16, "seed": SEEDS[:count], "weight_decay": DECAYS[:count], **options}
    return stack, train_stacked(stack, rows, **options)


def furthest(model, expected):
    """The largest relative difference of a tensor."""
    found, state = model.state_dict(), expected.state_dict()
    return max(float((found[k].double() - v).norm() / v.double().norm().clamp_min(1e-8)) for k, v in state.items())


def global_state():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), torch.get_num_threads()  # noqa: NPY002


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=["64", "32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_network_comes_out_as_if_alone(family, dtype, tolerance):
    networks, rows, _ = task(family, dtype)
    before, start = global_state(), copy.deepcopy(networks)
    stack, history = together(networks, rows, epochs=50)
    assert global_state() == before
    for i, network in enumerate(networks):
        assert furthest(network, start[i]) == 0, "the networks themselves are left alone"
        expected, told = alone(network, rows, i, epochs=50)
        found = stack.network(i)
        assert furthest(found, expected) < tolerance
        assert not found.training
        if DECAYS[i] == 0:
            np.testing.assert_allclose(history.losses[i], told.losses, rtol=10 * tolerance)
    assert history.epochs.tolist() == history.stopped.tolist() == [50] * 5
    assert history.network_steps == 50 * sum(n // 16 for n in COUNTS)


def test_the_learning_rate_is_adams():
    networks, rows, _ = task(dtype=torch.float64)
    stack, _ = together(networks, rows, epochs=3, learning_rate=0.02)
    assert furthest(stack.network(1), alone(networks[1], rows, 1, epochs=3, learning_rate=0.02)[0]) < 1e-12


@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_stopping_early_as_if_alone(family):
    """Networks that leave take nothing with them: the others' moments, orders and masks go on."""
    networks, rows, held_out = task(family, torch.float64)
    options = {"epochs": 60, "evaluate_every": 2, "patience": 2, "learning_rate": 0.02}
    stack, history = together(networks, rows, validation=held_out, **options)
    (kept,) = history.kept.values()
    for i, network in enumerate(networks):
        expected, told = alone(network, rows, i, validation=own(held_out, i), **options)
        assert int(history.stopped[i]) == told.stopped
        assert int(history.epochs[i]) == told.epochs
        assert furthest(stack.network(i), expected) < 1e-9
        found = [(epoch, float(scores[i])) for epoch, scores in kept.scores if not scores[i].isnan()]
        np.testing.assert_allclose(found, told.scores, rtol=1e-9)
        assert torch.isfinite(history.losses[i]).sum() == told.stopped
    assert len(set(history.stopped.tolist())) > 2, "the test is about networks that leave at different times"


def scripted(scores):
    """Scores by evaluation and network, and who was asked for them."""
    asked = []

    def evaluate(stack, members):
        assert len(stack) == len(members)
        row = torch.tensor(scores[len(asked)])
        asked.append(members.tolist())
        return row[members]

    return evaluate, asked


def test_a_group_stops_by_the_mean_of_its_scores():
    networks, rows, _ = task(counts=COUNTS[:4])
    #                     group A   group B     A's mean: 2, 2 (equal: better), 2.5, 3 (two worse: over)
    scores = [[1.0, 3.0, 9.0, 9.0], [3.0, 1.0, 8.0, 8.0], [0.0, 5.0, 7.0, 7.0], [0.0, 6.0, 6.0, 6.0], [9.0] * 4]
    evaluate, asked = scripted(scores)
    stack, history = together(
        networks, rows, epochs=14, evaluate=evaluate, evaluate_every=3, patience=2, groups=[7, 7, 2, 2]
    )
    assert asked == [[0, 1, 2, 3]] * 4 + [[2, 3]]
    assert history.stopped.tolist() == [12, 12, 14, 14], "the last epoch has a score too"
    assert history.epochs.tolist() == [6, 6, 12, 12]
    for i, epochs in enumerate([6, 6, 12, 12]):
        assert furthest(stack.network(i), alone(networks[i], rows, i, epochs=epochs)[0]) < 1e-4


def test_two_scores_stop_and_keep_on_their_own():
    networks, rows, _ = task(counts=(90, 90))
    scores = {"first": [3.0, 2.0, 3.0, 1.0], "second": [4.0, 3.0, 2.0, 3.0]}  # first is over before its 1
    seen = []

    def evaluate(stack, members):
        seen.append(len(members))
        return {name: torch.full((len(members),), values[len(seen) - 1]) for name, values in scores.items()}

    stack, history = together(networks, rows, epochs=4, evaluate=evaluate, patience=1)
    assert seen == [2, 2, 2, 2]
    assert {name: kept.epochs.tolist() for name, kept in history.kept.items()} == {"first": [2, 2], "second": [3, 3]}
    assert history.epochs.tolist() == [2, 2]
    for found, epochs in ((stack, 2), (history.kept["second"].stack, 3)):
        assert furthest(found.network(1), alone(networks[1], rows, 1, epochs=epochs)[0]) < 1e-5


@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_blocks_and_threads_change_nothing(family, monkeypatch):
    networks, rows, held_out = task(family)
    options = {"epochs": 6, "validation": held_out, "evaluate_every": 2, "patience": 1}
    expected, _ = together(networks, rows, **options)
    monkeypatch.setattr(loop, "CPU_BYTES", 1)
    one_by_one, _ = together(networks, rows, **options)
    monkeypatch.undo()
    monkeypatch.setattr(loop, "FEWEST_TOGETHER", 1)
    torch.set_num_threads(2)
    try:
        in_threads, _ = together(networks, rows, **options)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    for i in range(5):
        assert furthest(one_by_one.network(i), expected.network(i)) < 1e-5
        assert furthest(in_threads.network(i), expected.network(i)) < 1e-5


def test_a_loss_of_your_own():
    x, y = data(dtype=torch.float64)
    labels = (y[:, 0] > 0).long() + (y[:, 0] > 8).long()
    networks = [paper_mlp(INPUTS, 3, (8,), seed=i).double() for i in range(2)]
    stack = Stack.of(networks)
    rows = StackedRows.of(x, labels, networks=2)

    def loss(f, y):
        return cross_entropy(f.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)

    history = train_stacked(
        stack, rows, epochs=5, batch_size=16, loss=loss, seed=SEEDS[:2], weight_decay=1e-3, validation=rows
    )
    for i in range(2):
        expected, told = alone(
            networks[i], rows, i, epochs=5, loss=cross_entropy, weight_decay=1e-3, validation=(x, labels)
        )
        assert furthest(stack.network(i), expected) < 1e-10
        assert int(history.epochs[i]) == told.epochs


def test_there_and_back():
    networks, rows, _ = task("mixed")
    stack = Stack.of(networks)
    assert all(furthest(stack.network(i), network) == 0 for i, network in enumerate(networks))
    assert [stack.network(i).get_submodule("4.0").p for i in range(5)] == RATES
    train_stacked(stack, rows, epochs=2, batch_size=16)
    stack.write_back(networks)
    for i, network in enumerate(networks):
        assert furthest(stack.network(i), network) == 0
        assert int(network[0].num_batches_tracked) == 2 * (COUNTS[i] // 16)
        assert not network.training
    assert len(stack.take(torch.tensor([2, 0]))) == 2
    assert furthest(stack.take(torch.tensor([2, 0])).network(0), networks[2]) == 0


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_the_networks_own(family, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, held_out = task(family)
    stack, _ = together(networks, rows, epochs=2)
    x = torch.randn(5, 9, INPUTS)
    with torch.no_grad():
        for i in range(5):
            alone = stack.network(i)
            torch.testing.assert_close(stack.predict(x[0])[i], alone(x[0]))
            torch.testing.assert_close(stack.predict(x)[i], alone(x[i]))
            values, targets = own(held_out, i)
            f = alone(values)
            torch.testing.assert_close(stack.predict(held_out)[i, : len(values)], f)
            error = (f - targets).square().mean().sqrt().double() * held_out.scales.y_std[i]
            torch.testing.assert_close(held_out.rmse(stack.predict(held_out))[i], error[0], check_dtype=False)


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 400])
@pytest.mark.parametrize("center", ["running", "batch"])
def test_draws_are_those_of_mcbn(center, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, _ = task(dtype=torch.float64)
    stack, _ = together(networks, rows, epochs=5)
    x = data(7, torch.float64, seed=5)[0] - 5
    effective = [16.0, 40.0, 16.0, 100.0, 16.0]
    statistics = stack.batch_statistics(rows, 16, 24, seed=SEEDS).about(center).at_batch_size(effective)
    f = stack.predict_under(statistics, x)
    mean, var = stack.moments_under(statistics, x)
    assert f.shape == (24, 5, 7, 1)
    for i in range(5):
        method = bn.MCBN(16, states=24, center=center)
        posterior = method.fit(stack.network(i), own(rows, i)[0], seed=SEEDS[i]).at_batch_size(effective[i])
        expected = bn.MonteCarlo(24).outputs(posterior, x, seed=1)
        order = torch.randperm(24, generator=torch.Generator().manual_seed(1))  # a posterior draws batches in an order
        torch.testing.assert_close(f[order, i], expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(mean[i], expected.mean(0), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(var[i], expected.var(0, correction=0), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 100])
@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("family", ["dropout", "mixed"])
def test_masks_are_those_of_mc_dropout(family, consistent, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    networks, rows, _ = task(family)
    stack, _ = together(networks, rows, epochs=2)
    x = torch.randn(21, INPUTS)
    masks = stack.dropout_masks(10, seed=SEEDS, consistent=consistent)
    f = stack.predict_under(masks, x)
    mean, _ = stack.moments_under(masks, x)
    for i in (0, 1, 3, 4):
        posterior = bn.MCDropout(consistent=consistent).fit(stack.network(i), likelihood=bn.Gaussian())
        expected = bn.MonteCarlo(10).outputs(posterior, x, seed=SEEDS[i])
        torch.testing.assert_close(f[:, i], expected)
        torch.testing.assert_close(mean[i], expected.mean(0))
    assert f[:, 2].std(0).max() < 1e-5, "its rate is 0"


def test_rows_of_a_network_of_its_own():
    """Tables of each network, or rows of a common one: the same."""
    networks, rows, _ = task(counts=(90, 90))
    own_x = torch.stack([rows.x[rows.table[i]] for i in range(2)])
    own_y = torch.stack([rows.y[rows.table[i]] for i in range(2)])
    other = StackedRows.of(own_x, own_y[..., 0], standardise=True)
    torch.testing.assert_close(other.inputs(), rows.inputs())
    torch.testing.assert_close(other.targets(), rows.targets())
    found, expected = (together(networks, each, epochs=3)[0] for each in (other, rows))
    assert furthest(found.network(1), expected.network(1)) < 1e-5


def test_units():
    x, y = data()
    x[:, 2] = 0.1
    rows = StackedRows.of(x, y, [range(60), range(20, 100)], standardise=True)
    for i, part in enumerate([slice(0, 60), slice(20, 100)]):
        scaled = Rescaled.of(nn.Identity(), x[part], y[part])
        scaled.x_std[2] = 1.0
        expected = scaled.standardise(x[part], y[part])
        n = int(rows.lengths[i])
        torch.testing.assert_close(rows.inputs()[i, :n], expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows.targets()[i, :n], expected[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows.in_raw_units(rows.targets())[i, :n], y[part])
    assert rows.mask.sum(1).tolist() == [60, 80]
    assert rows.mean(rows.mask.float()).tolist() == [1.0, 1.0]
    raw = StackedRows.of(x, y, [range(60), range(20, 100)])
    torch.testing.assert_close(raw.rmse(raw.targets() + 2.0), torch.full((2,), 2.0).double())


def test_progress_is_told_to_the_end():
    networks, rows, _ = task(counts=COUNTS[:4])
    seen = []
    evaluate, _ = scripted([[1.0] * 4, [1.0, 2.0, 2.0, 1.0], [2.0] * 4])
    together(
        networks,
        rows,
        epochs=6,
        evaluate=evaluate,
        evaluate_every=2,
        patience=1,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [total for _, total in seen] == [24] * len(seen)
    assert [done for done, _ in seen] == [8, 16, 20, 24, 24]


def test_a_network_that_breaks_is_named():
    networks, rows, _ = task()
    with torch.no_grad():
        networks[2][6].bias.fill_(1e30)
    with pytest.raises(BayesNormError, match=r"loss: is NaN or infinite in epoch 1 for networks \[2\]"):
        together(networks, rows, epochs=1)


def network(**options):
    return paper_mlp(**{"in_features": INPUTS, "hidden": (5,), **options})


BAD_NETWORKS = {
    "none": ([], "networks: is empty"),
    "no sequence": ([nn.Linear(2, 1)], "networks: entry 0 is Linear; an nn.Sequential"),
    "another width": ([network(), network(hidden=(6,))], "entry 1 has Dense.*outputs=6.* where entry 0 has Dense"),
    "another depth": ([network(), network(hidden=(5, 5))], "entry 1 has 7 layers and entry 0 has 4"),
    "another eps": ([network(), network(eps=1e-5)], "entry 1 has Norm.*eps=1e-05"),
    "a convolution": ([nn.Sequential(nn.Conv1d(1, 1, 1))], "layer '0' of entry 0 is Conv1d; nn.Linear"),
    "softmax": ([nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1))], "layer '1' of entry 0 is Softmax"),
    "no running statistics": (
        [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))],
        "batch norm with weights, running statistics",
    ),
    "frozen": ([network().requires_grad_(False)], "require no gradient"),
    "half": ([network().half()], "are torch.float16; torch.float32 or"),
    "two dtypes": ([network(), network().double()], "bring all to one"),
    "the same twice": ([shared := network(), shared], "share weights with others"),
    "no weights": ([nn.Sequential(nn.ReLU())], "hold no nn.Linear"),
}


@pytest.mark.parametrize("case", BAD_NETWORKS)
def test_networks_that_make_no_stack(case):
    networks, message = BAD_NETWORKS[case]
    with pytest.raises(NetworkError, match=message):
        Stack.of(networks)


X, Y = data(40)
BAD_ROWS = {
    "out of range": ({"rows": [[0, 1], [3, 40]]}, r"rows\[1\]: goes from 3 to 40, but x has 40 rows; 0 to 39"),
    "negative": ({"rows": [[0, -1]]}, r"rows\[0\]: goes from -1 to 0"),
    "no numbers": ({"rows": [[0.5, 1.0]]}, r"rows\[0\]: has shape \(2,\) and torch.float64"),
    "none": ({"rows": [[]]}, r"rows\[0\]: .*at least one row"),
    "how many": ({}, "networks: how many networks"),
    "lengths": ({"rows": [[0, 1]], "networks": 2}, r"networks for 2, rows for 1\); they must agree"),
    "y": ({"y": Y[:-1], "networks": 1}, r"y: has shape \(39, 1\) beside x of \(40, 4\)"),
    "no table": ({"x": X[:, 0], "networks": 1}, r"x: has shape \(40,\); \(rows, inputs\)"),
    "not finite": ({"x": X * math.nan, "networks": 1}, "x: holds 160 NaN"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_are_none(case):
    options, message = BAD_ROWS[case]
    with pytest.raises(InputError, match=message):
        StackedRows.of(**{"x": X, "y": Y, **options})


BAD_TRAINING = {
    "rows": ({"rows": (X, Y)}, r"rows: tuple was given; StackedRows.of"),
    "other networks": ({"rows": StackedRows.of(X, Y, networks=3)}, "are for 3 networks of 4 inputs, but .* 2 of 4"),
    "other inputs": ({"rows": StackedRows.of(X[:, :3], Y, networks=2)}, "2 networks of 3 inputs"),
    "no targets": ({"rows": StackedRows.of(X, networks=2)}, "rows: hold no targets"),
    "two targets": ({"rows": StackedRows.of(X, X[:, :2], networks=2)}, r"shape \(40, 2\) .* 1 real outputs"),
    "batch": ({"batch_size": 41}, "batch_size: 41 was given, and network 0 has 40 rows; a whole number from 2 to 40"),
    "one row": ({"batch_size": 1}, "batch_size: 1 was given"),
    "epochs": ({"epochs": 0}, "epochs: 0 was given; a whole number"),
    "decays": ({"weight_decay": [0.1] * 3}, r"weight_decay: has shape \(3,\) for 2 networks"),
    "a decay": ({"weight_decay": [0.1, -1.0]}, "numbers from 0"),
    "seeds": ({"seed": [1]}, "seed: 1 were given for 2 networks"),
    "groups": ({"groups": [1, 2, 3]}, r"groups: has shape \(3,\)"),
    "rate": ({"learning_rate": 0.0}, "learning_rate: 0.0 was given"),
    "patience alone": ({"patience": 2}, "patience: was given, but nothing to score"),
    "two scores": ({"validation": StackedRows.of(X, Y, networks=2), "evaluate": len}, "evaluate: was given beside"),
    "no score for each": ({"evaluate": lambda *_: torch.zeros(3)}, r"evaluate: gave \(3,\) for 2 networks"),
    "no tensor": ({"evaluate": lambda *_: 1.0}, "evaluate: gave float for 2 networks"),
    "no number": ({"evaluate": lambda *_: torch.full((2,), math.nan)}, r"gave NaN in epoch 1 for networks \[0, 1\]"),
    "loss": ({"loss": lambda f, y: (f - y).square()}, r"loss: gave \(2, 8, 1\) for outputs .* \(2, 8\), would work"),
}


@pytest.mark.parametrize("case", BAD_TRAINING)
def test_bad_arguments(case):
    options, message = BAD_TRAINING[case]
    stack = Stack.of([network(seed=0), network(seed=1)])
    arguments = {"rows": StackedRows.of(X, Y, networks=2), "epochs": 1, "batch_size": 8, **options}
    before = global_state()
    with pytest.raises(BayesNormError, match=message):
        train_stacked(stack, **arguments)
    assert global_state() == before


def test_bad_questions():
    stack, rows = Stack.of([network(seed=0), network(seed=1)]), StackedRows.of(X, Y, networks=2)
    other = Stack.of([dropout(0.1, 0)])
    with pytest.raises(InputError, match=r"x: has shape \(3, 2, 4\); \(n, 4\) or \(2, n, 4\)"):
        stack.predict(torch.zeros(3, 2, INPUTS))
    with pytest.raises(InputError, match="batch_size: 40 of only 40 training rows"):
        stack.batch_statistics(rows, 40)
    with pytest.raises(InputError, match="states: 1 was given"):
        stack.batch_statistics(rows, 8, 1)
    with pytest.raises(NetworkError, match="no batch norm"):
        other.batch_statistics(StackedRows.of(X, networks=1), 8)
    with pytest.raises(NetworkError, match=r"no nn\.Dropout"):
        stack.dropout_masks()
    statistics = stack.batch_statistics(rows, 8, 4)
    with pytest.raises(InputError, match="draws: are for 2 other networks"):
        other.predict_under(statistics, X)
    with pytest.raises(InputError, match="draws: are for 1 other networks"):
        stack.predict_under(other.dropout_masks(2), X)
    with pytest.raises(BayesNormError, match="center: 'mean' was given"):
        statistics.about("mean")
    with pytest.raises(BayesNormError, match=r"batch_size: .*one for each of 2 networks"):
        statistics.at_batch_size([1.0, 2.0, 3.0])
    with pytest.raises(NetworkError, match="1 were given; 2 of the stack's shape"):
        stack.write_back([network()])


def test_half_the_squared_error():
    f, y = torch.randn(3, 5, 2), torch.randn(3, 5, 2)
    torch.testing.assert_close(half_squared_error(f, y).mean(1)[1], 0.5 * mse_loss(f[1], y[1]))


@CUDA
@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("family", ["batch norm", "mixed"])
def test_on_a_gpu(family, capture):
    networks, rows, held_out = task(family, torch.float64)
    for each in networks:
        for module in each.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # a GPU draws other masks
    options = {"epochs": 20, "evaluate_every": 2, "patience": 2, "validation": held_out, "learning_rate": 0.02}
    expected, told = together(networks, rows, **options)
    found, history = together([each.cuda() for each in networks], rows, capture=capture, **options)
    assert history.epochs.tolist() == told.epochs.tolist()
    for i in range(5):
        assert furthest(found.network(i).cpu(), expected.network(i)) < 1e-8
    statistics = found.batch_statistics(rows, 16, 8)
    torch.testing.assert_close(
        found.predict_under(statistics, held_out).cpu(),
        expected.predict_under(expected.batch_statistics(rows, 16, 8), held_out),
    )


@CUDA
def test_masks_of_training_on_a_gpu():
    """The mean and the variance of what dropout multiplies with: 1 and p / (1 - p)."""
    networks, rows, _ = task("dropout")
    stack = Stack.of([each.cuda() for each in networks])
    before = torch.cuda.get_rng_state()
    settings = loop.Settings(16, 1e-3, half_squared_error, torch.zeros(5), [0] * 5)
    moments = loop.Bundle(stack.weights.shapes, 5, stack.weights.flat)
    same = torch.tensor([0, 1, 3])
    block = loop.Block(same, stack, moments, moments, 0, rows.to(stack.device, stack.dtype), settings, {})
    drawn = []
    for _ in range(200):
        block.draw_masks()
        drawn.append(block.drops[1].factors.flatten(1))
    factors = torch.cat(drawn, 1).double().cpu()
    for i, rate in enumerate([0.1, 0.3, 0.1]):
        n, var = factors.shape[1], rate / (1 - rate)
        assert abs(factors[i].mean() - 1) < 5 * math.sqrt(var / n)
        kept = pytest.approx(1 / (1 - rate))
        assert all(value in (0.0, kept) for value in factors[i].unique().tolist())
    torch.cuda.set_rng_state(before)
    train_stacked(stack, rows, epochs=2, batch_size=16)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_scales_of_other_rows():
    scales = Scales(torch.zeros(1, INPUTS), torch.full((1, INPUTS), 2.0), torch.ones(1, 1), torch.full((1, 1), 4.0))
    rows = StackedRows.of(X, Y, networks=1, standardise=scales)
    torch.testing.assert_close(rows.inputs()[0], X / 2)
    torch.testing.assert_close(rows.targets()[0], (Y - 1) / 4)
