"""The peers of `adapt` against the formulas of their papers, on small networks and by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from experiments.shift.peers.augmenting import augment
from experiments.shift.peers.cotta import Cotta
from experiments.shift.peers.entropy_methods import Eata, Sar, Tent
from experiments.shift.peers.grouped import BatchNorm, BlendedNorm, GroupedNorm, entropy, grouped_network, norms, run
from experiments.shift.peers.lame import corrected, neighbours
from experiments.shift.peers.memories import BalancedMemory, BalancedReservoir, Item
from experiments.shift.peers.memory_methods import InstanceNorm, Note, RobustNorm, Rotta
from experiments.shift.peers.methods import batch_statistics, blended_statistics, no_adaptation
from experiments.shift.peers.sources import Source


@pytest.fixture(scope="module")
def source():
    """An untrained network with odd statistics, and noise as clean images."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
        )  # fmt: skip
        for layer in (network[1], network[4]):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
        nn.init.normal_(network[-1].weight, std=3)
        clean = torch.randn(128, 3, 8, 8)
    return Source(network.eval(), 1.0, None, clean, torch.zeros(128))


@pytest.fixture
def streams():
    """Two streams of 140 images, the second one with a trend."""
    noise = torch.randn(140, 2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    noise[:, 1] *= torch.linspace(0.5, 3, 140)[:, None, None, None]
    return noise


@pytest.mark.parametrize("make", [no_adaptation, batch_statistics, blended_statistics, Tent, Eata, Sar, Rotta, Note])
def test_streams_side_by_side_get_what_they_would_get_alone(source, streams, make, monkeypatch):
    monkeypatch.setattr("experiments.shift.peers.memory_methods.augment", lambda x, _: x)  # the rest is not random
    together, alone = make(source, 2), [make(source, 1) for _ in range(2)]
    if make is Note:
        alone[1].memories = [BalancedReservoir(seed=1)]
    for batch in streams.split(35):  # after the 64th and the 128th image, memories are used
        expected = torch.cat([method.predict(batch[:, place, None]) for place, method in enumerate(alone)], 1)
        torch.testing.assert_close(together.predict(batch), expected, rtol=1e-4, atol=1e-4)
    if make is Rotta:
        assert len({len(memory.contents()) for memory in together.memories}) == 2  # places stay empty
    if make in (Tent, Eata, Sar, Rotta, Note):
        last = run(grouped_network(source.network, 2, BatchNorm if make in (Tent, Eata, Sar) else GroupedNorm), batch)
        assert not torch.allclose(together.predict(batch), last, rtol=1e-4, atol=1e-4)


def test_plain_and_batch_statistics_are_those_of_pytorch(source, streams):
    network, x = grouped_network(source.network, 2), streams[:16]
    torch.testing.assert_close(run(network, x)[:, 0], source.network(x[:, 0]))
    trained = grouped_network(source.network, 2, BatchNorm)
    reference = nn.BatchNorm2d(6, momentum=1.0).train()
    reference.load_state_dict(source.network[1].state_dict())
    hidden = source.network[0](x[:, 1])
    expected = reference(hidden)
    side_by_side = trained[0](x.flatten(0, 1))
    torch.testing.assert_close(trained[1](side_by_side).unflatten(0, (16, 2))[:, 1], expected)


def test_blend_counts_its_own_statistics_as_sixteen_images(source):
    layer, x = BlendedNorm(source.network[1], 1), torch.randn(4, 6, 5, 5)
    mean = (16 * source.network[1].running_mean + 4 * x.mean((0, 2, 3))) / 20
    var = (16 * source.network[1].running_var + 4 * x.var((0, 2, 3), correction=0)) / 20
    weight, bias = source.network[1].weight, source.network[1].bias
    torch.testing.assert_close(layer(x), F.batch_norm(x, mean, var, weight, bias))


def test_entropy_step_follows_the_closed_form_of_its_gradient():
    # With two classes and logits (a, 0), the entropy's derivative by a is -a p (1 - p).
    a = torch.tensor([0.7, -1.3], requires_grad=True)
    logits = torch.stack([a, torch.zeros(2)], 1)
    entropy(logits).sum().backward()
    p = torch.sigmoid(a.detach())
    torch.testing.assert_close(a.grad, -a.detach() * p * (1 - p))


def test_tent_lowers_the_entropy_by_its_first_step_of_adam(source, streams):
    tent, x = Tent(source, 1), streams[:32, :1]
    start = [parameter.detach().clone() for parameter in tent.parameters]
    first = tent.predict(x)
    entropy(run(tent.network, x)).mean()
    # The first step of Adam has the size of the learning rate, against the sign of the gradient.
    for parameter, before in zip(tent.parameters, start, strict=True):
        moved = (parameter.detach() - before).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, 1e-3), rtol=1e-2, atol=0)
    assert entropy(run(tent.network, x)).mean() < entropy(first).mean()


