"""The training loop: what a seed decides, what is penalised, which network is kept."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from bayesnorm.errors import BayesNormError
from bayesnorm.training import train


def network(*more):
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), *more, nn.Linear(6, 1))


def data(n=40):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator)
    return x, x[:, :1] - x[:, 1:2] + 0.1 * torch.randn(n, 1, generator=generator)


def trained(model, **options):
    options = {"loss": mse_loss, "epochs": 3, "batch_size": 8, **options}
    model = copy.deepcopy(model)
    return model, train(model, *data(), **options)


def weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


@pytest.mark.parametrize("more", [(), (nn.Dropout(0.5),)], ids=["plain", "dropout"])
def test_the_seed_decides_alone(more):
    model = network(*more)
    first, _ = trained(model, seed=1)
    torch.manual_seed(99)
    again, _ = trained(model, seed=1)
    other, _ = trained(model, seed=2)
    assert torch.equal(weights(first), weights(again))
    assert not torch.allclose(weights(first), weights(other))


@pytest.mark.parametrize("more", [(), (nn.Dropout(0.5),)], ids=["plain", "dropout"])
def test_the_global_generator_is_not_touched(more):
    model = network(*more)
    before = torch.get_rng_state()
    trained(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_learns():
    x, y = data()
    model, record = trained(network(), epochs=150, learning_rate=1e-2)
    assert record.epochs == 150
    assert mse_loss(model(x), y) < 0.1 * y.var()


def test_weight_decay_pulls_at_matrices_only():
    """With no other loss, only weight matrices move, and towards zero."""
    model = network()
    nn.init.ones_(model[0].bias)
    after, _ = trained(model, loss=lambda f, y: 0.0 * f.sum(), weight_decay=1.0, epochs=5, learning_rate=1e-2)
    for (name, old), new in zip(model.named_parameters(), after.parameters(), strict=True):
        if old.dim() >= 2:
            assert new.norm() < old.norm(), name
            assert not torch.equal(new, old)
        else:
            assert torch.equal(new, old), name


def test_the_penalty_is_half_lambda_times_the_squared_norm():
    model, decay = nn.Linear(3, 1), 0.3
    seen = []

    def loss(f, y):
        seen.append(1)
        return 0.0 * f.sum()

    model.weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    expected = decay * model.weight.detach().clone()
    train(model, *data(8), loss=loss, epochs=1, batch_size=8, weight_decay=decay)
    torch.testing.assert_close(seen[-1], expected)


def test_the_best_network_is_kept():
    scores = iter([3.0, 1.0, 2.0, 2.0])
    kept = {}

    def evaluate(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        score = next(scores)
        kept[score] = weights(model)
        return score

    model, record = trained(network(), epochs=8, evaluate=evaluate, evaluate_every=2)
    assert record.scores == [(2, 3.0), (4, 1.0), (6, 2.0), (8, 2.0)]
    assert record.epochs == 4
    assert torch.equal(weights(model), kept[1.0])


def test_patience_ends_training_and_an_equal_score_is_an_improvement():
    def run(values, patience):
        scores = iter(values)
        return trained(network(), epochs=9, evaluate=lambda _: next(scores), evaluate_every=1, patience=patience)[1]

    assert [epoch for epoch, _ in run([1.0, 2, 2, 2, 2, 2, 2, 2, 2], 3).scores] == [1, 2, 3, 4]
    equal = run([1.0] * 9, 2)
    assert len(equal.scores) == 9
    assert equal.epochs == 9


def test_the_last_epoch_is_looked_at_too():
    _, record = trained(network(), epochs=5, evaluate=lambda _: 1.0, evaluate_every=2)
    assert [epoch for epoch, _ in record.scores] == [2, 4, 5]


def test_rows_left_over_are_dropped_and_others_seen_once():
    x, y = data(21)
    numbered = torch.cat([torch.arange(21.0)[:, None], x[:, 1:]], 1)
    seen = []
    model = nn.Linear(3, 1)
    model.register_forward_pre_hook(lambda _module, args: seen.append(args[0][:, 0].tolist()))
    train(model, numbered, y, loss=mse_loss, epochs=2, batch_size=8, seed=0)
    assert [len(batch) for batch in seen] == [8] * 4
    epochs = [seen[0] + seen[1], seen[2] + seen[3]]
    assert all(len(set(epoch)) == 16 for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_modes_while_and_after():
    modes = []
    model = network()
    model[0].register_forward_pre_hook(lambda module, _args: modes.append(module.training))
    after, _ = trained(model, evaluate=lambda m: float(m(data()[0]).sum()), evaluate_every=1)
    assert True in modes
    assert False in modes
    assert not any(module.training for module in after.modules())
    plain, _ = trained(network())
    assert not any(module.training for module in plain.modules())


def test_progress_is_told():
    seen = []
    trained(network(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("batch_size", [0, 1, 41])
def test_a_batch_size_that_cannot_be(batch_size):
    with pytest.raises(BayesNormError, match=f"batch_size: {batch_size} for 40 rows; 2 to 40 would work"):
        trained(network(), batch_size=batch_size)
