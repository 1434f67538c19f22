"""Networks that classify every pixel: sizes, what the options do, and how the decoder puts values back."""

import pytest
import torch
from torch import nn

from experiments.networks import SegNet, UNet

from .test_image_networks import PIXELS as SMALL, parameters


def test_parameters_of_segnet():
    """Twice VGG-16's convolutions, whose first takes three channels and whose last gives the classes."""
    encoder = 9 * (3 * 64 + 64**2 + 64 * 128 + 128**2 + 128 * 256 + 2 * 256**2 + 256 * 512 + 5 * 512**2)
    mirrored = encoder - 9 * 3 * 64 + (9 * 64 + 1) * 11
    norms = 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512) + 2 * (5 * 512 + 3 * 256 + 2 * 128 + 2 * 64)
    assert parameters(SegNet()) == encoder + mirrored + norms
    assert sum(isinstance(module, nn.Conv2d) for module in SegNet(width=1).modules()) == 26


def test_parameters_of_unet():
    def stage(planes, out):
        return sum(given * 9 + 2 * given + given * out + 2 * out for given in (planes, out))

    down = stage(8, 8) + stage(8, 16) + stage(16, 32)
    up = stage(32 + 16, 16) + stage(16 + 8, 8)
    assert parameters(UNet(5, width=8, depth=2)) == (27 + 2) * 8 + down + up + (8 + 1) * 5


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("size", [(16, 24), (17, 23)])
def test_outputs_have_the_size_of_the_images(kind, size):
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    network, plain = SMALL[kind](classes=7, dropout=0.5).eval(), SMALL[kind](classes=7).eval()
    assert network(x).shape == (2, 7, *size)
    assert torch.equal(network(x), plain(x))
    assert network.state_dict().keys() == plain.state_dict().keys()
    assert SMALL[kind](in_channels=1)(x[:, :1]).shape == (2, 11, *size)


def test_values_go_back_to_where_the_maximum_was():
    network = SegNet(1, width=1, stages=(1,), in_channels=1).eval()
    for layer in (network.encoder[0][0], network.head):
        nn.init.dirac_(layer.weight)  # both convolutions hand on what they get
    x = torch.tensor([[1.0, 2, 0], [4, 3, 5], [7, 6, 8]])[None, None]
    kept = torch.tensor([[0.0, 0, 0], [4, 0, 5], [7, 0, 8]])[None, None]
    torch.testing.assert_close(network(x), kept / (1 + 1e-5) ** 0.5)
