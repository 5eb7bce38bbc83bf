"""Llama-style decoders: prefill, decoding on concatenated and paged caches, grouped queries, experts."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, TIRPagedKVCache
from tvm.target import Target

from tests.models.zoo.registry import model, networks
from tests.modules import exported


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a decoder; `kv_heads` below `heads` means grouped queries."""

    layers: int = 2
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 4
    inner: int = 64
    vocabulary: int = 64

    @property
    def head(self) -> int:
        """Elements of one head."""
        return self.hidden // self.heads


def _heads(x: nn.Tensor, count: int) -> nn.Tensor:
    """(b, n, h*d) to (b, h, n, d)."""
    b, n, width = x.shape
    return op.permute_dims(op.reshape(x, (b, n, count, width // count)), (0, 2, 1, 3))


def _rotate(x: nn.Tensor, cos: nn.Tensor, sin: nn.Tensor) -> nn.Tensor:
    left, right = op.split(x, 2, axis=-1)
    return x * cos + op.concat([op.negative(right), left], dim=-1) * sin


class Attention(nn.Module):
    """Attention over the given keys and values, rotary where tables are given."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.q = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k = nn.Linear(shape.hidden, shape.head * shape.kv_heads, bias=False)
        self.v = nn.Linear(shape.hidden, shape.head * shape.kv_heads, bias=False)
        self.o = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def project(self, x: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor, nn.Tensor]:
        """Queries, keys and values, by head."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        return _heads(self.q(x), heads), _heads(self.k(x), kv_heads), _heads(self.v(x), kv_heads)

    def attend(self, q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
        """Softmax attention; keys and values repeated for grouped queries."""
        group = self.shape.heads // self.shape.kv_heads
        if group > 1:
            k, v = op.repeat(k, group, axis=1), op.repeat(v, group, axis=1)
        b, _, n, _ = q.shape
        scores = op.softmax(op.matmul(q, op.permute_dims(k, (0, 1, 3, 2))) * (self.shape.head**-0.5), -1)
        return self.o(
            op.reshape(op.permute_dims(op.matmul(scores, v), (0, 2, 1, 3)), (b, n, self.shape.hidden))
        )

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.attend(*self.project(x))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        self.gate = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down(op.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """One decoder layer, pre-norm."""

    def __init__(self, shape: Shape) -> None:
        self.attention = Attention(shape)
        self.feed_forward = FeedForward(shape)
        self.before = nn.RMSNorm(shape.hidden, -1, bias=False)
        self.after = nn.RMSNorm(shape.hidden, -1, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.feed_forward(self.after(x))


class Decoder(nn.Module):
    """Embedding, layers, norm, head: logits of every position."""

    def __init__(self, shape: Shape) -> None:
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.hidden, -1, bias=False)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def decoder(shape: Shape) -> tvm.IRModule:
    """The module of a decoder over tokens (b, n)."""
    return exported(Decoder(shape), tokens=nn.spec.Tensor(["b", "n"], "int32"))


class _Cached(nn.Module):
    """One attention that takes p cached positions, adds n and hands back t = p + n."""

    def __init__(self, shape: Shape) -> None:
        self.attention = Attention(shape)

    def forward(
        self, x: nn.Tensor, keys: nn.Tensor, values: nn.Tensor
    ) -> tuple[nn.Tensor, nn.Tensor, nn.Tensor]:
        q, k, v = self.attention.project(x)
        k, v = op.concat([keys, k], dim=2), op.concat([values, v], dim=2)
        return self.attention.attend(q, k, v), k, v


class _Masked(nn.Module):
    """Attention whose total length t is a symbol of its own; t == p + n holds at run time only."""

    def __init__(self, shape: Shape) -> None:
        self.attention = Attention(shape)

    def forward(self, x: nn.Tensor, keys: nn.Tensor, values: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        q, k, v = self.attention.project(x)
        b, heads, _, d = q.shape
        total = mask.shape[-1]
        k = op.reshape(op.concat([keys, k], dim=2), (b, heads, total, d))
        v = op.reshape(op.concat([values, v], dim=2), (b, heads, total, d))
        scores = op.softmax(op.matmul(q, op.permute_dims(k, (0, 1, 3, 2))) + mask, -1)
        return op.matmul(scores, v)


class _Rotary(nn.Module):
    def __init__(self, shape: Shape) -> None:
        self.attention = Attention(shape)

    def forward(self, x: nn.Tensor, cos: nn.Tensor, sin: nn.Tensor) -> nn.Tensor:
        q, k, v = self.attention.project(x)
        return self.attention.attend(_rotate(q, cos, sin), _rotate(k, cos, sin), v)


class _Experts(nn.Module):
    """Every expert, weighted by the router: the dense form of a mixture."""

    def __init__(self, shape: Shape, experts: int) -> None:
        self.router = nn.Linear(shape.hidden, experts, bias=False)
        self.experts = nn.ModuleList([FeedForward(shape) for _ in range(experts)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        gates = op.split(op.softmax(self.router(x), -1), len(self.experts), axis=-1)
        total = self.experts[0](x) * gates[0]
        for expert, gate in zip(self.experts[1:], gates[1:], strict=True):
            total = total + expert(x) * gate
        return total


class _Paged(nn.Module):
    """Decoding on a paged cache that the runtime keeps: an opaque object in the module."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden, bias=False)
        self.o = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def decode(self, x: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        b, n, _ = x.shape
        heads, head = self.shape.heads, self.shape.head
        qkv = op.reshape(self.qkv(x), (b, n, 3 * heads, head))
        out = cache.attention_with_fused_qkv(0, qkv, heads, head**-0.5)
        return self.o(op.reshape(out, (b, n, heads * head))), cache

    def create_cache(
        self,
        max_batch_size: tirx.Var,
        max_total_seq_len: tirx.Var,
        prefill_chunk_size: tirx.Var,
        page_size: tirx.Var,
        support_sliding_window: tirx.Var,
    ) -> PagedKVCache:
        return TIRPagedKVCache(
            attn_kind="mha",
            max_batch_size=max_batch_size,
            max_total_seq_len=max_total_seq_len,
            prefill_chunk_size=prefill_chunk_size,
            page_size=page_size,
            support_sliding_window=support_sliding_window,
            layer_partition=tvm.relax.ShapeExpr([0, 1]),
            num_hidden_layers=1,
            num_attention_heads=self.shape.heads,
            num_key_value_heads=self.shape.heads,
            qk_head_dim=self.shape.head,
            v_head_dim=self.shape.head,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=1,
            rope_scale=1,
            rope_theta=10000,
            rope_scaling={},
            rope_ext_factors=tvm.relax.prim_value(0),
            rotary_dim=self.shape.head,
            enable_disaggregation=False,
            dtype="float32",
            target=Target("llvm"),
        )


_CACHE = ["b", 4, "p", 8]
networks(
    llama_prefill=lambda: decoder(Shape()),
    llama_grouped_queries=lambda: decoder(Shape(layers=1, kv_heads=2)),
    llama_static=lambda: exported(Decoder(Shape(layers=1)), tokens=nn.spec.Tensor([1, 16], "int32")),
    # new keys and values behind the p cached ones; the longer caches are outputs
    llama_decode_concat=lambda: exported(_Cached(Shape()), x=["b", "n", 32], keys=_CACHE, values=_CACHE),
    llama_rotary=lambda: exported(_Rotary(Shape()), x=["b", "n", 32], cos=["n", 8], sin=["n", 8]),
    mixture_of_experts=lambda: exported(_Experts(Shape(), 3), x=["b", "n", 32]),
)


@model(sizes={"p": 3, "n": 2, "t": 5})
def llama_decode_masked() -> tvm.IRModule:
    """As with `llama_decode_concat`, but the total length t is a third symbol, brought in by the mask."""
    mask = ["b", 1, "n", "t"]
    return exported(_Masked(Shape()), x=["b", "n", 32], keys=_CACHE, values=_CACHE, mask=mask)


@model(runs=False)
def llama_paged_cache() -> tvm.IRModule:
    """Attention through the runtime's paged cache."""
    spec = {
        "decode": {
            "x": nn.spec.Tensor(["b", 1, 32], "float32"),
            "cache": nn.spec.Object(object_type=PagedKVCache),
        },
        "create_cache": dict.fromkeys(
            (
                "max_batch_size",
                "max_total_seq_len",
                "prefill_chunk_size",
                "page_size",
                "support_sliding_window",
            ),
            int,
        ),
    }
    mod, _ = _Paged(Shape()).export_tvm(spec)
    return mod
