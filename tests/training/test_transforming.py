"""Random crops and flips of images, and networks with raw units outside and standardised ones inside."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.training import CropAndFlip, Rescaled
from experiments.data import IMAGENET_MEAN, IMAGENET_STD, to_network_input


def images(count=200, channels=3, height=6, width=5):
    return torch.randint(
        0, 256, (count, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def windows(image, padding, flip):
    """All that can become of an image, by a plain loop."""
    padded, (height, width) = F.pad(image, (padding,) * 4), image.shape[1:]
    results = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            window = padded[:, top : top + height, left : left + width]
            results[top, left, False] = window
            if flip:
                results[top, left, True] = window.flip(2)
    return results


@pytest.mark.parametrize(("padding", "flip"), [(2, True), (1, False), (0, True)])
def test_every_image_becomes_one_of_its_windows_and_all_of_them_come(padding, flip):
    pictures = images()
    torch.manual_seed(0)
    made = CropAndFlip(padding, flip)(pictures) * 255
    seen = set()
    for image, result in zip(pictures, made, strict=True):
        ways = [way for way, window in windows(image, padding, flip).items() if torch.equal(window, result.round())]
        assert len(ways) == 1  # random images have no two windows alike
        seen.add(ways[0])
    assert {way[0] for way in seen} == {way[1] for way in seen} == set(range(2 * padding + 1))
    assert {way[2] for way in seen} == ({False, True} if flip else {False})


@pytest.mark.parametrize("axes", [(), (1,), (2,)])
def test_targets_move_with_their_images(axes):
    pictures = images(50)
    labels = pictures[:, :1].long().expand(-1, *(axes or (1,)), -1, -1).reshape(50, *axes, 6, 5)
    torch.manual_seed(0)
    made, moved = CropAndFlip(2, void=1000)(pictures, labels)
    torch.manual_seed(0)
    assert torch.equal(made, CropAndFlip(2)(pictures))
    assert moved.shape == labels.shape
    shown = (made[:, :1] * 255).round().long().expand(-1, *(axes or (1,)), -1, -1).reshape(moved.shape)
    inside = moved != 1000
    assert torch.equal(shown[inside], moved[inside])
    assert not shown[~inside].any()
    assert 0.3 < inside.double().mean() < 0.9


def test_half_of_the_images_are_mirrored_and_windows_are_independent_of_it():
    torch.manual_seed(0)
    pictures = images(4000, 1, 1, 3)
    made = (CropAndFlip(0)(pictures) * 255).round()
    mirrored = ((made == pictures.flip(3)).all((1, 2, 3)) & ~(made == pictures).all((1, 2, 3))).double()
    different = (pictures != pictures.flip(3)).any((1, 2, 3)).sum()
    assert abs(mirrored.sum() / different - 0.5) < 4 * (0.25 / different) ** 0.5


def test_scaling_is_that_of_the_trained_networks():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    transform = CropAndFlip(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    scaled = transform.scaled(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    torch.testing.assert_close(scaled, to_network_input(pixels), rtol=1e-5, atol=1e-5)


def test_results_are_channels_last():
    assert CropAndFlip()(images()).is_contiguous(memory_format=torch.channels_last)


def test_bad_arguments():
    for make, message in (
        (lambda: CropAndFlip(-1), "padding must be .* got -1"),
        (lambda: CropAndFlip(flip="yes"), "flip must be .* got 'yes'"),
        (lambda: CropAndFlip(std=(0.0,)), "std must be .* got 0.0"),
        (lambda: CropAndFlip(mean=0.5), "mean must be a list of numbers.* got 0.5"),
        (lambda: CropAndFlip()(torch.zeros(2, 3, 4, 4)), "uint8 images"),
        (lambda: CropAndFlip()(images()[0]), "uint8 images"),
        (lambda: CropAndFlip(void="none"), "void must be .* got 'none'"),
        (lambda: CropAndFlip()(images(), torch.zeros(200)), r"y must have a value per pixel, .* got shape \(200,\)"),
    ):
        with pytest.raises(BayesNormError, match=message) as caught:
            make()
        assert isinstance(caught.value, InputError) == ("uint8" in message or message.startswith("y"))


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 20, 0.1]) + 5
    y = torch.randn(50, 2, generator=generator, dtype=torch.float64) * torch.tensor([3.0, 0.5]) - 7
    return x, y


def test_training_rows_are_standardised_with_the_populations_formula():
    x, y = data()
    inner_x, inner_y = Rescaled.from_data(nn.Identity(), x, y).standardise(x, y)
    for value in (inner_x, inner_y):
        torch.testing.assert_close(value.mean(0), torch.zeros(value.shape[1], dtype=torch.float64), rtol=0, atol=1e-12)
        torch.testing.assert_close(value.var(0, correction=0), torch.ones(value.shape[1], dtype=torch.float64))


def test_outputs_are_in_raw_units():
    x, y = data()
    inner = nn.Linear(3, 2).double()
    network = Rescaled.from_data(inner, x, y)
    expected = inner((x - x.mean(0)) / x.std(0, correction=0)) * y.std(0, correction=0) + y.mean(0)
    torch.testing.assert_close(network(x), expected)


def test_a_constant_column_gets_a_standard_deviation_of_one():
    x, y = data()
    x[:, 1], y[:, 0] = 4.0, 2.0
    network = Rescaled.from_data(nn.Identity(), x, y)
    assert network.x_std[1] == 1
    assert network.y_std[0] == 1
    inner_x, inner_y = network.standardise(x, y)
    assert torch.equal(inner_x[:, 1], torch.zeros(50, dtype=torch.float64))
    assert torch.equal(inner_y[:, 0], torch.zeros(50, dtype=torch.float64))


def test_scales_travel_with_the_network_and_are_not_trained():
    x, y = data()
    network = Rescaled.from_data(nn.Linear(3, 2).double(), x, y)
    assert {"x_mean", "x_std", "y_mean", "y_std"} <= network.state_dict().keys()
    assert [name for name, _ in network.named_parameters()] == ["network.weight", "network.bias"]
    assert network.float().x_mean.dtype == torch.float32
    x[:] = 0
    assert (network.x_mean != 0).all(), "they are copies"
