"""Random crops and mirror images, drawn on the device that the images are on."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from ..arguments import require_number, require_whole
from ..errors import BayesNormError, InputError


@dataclass(frozen=True)
class CropAndFlip:
    """Crop and mirror images at random, then scale them: a `transform` of `train` for uint8 images on the device.

    Every image is padded with black, a window of its own size is cut out, and half of the images are mirrored. All
    images of a batch are treated at once; each gets its own window. The result is channels-last in memory. Targets with
    a value for every pixel move with their images: `train(..., transform_targets=True)`.

    Args:
        padding: Black pixels on every side; 0 leaves images where they are.
        flip: Whether to mirror half of the images.
        mean, std: Per channel, or one for all: images, scaled to [0, 1], minus `mean`, divided by `std`.
        void: What targets are where a window is outside of its image, such as the label that is ignored.
    """

    padding: int = 4
    flip: bool = True
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    void: float = field(default=-100, repr=False)  # checkpoints know a transform by its repr, also older ones

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", require_whole("padding", self.padding, 0))
        if not isinstance(self.flip, bool):
            raise BayesNormError(f"flip must be True or False, got {self.flip!r}.")
        for name, above in (("mean", -math.inf), ("std", 0.0)):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise BayesNormError(f"{name} must be a list of numbers, one per channel, got {values!r}.")
            object.__setattr__(self, name, tuple(require_number(name, value, above=above) for value in values))
        require_number("void", self.void)

    @overload
    def __call__(self, images: Tensor) -> Tensor: ...

    @overload
    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]: ...

    def __call__(self, images: Tensor, targets: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return uint8 images (batch, channels, height, width) as floats, cropped and mirrored.

        Targets (batch, ..., height, width), where they are given, come back too, cropped and mirrored as their images.
        """
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise InputError(
                f"data: {tuple(images.shape)} of {images.dtype} came to CropAndFlip; uint8 images (batch, channels, "
                "height, width) would work."
            )
        count, _, height, width = images.shape
        if targets is not None and (targets.shape[0], *targets.shape[-2:]) != (count, height, width):
            raise InputError(
                f"y: {tuple(targets.shape)} came to CropAndFlip beside images {tuple(images.shape)}; a value for every "
                "pixel, (batch, height, width), would work."
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
        """Return uint8 images (batch, channels, height, width) as floats, scaled but otherwise as they are."""
        scale, shift = _affine(self.mean, self.std, images.device)
        return images.to(torch.get_default_dtype()) * scale + shift


@functools.lru_cache(maxsize=16)
def _affine(mean: Any, std: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the factor and the summand of every channel; kept, because a GPU waits for numbers of the host."""
    with torch.inference_mode(False):  # they outlive the caller's
        means, stds = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (mean, std))
        return 1 / (255 * stds), -means / stds
