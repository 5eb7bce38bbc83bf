"""The whole build: `relax.build` with our planner beside TVM's, for decoders with a paged cache, and the zoo.

A decoder is written as mlc-llm writes its models, with `tvm.relax.frontend.nn`: a prefill and a decode step
that hand each layer's queries, keys and values to a paged cache.  Each module is built with
StaticPlanBlockMemory and with PlanMemory in the same pipeline, in turns, in this process's own time; the
ratio of each turn is taken.  `passes` is the time of symalloc's passes, `plan` that of PlanMemory among them.
Models that TVM's planner leaves unbuilt are named and not compared.

    python -m benchmarks.build_time [--layers 16 --layers 32 --layers 64] [--rounds 5] [--zoo] [--json]
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import click
import tvm
from tvm import relax
from tvm.ir.instrument import pass_instrument
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from benchmarks.harness import json_option, print_table, rounds_option
from symalloc.program.reading import PipelineName
from symalloc.relax.passes.pipeline import pipeline
from symalloc.relax.passes.stages import tvm_pipeline
from tests.models.imported import IMPORTED, load_imported
from tests.models.zoo import MODELS

LIMIT = 1.10
TARGET = "llvm"
OURS = ("PlanMemory", "LowerGuards", "GatherSizes", "KillOnPaths", "PromiseNoAlias", "KeepConditions")
HEADS, KEY_HEADS, WIDTH = 4, 2, 16
HIDDEN, INNER, VOCABULARY = HEADS * WIDTH, 128, 256


# -- models --------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Self-attention over the paged cache."""

    def __init__(self) -> None:
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KEY_HEADS) * WIDTH, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        batch, length, _ = hidden.shape
        qkv = op.reshape(self.qkv(hidden), (batch, length, HEADS + 2 * KEY_HEADS, WIDTH))
        attended = cache.attention_with_fused_qkv(layer, qkv, HEADS, WIDTH**-0.5)
        return self.out(op.reshape(attended, (batch, length, HIDDEN)))


class Layer(nn.Module):
    """A decoder layer: attention and a gated multilayer perceptron, with normalisation in front of both."""

    def __init__(self) -> None:
        self.attention, self.before = Attention(), nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.behind = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, hidden: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        hidden = self.attention(self.before(hidden), cache, layer) + hidden
        gate, up = op.split(self.gate_up(self.behind(hidden)), 2, axis=-1)
        return self.down(op.silu(gate) * up) + hidden