def test_eata_takes_certain_images_that_differ_from_the_average(source):
    eata = Eata(source, 1)
    certain, unsure = 8 * F.one_hot(torch.tensor([0, 0, 3]), 10).float(), torch.zeros(1, 10)
    logits = torch.cat([certain, unsure])[:, None]
    # There is no average yet, so only the entropy counts.
    assert eata.chosen(logits)[:, 0].tolist() == [True, True, True, False]
    average = certain.softmax(-1).mean(0)
    torch.testing.assert_close(eata.average[0], average)
    # Classes 0 and 3 are like the average now, and class 5 is not.
    other = 8 * F.one_hot(torch.tensor([0, 3, 5]), 10).float()[:, None]
    assert eata.chosen(other)[:, 0].tolist() == [False, False, True]
    torch.testing.assert_close(eata.average[0], 0.9 * average + 0.1 * other[2, 0].softmax(-1))


def test_eata_weights_by_entropy_and_stays_where_no_image_is_chosen(source, streams):
    eata, x = Eata(source, 2), streams[:32].clone()
    start = [parameter.detach().clone() for parameter in eata.parameters]
    eata.chosen = lambda logits: torch.tensor([True, False]).expand(32, 2)
    eata.predict(x)
    network = grouped_network(source.network, 1, BatchNorm)
    values = entropy(run(network, x[:, :1]))
    (values * (0.4 * math.log(10) - values.detach()).exp()).mean().backward()
    for parameter, before, (name, reference) in zip(
        eata.parameters, start, ((n, p) for n, p in network.named_parameters() if p.grad is not None), strict=True
    ):
        torch.testing.assert_close(parameter[0], before[0] - 5e-3 * reference.grad[0], msg=name)
        assert torch.equal(parameter[1], before[1])


