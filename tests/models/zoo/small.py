"""Small networks: layers in a row, what comes behind the logits, recurrent cells, convolutions of sound."""

from __future__ import annotations

from itertools import pairwise

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import model, networks
from tests.modules import exported


class MLP(nn.Module):
    """Layers in a row, each with a ReLU behind it."""

    def __init__(self, widths: tuple[int, ...], bias: bool = True) -> None:
        self.layers = nn.ModuleList([nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = nn.op.relu(layer(x))
        return x


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return x + self.down(nn.op.gelu(self.up(self.norm(x))))


networks(
    mlp_dynamic_batch=lambda: exported(MLP((32, 64, 48, 10)), x=["b", 32]),
    mlp_static=lambda: exported(MLP((32, 64, 48, 10)), x=[8, 32]),
    mlp_residual=lambda: exported(_Residual(24), x=["b", "n", 24]),
)


@model()
def mlp_half_precision() -> tvm.IRModule:
    """Weights and activations in float16."""
    network = MLP((16, 16, 16))
    network.to("float16")
    return exported(network, x=nn.spec.Tensor(["b", 16], "float16"))


class _TopK(nn.Module):
    def forward(self, logits: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        values, indices = op.topk(logits, k=3, axis=-1)
        return op.softmax(values, -1), indices


class _Sort(nn.Module):
    def forward(self, logits: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        return op.sort(logits, axis=-1, descending=True), op.argsort(logits, axis=-1, descending=True)


class _Sample(nn.Module):
    """Top-p, top-k sampling from sorted probabilities."""

    def forward(
        self,
        probabilities: nn.Tensor,
        indices: nn.Tensor,
        top_p: nn.Tensor,
        top_k: nn.Tensor,
        uniform: nn.Tensor,
    ) -> nn.Tensor:
        return op.sample_top_p_top_k_from_sorted_prob(probabilities, indices, top_p, top_k, uniform)


class _Cumulative(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        limit, zero = op.full((1, 1), 0.9, "float32"), op.full((1, 1), 0.0, "float32")
        return op.where(op.greater(op.cumsum(op.softmax(x, -1), axis=1), limit), zero, x)


networks(
    top_k=lambda: exported(_TopK(), logits=["b", "v"]),
    sort_logits=lambda: exported(_Sort(), logits=["b", "v"]),
    sample_top_p=lambda: exported(
        _Sample(),
        probabilities=[4, "v"],
        indices=nn.spec.Tensor([4, "v"], "int64"),
        top_p=[4, 1],
        top_k=nn.spec.Tensor([4, 1], "int64"),
        uniform=[4, 1],
    ),
    cumulative_mask=lambda: exported(_Cumulative(), x=["b", "v"]),
)


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
