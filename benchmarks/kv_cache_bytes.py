"""The state that create functions make: what `symalloc budget` says against the bytes that TVM takes.

`python -m benchmarks.kv_cache_bytes` builds functions that create KV caches (multi-head and latent attention,
windows, linear layers, FlashInfer's workspace) and recurrent states, calls each at random sizes on the CPU in
a process in which a counter stands below TVM, and compares with the formulas.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import tvm
from tvm import relax, tirx

from symalloc.program.created_state import created_state
from symalloc.program.ir import CallPacked, Program
from symalloc.program.operands import instructions_of
from symalloc.relax.extract import extract
from symalloc.size.expr import ZERO

_COUNTER = Path(__file__).with_suffix(".cc")
SLOT = 8  # bytes of the machine's shape heap, for each symbol
SIZES = ("seqs", "tokens", "chunk", "page", "window")
MHA, MLA, LINEAR, SLIDING = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A paged KV cache: the kind of attention of each layer, heads, and how wide they are."""

    kinds: Sequence[int]
    query: int = 8
    keys: int = 2
    width: int = 64
    value_width: int = 64
    dtype: str = "float16"
    flash_infer: bool = False
    window: bool = True


CACHES: Mapping[str, Cache] = {
    "MHA": Cache(kinds=[MHA] * 4),
    "MHA, grouped, float32": Cache(
        kinds=[MHA] * 3, query=12, keys=3, width=80, value_width=80, dtype="float32"
    ),
    "MHA, FlashInfer": Cache(kinds=[MHA] * 2, flash_infer=True),
    "MLA": Cache(kinds=[MLA] * 5, query=16, keys=1, width=576, value_width=512, window=False),
    "MLA, FlashInfer": Cache(
        kinds=[MLA] * 2, query=16, keys=1, width=576, value_width=512, flash_infer=True, window=False
    ),
    "windows by layer": Cache(kinds=[MHA, SLIDING, SLIDING, MHA]),
    "windows alone": Cache(kinds=[SLIDING] * 3),
    "linear layers": Cache(kinds=[MHA, LINEAR, LINEAR], width=32, value_width=96, dtype="bfloat16"),
}


def creating(cache: Cache) -> tvm.IRModule:
    """A module that creates `cache` as mlc-llm's do."""
    builder = relax.BlockBuilder()
    nothing = builder.add_func(tirx.PrimFunc([], tirx.Evaluate(0)), "nothing")
    sizes = [tirx.Var(name, "int64") for name in SIZES]
    params = [relax.Var(f"{size.name}_", relax.ShapeType([size])) for size in sizes]
    backend = [tvm.ir.StringImm("flashinfer" if cache.flash_infer else "tirx"), nothing]
    attention = relax.Tuple([*backend, nothing] if cache.flash_infer else backend)
    tree = relax.Tuple([tvm.ir.StringImm("tirx"), nothing])
    arguments: list[Any] = [
        relax.ShapeExpr([*sizes, 1024]),
        relax.ShapeExpr([0, len(cache.kinds)]),
        *map(relax.prim_value, (cache.query, cache.keys, cache.width, cache.value_width)),
        relax.ShapeExpr(cache.kinds),
        relax.prim_value(False),
        *(relax.prim_value(1), relax.prim_value(1.0), relax.prim_value(10000.0), relax.prim_value(0)),
        relax.const(0.0, cache.dtype),
        *(nothing, nothing),
        *([attention] * 5),
        *(tree, tree, relax.Tuple([]), relax.Tuple([nothing])),
        *([nothing] * 4),
    ]
    with builder.function("create", params, attrs={"relax.force_pure": True}):
        call = relax.op.call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create", *arguments, ty_args=[relax.AnyType()]
        )
        builder.emit_func_output(builder.emit(call))
    return builder.finalize()


