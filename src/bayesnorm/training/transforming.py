"""Transform inputs: random crops and flips of images on their device, and networks that take inputs in raw units."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import require_flag, require_number, require_whole
from ..errors import BayesNormError, InputError


@dataclass(frozen=True)
class CropAndFlip:
    """Crop and flip images at random, then scale them: a `transform` of `train` for uint8 images on the device.

    Every image is padded with black, a random window of the original size is cut out, and half of the images are
    mirrored. A batch is processed at once, and each image gets its own window. The result is channels-last in memory.
    To move targets with a value per pixel together with their images, use `train(..., transform_targets=True)`.

    Args:
        padding: Number of black pixels on every side; 0 for no crops. Default: 4.
        flip: Whether to mirror half of the images. Default: True.
        mean, std: Images are scaled to [0, 1], then `mean` is subtracted and they are divided by `std`. One number per
            channel, or one for all. Default: 0 and 1.
        void: Target value outside the image, such as the label to ignore. Default: -100.
    """

    padding: int = 4
    flip: bool = True
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    void: float = field(default=-100, repr=False)  # checkpoints compare reprs, and older ones do not have this field

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", require_whole("padding", self.padding, 0))
        require_flag("flip", self.flip)
        for name, above in (("mean", -math.inf), ("std", 0.0)):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise BayesNormError(f"{name} must be a list of numbers, one per channel, got {values!r}.")
            object.__setattr__(self, name, tuple(require_number(name, value, above=above) for value in values))
        require_number("void", self.void)

    def __call__(self, images: Tensor, targets: Tensor | None = None) -> Any:
        """Return uint8 images (batch, channels, height, width) as floats, cropped and flipped.

        Targets (batch, ..., height, width), if given, are cropped and flipped like their images and returned too.
        """
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise InputError(
                "data must be uint8 images (batch, channels, height, width) for CropAndFlip, got shape "
                f"{tuple(images.shape)} of {images.dtype}."
            )
        count, _, height, width = images.shape
        if targets is not None and (targets.shape[0], *targets.shape[-2:]) != (count, height, width):
            raise InputError(
                "y must have a value per pixel, (batch, height, width), for CropAndFlip, got shape "
                f"{tuple(targets.shape)} for images of shape {tuple(images.shape)}. Otherwise, leave out "
                "transform_targets."
            )
        device = images.device
        rows, columns = torch.arange(height, device=device), torch.arange(width, device=device).expand(count, width)
        if self.flip:
            mirrored = torch.rand(count, 1, device=device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        top, left = torch.randint(0, 2 * self.padding + 1, (2, count, 1), device=device)
        image = torch.arange(count, device=device)[:, None, None]
        window = image, (top + rows)[:, :, None], (left + columns)[:, None, :]
        padded = F.pad(images, (self.padding,) * 4).permute(0, 2, 3, 1)
        cropped = self.scaled(padded[window].permute(0, 3, 1, 2))
        if targets is None:
            return cropped
        planes = F.pad(targets.reshape(count, -1, height, width), (self.padding,) * 4, value=self.void)
        return cropped, planes.permute(0, 2, 3, 1)[window].permute(0, 3, 1, 2).reshape(targets.shape)

    def scaled(self, images: Tensor) -> Tensor:
        """Return uint8 images (batch, channels, height, width) as scaled floats, without crops and flips."""
        scale, shift = _affine(self.mean, self.std, images.device)
        return images.to(torch.get_default_dtype()) * scale + shift


@functools.lru_cache(maxsize=16)
def _affine(mean: Any, std: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return factor and summand of every channel. They are cached, because copying them to a GPU makes it wait."""
    with torch.inference_mode(False):  # the cached tensors are also used outside the caller's mode
        means, stds = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (mean, std))
        return 1 / (255 * stds), -means / stds


class Rescaled(nn.Module):
    """Compute `network((x - x_mean) / x_std) * y_std + y_mean`; constant columns get a standard deviation of 1.

    Args:
        network: Network that was trained on standardised x and y.
        x_mean, x_std, y_mean, y_std: Moments of the training rows; standard deviations divide by N (ddof 0).
    """

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor

    def __init__(self, network: nn.Module, x_mean: Tensor, x_std: Tensor, y_mean: Tensor, y_std: Tensor) -> None:
        super().__init__()
        self.network = network
        for name, value in {"x_mean": x_mean, "x_std": x_std, "y_mean": y_mean, "y_std": y_std}.items():
            self.register_buffer(name, value.detach().clone())

    @classmethod
    def from_data(cls, network: nn.Module, x: Tensor, y: Tensor) -> Self:
        """Return the network with the means and standard deviations of training rows `x`, `y`."""
        (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(value, dim=0, correction=0) for value in (x, y))
        return cls(network, x_mean, torch.where(x_std > 0, x_std, 1.0), y_mean, torch.where(y_std > 0, y_std, 1.0))

    def standardise(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return raw x and y in the inner network's units."""
        return (x - self.x_mean) / self.x_std, (y - self.y_mean) / self.y_std

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.network((x - self.x_mean) / self.x_std) * self.y_std + self.y_mean
        return result
