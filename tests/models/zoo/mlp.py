"""Multi-layer perceptrons."""

from __future__ import annotations

from itertools import pairwise

import tvm
from tvm.relax.frontend import nn

from tests.models.zoo.registry import model, networks
from tests.modules import exported


class _MLP(nn.Module):
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
    mlp_dynamic_batch=lambda: exported(_MLP((32, 64, 48, 10)), x=["b", 32]),
    mlp_static=lambda: exported(_MLP((32, 64, 48, 10)), x=[8, 32]),
    mlp_residual=lambda: exported(_Residual(24), x=["b", "n", 24]),
)


@model()
def mlp_half_precision() -> tvm.IRModule:
    """Weights and activations in float16."""
    network = _MLP((16, 16, 16))
    network.to("float16")
    return exported(network, x=nn.spec.Tensor(["b", 16], "float16"))