def recurrent() -> tvm.IRModule:
    """A module that creates a recurrent state as mlc-llm's RWKV does."""
    builder = relax.BlockBuilder()
    nothing = builder.add_func(tirx.PrimFunc([], tirx.Evaluate(0)), "nothing")
    sizes = [tirx.Var(name, "int64") for name in ("seqs", "history")]
    params = [relax.Var(f"{size.name}_", relax.ShapeType([size])) for size in sizes]
    with builder.function("create", params, attrs={"relax.force_pure": True}):
        states = [builder.emit(relax.op.zeros(shape, "float32")) for shape in ((64,), (4, 16, 16))]
        call = relax.op.call_pure_packed(
            "vm.builtin.rnn_state_create",
            relax.prim_value(6),
            *map(relax.prim_value, sizes),
            *([relax.Tuple([nothing, nothing])] * 2),
            relax.Tuple(states),
            ty_args=[relax.AnyType()],
        )
        builder.emit_func_output(builder.emit(call))
    return builder.finalize()


def said(program: Program, at: Mapping[str, int]) -> int:
    """The bytes that the formulas say for a call of `create`."""
    body = program.functions["create"].body
    call = next(one for one in instructions_of(body) if isinstance(one, CallPacked))
    state = created_state(call, "cpu")
    assert state is not None and state.problem is None, state
    return sum((part.nbytes for part in state.parts), start=ZERO).evaluate(at)


def compared(module: tvm.IRModule, bindings: Sequence[Mapping[str, int]]) -> Iterator[tuple[int, int]]:
    """What is said and what is taken at each binding."""
    counter = ctypes.CDLL(None).symalloc_taken
    counter.restype = ctypes.c_uint64
    program = extract(module, name="create")
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu(), memory_cfg="naive")
    machine["create"](*[tvm.runtime.ShapeTuple([size]) for size in bindings[0].values()])
    for at in bindings:
        given = [tvm.runtime.ShapeTuple([size]) for size in at.values()]
        counter()
        state = machine["create"](*given)
        taken = counter() - SLOT * len(at)
        del state
        yield said(program, at), taken


def random_sizes(cache: Cache, source: random.Random) -> dict[str, int]:
    """Sizes at which a cache is created."""
    return {
        "seqs": source.choice((1, 3, 4, 16, 33)),
        "tokens": source.randint(1, 20_000),
        "chunk": source.choice((1, 127, 512, 2048, 4097)),
        "page": source.choice((1, 16, 48)),
        "window": source.randint(0, 1) if cache.window else 0,
    }


@click.command()
@click.option("--each", default=8, show_default=True, help="Configurations of each kind of state.")
@click.option("--seed", default=0, show_default=True, help="Of the sizes.")
def main(each: int, seed: int) -> None:
    """Exit with 1 where a figure is wrong."""
    if not hasattr(ctypes.CDLL(None), "symalloc_taken"):
        sys.exit(run_counted("benchmarks.kv_cache_bytes", sys.argv[1:]))
    source, wrong, total = random.Random(seed), 0, 0
    cases = [
        (name, creating(cache), [random_sizes(cache, source) for _ in range(each)])
        for name, cache in CACHES.items()
    ]
    histories = [{"seqs": source.randint(1, 40), "history": source.randint(1, 8)} for _ in range(each)]
    for name, module, bindings in [*cases, ("recurrent state", recurrent(), histories)]:
        rows = list(compared(module, bindings))
        exact = sum(said == taken for said, taken in rows)
        wrong, total = wrong + len(rows) - exact, total + len(rows)
        click.echo(f"{name:24} {exact} of {len(rows)} exact, {rows[0][1]} bytes at {dict(bindings[0])}")
        for at, (said, taken) in zip(bindings, rows, strict=True):
            if said != taken:
                click.echo(f"  {at}: said {said}, taken {taken}, {taken - said} apart")
    click.echo(f"{total - wrong} of {total} configurations exact")
    sys.exit(bool(wrong))


def run_counted(program: str, arguments: list[str]) -> int:
    """Run a program again where the counter stands below TVM."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kv_cache_bytes.so"
        flags = ["-O2", "-shared", "-fPIC", "-std=c++17"]
        subprocess.run(["c++", *flags, "-o", str(library), str(_COUNTER), "-ldl"], check=True)
        command = [sys.executable, "-m", program, *arguments]
        return subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, check=False).returncode


if __name__ == "__main__":
    main()
