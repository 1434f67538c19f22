"""Stacks on several cores: switched-off gradients, and trainings that are broken off."""

import itertools
import signal
import threading

import pytest
import torch

import bayesnorm as bn
from bayesnorm.tabular.stacked import Block, Stack, passes, training_run
from experiments.stacked_networks import fit_stacked

from .stacked_networks import global_state, task, together, trained


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    """A network or two in a block, two blocks at a time."""
    monkeypatch.setattr(training_run, "FEWEST_TOGETHER", 1)
    monkeypatch.setitem(passes.BLOCK_NUMBERS, "cpu", 400)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", ["batch norm", "mixed"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_switched_off(mode, family):
    networks, rows, held_out = task(family)
    results = []
    for made, run in ((torch.enable_grad, torch.enable_grad), (torch.enable_grad, mode), (mode, mode)):
        with made():
            stack = Stack.from_networks(networks)
        with run():
            history = trained(stack, rows, epochs=4, validation=held_out, evaluate_every=2)
            sampler = fit_stacked(bn.MCBN(16, states=9), stack, rows)
            results.append((stack.weights.flat, history.losses, *sampler.moments(held_out, 9)))
            assert torch.is_grad_enabled() == (run is torch.enable_grad)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


def test_a_stack_made_without_gradients_can_be_trained_with_them():
    networks, rows, _ = task(counts=(90, 90))
    with torch.inference_mode():
        stack = Stack.from_networks(networks)
        part = stack.take(torch.tensor([1, 0]))
    for one in (stack, part):
        trained(one, rows, epochs=1)
        assert one.tracked.tolist() == [5, 5]


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
