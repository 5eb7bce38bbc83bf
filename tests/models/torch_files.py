"""Networks of torch as a user writes them, with the dynamic dimensions of their inputs.  Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim

__all__ = ["TORCH_FILES", "TorchFile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFile:
    """A network, inputs to trace it with, its dynamic dimensions, and sizes to run it at, in the order of the
    dimensions.  `draw` gives inputs of these sizes.
    """

    net: nn.Module
    dims: tuple[dict[int, Any] | None, ...]
    sizes: tuple[tuple[int, ...], ...]
    draw: Callable[..., tuple[torch.Tensor, ...]]


TORCH_FILES: dict[str, Callable[[], TorchFile]] = {}
BATCH, SEQ = Dim("batch", min=1, max=64), Dim("seq", min=2, max=128)
HEIGHT, WIDTH = Dim("height", min=8, max=256), Dim("width", min=8, max=256)


def _file(build: Callable[[], TorchFile]) -> Callable[[], TorchFile]:
    TORCH_FILES[build.__name__] = build
    return build


@_file
def mlp() -> TorchFile:
    net = nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 10), nn.Softmax(-1)
    )
    return TorchFile(
        net=net, dims=({0: BATCH},), sizes=((3,), (17,)), draw=lambda batch: (torch.randn(batch, 16),)
    )


class _Encoder(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 32), nn.Embedding(128, 32)
        self.layers = nn.ModuleList([_layer() for _ in range(layers)])
        self.head = nn.Linear(32, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def _layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)


@_file
def transformer() -> TorchFile:
    return TorchFile(
        net=_Encoder(),
        dims=({0: BATCH, 1: SEQ},),
        sizes=((2, 7), (5, 33)),
        draw=lambda batch, seq: (torch.randint(0, 50, (batch, seq)),),
    )


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 16, 3, padding=1)
        self.down = nn.Conv2d(3, 16, 1)
        self.head = nn.Linear(16, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(self.first(image)) + self.down(image))
        return self.head(x.mean((2, 3)))


@_file
def convolutions() -> TorchFile:
    return TorchFile(
        net=_Convolutions(),
        dims=({2: HEIGHT, 3: WIDTH},),
        sizes=((8, 9), (31, 16)),
        draw=lambda height, width: (torch.randn(2, 3, height, width),),
    )


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        out, (last, _) = self.cells(steps)
        return self.head(out) + last.sum(0).unsqueeze(1)[..., :3]


@_file
def lstm() -> TorchFile:
    return TorchFile(
        net=_Recurrent(),
        dims=({0: BATCH},),
        sizes=((1,), (6,)),
        draw=lambda batch: (torch.randn(batch, 3, 8),),
    )


class _Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 6)
        self.small, self.large = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, indices = torch.topk(self.gate(x), 2)
        y = torch.cond(x.sum() > 0, lambda x: self.small(x) * 2, lambda x: torch.relu(self.large(x)), (x,))
        return y, torch.softmax(values, -1), indices


@_file
def routed() -> TorchFile:
    return TorchFile(
        net=_Routed(), dims=({0: BATCH},), sizes=((3,), (4,)), draw=lambda batch: (torch.randn(batch, 8),)
    )


class _Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        present = (ids != 0).unsqueeze(-1).to(torch.float32)
        pooled = (self.words(ids) * present).sum(1) / present.sum(1).clamp(min=1)
        return torch.log_softmax(self.head(pooled), -1)


@_file
def classifier() -> TorchFile:
    return TorchFile(
        net=_Classifier(),
        dims=({0: BATCH, 1: SEQ},),
        sizes=((2, 9), (11, 2)),
        draw=lambda batch, seq: (torch.randint(0, 100, (batch, seq)),),
    )
