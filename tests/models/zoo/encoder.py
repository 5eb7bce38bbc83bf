"""Transformer encoders and what they are made of."""

from __future__ import annotations

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import model


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        b, n, width = x.shape
        q, k, v = (
            op.permute_dims(op.reshape(part, (b, n, self.heads, width // self.heads)), (0, 2, 1, 3))
            for part in op.split(self.qkv(x), 3, axis=-1)
        )
        scores = op.softmax(op.matmul(q, op.permute_dims(k, (0, 1, 3, 2))) + mask, -1)
        return self.out(op.reshape(op.permute_dims(op.matmul(scores, v), (0, 2, 1, 3)), (b, n, width)))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.attention = _Attention(width, heads)
        self.first = nn.LayerNorm(width)
        self.second = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        x = self.first(x + self.attention(x, mask))
        return self.second(x + self.down(op.gelu(self.up(x))))


class Bert(nn.Module):
    """Embeddings, encoder blocks, the sum over the positions."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        self.words = nn.Embedding(50, width)
        self.positions = nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([_Block(width, heads) for _ in range(layers)])

    def forward(self, tokens: nn.Tensor, positions: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        x = self.norm(self.words(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x, mask)
        return op.sum(x, axis=1)


class _Pooled(nn.Module):
    """Mean of the embeddings of a sentence, then a linear head."""

    def __init__(self) -> None:
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        return self.head(op.sum(self.embedding(tokens), axis=1) / 7.0)


class _Softmax(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.softmax(x, axis=-1)


class _Norms(nn.Module):
    def __init__(self) -> None:
        self.rms = nn.RMSNorm(32, -1, bias=False)
        self.layer = nn.LayerNorm(32)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.layer(self.rms(x))


class Cross(nn.Module):
    """Attention of n queries over s keys of another sequence."""

    def __init__(self, width: int = 16) -> None:
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)

    def forward(self, x: nn.Tensor, memory: nn.Tensor) -> nn.Tensor:
        k, v = op.split(self.kv(memory), 2, axis=-1)
        return op.matmul(op.softmax(op.matmul(self.q(x), op.permute_dims(k, (0, 2, 1))), -1), v)


@model()
def bert() -> tvm.IRModule:
    """Two encoder blocks with a mask, pooled."""
    ids = nn.spec.Tensor(["b", "n"], "int32")
    spec = {"tokens": ids, "positions": ids, "mask": nn.spec.Tensor(["b", 1, 1, "n"], "float32")}
    mod, _ = Bert().export_tvm({"forward": spec})
    return mod


@model()
def embedding_pool() -> tvm.IRModule:
    """Embedding and pooling."""
    mod, _ = _Pooled().export_tvm({"forward": {"tokens": nn.spec.Tensor(["b", "n"], "int32")}})
    return mod


@model()
def softmax() -> tvm.IRModule:
    """Softmax alone."""
    mod, _ = _Softmax().export_tvm({"forward": {"x": nn.spec.Tensor(["b", "n"], "float32")}})
    return mod


@model()
def norms() -> tvm.IRModule:
    """RMS and layer normalisation in a row."""
    mod, _ = _Norms().export_tvm({"forward": {"x": nn.spec.Tensor(["b", "n", 32], "float32")}})
    return mod


@model()
def cross_attention() -> tvm.IRModule:
    """Two sequences of lengths n and s."""
    spec = {
        "x": nn.spec.Tensor(["b", "n", 16], "float32"),
        "memory": nn.spec.Tensor(["b", "s", 16], "float32"),
    }
    mod, _ = Cross().export_tvm({"forward": spec})
    return mod
