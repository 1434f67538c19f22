"""ResNet-20, 32, 44 and 56 for CIFAR-10 (He et al. 2016, section 4.2), and published weights."""

from collections.abc import Mapping

from torch import Tensor

from bayesnorm.arguments import as_whole
from bayesnorm.errors import BayesNormError, FileFormatError
from bayesnorm.files import read_tensors
from bayesnorm.schema import arrays_like, require_tensors

from ..data.folders import find
from .residual import ResidualNetwork

CIFAR_RESNET_DEPTHS: tuple[int, ...] = (20, 32, 44, 56)


class CifarResNet(ResidualNetwork):
    """CIFAR ResNet of He et al. 2016: images (batch, in_channels, H, W) -> logits (batch, classes).

    Parameters are called `conv1`, `bn1`, `layer{1,2,3}.{i}.{conv1,bn1,conv2,bn2}` and `linear`. A global average pool
    precedes `linear`, so both 28x28 and 32x32 images work. Shortcuts have no parameters.

    Args:
        depth: Number of layers with weights: 20, 32, 44 or 56.
        classes: Number of outputs.
        seed: Seed of the weights (He initialisation, linear bias 0); the global generator is not used.
        in_channels: Channels of the images.
        width: Channels of the first stage; the second has twice and the third four times as many.
        preactivation: Whether BN and ReLU precede their convolutions; `bn1` is then the one before the pool.
        dropout: Dropout rate inside every block, before its last convolution.
        leak: Slope of the activations below 0; Teye et al. 2018 use 0.1, and pre-activation.
    """

    def __init__(
        self,
        depth: int = 32,
        classes: int = 10,
        seed: int = 0,
        *,
        in_channels: int = 3,
        width: int = 16,
        preactivation: bool = False,
        dropout: float = 0.0,
        leak: float = 0.0,
    ) -> None:
        _require_depth(depth)
        super().__init__(
            [(depth - 2) // 6] * 3,
            classes,
            seed,
            in_channels=in_channels,
            width=width,
            preactivation=preactivation,
            dropout=dropout,
            leak=leak,
        )


def load_cifar_resnet(depth: int = 32) -> CifarResNet:
    """Return a trained CIFAR-10 ResNet in evaluation mode, from the file `resnet_cifar10/resnet{depth}.safetensors`.

    There are weights for depths 20 and 32 (test error 8.27 % and 7.37 %); `experiments.data.to_network_input` prepares
    images as in their training.
    """
    _require_depth(depth)
    path = find(f"resnet_cifar10/resnet{depth}.safetensors")
    model = CifarResNet(depth)
    try:
        state = _without_prefix(read_tensors(path)[0])
        entries = model.state_dict().items()
        # Published files do not contain the number of tracked batches, and nothing depends on it.
        require_tensors(state, arrays_like({k: v for k, v in entries if k in state or "num_batches" not in k}))
        model.load_state_dict(state, strict=True)
    except FileFormatError as error:
        raise FileFormatError(
            f"{path} does not contain the weights of a CIFAR ResNet-{depth}: {error} Download the file again."
        ) from error
    return model.eval()


def _without_prefix(state: Mapping[str, Tensor], prefix: str = "module.") -> dict[str, Tensor]:
    """Return a state without the prefix `module.` that `nn.DataParallel` adds to names."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def _require_depth(depth: int) -> None:
    """Refuse depths that are not in the paper."""
    if as_whole(depth) not in CIFAR_RESNET_DEPTHS:
        raise BayesNormError(f"depth must be one of {CIFAR_RESNET_DEPTHS}, got {depth!r}.")
