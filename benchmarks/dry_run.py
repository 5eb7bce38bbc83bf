"""Language models in a dry run: `symalloc budget`, mlc-llm's own estimate, and the bytes that TVM takes.

FILES are modules of mlc-llm as they stand in front of its planner, as `tvm.ir.save_json` writes them, packed
by gzip or not; without any, the decoder of `benchmarks.server_bytes`.  In a dry run all is allocated and
nothing is computed, as llama.cpp does to find what fits: every kernel has its checks and an empty body,
weights are memory that nobody writes, and the module, planned by symalloc, runs on the CPU, where a counter
stands below TVM.  Each function is called behind each, at the largest sizes: `seq_len` is a chunk,
`batch_size` the largest batch.  Left out are the sampler, and functions with other symbols.

    said      the sum of `symalloc budget`, without workspace: kernels without a body take none
    held      the most that TVM took
    mlc-llm   its engine's estimate (cpp/serve/config.cc, 700), with TVM's plan; a cache of float16 is assumed

Exit status 1 where a sum is not what was held, but for the machine's shape heaps (8 bytes a size).

    python -m benchmarks.dry_run [FILE ...] [--batch 16] [--tokens 131072] [--chunk 2048] [--json]
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import click
import tvm
from tvm import relax, tirx

import symalloc
from benchmarks.harness import json_option, print_table
from benchmarks.kv_cache_bytes import run_counted
from benchmarks.server_bytes import decoder
from benchmarks.take_over import functions, reserved

CREATE = "vm.builtin.paged_attention_kv_cache_create"
ALLOCATES = "alloc_embedding_tensor"  # what it makes is an input: it would count twice
STATE = ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size", "support_sliding_window")
SLACK = 64 << 10  # for the machine's shape heaps
SAMPLER = ("argsort_probs", "multinomial", "renormalize", "sample", "softmax_with")
COLUMNS = {
    "model": "<46",
    "said": ">16,",
    "held": ">16,",
    "said / held": ">12.6f",
    "mlc-llm / held": ">15.3f",
}


def loaded(file: Path) -> tvm.IRModule:
    """A module of a file, without libraries that are linked to it, and without its sampler."""
    data = file.read_bytes()
    module = tvm.ir.load_json((gzip.decompress(data) if file.suffix == ".gz" else data).decode())
    kept = {
        v: f
        for v, f in module.functions_items()
        if not (isinstance(f, relax.Function) and v.name_hint.startswith(SAMPLER))
    }
    return tvm.IRModule(kept)


def hollow(module: tvm.IRModule) -> tvm.IRModule:
    """The module with kernels that check their arguments and do nothing."""
    found = {}
    for v, f in module.functions_items():
        if isinstance(f, tirx.PrimFunc):
            empty = tirx.PrimFunc(f.params, tirx.Evaluate(0), f.ret_type)
            f = empty.with_attr("global_symbol", v.name_hint) if f.attrs.get("global_symbol") else empty
        found[v] = f
    return tvm.IRModule(found)


def on_host(module: tvm.IRModule) -> tvm.IRModule:
    """The module with kernels that are bound to no device: what a cache keeps on the host counts, too."""
    found = dict(module.functions_items())
    for v, f in found.items():
        if isinstance(f, tirx.PrimFunc) and f.attrs and "target" in f.attrs:
            found[v] = f.without_attr("target")
    return tvm.IRModule(found)


def creating(module: tvm.IRModule) -> tuple[str, Mapping[str, int]] | None:
    """The function that creates the cache, and the numbers of its call: layers, heads and their widths."""
    for name, function in functions(module).items():
        for one in (binding for block in function.body.blocks for binding in block.bindings):
            call = one.value if isinstance(one.value, tvm.ir.Call) else None
            given = [] if call is None else [*[call.op] * isinstance(call.op, relax.ExternFunc), *call.args]
            if given and getattr(given[0], "global_symbol", "") == CREATE:
                layers, *numbers = given[2], *given[3:7]
                names = ("heads", "keys", "width", "values")
                found = {key: int(number.value) for key, number in zip(names, numbers, strict=True)}
                return name, {**found, "layers": int(layers.values[-1])}
    return None


# -- what mlc-llm estimates ----------------------------------------------------------------------------------


def estimate(module: tvm.IRModule, weights: int, sizes: Mapping[str, int], cache: Mapping[str, int]) -> float:
    """The bytes that mlc-llm's engine counts on; a cache of latent attention counts as its metadata says."""
    batch, chunk = sizes["max_batch_size"], sizes["prefill_chunk_size"]
    heads, keys, width = (cache[name] for name in ("heads", "keys", "width"))
    planned = relax.transform.StaticPlanBlockMemory()(module)
    temporary = 2 * max(reserved(planned).values())
    each = width * keys * cache["layers"] * 4 + 1.25
    auxiliary = (batch + 1) * 88 + chunk * (heads + 1) * 8 + chunk * width * (heads + keys) * 4 + (48 << 20)
    model = chunk * 4 + batch * 4 + (chunk * 2 + batch) * width * heads * 2
    logits = batch * 20 + batch * sizes["vocab_size"] * 16.125
    return weights + temporary + auxiliary + model + logits + each * sizes["max_total_seq_len"]


# -- the run -------------------------------------------------------------------------------------------------


