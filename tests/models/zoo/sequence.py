"""Recurrent cells, unrolled, and one-dimensional convolutions."""

from __future__ import annotations

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import model, networks
from tests.modules import exported


class _GRU(nn.Module):
    def __init__(self, width: int = 16, steps: int = 3) -> None:
        self.steps, self.width = steps, width
        self.gates = nn.Linear(2 * width, 2 * width)
        self.candidate = nn.Linear(2 * width, width)

    def forward(self, x: nn.Tensor, state: nn.Tensor) -> nn.Tensor:
        for step in op.split(x, self.steps, axis=1):
            now = op.squeeze(step, 1)
            z, r = op.split(op.sigmoid(self.gates(op.concat([now, state], dim=-1))), 2, axis=-1)
            fresh = op.tanh(self.candidate(op.concat([now, r * state], dim=-1)))
            state = state - z * state + z * fresh
        return state


class LSTM(nn.Module):
    """An LSTM cell, unrolled."""

    def __init__(self, width: int = 16, steps: int = 3) -> None:
        self.steps = steps
        self.gates = nn.Linear(2 * width, 4 * width)

    def forward(self, x: nn.Tensor, hidden: nn.Tensor, cell: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        for step in op.split(x, self.steps, axis=1):
            both = op.concat([op.squeeze(step, 1), hidden], dim=-1)
            i, f, o, g = op.split(self.gates(both), 4, axis=-1)
            cell = op.sigmoid(f) * cell + op.sigmoid(i) * op.tanh(g)
            hidden = op.sigmoid(o) * op.tanh(cell)
        return hidden, cell


class _Audio(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Conv1D(8, 16, 3, padding=1)
        self.second = nn.Conv1D(16, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = op.gelu(self.second(op.gelu(self.first(x))))
        return self.head(op.permute_dims(x, (0, 2, 1)))


networks(
    gru=lambda: exported(_GRU(), x=["b", 3, 16], state=["b", 16]),
    lstm=lambda: exported(LSTM(), x=["b", 3, 16], hidden=["b", 16], cell=["b", 16]),
)


@model(sizes={"n": 9})
def audio() -> tvm.IRModule:
    """Convolutions over n frames, the second with a stride: (n - 1) // 2 + 1 frames come out."""
    return exported(_Audio(), x=["b", 8, "n"])
