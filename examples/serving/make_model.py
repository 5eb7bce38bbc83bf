"""Writes model.so: a transformer's encoder over up to 512 rows, planned by symalloc, with its weights inside.

    python examples/serving/make_model.py [FILE]
"""

from __future__ import annotations

import sys

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import symalloc

WIDTH, HIDDEN, LAYERS, ROWS = 64, 256, 2, 512


class Block(nn.Module):
    """Attention with one head, then a perceptron; each is added to its input."""

    def __init__(self) -> None:
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """The rows (n, 64) behind the block."""
        rows = self.before(x)
        scores = nn.op.matmul(self.query(rows), nn.op.permute_dims(self.key(rows)))
        x = x + nn.op.matmul(nn.op.softmax(scores * WIDTH**-0.5), self.value(rows))
        return x + self.down(nn.op.gelu(self.up(self.between(x))))


class Encoder(nn.Module):
    """Blocks, one behind the other."""

    def __init__(self) -> None:
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])

    def main(self, x: nn.Tensor) -> nn.Tensor:
        """The rows (n, 64), encoded."""
        return self.blocks(x)


def encoder() -> tvm.IRModule:
    """The encoder as a Relax module, with random weights as constants."""
    module, parameters = Encoder().export_tvm({"main": {"x": nn.spec.Tensor(["n", WIDTH], "float32")}})
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(0, 0.1, [int(extent) for extent in parameter.shape]).astype("float32")
        for name, parameter in parameters
    }
    module = relax.transform.BindParams("main", weights)(module)
    module["main"] = module["main"].with_attr("tir_var_upper_bound", {"n": ROWS})
    return module


def write(file: str) -> None:
    """Build the encoder, planned for its bounds, which a guard enforces."""
    pipeline = symalloc.pipeline("llvm", pipeline="target", bounds="enforce")
    relax.build(encoder(), "llvm", relax_pipeline=pipeline).export_library(file)


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else "model.so")
