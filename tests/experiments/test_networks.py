"""The papers' networks: sizes that others have published, what the options do, and trained weights."""

import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bayesnorm.errors import FileFormatError
from experiments.data import load_cifar10, to_network_input
from experiments.networks import VGG, CifarResNet, LeNet5, ResNet, SegNet, UNet, load_cifar_resnet, paper_mlp
from experiments.networks.residual import ResidualBlock


def test_layers_are_the_papers():
    model = paper_mlp(13)
    assert [type(layer) for layer in model] == [*[nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2, nn.Linear]
    assert [tuple(model[i].weight.shape) for i in (0, 3, 6)] == [(50, 13), (50, 50), (1, 50)]
    assert model[0].bias is None
    assert model[3].bias is None
    assert torch.equal(model[6].bias, torch.zeros(1))
    for layer in (model[1], model[4]):
        assert layer.eps == 1e-10
        assert torch.equal(layer.weight, torch.ones(50))
        assert torch.equal(layer.bias, torch.zeros(50))


def test_weights_are_a_normal_cut_at_two_standard_deviations():
    weight = paper_mlp(400, hidden=(500,))[0].weight.detach().double()
    assert weight.abs().max() <= 0.2 + 1e-6
    # Variance of N(0, 1) cut to [-2, 2]: 1 - 2 * 2 * phi(2) / (Phi(2) - Phi(-2)), 0.8796 squared.
    inside = math.erf(math.sqrt(2))
    exact_std = 0.1 * math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / inside)
    n = weight.numel()
    # A cut normal has lighter tails than a normal, so sigma / sqrt(2 n) bounds the standard error of its std.
    assert abs(weight.std() - exact_std) < 4 * exact_std / math.sqrt(2 * n)
    assert abs(weight.mean()) < 4 * exact_std / math.sqrt(n)
    # A share of erf(1/sqrt 2) / erf(sqrt 2) lies within one standard deviation of the uncut normal.
    share = math.erf(math.sqrt(0.5)) / inside
    observed = (weight.abs() < 0.1).double().mean()
    assert abs(observed - share) < 4 * math.sqrt(share * (1 - share) / n)


def test_parameter_count_and_weight_layers():
    for depth, count in ((20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)):
        model = CifarResNet(depth)
        assert sum(parameter.numel() for parameter in model.parameters()) == count
        assert sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in model.modules()) == depth
        assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == depth - 1


def test_shortcut_subsamples_and_pads_a_quarter_of_the_planes_each_side():
    block = ResidualBlock(16, 32, stride=2).eval()
    nn.init.zeros_(block.conv1.weight)
    nn.init.zeros_(block.conv2.weight)
    x = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(2, 32, 4, 4)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    assert torch.equal(block(x), expected)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_are_loaded_strictly_with_or_without_prefix(prefix, data_folder):
    source = CifarResNet(20, seed=5)
    source.bn1.running_mean.fill_(0.25)
    # Like the published files: no `num_batches_tracked`.
    state = {prefix + name: tensor for name, tensor in source.state_dict().items() if "num_batches" not in name}
    folder = data_folder / "resnet_cifar10"
    folder.mkdir()
    save_file(state, folder / "resnet20.safetensors")
    model = load_cifar_resnet(20)
    assert not model.training
    for name, tensor in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name

    state.pop(prefix + "layer2.1.bn2.running_var")
    save_file(state, folder / "resnet20.safetensors")
    with pytest.raises(FileFormatError, match=r"layer2\.1\.bn2\.running_var"):
        load_cifar_resnet(20)


def test_foreign_weights_are_a_clear_error(data_folder):
    folder = data_folder / "resnet_cifar10"
    folder.mkdir()
    path = folder / "resnet20.safetensors"
    save_file(CifarResNet(32).state_dict(), path)
    with pytest.raises(FileFormatError, match="does not contain the weights of a CIFAR ResNet-20"):
        load_cifar_resnet(20)
    state = CifarResNet(20).state_dict()
    for spoilt in (state["linear.bias"] / 0, state["linear.bias"].long(), state["linear.bias"].to(torch.complex64)):
        save_file(state | {"linear.bias": spoilt}, path)
        with pytest.raises(FileFormatError, match=r"linear\.bias is .* in the file"):
            load_cifar_resnet(20)
    for content in (path.read_bytes()[:5000], b"", b"not weights at all"):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"resnet20\.safetensors"):
            load_cifar_resnet(20)


