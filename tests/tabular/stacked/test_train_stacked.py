"""Training of stacks: every network comes out, and stops, as if it were alone."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import bayesnorm as bn
from bayesnorm.errors import BayesNormError
from bayesnorm.tabular.stacked import (
    Block,
    ClassNLL,
    HalfSquaredError,
    Stack,
    TrainingSettings,
    TrainingState,
    fastest_block,
    train_stacked,
    training_run,
)
from bayesnorm.training import train
from experiments.networks import paper_mlp
from experiments.stacked_networks import fit_stacked, standardised_rows

from .stacked_networks import (
    COUNTS,
    DECAYS,
    FAMILIES,
    INPUTS,
    SEEDS,
    alone,
    data,
    furthest,
    global_state,
    rows_of_network,
    task,
    together,
    trained,
)

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"),
    [*((family, torch.float64, 1e-9) for family in FAMILIES), ("mixed", torch.float32, 1e-4)],
)
def test_each_network_comes_out_as_if_alone(family, dtype, tolerance):
    networks, rows, _ = task(family, dtype)
    before, start = global_state(), copy.deepcopy(networks)
    stack, history = together(networks, rows, epochs=10)
    assert global_state() == before
    for i, network in enumerate(networks):
        assert furthest(network, start[i]) == 0, "the networks themselves are left alone"
        expected, told = alone(network, rows, i, epochs=10)
        result = stack.network(i)
        assert furthest(result, expected) < tolerance
        assert not result.training
        if DECAYS[i] == 0:
            np.testing.assert_allclose(history.losses[i], told.losses, rtol=10 * tolerance)
    assert history.epochs.tolist() == history.stopped.tolist() == [10] * 5
    assert history.network_steps == 10 * sum(n // 16 for n in COUNTS)


@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_stopping_early_as_if_alone(family):
    """Networks that leave take nothing with them: the others' moments, orders and masks go on."""
    networks, rows, held_out = task(family, torch.float64)
    options = {"epochs": 60, "evaluate_every": 2, "patience": 2, "learning_rate": 0.02}
    stack, history = together(networks, rows, validation=held_out, **options)
    (stored,) = history.selected.values()
    for i, network in enumerate(networks):
        expected, told = alone(network, rows, i, validation=rows_of_network(held_out, i), **options)
        assert int(history.stopped[i]) == told.stopped
        assert int(history.epochs[i]) == told.epochs
        assert furthest(stack.network(i), expected) < 1e-9
        results = [(epoch, float(scores[i])) for epoch, scores in stored.scores if not scores[i].isnan()]
        np.testing.assert_allclose(results, told.scores, rtol=1e-9)
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


def test_two_scores_stop_and_keep_on_their_own():
    networks, rows, _ = task(counts=(90, 90))
    scores = {"first": [3.0, 2.0, 3.0, 1.0], "second": [4.0, 3.0, 2.0, 3.0]}  # first is over before its 1
    seen = []

    def evaluate(stack, members):
        seen.append(len(members))
        return {name: torch.full((len(members),), values[len(seen) - 1]) for name, values in scores.items()}

    stack, history = together(networks, rows, epochs=4, evaluate=evaluate, patience=1)
    assert seen == [2, 2, 2, 2]
    assert {name: best.epochs.tolist() for name, best in history.selected.items()} == {
        "first": [2, 2],
        "second": [3, 3],
    }
    assert history.epochs.tolist() == [2, 2]
    for result, epochs in ((stack, 2), (history.selected["second"].stack, 3)):
        assert furthest(result.network(1), alone(networks[1], rows, 1, epochs=epochs)[0]) < 1e-5


@pytest.mark.parametrize("family", ["batch norm", "dropout"])
def test_blocks_and_threads_change_nothing(family, monkeypatch):
    networks, rows, held_out = task(family)
    options = {"epochs": 6, "validation": held_out, "evaluate_every": 2, "patience": 1}
    expected, _ = together(networks, rows, **options)
    monkeypatch.setattr(training_run, "CPU_BYTES", 1)
    one_by_one, _ = together(networks, rows, **options)
    monkeypatch.undo()
    monkeypatch.setattr(training_run, "FEWEST_TOGETHER", 1)
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
    stack = Stack.from_networks(networks)
    rows = standardised_rows(x, labels.to(x), [torch.arange(len(x))] * 2)
    one = torch.ones(2, 1, dtype=x.dtype)
    rows = dataclasses.replace(rows, scales=dataclasses.replace(rows.scales, y_mean=0 * one, y_std=one))

    train_stacked(stack, rows, epochs=5, batch_size=16, loss=ClassNLL(), seeds=SEEDS[:2], weight_decay=[1e-3] * 2)
    for i in range(2):
        expected = copy.deepcopy(networks[i])
        options = {"epochs": 5, "batch_size": 16, "seed": SEEDS[i], "weight_decay": 1e-3}
        train(expected, rows.inputs()[i], labels, loss=cross_entropy, **options)
        assert furthest(stack.network(i), expected) < 1e-10


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
    with pytest.raises(BayesNormError, match=r"loss is NaN or infinite in epoch 1 for networks \[2\]"):
        together(networks, rows, epochs=1)


def test_half_the_squared_error():
    f, y = torch.randn(3, 5, 2), torch.randn(3, 5, 2)
    torch.testing.assert_close(HalfSquaredError()(f, y).mean(1)[1], 0.5 * mse_loss(f[1], y[1]))


@CUDA
@pytest.mark.parametrize("choose_block", [fastest_block, lambda *_: Block])
@pytest.mark.parametrize("family", ["batch norm", "mixed"])
def test_on_a_gpu(family, choose_block):
    networks, rows, held_out = task(family, torch.float64)
    for single in networks:
        for module in single.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # a GPU samples other masks
    options = {"epochs": 20, "evaluate_every": 2, "patience": 2, "validation": held_out, "learning_rate": 0.02}
    expected, told = together(networks, rows, **options)
    result, history = together([single.cuda() for single in networks], rows, choose_block=choose_block, **options)
    assert history.epochs.tolist() == told.epochs.tolist()
    for i in range(5):
        assert furthest(result.network(i).cpu(), expected.network(i)) < 1e-8
    f, exact = (fit_stacked(bn.MCBN(16, states=8), stack, rows).outputs(held_out, 8) for stack in (result, expected))
    torch.testing.assert_close(f.cpu(), exact)


@CUDA
def test_masks_of_training_on_a_gpu():
    """The mean and the variance of what dropout multiplies with: 1 and p / (1 - p)."""
    networks, rows, _ = task("dropout")
    stack = Stack.from_networks([network.cuda() for network in networks])
    before = torch.cuda.get_rng_state()
    settings = TrainingSettings(16, 1e-3, HalfSquaredError(), torch.zeros(5), [0] * 5)
    same = torch.tensor([0, 1, 3])
    block = Block(same, TrainingState.untrained(stack), 0, rows.to(stack.device, stack.dtype), settings)
    drawn = []
    for _ in range(200):
        block.sample_masks()
        drawn.append(block.drops[1].factors.flatten(1))
    factors = torch.cat(drawn, 1).double().cpu()
    for i, rate in enumerate([0.1, 0.3, 0.1]):
        n, var = factors.shape[1], rate / (1 - rate)
        assert abs(factors[i].mean() - 1) < 5 * math.sqrt(var / n)
        selected = pytest.approx(1 / (1 - rate))
        assert all(value in (0.0, selected) for value in factors[i].unique().tolist())
    torch.cuda.set_rng_state(before)
    trained(stack, rows, epochs=2)
    assert torch.equal(torch.cuda.get_rng_state(), before)
