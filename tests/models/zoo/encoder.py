"""Transformer encoders and what they are made of."""

from __future__ import annotations

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import networks
from tests.modules import exported


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


def masked_bert(width: int = 32) -> tvm.IRModule:
    """Two encoder blocks with a mask, pooled."""
    ids = nn.spec.Tensor(["b", "n"], "int32")
    return exported(Bert(width), tokens=ids, positions=ids, mask=["b", 1, 1, "n"])


networks(
    bert=masked_bert,
    embedding_pool=lambda: exported(_Pooled(), tokens=nn.spec.Tensor(["b", "n"], "int32")),
    softmax=lambda: exported(_Softmax(), x=["b", "n"]),
    norms=lambda: exported(_Norms(), x=["b", "n", 32]),
    cross_attention=lambda: exported(Cross(), x=["b", "n", 16], memory=["b", "s", 16]),
)
