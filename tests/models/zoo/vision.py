"""Convolutional networks: static, dynamic in the batch, dynamic in the image."""

from __future__ import annotations

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import model, networks
from tests.modules import exported


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        self.first = nn.Conv2D(channels, channels, 3, padding=1)
        self.second = nn.Conv2D(channels, channels, 3, padding=1)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.relu(x + self.second(op.relu(self.first(x))))


class _ResNet(nn.Module):
    def __init__(self, channels: int = 8, blocks: int = 2) -> None:
        self.stem = nn.Conv2D(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([_Residual(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, 10)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = op.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(op.sum(x, axis=[2, 3]))


class _UNet(nn.Module):
    """Two levels down and up, joined by concatenation."""

    def __init__(self, channels: int = 8) -> None:
        self.enter = nn.Conv2D(3, channels, 3, padding=1)
        self.down = nn.Conv2D(channels, 2 * channels, 3, stride=2, padding=1)
        self.middle = nn.Conv2D(2 * channels, 2 * channels, 3, padding=1)
        self.leave = nn.Conv2D(3 * channels, 3, 3, padding=1)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        skip = op.relu(self.enter(x))
        deep = op.silu(self.middle(op.silu(self.down(skip))))
        raised = op.interpolate(deep, scale_factor=2.0, mode="nearest")
        return self.leave(op.concat([raised, skip], dim=1))


class Inception(nn.Module):
    """Four branches over one input, concatenated; `widths` are those of their convolutions, in order."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        one, narrow, three, thin, five, last = widths
        self.one = nn.Conv2D(channels, one, 1)
        self.three = nn.ModuleList([nn.Conv2D(channels, narrow, 1), nn.Conv2D(narrow, three, 3, padding=1)])
        self.five = nn.ModuleList([nn.Conv2D(channels, thin, 1), nn.Conv2D(thin, five, 5, padding=2)])
        self.last = nn.Conv2D(channels, last, 1)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        three, five = x, x
        for layer in self.three:
            three = op.relu(layer(three))
        for layer in self.five:
            five = op.relu(layer(five))
        return op.concat([self.one(x), three, five, self.last(x)], dim=1)


class Dense(nn.Module):
    """Each layer reads everything that came before it."""

    def __init__(self, channels: int, layers: int = 4, growth: int = 8) -> None:
        inputs = range(channels, channels + layers * growth, growth)
        self.layers = nn.ModuleList([nn.Conv2D(c, growth, 3, padding=1) for c in inputs])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        seen = [x]
        for layer in self.layers:
            seen.append(op.relu(layer(op.concat(seen, dim=1) if len(seen) > 1 else x)))
        return op.concat(seen, dim=1)


class _Separable(nn.Module):
    """Depthwise, then pointwise, with group normalisation."""

    def __init__(self, channels: int = 8) -> None:
        self.depthwise = nn.Conv2D(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.GroupNorm(4, channels)
        self.pointwise = nn.Conv2D(channels, 2 * channels, 1)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.relu6(self.pointwise(self.norm(self.depthwise(x))))


networks(
    resnet_dynamic_batch=lambda: exported(_ResNet(), x=["b", 3, 16, 16]),
    resnet_static=lambda: exported(_ResNet(), x=[1, 3, 16, 16]),
    unet=lambda: exported(_UNet(), x=["b", 3, 16, 16]),
    inception=lambda: exported(Inception(8, (4, 4, 6, 2, 4, 2)), x=["b", 8, 10, 10]),
    densenet=lambda: exported(Dense(4, growth=4), x=["b", 4, 8, 8]),
    separable=lambda: exported(_Separable(), x=["b", 8, 8, 8]),
)


@model(sizes={"h": 9, "w": 7})
def resnet_any_image() -> tvm.IRModule:
    """Images (h, w): strides bring floor divisions in."""
    return exported(_ResNet(blocks=1), x=[1, 3, "h", "w"])
