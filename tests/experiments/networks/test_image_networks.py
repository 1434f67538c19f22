"""The papers' image networks: sizes that others have published, and what the options do."""

import pytest
import torch
from torch import nn

from experiments.networks import VGG, CifarResNet, LeNet5, ResNet, SegNet, UNet

# Networks small enough for tests, of every kind and with every option.
SMALL = {
    "cifar_resnet": lambda **options: CifarResNet(20, width=4, **options),
    "preactivation": lambda **options: CifarResNet(20, width=4, preactivation=True, leak=0.1, **options),
    "resnet18": lambda **options: ResNet(18, width=4, **options),
    "resnet50": lambda **options: ResNet(50, width=4, preactivation=True, **options),
    "vgg": lambda **options: VGG(11, width=4, **options),
    "lenet": lambda **options: LeNet5(size=32, **{"in_channels": 3, **options}),
}
# Those that classify every pixel; what else they do stands in a file of its own.
PIXELS = {
    "segnet": lambda **options: SegNet(width=4, stages=(1, 2, 1, 1), **options),
    "unet": lambda **options: UNet(width=4, depth=3, **options),
}
EVERY = SMALL | PIXELS


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_parameter_counts():
    for network, published, difference in (
        # The counts printed for the usual CIFAR versions of these networks.
        (lambda: ResNet(18), 11_173_962, 0),
        (lambda: ResNet(34), 21_282_122, 0),
        (lambda: ResNet(50), 23_520_842, 0),
        # They leave out the batch norm before the pool, which the paper has.
        (lambda: ResNet(18, preactivation=True), 11_171_146, 2 * 512),
        # They have biases before batch norm, which takes them away again.
        (lambda: VGG(11), 9_231_114, -(64 + 128 + 2 * 256 + 4 * 512)),
        (lambda: VGG(16), 14_728_266, -(2 * 64 + 2 * 128 + 3 * 256 + 6 * 512)),
        (lambda: LeNet5(batchnorm=False), 61_706, 0),
        (lambda: LeNet5(widths=(20, 50, 500), padding=0, batchnorm=False), 431_080, 0),
        (LeNet5, 61_706, 6 + 16 + 120 + 84),  # two numbers of batch norm in place of one bias
        (lambda: CifarResNet(32, preactivation=True), 464_154, 0),
    ):
        assert parameters(network()) == published + difference


@pytest.mark.parametrize("kind", SMALL)
def test_every_network_takes_images_and_its_options(kind):
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = SMALL[kind](classes=7, dropout=0.5).eval()
    assert network(x).shape == (3, 7)
    assert any(isinstance(module, nn.Dropout) and module.p == 0.5 for module in network.modules())
    assert not any(isinstance(module, nn.Dropout) for module in SMALL[kind]().modules())
    grey = SMALL[kind](in_channels=1).eval()
    assert grey(x[:, :1]).shape == (3, 10)
    plain = SMALL[kind](classes=7).eval()
    assert torch.equal(network(x), plain(x))
    assert network.state_dict().keys() == plain.state_dict().keys()


def test_seed_decides_alone_and_the_global_generator_is_not_touched():
    for kind in EVERY:
        before = torch.get_rng_state()
        first, again, other = (EVERY[kind](seed=seed).state_dict() for seed in (1, 1, 2))
        assert torch.equal(before, torch.get_rng_state())
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)
