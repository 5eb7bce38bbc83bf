"""Resident memory and time of a stock Relax program on the pool, beside TVM's own allocators.

A chain of element-wise kernels is called 150 times at 140 different lengths, in a process of its own for
each allocator and round; then all lengths once more, warm.  Figures are medians over the rounds.
Needs the native core: installed, or built in build/native-tests by the tests.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import click

LIBRARY = Path(__file__).parent.parent / "build" / "native-tests" / "libsymalloc_pool.so"
ALLOCATORS = ("symalloc", "tvm-pooled", "tvm-naive")
CALLS, LENGTHS, WIDTH, DEPTH = 150, 140, 256, 6


def _resident() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def _child(allocator: str) -> dict[str, float]:
    import numpy as np
    import tvm
    from tvm import relax

    from symalloc.pool.native import NativePool, installed_library, load_library
    from symalloc.relax.memory_cfg import memory_cfg

    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, WIDTH), "float32"))
    with builder.function("main", [x]):
        value = x
        for _ in range(DEPTH):
            side = builder.emit(relax.op.exp(value))
            value = builder.emit(relax.op.multiply(side, value))
        builder.emit_func_output(value)
    program = relax.build(builder.get(), target="llvm")
    cfg = {"tvm-pooled": "pooled", "tvm-naive": "naive"}.get(allocator)
    if cfg is None:
        load_library(installed_library() or LIBRARY)
        cfg = memory_cfg(NativePool())
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=cfg)
    source = random.Random(3)
    lengths = source.sample(range(64, 4096), LENGTHS)
    lengths += [source.choice(lengths) for _ in range(CALLS - LENGTHS)]
    inputs = [tvm.runtime.tensor(np.zeros((n, WIDTH), "float32")) for n in lengths]
    before, begin = _resident(), perf_counter()
    for each in inputs:
        machine["main"](each)
    first, grown, begin = perf_counter() - begin, _resident() - before, perf_counter()
    for each in inputs:
        machine["main"](each)
    return {"first": first, "warm": perf_counter() - begin, "grown": grown}


def _run(allocator: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", allocator], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--child", type=click.Choice(ALLOCATORS), hidden=True)
def main(rounds: int, child: str | None) -> None:
    if child is not None:
        click.echo(json.dumps(_child(child)))
        return
    found: dict[str, list[dict[str, float]]] = {a: [] for a in ALLOCATORS}
    for _ in range(rounds):
        for allocator in ALLOCATORS:
            found[allocator].append(_run(allocator))
    ours = {k: median(f[k] for f in found["symalloc"]) for k in ("first", "warm", "grown")}
    click.echo(f"{'':14}{'grown MiB':>12}{'first s':>10}{'warm s':>10}   ours / it: grown, first, warm")
    for allocator, figures in found.items():
        m = {k: median(f[k] for f in figures) for k in ours}
        ratios = "  ".join(f"{ours[k] / m[k]:.3f}" for k in ("grown", "first", "warm"))
        click.echo(
            f"{allocator:14}{m['grown'] / 2**20:>12.1f}{m['first']:>10.3f}{m['warm']:>10.3f}   {ratios}"
        )


if __name__ == "__main__":
    main()
