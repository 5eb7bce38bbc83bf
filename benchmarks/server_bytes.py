"""A small language model served on the CPU: the terms of `symalloc budget` against the bytes that TVM takes.

`python -m benchmarks.server_bytes` builds a decoder with a paged KV cache of TVM's own, planned by symalloc,
puts its weights on the device, creates the cache, reads prompts and decodes, on TVM's naive allocator, in a
process in which a counter stands below TVM.  The machine's shape heap (8 bytes a size) is not in the sum.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import click
import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

import symalloc
from benchmarks.kv_cache_bytes import SLOT, run_counted

LAYERS, WIDTH, QUERY, KEYS, HEAD, INNER, VOCABULARY = 3, 256, 4, 2, 64, 688, 1000
SIZES = {
    "max_batch_size": 4,
    "max_total_seq_len": 1024,
    "prefill_chunk_size": 128,
    "page_size": 16,
    "support_sliding_window": 0,
}
HEAP = 64 * SLOT  # more than any function has
SPARE = 1.001  # of what is held: workspace of kernels is an upper bound


class Layer(nn.Module):
    """Attention through the cache, and feed-forward."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.qkv = nn.Linear(WIDTH, (QUERY + 2 * KEYS) * HEAD, bias=False)
        self.out = nn.Linear(QUERY * HEAD, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        b, s, _ = x.shape
        qkv = op.reshape(self.qkv(x), (b, s, QUERY + 2 * KEYS, HEAD))
        seen = cache.attention_with_fused_qkv(self.index, qkv, QUERY, HEAD**-0.5)
        x = x + self.out(op.reshape(seen, (b, s, QUERY * HEAD)))
        return x + self.down(op.silu(self.up(x)))


class Decoder(nn.Module):
    """Embeddings to the logits of the last position, and the cache between."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([Layer(index) for index in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def decode(self, x: nn.Tensor, cache: PagedKVCache) -> Any:
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(x), cache

    def prefill(self, x: nn.Tensor, cache: PagedKVCache) -> Any:
        for layer in self.layers:
            x = layer(x, cache)

        def last(rows: te.Tensor) -> te.Tensor:
            b, s, d = rows.shape
            return te.compute((b, 1, d), lambda i, _, k: rows[i, s - 1, k])

        return self.head(op.tensor_expr_op(last, "last", args=[x])), cache

    def create(self, **sizes: tirx.Var) -> PagedKVCache:
        return TIRPagedKVCache(
            attn_kind="mha",
            **sizes,
            layer_partition=relax.ShapeExpr([0, LAYERS]),
            num_hidden_layers=LAYERS,
            num_attention_heads=QUERY,
            num_key_value_heads=KEYS,
            qk_head_dim=HEAD,
            v_head_dim=HEAD,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL,
            rope_scale=1,
            rope_theta=10000,
            rope_scaling={},
            rope_ext_factors=relax.prim_value(0),
            rotary_dim=HEAD,
            enable_disaggregation=False,
            dtype="float32",
            target=tvm.target.Target("llvm"),
        )

    def create_cache(
        self,
        max_batch_size: tirx.Var,
        max_total_seq_len: tirx.Var,
        prefill_chunk_size: tirx.Var,
        page_size: tirx.Var,
        support_sliding_window: tirx.Var,
    ) -> PagedKVCache:
        given = (max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window)
        return self.create(**dict(zip(SIZES, given, strict=True)))


def decoder() -> tuple[tvm.IRModule, list[tuple[int, ...]]]:
    """The module, and the shapes of its weights."""
    cache = nn.spec.Object(object_type=PagedKVCache)
    packed, bare = ({"param_mode": mode, "effect_mode": "none"} for mode in ("packed", "none"))
    spec = {
        "prefill": {"x": nn.spec.Tensor([1, "seq_len", WIDTH], "float32"), "cache": cache, "$": packed},
        "decode": {"x": nn.spec.Tensor(["batch_size", 1, WIDTH], "float32"), "cache": cache, "$": packed},
        "create_cache": {**dict.fromkeys(SIZES, int), "$": bare},
    }
    module, params = Decoder().export_tvm(spec)[:2]
    return module, [tuple(map(int, param.shape)) for _, param in params]


def served(module: tvm.IRModule, weights: list[tuple[int, ...]]) -> dict[str, int]:
    """The bytes that TVM holds: weights, the cache, and the most while it reads prompts and decodes."""
    counter = ctypes.CDLL(None)
    live, most = counter.symalloc_live, counter.symalloc_most
    live.restype = most.restype = ctypes.c_uint64
    built = relax.build(module, "llvm", relax_pipeline="symalloc")
    machine = relax.VirtualMachine(built, tvm.cpu(), memory_cfg="naive")
    named = ("add_sequence", "begin_forward", "end_forward", "popn")
    add, begin, end, drop = (tvm.get_global_func(f"vm.builtin.kv_state_{name}") for name in named)
    shape, random = tvm.runtime.ShapeTuple, np.random.default_rng(0)
    gc.collect()
    before = live()
    given = [tvm.runtime.tensor(random.random(each, "float32")) for each in weights]
    found = {"weights": live() - before}
    cache = machine["create_cache"](*(shape([size]) for size in SIZES.values()))
    found["state"] = live() - before - found["weights"]
    batch, chunk = SIZES["max_batch_size"], SIZES["prefill_chunk_size"]
    for sequence in range(batch):
        add(cache, sequence)
    most()
    for _ in range(3):
        for name, sequences, tokens in [("prefill", [s], chunk) for s in range(batch)] + [
            ("decode", [*range(batch)], 1)
        ]:
            begin(cache, shape(sequences), shape([tokens] * len(sequences)))
            x = tvm.runtime.tensor(random.random((len(sequences), tokens, WIDTH), "float32"))
            machine[name](x, cache, given)
            end(cache)
            del x
        for sequence in range(batch):
            drop(cache, sequence, chunk)
    return {**found, "sum": most() - before}


@click.command()
def main() -> None:
    """Exit with 1 where a figure is wrong."""
    if not hasattr(ctypes.CDLL(None), "symalloc_taken"):
        sys.exit(run_counted("benchmarks.server_bytes", sys.argv[1:]))
    module, weights = decoder()
    budget = symalloc.budget(
        module,
        device="1GiB",
        state={"create_cache": SIZES},
        bind={"seq_len": "prefill_chunk_size", "batch_size": "max_batch_size"},
    )
    click.echo(budget)
    assert budget.total is not None and not budget.unknown
    said = {
        what: sum(one.nbytes or 0 for one in budget.terms if one.what == what)
        for what in ("weights", "state")
    }
    said["sum"], held = budget.total, served(module, weights)
    right = all(said[what] == held[what] for what in ("weights", "state"))
    right = right and held["sum"] - HEAP <= said["sum"] <= SPARE * held["sum"]
    click.echo("".join(f"\n{what}: said {said[what]}, held {held[what]}" for what in said))
    sys.exit(not right)


if __name__ == "__main__":
    main()
