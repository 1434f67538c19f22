"""ResNet-20, 32, 44 and 56 for CIFAR-10 (He et al. 2016, section 4.2), and weights trained elsewhere."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import as_whole, require_seed, require_whole
from ..data.folders import find
from ..errors import BayesNormError, FileFormatError
from ..files import read_tensors
from ..schema import arrays_like, require_tensors

CIFAR_RESNET_DEPTHS: tuple[int, ...] = (20, 32, 44, 56)


class BasicBlock(nn.Module):
    """conv3x3 -> BN -> ReLU -> conv3x3 -> BN, plus the parameter-free shortcut (option A), then ReLU.

    Where the size changes, the shortcut keeps every second pixel and pads planes // 4 zero channels per side.
    """

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.pad = (planes - in_planes) // 2  # planes // 4 where the planes double
        self.conv1 = _conv3x3(in_planes, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes, device="cpu")
        self.conv2 = _conv3x3(planes, planes, 1)
        self.bn2 = nn.BatchNorm2d(planes, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.stride != 1:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(out + x)


class CifarResNet(nn.Module):
    """CIFAR ResNet of He et al. 2016: images (batch, 3, H, W) -> logits (batch, classes).

    Parameters are called `conv1`, `bn1`, `layer{1,2,3}.{i}.{conv1,bn1,conv2,bn2}` and `linear`. A global
    average pool stands before `linear`, so 28x28 images run as well as 32x32 ones.

    Args:
        depth: Number of layers with weights: 20, 32, 44 or 56.
        classes: Number of outputs.
        seed: Seed of the weights (He initialisation, linear bias 0); the global generator is not touched.
    """

    def __init__(self, depth: int = 32, classes: int = 10, seed: int = 0) -> None:
        _require_depth(depth)
        classes, seed = require_whole("classes", classes), require_seed(seed)
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = _conv3x3(3, 16, 1)
        self.bn1 = nn.BatchNorm2d(16, device="cpu")
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.linear: nn.Linear = nn.utils.skip_init(nn.Linear, 64, classes, device="cpu")
        self._initialise(torch.Generator(device="cpu").manual_seed(seed))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits

    def _initialise(self, generator: torch.Generator) -> None:
        for _, module in self.named_modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


def load_cifar_resnet(depth: int = 32) -> CifarResNet:
    """Return a trained CIFAR-10 ResNet in eval mode, from the file `resnet_cifar10/resnet{depth}.safetensors`.

    There are weights for depths 20 and 32 (test error 8.27 % and 7.37 %); `bayesnorm.data.to_network_input`
    makes the inputs that they were trained on.
    """
    _require_depth(depth)
    path = find(f"resnet_cifar10/resnet{depth}.safetensors")
    model = CifarResNet(depth)
    try:
        state = _without_prefix(read_tensors(path)[0])
        own = model.state_dict().items()
        # Published files do not say how many batches were tracked, and nothing depends on it.
        require_tensors(state, arrays_like({k: v for k, v in own if k in state or "num_batches" not in k}))
        model.load_state_dict(state, strict=True)
    except FileFormatError as error:
        raise FileFormatError(
            f"{path} does not hold the weights of a CIFAR ResNet-{depth}: {error} Fetch the file again."
        ) from error
    return model.eval()


def _without_prefix(state: Mapping[str, Tensor], prefix: str = "module.") -> dict[str, Tensor]:
    """Return a state with names as the bare network has them (`nn.DataParallel` puts `module.` in front)."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def _require_depth(depth: int) -> None:
    """Refuse depths that the paper does not have."""
    if as_whole(depth) not in CIFAR_RESNET_DEPTHS:
        raise BayesNormError(f"depth must be one of {CIFAR_RESNET_DEPTHS}, got {depth!r}")


def _stage(in_planes: int, planes: int, blocks: int, stride: int) -> nn.Sequential:
    """Return blocks of one size, of which the first changes it."""
    first = BasicBlock(in_planes, planes, stride)
    return nn.Sequential(first, *(BasicBlock(planes, planes, 1) for _ in range(blocks - 1)))


def _conv3x3(in_planes: int, planes: int, stride: int) -> nn.Conv2d:
    """Return a 3x3 convolution without bias, whose weights are still to be set."""
    # skip_init: the constructor's own initialisation would draw from the global generator.
    conv: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d, in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False, device="cpu"
    )
    return conv
