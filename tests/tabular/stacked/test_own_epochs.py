"""Networks of a stack that are trained for different numbers of epochs."""

import pytest
import torch

from bayesnorm.tabular.stacked import Block, Stack, fastest_block, training_run

from .stacked_networks import COUNTS, DECAYS, SEEDS, furthest, task, together, trained

LIMITS = [7, 3, 12, 7, 10]


@pytest.fixture
def apart(monkeypatch):
    """Give every network a block of its own.

    The last bits of networks that share one depend on who is beside them: a processor takes numbers that are left over
    at a tensor's end by other instructions.
    """
    monkeypatch.setattr(training_run, "CPU_BYTES", 1)


def by_itself(networks, rows, i, **options):
    """One network in a stack of its own."""
    stack = Stack.from_networks([networks[i]])
    member = torch.tensor([i])
    options = {"seeds": [SEEDS[i]], "weight_decay": [DECAYS[i]], **options}
    return stack, trained(stack, rows.take(member), **options)


def same_bits(stack, i, expected):
    state = stack.network(i).state_dict()
    return all(torch.equal(state[name], value) for name, value in expected.network(0).state_dict().items())


@pytest.mark.parametrize("family", ["batch norm", "dropout", "mixed"])
def test_each_network_stops_at_its_own_epoch(family, apart):
    networks, rows, _ = task(family)
    stack, history = together(networks, rows, epochs=LIMITS)
    assert history.stopped.tolist() == history.epochs.tolist() == LIMITS
    assert history.network_steps == sum(limit * (n // 16) for limit, n in zip(LIMITS, COUNTS, strict=True))
    assert history.losses.shape == (5, 12)
    assert torch.isfinite(history.losses).sum(1).tolist() == LIMITS
    for i, limit in enumerate(LIMITS):
        expected, told = by_itself(networks, rows, i, epochs=limit)
        assert same_bits(stack, i, expected)
        assert torch.equal(history.losses[i, :limit], told.losses[0])


def test_what_is_trained_after_a_limit_is_what_would_be_without_it():
    """Epochs are trained from one limit to the next, all networks of a block in one go."""
    networks, rows, _ = task("dropout")
    asked = []
    original = Block.train

    def train(self, epochs):
        asked.append((self.members.tolist(), epochs))
        return original(self, epochs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Block, "train", train)
        together(networks, rows, epochs=LIMITS)
    assert asked == [([0, 1, 3, 4], 3), ([2], 3), ([0, 3, 4], 4), ([2], 4), ([2], 3), ([4], 3), ([2], 2)]


def test_a_group_goes_on_with_the_last_score_of_those_at_their_limit(apart):
    networks, rows, _ = task(counts=COUNTS[:4])
    scores = {
        2: [1.0, 4.0, 5.0, 5.0],
        4: [3.0, 2.0, 5.0, 6.0],  # the first group is as good as before
        5: [0.0, 6.0, None, None],  # network 0 is at its limit: its group is asked, and is worse
        6: [None, 4.0, 4.0, 4.0],  # (0 + 4) / 2, as good as before; both are better now, 0 as it was in epoch 5
        8: [None, 5.0, 9.0, -1.0],  # worse; the other group is as good as before
        10: [None, 7.0, 9.0, 9.0],  # and again, so the group is over; the other is worse for the first time
        11: [None, None, 4.0, 4.0],  # both at their limit, as good as before
    }
    order, asked = iter(scores.items()), []

    def evaluate(stack, members):
        epoch, row = next(order)
        asked.append((epoch, members.tolist()))
        assert len(stack) == len(members)
        return torch.tensor([row[member] for member in members.tolist()])

    stack, history = together(
        networks, rows, epochs=[5, 12, 11, 11], evaluate=evaluate, evaluate_every=2, patience=2, groups=[0, 0, 1, 1]
    )
    assert asked == [
        (epoch, [i for i, network in enumerate(row) if network is not None]) for epoch, row in scores.items()
    ]
    assert history.stopped.tolist() == [5, 10, 11, 11]
    assert history.epochs.tolist() == [5, 6, 11, 11]
    for i, epochs in enumerate(history.epochs.tolist()):
        assert same_bits(stack, i, by_itself(networks, rows, i, epochs=epochs)[0])


def test_networks_that_are_over_stay_as_they_were_where_blocks_go_on(monkeypatch):
    """As on a GPU, where packing few networks anew costs more than training them for nothing."""
    networks, rows, _ = task("batch norm", torch.float64)
    expected, told = together(networks, rows, epochs=LIMITS)
    monkeypatch.setattr(training_run.StackedRun, "_repack", lambda self: None)
    stack, history = together(networks, rows, epochs=LIMITS)
    for i in range(5):
        assert furthest(stack.network(i), expected.network(i)) < 1e-9
    assert stack.tracked.tolist() == expected.tracked.tolist()
    assert history.stopped.tolist() == LIMITS
    torch.testing.assert_close(history.losses, told.losses, equal_nan=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("choose_block", [fastest_block, lambda *_: Block])
def test_on_a_gpu(choose_block):
    """The first network to leave does so from a block that stays, the others from one that is packed anew."""
    networks, rows, _ = task("batch norm", torch.float64)
    limits = [9, 9, 12, 4, 9]
    expected, told = together(networks, rows, epochs=limits)
    stack, history = together([single.cuda() for single in networks], rows, epochs=limits, choose_block=choose_block)
    assert history.stopped.tolist() == limits
    for i in range(5):
        assert furthest(stack.network(i).cpu(), expected.network(i)) < 1e-8
    torch.testing.assert_close(history.losses, told.losses, rtol=1e-8, atol=0, equal_nan=True)