@pytest.mark.parametrize(("depth", "published_error"), [(20, 0.0827), (32, 0.0737)])
def test_published_test_error(depth, published_error, require):
    """On the first 300 test images, within 1.5 binomial standard errors (about 2.3 points)."""
    require(f"resnet_cifar10/resnet{depth}.safetensors", "cifar10/labels.npz", "cifar10/test_first2000.webp")
    images, labels = load_cifar10("test", rows=300)
    with torch.no_grad():
        predicted = load_cifar_resnet(depth)(to_network_input(images)).argmax(dim=1)
    error = (predicted != torch.from_numpy(labels)).double().mean().item()
    assert abs(error - published_error) < 1.5 * (published_error * (1 - published_error) / 300) ** 0.5


# Networks small enough for tests, of every kind and with every option.
SMALL = {
    "cifar_resnet": lambda **options: CifarResNet(20, width=4, **options),
    "preactivation": lambda **options: CifarResNet(20, width=4, preactivation=True, leak=0.1, **options),
    "resnet18": lambda **options: ResNet(18, width=4, **options),
    "resnet50": lambda **options: ResNet(50, width=4, preactivation=True, **options),
    "vgg": lambda **options: VGG(11, width=4, **options),
    "lenet": lambda **options: LeNet5(size=32, **{"in_channels": 3, **options}),
}
# Those that classify every pixel.
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


def test_parameters_of_segnet():
    """Twice VGG-16's convolutions, whose first takes three channels and whose last gives the classes."""
    encoder = 9 * (3 * 64 + 64**2 + 64 * 128 + 128**2 + 128 * 256 + 2 * 256**2 + 256 * 512 + 5 * 512**2)
    mirrored = encoder - 9 * 3 * 64 + (9 * 64 + 1) * 11
    norms = 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512) + 2 * (5 * 512 + 3 * 256 + 2 * 128 + 2 * 64)
    assert parameters(SegNet()) == encoder + mirrored + norms
    assert sum(isinstance(module, nn.Conv2d) for module in SegNet(width=1).modules()) == 26


def test_parameters_of_unet():
    def stage(planes, out):
        return sum(inputs * 9 + 2 * inputs + inputs * out + 2 * out for inputs in (planes, out))

    down = stage(8, 8) + stage(8, 16) + stage(16, 32)
    up = stage(32 + 16, 16) + stage(16 + 8, 8)
    assert parameters(UNet(5, width=8, depth=2)) == (27 + 2) * 8 + down + up + (8 + 1) * 5


@pytest.mark.parametrize("kind", PIXELS)
@pytest.mark.parametrize("size", [(16, 24), (17, 23)])
def test_outputs_have_the_size_of_the_images(kind, size):
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    network, plain = PIXELS[kind](classes=7, dropout=0.5).eval(), PIXELS[kind](classes=7).eval()
    assert network(x).shape == (2, 7, *size)
    assert torch.equal(network(x), plain(x))
    assert network.state_dict().keys() == plain.state_dict().keys()
    assert PIXELS[kind](in_channels=1)(x[:, :1]).shape == (2, 11, *size)


def test_values_go_back_to_where_the_maximum_was():
    network = SegNet(1, width=1, stages=(1,), in_channels=1).eval()
    for layer in (network.encoder[0][0], network.head):
        nn.init.dirac_(layer.weight)  # both convolutions hand on what they get
    x = torch.tensor([[1.0, 2, 0], [4, 3, 5], [7, 6, 8]])[None, None]
    expected = torch.tensor([[0.0, 0, 0], [4, 0, 5], [7, 0, 8]])[None, None]
    torch.testing.assert_close(network(x), expected / (1 + 1e-5) ** 0.5)
