"""Stacks on several cores: switched-off gradients, and trainings that are broken off."""

from __future__ import annotations

import itertools
import signal
import threading

import pytest
import torch

import bayesnorm as bn
from bayesnorm.stacked import Stack, fit_stacked, half_squared_error, passes, train_stacked, training_run
from bayesnorm.stacked.training_block import Block

from .stacked_networks import data, global_state, task, together


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    """A network or two in a block, two blocks at a time."""
    monkeypatch.setattr(training_run, "FEWEST_TOGETHER", 1)
    monkeypatch.setitem(passes.PIECE, "cpu", 400)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", ["batch norm", "mixed"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_switched_off(mode, family):
    networks, rows, held_out = task(family)
    x = data(7, seed=5)[0]
    found = []
    for made, trained in ((torch.enable_grad, torch.enable_grad), (torch.enable_grad, mode), (mode, mode)):
        with made():
            stack = Stack.of(networks)
        with trained():
            history = train_stacked(stack, rows, epochs=4, batch_size=16, validation=held_out, evaluate_every=2)
            posterior = fit_stacked(bn.MCBN(16, states=9), stack, rows)
            found.append((stack.weights.flat, history.losses, *bn.MonteCarlo(9).moments(posterior, x)))
            assert torch.is_grad_enabled() == (trained is torch.enable_grad)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def test_a_stack_made_without_gradients_can_be_trained_with_them():
    networks, rows, _ = task(counts=(90, 90))
    with torch.inference_mode():
        stack = Stack.of(networks)
        part = stack.take(torch.tensor([1, 0]))
    for each in (stack, part):
        train_stacked(each, rows, epochs=1, batch_size=16)
        assert each.tracked.tolist() == [5, 5]


def epochs_until(monkeypatch, happens):
    """Train far longer than anyone would wait, with `happens()` in the third epoch of a block; the epochs that ran."""
    ran, numbers, original = [], itertools.count(1), Block.epoch

    def epoch(self):
        ran.append(len(self.members))
        if next(numbers) == 3:
            happens()
        return original(self)

    monkeypatch.setattr(Block, "epoch", epoch)
    networks, rows, _ = task(counts=(90, 90))
    before = global_state()
    with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
        together(networks, rows, epochs=1_000_000)
    assert global_state() == before
    assert 3 <= len(ran) < 100_000
    return ran


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for threads")
def test_an_interrupt_is_heard_before_the_last_epoch(monkeypatch):
    main = threading.main_thread().ident
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without it
    try:
        ran = epochs_until(monkeypatch, lambda: signal.pthread_kill(main, signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert max(ran) == 1, "each network has a block, and a thread, of its own"


def test_an_error_in_one_block_stops_the_others(monkeypatch):
    def fails():
        raise ZeroDivisionError

    epochs_until(monkeypatch, fails)


def test_a_loss_that_breaks_is_told_at_once():
    """As an error of the caller's own function would be."""
    networks, rows, _ = task(counts=(90, 90))
    numbers = itertools.count(1)

    def loss(f, y):
        if next(numbers) > 20:
            raise ZeroDivisionError
        return half_squared_error(f, y)

    with pytest.raises(ZeroDivisionError):
        together(networks, rows, epochs=1_000_000, loss=loss)