class Decoder(nn.Module):
    """A causal language model with the functions that a serving engine calls."""

    def __init__(self, layers: int) -> None:
        self.table = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.norm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def hidden(self, embedded: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        for number, layer in enumerate(self.layers):
            embedded = layer(embedded, cache, number)
        return self.norm(embedded)

    def embed(self, tokens: nn.Tensor) -> nn.Tensor:
        return self.table(tokens)

    def prefill(self, embedded: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        def last(x: tvm.te.Tensor) -> tvm.te.Tensor:
            batch, length, width = x.shape
            return tvm.te.compute((batch, 1, width), lambda i, _, k: x[i, length - 1, k], name="last")

        hidden = op.tensor_expr_op(last, "last", [self.hidden(embedded, cache)])
        return op.astype(self.head(hidden), "float32"), cache

    def decode(self, embedded: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        return op.astype(self.head(self.hidden(embedded, cache)), "float32"), cache

    def batch_decode(self, embedded: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        return self.decode(embedded, cache)


def paged_decoder(layers: int) -> tvm.IRModule:
    """The decoder of `layers` layers; its weights are parameters."""
    cache = nn.spec.Object(object_type=PagedKVCache)

    def step(batch: int | str, length: int | str) -> dict[str, Any]:
        return {
            "embedded": nn.spec.Tensor([batch, length, HIDDEN], "float32"),
            "cache": cache,
            "$": {"param_mode": "packed", "effect_mode": "none"},
        }

    tokens = nn.spec.Tensor(["seq_len"], "int32")
    module, _ = Decoder(layers).export_tvm(
        {
            "embed": {"tokens": tokens, "$": {"param_mode": "packed", "effect_mode": "none"}},
            "prefill": step(1, "seq_len"),
            "decode": step(1, 1),
            "batch_decode": step("batch_size", 1),
        }
    )
    return module


def zoo_models() -> Mapping[str, Callable[[], tvm.IRModule]]:
    """The ordinary and the imported models of the tests, by name."""
    ordinary = {name: model.build for name, model in MODELS.items()}
    return {**ordinary, **{name: partial(load_imported, name) for name in IMPORTED}}


# -- measuring -----------------------------------------------------------------------------------------------


def build_seconds(module: tvm.IRModule, passes: Any, times: Counter[str] | None = None) -> float:
    """Seconds of `relax.build`; `times` takes up those of our passes by name."""
    started: list[float] = []

    @pass_instrument
    class Timing:
        def run_before_pass(self, _: tvm.IRModule, info: Any) -> None:
            started.append(process_time())

        def run_after_pass(self, _: tvm.IRModule, info: Any) -> None:
            times[str(info.name)] += process_time() - started.pop()  # type: ignore[index]

    begun = process_time()
    with tvm.transform.PassContext(opt_level=2, instruments=[] if times is None else [Timing()]):
        relax.build(module, TARGET, relax_pipeline=passes)
    return process_time() - begun


def measured(
    name: str, build: Callable[[], tvm.IRModule], base: PipelineName, rounds: int
) -> list[dict[str, Any]]:
    """The figures of one model: the medians of both builds, of their ratio, and of the passes' share."""
    module = build()
    ways = {
        "tvm": tvm_pipeline(tvm.target.Target(TARGET), base),
        "ours": pipeline(TARGET, pipeline=base),
    }
    try:
        build_seconds(module, ways["tvm"])
    except tvm.error.InternalError:
        print(f"{name}: TVM's planner cannot build it", file=sys.stderr)
        return []
    turns = [{way: build_seconds(module, passes) for way, passes in ways.items()} for _ in range(rounds + 1)]
    turns = turns[1:]  # the first fills caches
    times: Counter[str] = Counter()
    whole = build_seconds(module, ways["ours"], times)
    row = {
        "model": name,
        "pipeline": base,
        "tvm_s": median(turn["tvm"] for turn in turns),
        "ours_s": median(turn["ours"] for turn in turns),
        "ratio": median(turn["ours"] / turn["tvm"] for turn in turns),
        "passes": sum(times[one] for one in OURS) / whole,
        "plan": times["PlanMemory"] / whole,
        "seconds": {one: round(times[one], 4) for one in OURS},
    }
    return [row]


COLUMNS = {
    "model": "<28",
    "pipeline": "<9",
    "tvm_s": ">8.2f",
    "ours_s": ">8.2f",
    "ratio": ">8.3f",
    "passes": ">8.1%",
    "plan": ">8.1%",
}


def show(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the table, and the median of the ratios."""
    print_table(COLUMNS, results)
    print(f"median ratio {median(r['ratio'] for r in results):.3f}, wanted at most {LIMIT:.2f}")


@click.command()
@click.option("--layers", multiple=True, type=int, default=(16, 32, 64), show_default=True)
@rounds_option
@click.option("--zoo", is_flag=True, help="The models of the tests in place of decoders.")
@click.option("--pipeline", "base", type=click.Choice(("default", "target")), default="default")
@json_option
def main(layers: Sequence[int], rounds: int, zoo: bool, base: PipelineName, as_json: bool) -> None:
    """Exit with 1 where a decoder, or the median of the zoo, takes longer than the limit."""
    models = zoo_models() if zoo else {f"paged, {n} layers": partial(paged_decoder, n) for n in layers}
    results = [row for name, build in models.items() for row in measured(name, build, base, rounds)]
    print(json.dumps(results, indent=2)) if as_json else show(results)
    ratios = [r["ratio"] for r in results]
    sys.exit((median(ratios) if zoo else max(ratios)) > LIMIT)


if __name__ == "__main__":
    main()
