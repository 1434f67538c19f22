"""The CIFAR ResNets and their trained weights."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bayesnorm.errors import FileFormatError
from experiments.data import load_cifar10, to_network_input
from experiments.networks import CifarResNet, load_cifar_resnet
from experiments.networks.residual import ResidualBlock


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
