"""A network that learns what another one says."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD

from bayesnorm.errors import BayesNormError
from bayesnorm.training import CropAndFlip, Teacher, distill

OPTIONS = {"optimiser": partial(SGD, lr=0.2, momentum=0.9), "batch_size": 32, "epochs": 20}
LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 3.0]])


def network(width, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))


def test_gradients_are_those_of_the_definition():
    """T^2 KL(teacher / T, student / T) has the gradient T (softmax(student / T) - softmax(teacher / T)) per row."""
    for temperature in (0.5, 1.0, 4.0):
        student = torch.tensor([[1.0, 1.0, 0.0], [0.0, -2.0, 1.0]], requires_grad=True)
        teacher = Teacher(network(2, 0), temperature=temperature)
        teacher.loss(student, LOGITS).backward()
        expected = temperature * ((student / temperature).softmax(1) - (LOGITS / temperature).softmax(1)) / len(LOGITS)
        torch.testing.assert_close(student.grad, expected.detach())


def test_pixels_are_taught_one_by_one():
    teacher, student = Teacher(network(2, 0)), LOGITS.flip(1)
    pixels = [values.T.reshape(1, 3, 1, 2) for values in (student, LOGITS)]
    torch.testing.assert_close(teacher.loss(*pixels), teacher.loss(student, LOGITS))


def test_a_student_comes_to_agree_without_labels_and_the_teacher_stays():
    x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
    large, small = network(32, 1).train(), network(8, 2)
    before = copy.deepcopy(large.state_dict())
    teacher = Teacher(large)
    labels = torch.zeros(len(x), dtype=torch.long)  # say nothing

    def disagreement():
        with torch.no_grad():
            return float(teacher.loss(small.eval()(x), teacher(x, labels)[1]))

    first = disagreement()
    distill(small, large, x, **OPTIONS)
    assert disagreement() < 0.1 * first
    assert large.training
    assert all(torch.equal(value, before[name]) for name, value in large.state_dict().items())


def test_steps_are_shares_of_what_weights_are():
    """Weights in front of batch norm may be tiny: whatever their size, a student learns as much and they stay small."""
    x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
    large, taught = network(32, 1), []
    for size in (1.0, 2.0**-12):
        small = network(8, 2)
        small[1].eps = 1e-15  # by the usual one their size matters a little
        with torch.no_grad():
            small[0].weight *= size
            small[0].bias.zero_()
            small[1].running_var *= size**2
        small[0].bias.requires_grad_(False)
        distill(small, large, x, epochs=5, batch_size=32)
        taught.append(small.eval())
    with torch.no_grad():
        torch.testing.assert_close(taught[1](x), taught[0](x), atol=1e-3, rtol=0)
    assert taught[1][0].weight.abs().max() < 2.0**-10


def test_a_rate_or_an_optimiser_of_ones_own_is_taken():
    x, result = torch.randn(64, 4), []
    for options in ({"learning_rate": 0.0}, {"optimiser": partial(SGD, lr=0.0)}, {}):
        small = network(8, 2)
        before = small[0].weight.detach().clone()
        distill(small, network(32, 1), x, epochs=1, batch_size=32, **options)
        result.append(torch.equal(small[0].weight, before))
    assert result == [True, True, False]


def test_teacher_and_student_see_the_same_crops():
    images = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8)
    seen = []

    class Watching(nn.Flatten):
        def forward(self, x):
            seen.append(x)
            return super().forward(x)

    x, said = Teacher(Watching(), CropAndFlip(2))(images, torch.zeros(6))
    assert torch.equal(x, seen[0])
    assert torch.equal(said, x.flatten(1))


def test_repr_tells_what_checkpoints_have_to_know():
    assert repr(Teacher(network(2, 0), CropAndFlip(2), 3)).startswith("Teacher(Sequential, CropAndFlip(padding=2")
    assert repr(Teacher(network(2, 0), temperature=3)) != repr(Teacher(network(2, 0)))


def test_bad_arguments_are_named():
    for name, arguments in (
        ("teacher", {"network": "resnet"}),
        ("layers", {"layers": ["5"]}),
        ("layers", {"layers": ""}),
    ):
        with pytest.raises(BayesNormError, match=f"^{name}\\b"):
            Teacher(**{"network": network(2, 0), **arguments})


def test_layers_come_to_agree_too():
    """Of two students that start alike, the one that is shown a layer is nearer to it, and no hook is left."""
    x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
    large = network(8, 1).eval()

    def away(layers):
        small = network(8, 2)
        distill(small, large, x, layers=layers, weight=10.0, **OPTIONS)
        assert not any(module._forward_hooks for module in [*small.modules(), *large.modules()])
        with torch.no_grad():
            return float((small[:3](x) - large[:3](x)).square().mean())

    assert away(["2"]) < 0.5 * away([])


def test_what_layers_add_to_the_loss():
    large, small = network(3, 1).eval(), network(3, 2).eval()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    teacher = Teacher(large, layers=["0"], weight=2.0)
    with teacher.watching(small), torch.no_grad():
        _, said = teacher(x, torch.zeros(5))
        result = teacher.loss(small(x), said)
        mine, its = small[0](x), large[0](x)
        plain = Teacher(large).loss(small(x), said)
    torch.testing.assert_close(result - plain, 2.0 * (mine - its).square().mean() / its.square().mean())


def test_layers_of_other_shapes_are_refused():
    with pytest.raises(BayesNormError, match=r"^layers: '0' has shape \(32, 8\) in the student and \(32, 32\)"):
        distill(network(8, 2), network(32, 1), torch.randn(64, 4), layers="0", **OPTIONS)
    with pytest.raises(BayesNormError, match=r"^layers: the student has no layer '3'"):
        distill(network(8, 2)[:2], network(8, 1), torch.randn(64, 4), layers="3", **OPTIONS)


def test_validation_rows_are_refused():
    x = torch.randn(64, 4)
    with pytest.raises(BayesNormError, match=r"does not support validation.*evaluate="):
        distill(network(8, 2), network(8, 1), x, validation=(x, torch.zeros(64)), **OPTIONS)
    history = distill(network(8, 2), network(8, 1), x, evaluate=lambda _: 0.0, **{**OPTIONS, "epochs": 2})
    assert len(history.losses) == 2