def test_sar_takes_the_gradient_at_the_worst_point_nearby(source, streams):
    x = streams[:32, :1]
    sar = Sar(source, 1)
    network = grouped_network(source.network, 1, BatchNorm)
    parameters = [parameter for layer in norms(network) for parameter in (layer.weight, layer.bias)]
    margin = 0.4 * math.log(10)

    def loss(keep=None):
        values = entropy(run(network, x))
        keep = (values < margin) if keep is None else keep & (values < margin)
        return values[keep].mean(), keep

    first, keep = loss()
    assert 0 < keep.sum() < 32
    gradients = torch.autograd.grad(first, parameters)
    norm = sum(g.square().sum() for g in gradients).sqrt()
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter += 0.05 * gradient / norm
    second, _ = loss(keep)
    expected = torch.autograd.grad(second, parameters)
    start = [parameter.detach().clone() for parameter in sar.parameters]
    sar.predict(x)
    for parameter, gradient, before in zip(sar.parameters, expected, start, strict=True):
        # The step of Adam starts where the parameters were, not at the worst point.
        assert float((parameter.detach() - before).abs().max()) < 1.01e-3
        torch.testing.assert_close(sar.optimiser.state[parameter]["exp_avg"], 0.1 * gradient, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(sar.average[0], second.detach())


def test_sar_returns_to_the_start_when_its_loss_is_small(source, streams):
    sar = Sar(source, 2)
    start = [parameter.detach().clone() for parameter in sar.parameters]
    sar.predict(streams[:32])
    sar.reset_below = 10.0
    sar._reset(torch.tensor([0.5, math.nan]), torch.tensor([True, False]))
    sar.average[1] = 20.0
    for parameter, before in zip(sar.parameters, start, strict=True):
        assert torch.equal(parameter[0], before[0])
    assert sar.average[0].isnan()


def test_balanced_memory_keeps_classes_level_and_drops_the_worst():
    memory = BalancedMemory(places=4, classes=2)
    for number in range(4):
        memory.add(number, 0, 0.1)
    # Class 0 may have half of the places, and its oldest images went.
    assert [item.number for item in memory.contents()] == [2, 3]
    memory.add(4, 1, 0.6)
    memory.add(5, 1, 0.1)
    assert [len(items) for items in memory.items] == [2, 2]
    # An uncertain image does not replace a certain young one; a certain one replaces the uncertain one.
    memory.add(6, 1, 0.69)
    assert [item.number for item in memory.items[1]] == [4, 5]
    memory.add(7, 1, 0.05)
    assert [item.number for item in memory.items[1]] == [5, 7]
    assert [item.age for item in memory.items[1]] == [3, 1]


def test_badness_is_the_papers_score():
    memory = BalancedMemory(places=64, classes=10)
    item = Item(0, 0, entropy=0.5, age=32)
    assert memory._badness(item) == pytest.approx(1 / (1 + math.exp(-0.5)) + 0.5 / math.log(10))


def test_reservoir_is_balanced_by_predicted_class():
    memory = BalancedReservoir(places=8, classes=2, seed=0)
    for number in range(100):
        memory.add(number, 0)
    for number in range(100, 104):
        memory.add(number, 1)
    # Each image of the rare class replaced one of the other.
    assert np.bincount([item.label for item in memory.items]).tolist() == [4, 4]


def test_reservoir_gives_every_image_of_a_class_the_same_chance():
    counts = np.zeros(20)
    runs = 2000
    for seed in range(runs):
        memory = BalancedReservoir(places=5, classes=1, seed=seed)
        for number in range(20):
            memory.add(number, 0)
        counts[[item.number for item in memory.items]] += 1
    # Binomial with probability 1/4: 4 standard errors.
    assert np.abs(counts / runs - 0.25).max() < 4 * (0.25 * 0.75 / runs) ** 0.5


def test_robust_norm_moves_its_statistics_towards_the_memory(source):
    layer, x = RobustNorm(source.network[1], 1), torch.randn(4, 6, 5, 5)
    torch.testing.assert_close(layer(x), source.network[1](x))
    layer.collecting, layer.weights = True, torch.tensor([[1.0], [1.0], [1.0], [0.0]])  # the last place is empty
    result = layer(x)
    mean = 0.95 * source.network[1].running_mean + 0.05 * x[:3].mean((0, 2, 3))
    var = 0.95 * source.network[1].running_var + 0.05 * x[:3].var((0, 2, 3), correction=0)
    torch.testing.assert_close(layer.mean[0], mean)
    weight, bias = source.network[1].weight, source.network[1].bias
    torch.testing.assert_close(result, F.batch_norm(x, mean, var, weight, bias))


def test_instance_norm_ignores_small_differences_and_follows_large_ones(source):
    layer = InstanceNorm(source.network[1], 1)
    mean, std = source.network[1].running_mean, source.network[1].running_var.sqrt()
    noise = torch.randn(3, 6, 8, 8, generator=torch.Generator().manual_seed(0))
    noise = (noise - noise.mean((2, 3), keepdim=True)) / noise.std((2, 3), keepdim=True)
    usual = mean[:, None, None] + std[:, None, None] * noise
    torch.testing.assert_close(layer(usual), source.network[1](usual), rtol=1e-4, atol=1e-4)
    # A mean that is 3 standard deviations away, with 64 pixels, counts as 3 - 4 / 8 of them.
    moved = usual + 3 * std[:, None, None]
    expected = source.network[1](moved - 2.5 * std[:, None, None])
    torch.testing.assert_close(layer(moved), expected, rtol=1e-3, atol=1e-3)


def test_lame_solves_its_fixed_point():
    generator = torch.Generator().manual_seed(0)
    features = F.normalize(torch.randn(1, 20, 4, generator=generator), dim=-1)
    weights = neighbours(features, 3)
    assert weights.sum(-1).eq(3).all()
    assert weights.diagonal(dim1=1, dim2=2).eq(0).all()
    nearest = torch.cdist(features[0], features[0])[0].argsort()[1:4]
    assert weights[0, 0, nearest].eq(1).all()
    probs = torch.randn(1, 20, 5, generator=generator).softmax(-1)
    z = corrected(probs, weights)
    torch.testing.assert_close(z, (probs.log() + weights @ z).softmax(-1), rtol=1e-3, atol=1e-4)
    # Without neighbours nothing is corrected.
    torch.testing.assert_close(corrected(probs, torch.zeros_like(weights)), probs)


def test_cotta_teacher_follows_and_weights_return(source, streams, monkeypatch):
    monkeypatch.setattr("experiments.shift.peers.cotta.CONFIDENT", 0.0)  # no augmentations
    monkeypatch.setattr("experiments.shift.peers.cotta.RESTORED", 0.5)
    cotta, x = Cotta(source), streams[:32, :1]
    head, follower = cotta.parameters[-2], cotta.followers[-2]
    original = head.detach().clone()
    with torch.no_grad():
        head.mul_(1.5)  # the student must differ from the teacher, or there is nothing to learn
    before = head.detach().clone()
    target = cotta.predict(x)
    torch.testing.assert_close(target, run(grouped_network(source.network, 1, BatchNorm), x))
    returned = head.detach() == original
    # 80 weights: half of them, within four standard errors; the others took Adam's first step of 0.001.
    assert abs(float(returned.double().mean()) - 0.5) < 4 * 0.5 / 80**0.5
    steps = (head.detach() - before)[~returned].abs()
    torch.testing.assert_close(steps, torch.full_like(steps, 1e-3), rtol=0.05, atol=1e-6)
    followed = (follower - original)[~returned]
    torch.testing.assert_close(followed, 1e-3 * (head.detach() - original)[~returned], rtol=0.01, atol=1e-6)


def test_cotta_averages_augmented_images_if_unsure(source, streams, monkeypatch):
    monkeypatch.setattr("experiments.shift.peers.cotta.CONFIDENT", 1.1)
    monkeypatch.setattr("experiments.shift.peers.cotta.augment", lambda x, _: x)
    x = streams[:16, :1]
    target = Cotta(source).predict(x)
    torch.testing.assert_close(target, run(grouped_network(source.network, 1, BatchNorm), x), rtol=1e-4, atol=1e-4)


def test_augmented_images_stay_images_and_share_their_numbers_within_a_stream():
    pixels = torch.rand(1, 2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).expand(4, -1, -1, -1, -1)
    x = (pixels - 0.45) / 0.25
    result = augment(x, torch.Generator().manual_seed(0))
    assert result.shape == x.shape
    assert result.isfinite().all()
    # The same image of the same stream differs by noise only.
    assert float((result[0] - result[1]).abs().mean()) < 0.1 * float((result[0, 0] - x[0, 0]).abs().mean())