class Run:
    """The module on TVM's machine; `sizes` are those of its symbols."""

    def __init__(self, planned: tvm.IRModule, sizes: Mapping[str, int]) -> None:
        counter = ctypes.CDLL(None)
        self.live, self.most = counter.symalloc_live, counter.symalloc_most
        self.live.restype = self.most.restype = ctypes.c_uint64
        self.functions, self.sizes, self.cache = functions(planned), sizes, None
        built = relax.build(hollow(planned), "llvm", relax_pipeline="symalloc")
        self.machine = relax.VirtualMachine(built, tvm.cpu(), memory_cfg="naive")
        gc.collect()
        self.before = self.live()
        self.weights: dict[int, Any] = {}

    def held(self, cache: str | None, skipped: frozenset[str]) -> int:
        """The most that is held while all functions are called, the cache created first."""
        last = (f.params[-1].ty for f in self.functions.values() if "num_input" in f.attrs)
        given = next((ty.fields for ty in last if isinstance(ty, relax.TupleType)), ())
        self.packed = [self.made(one) for one in given]
        self.most()
        if cache is not None:
            shapes = (int(self.sizes[str(p.ty.values[0])]) for p in self.functions[cache].params)
            self.cache = self.machine[cache](*(tvm.runtime.ShapeTuple([size]) for size in shapes))
        names = sorted(self.functions.keys() - skipped - {cache})
        for pair in product(names, repeat=2):  # the machine keeps the result of a call during the next
            for name in pair:
                self.call(name)
        return int(self.most()) - int(self.before)

    def made(self, of: Any) -> tvm.runtime.Tensor:
        """A tensor of a type, which nobody writes."""
        shape = [int(self.sizes.get(str(e), 0) or e) for e in of.shape.values]
        return tvm.runtime.empty(shape, of.dtype)

    def call(self, name: str) -> None:
        """Call a function at the largest sizes, with as many sequences in the cache as it reads."""
        function = self.functions[name]
        count = int(function.attrs.get("num_input", len(function.params)))
        inputs = [p.ty for p in function.params[:count]]
        takes = any(isinstance(one, relax.AnyType) for one in inputs)
        sequences = range(self.sizes["batch_size"] if name.startswith("batch") else 1)
        if takes:
            first = next(one for one in inputs if isinstance(one, relax.TensorType))
            tokens = int(self.sizes.get(str(first.shape.values[1]), 0) or 1)
            self.begin(sequences, max(tokens // len(sequences), 1))
        arguments = [self.cache if isinstance(one, relax.AnyType) else self.made(one) for one in inputs]
        self.machine[name](*arguments, *([self.packed] if count < len(function.params) else []))
        del arguments
        if takes:
            self.end(sequences)

    def begin(self, sequences: range, tokens: int) -> None:
        for sequence in sequences:
            _state("add_sequence")(self.cache, sequence)
        shape = tvm.runtime.ShapeTuple
        _state("begin_forward")(self.cache, shape(list(sequences)), shape([tokens] * len(sequences)))

    def end(self, sequences: range) -> None:
        _state("end_forward")(self.cache)
        for sequence in sequences:
            _state("remove_sequence")(self.cache, sequence)


def _state(name: str) -> Any:
    return tvm.get_global_func(f"vm.builtin.kv_state_{name}")


def _symbols(function: relax.Function) -> frozenset[str]:
    return frozenset(symbol.name for symbol in relax.analysis.defined_symbolic_vars(function))


def measured(name: str, module: tvm.IRModule, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The row of a module."""
    made = creating(module)
    cache = None if made is None else made[0]
    symbols = {name: _symbols(function) for name, function in functions(module).items()}
    skipped = frozenset(n for n, own in symbols.items() if n == ALLOCATES or not own <= sizes.keys())
    spoken = frozenset().union(*(own for name, own in symbols.items() if name not in skipped))
    budget = symalloc.budget(
        on_host(module),
        device="1TiB",
        state={} if cache is None else {cache: {k: v for k, v in sizes.items() if k in STATE}},
        bind={k: v for k, v in sizes.items() if k in spoken and k not in STATE},
        skip=tuple(skipped),
    )
    said = {term.what: 0 for term in budget.terms}
    for term in budget.terms:
        said[term.what] += term.nbytes or 0
    held = Run(symalloc.plan(module).module, sizes).held(cache, skipped)
    total = sum(said.values()) - said.get("workspace", 0)
    theirs = None if made is None else estimate(module, said["weights"], sizes, made[1])
    return {
        "model": name,
        "said": total,
        "held": held,
        "said / held": total / held,
        "mlc-llm / held": float("nan") if theirs is None else theirs / held,
        "terms": said,
        "unknown": list(budget.unknown),
    }


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--batch", default=16, show_default=True, help="The largest batch.")
@click.option("--tokens", default=131072, show_default=True, help="The tokens that a cache holds.")
@click.option("--chunk", default=2048, show_default=True, help="The tokens that are read at once.")
@json_option
def main(files: tuple[Path, ...], batch: int, tokens: int, chunk: int, as_json: bool) -> None:
    """Print the table; exit with 1 where a sum is wrong."""
    if not hasattr(ctypes.CDLL(None), "symalloc_live"):
        sys.exit(run_counted("benchmarks.dry_run", sys.argv[1:]))
    sizes = dict(zip(STATE, (batch, tokens, chunk, 16, 0), strict=True))
    sizes |= {"batch_size": batch, "seq_len": chunk, "vocab_size": 128256}

    def rows() -> Iterator[dict[str, Any]]:
        for file in files:
            yield measured(file.name.split(".pre.")[0], loaded(file), sizes)
        if not files:
            yield measured("benchmarks.server_bytes", decoder()[0], sizes)

    found = list(rows())
    print(json.dumps(found, indent=2)) if as_json else print_table(COLUMNS, found)
    sys.exit(not all(0 <= row["said"] - row["held"] + SLACK <= 2 * SLACK for row in found))


if __name__ == "__main__":
    main()
