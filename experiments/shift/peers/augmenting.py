"""The random augmentations of CoTTA and RoTTA, with one set of random numbers for all images of a stream.

Brightness, contrast, saturation, hue and gamma, then rotation, shift and zoom, then blur, a mirror image and noise. The
papers apply the changes of colour in random order; here the order is fixed, and the hue is turned in YIQ coordinates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ...data import IMAGENET_MEAN, IMAGENET_STD

GREY = (0.299, 0.587, 0.114)
YIQ = (GREY, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))
DEGREES, MOVE, ZOOM = 15.0, 1 / 16, (0.9, 1.1)
BLUR, NOISE = (0.001, 0.5), 0.005


def augment(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return augmented network input (B, G, 3, H, W); each of G streams has its own random numbers."""
    mean, std = (torch.tensor(values, device=x.device)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(x.shape[1], generator=generator, device=x.device)

    pixels = (x * std + mean).clamp(0, 1)
    pixels = _coloured(
        pixels, between(0.6, 1.4), between(0.7, 1.3), between(0.5, 1.5), between(-0.06, 0.06), between(0.7, 1.3)
    )
    pixels = _moved(pixels, between(-DEGREES, DEGREES), between(-MOVE, MOVE), between(-MOVE, MOVE), between(*ZOOM))
    pixels = _blurred(pixels, between(*BLUR))
    mirrored = (between(0, 1) < 0.5)[:, None, None, None]
    pixels = torch.where(mirrored, pixels.flip(-1), pixels)
    pixels = pixels + NOISE * torch.randn(pixels.shape, generator=generator, device=x.device)
    return (pixels.clamp(0, 1) - mean) / std


def _coloured(
    pixels: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor, gamma: Tensor
) -> Tensor:
    def by_image(values: Tensor) -> Tensor:
        return values[:, None, None, None]

    def grey(pixels: Tensor) -> Tensor:
        return torch.einsum("bgchw,c->bghw", pixels, pixels.new_tensor(GREY))[:, :, None]

    pixels = (pixels * by_image(brightness)).clamp(0, 1)
    level = grey(pixels).mean((3, 4), keepdim=True)
    pixels = (level + by_image(contrast) * (pixels - level)).clamp(0, 1)
    pixels = (grey(pixels) + by_image(saturation) * (pixels - grey(pixels))).clamp(0, 1)
    to_yiq = pixels.new_tensor(YIQ)
    angle = 2 * math.pi * hue
    turn = torch.eye(3, device=pixels.device).repeat(len(hue), 1, 1)
    turn[:, 1, 1] = turn[:, 2, 2] = angle.cos()
    turn[:, 2, 1] = angle.sin()
    turn[:, 1, 2] = -turn[:, 2, 1]
    matrix = to_yiq.inverse() @ turn @ to_yiq
    pixels = torch.einsum("gdc,bgchw->bgdhw", matrix, pixels).clamp(1e-8, 1)
    return pixels ** by_image(gamma)


def _moved(pixels: Tensor, degrees: Tensor, right: Tensor, down: Tensor, zoom: Tensor) -> Tensor:
    """Return images that are turned, moved by shares of their side, and enlarged; borders repeat."""
    angle = degrees.deg2rad()
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    # Rows of the map from places in the result to places in the image, in units of half a side.
    rows = torch.stack([cos, sin, -2 * right, -sin, cos, -2 * down], 1).view(-1, 2, 3)
    count, groups = pixels.shape[:2]
    flat = pixels.flatten(0, 1)
    grid = F.affine_grid(rows.repeat(count, 1, 1), list(flat.shape), align_corners=False)
    return F.grid_sample(flat, grid, padding_mode="border", align_corners=False).unflatten(0, (count, groups))


def _blurred(pixels: Tensor, sigma: Tensor) -> Tensor:
    """Return images after a Gaussian blur over five pixels."""
    steps = torch.arange(-2, 3, device=pixels.device)
    kernel = (-(steps**2) / (2 * sigma[:, None] ** 2)).exp()
    kernel = (kernel / kernel.sum(1, keepdim=True))[:, :, None, None, None]
    height, width = pixels.shape[-2:]
    padded = F.pad(pixels.flatten(0, 1), (2, 2, 2, 2), mode="reflect").unflatten(0, pixels.shape[:2])
    lines = sum(kernel[:, step] * padded[..., step : step + height, :] for step in range(5))
    return sum(kernel[:, step] * lines[..., step : step + width] for step in range(5))
