"""What makes training on images fast: transforms on the device, schedules by step, compiled steps, measured parts."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, lr_scheduler

from bayesnorm.errors import BayesNormError
from bayesnorm.training import CropAndFlip, train

from .small_training import network, trained, weights

ROWS, SIZE, EPOCHS = 24, 8, 4
STEPS = ROWS // SIZE


class Stop(Exception):
    """Stands for a kill."""


def images():
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (ROWS, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return x, torch.randint(0, 4, (ROWS,), generator=generator)


def image_network():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4)
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def fit(model, fused=False, **options):
    made = partial(SGD, lr=0.1, momentum=0.9, nesterov=True, fused=fused)
    cycle = partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=EPOCHS * STEPS)
    defaults = {"optimiser": made, "schedule": cycle, "schedule_every": "step", "transform": CropAndFlip(1)}
    return train(model, *images(), loss=cross_entropy, epochs=EPOCHS, batch_size=SIZE, **{**defaults, **options})


@pytest.mark.parametrize("fused", [False, True])
def test_a_killed_training_on_images_goes_on_to_the_same_bits(fused, tmp_path):
    """Momentum comes back laid out as its weights are, without which a fused step would refuse it."""
    whole, broken = image_network(), image_network()
    history = fit(whole, fused)

    def stop(epoch, _model):
        if epoch == 3:
            raise Stop

    path = tmp_path / "run.safetensors"
    with pytest.raises(Stop):
        fit(broken, fused, checkpoint=path, checkpoint_every=0, on_epoch=stop)
    again = image_network()
    assert fit(again, fused, checkpoint=path).losses == history.losses
    assert torch.equal(weights(again), weights(whole))
    assert again[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_transforms_are_told_apart_by_the_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    fit(image_network(), checkpoint=path)
    with pytest.raises(BayesNormError, match=r"transform is CropAndFlip\(padding=1"):
        fit(image_network(), checkpoint=path, transform=CropAndFlip(2))


def test_targets_of_pixels_go_through_the_transform(tmp_path):
    x, _ = images()
    y, seen = x[:, 0].long(), []
    model, path = nn.Conv2d(3, 256, 1), tmp_path / "run.safetensors"

    def loss(f, labels):
        seen.append(labels)
        return cross_entropy(f, labels, ignore_index=300)

    options = {"loss": loss, "epochs": 2, "batch_size": SIZE, "transform": CropAndFlip(1, void=300)}
    train(model, x, y, transform_targets=True, checkpoint=path, **options)
    assert len(seen) == 2 * STEPS
    assert all((labels == 300).any() and labels.shape == (SIZE, 8, 8) for labels in seen)
    with pytest.raises(BayesNormError, match="transform_targets"):
        train(model, x, y, checkpoint=path, **options)


def test_a_schedule_moves_on_after_every_step_where_that_is_asked_for():
    seen = {}
    for every in ("epoch", "step"):
        rates = seen[every] = []

        def rate(optimiser, rates=rates):
            return lr_scheduler.LambdaLR(optimiser, lambda count: rates.append(count) or 1.0)

        trained(network(), schedule=rate, schedule_every=every)
    assert seen["epoch"] == list(range(3 + 1))  # three epochs
    assert seen["step"] == list(range(3 * 5 + 1))  # of five batches each


def test_transforms_see_training_batches_only_and_the_seed_decides_them():
    seen = []

    def noisy(x):
        seen.append(len(x))
        return x + torch.randn_like(x)

    rows = torch.randn(10, 3), torch.randn(10, 1)
    model = network()
    first, again, other, plain = (
        weights(trained(model, transform=transform, validation=rows, seed=seed)[0])
        for transform, seed in ((noisy, 0), (noisy, 0), (noisy, 1), (None, 0))
    )
    assert seen == [8] * 3 * 3 * 5
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, plain)


def test_steps_run_the_compiled_network_and_looks_the_plain_one(monkeypatch):
    calls = []

    def compile_(model, mode, dynamic):
        assert (mode, dynamic) == ("default", False)
        return lambda x: calls.append(len(x)) or model(x)

    monkeypatch.setattr(torch, "compile", compile_)
    rows = torch.randn(10, 3), torch.randn(10, 1)
    model = network()
    compiled, _ = trained(model, compiled=True, validation=rows)
    assert calls == [8] * 15
    assert torch.equal(weights(compiled), weights(trained(model, validation=rows)[0]))


def test_a_network_that_cannot_be_compiled_is_told_as_that(monkeypatch):
    class TorchDynamoException(RuntimeError):
        """As torch's own, whose import takes a second."""

    def fails(_x):
        raise TorchDynamoException("no compiler\nat all")

    monkeypatch.setattr(torch, "compile", lambda model, **_options: fails)
    with pytest.raises(BayesNormError, match=r"cannot be compiled here \(no compiler\). Use compiled=False"):
        trained(network(), compiled="default")


def test_bad_arguments():
    for options, message in (
        ({"schedule_every": "batch"}, "schedule_every must be 'epoch' or 'step'.* got 'batch'"),
        (
            {"schedule_every": "step", "schedule": lr_scheduler.ReduceLROnPlateau},
            "does not work with ReduceLROnPlateau",
        ),
        ({"transform_targets": True}, "transform_targets=True needs a transform"),
        ({"compiled": 3}, "compiled must be True, False or a mode.* got 3"),
        ({"compiled": "fast"}, "compiled='fast' failed"),
    ):
        with pytest.raises(BayesNormError, match=message):
            trained(copy.deepcopy(network()), **options)
