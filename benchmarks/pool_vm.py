"""Resident memory and time of Relax programs on the pool, beside TVM's own allocators.

Two models, a chain of element-wise kernels and a small Llama-style decoder, are called 150 times at 140
different lengths, and all once more, warm; each program and allocator in a process of its own, in turns.
Then pairs of a storage and its kill at every power of two from 4 KiB to 64 MiB, in turns within one process,
whose own time counts.  Figures are medians; ratios are to what
TVM does by default: its planner and its pooled allocator.

    python -m benchmarks.pool_vm --rounds 5 [--model decoder] [--pairs]
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.harness import cpu_seconds, in_turns, medians, print_table, rounds_option, timed

ROOT = Path(__file__).parent.parent
CALLS, LENGTHS, WIDTH, DEPTH = 150, 140, 256, 6
MODELS = {"chain": (64, 4096), "decoder": (32, 384)}  # between these lengths
STOCK = ("tvm", "pooled")
CASES = (STOCK, ("tvm", "naive"), ("tvm", "pool"), ("symalloc", "pooled"), ("symalloc", "pool"))
PAIRS, PAIR_ROUNDS, PAIR_SIZES = 2000, 60, [1 << power for power in range(12, 27)]


def _chain() -> tuple[Any, str]:
    import tvm
    from tvm import relax

    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, WIDTH), "float32"))
    with builder.function("main", [x]):
        value = x
        for _ in range(DEPTH):
            side = builder.emit(relax.op.exp(value))
            value = builder.emit(relax.op.multiply(side, value))
        builder.emit_func_output(value)
    return builder.get(), "main"


def _decoder() -> tuple[Any, str]:
    """The example, smaller, and without a declared bound: with one, TVM plans for that length alone."""
    from examples import llama

    llama.LAYERS, llama.WIDTH, llama.HEADS, llama.INNER, llama.VOCABULARY = 2, 64, 4, 172, 256
    module = llama.module()
    module["forward"] = module["forward"].without_attr("tir_var_upper_bound")
    return module, "forward"


def _zeros(param: Any, length: int) -> Any:
    """An argument of zeros; every extent that is not known is `length`."""
    import numpy as np
    import tvm

    ty = param.ty
    shape = [int(e) if isinstance(e, tvm.tirx.IntImm) else length for e in ty.shape.values]
    return tvm.runtime.tensor(np.zeros(shape, str(ty.dtype.dtype)))


def _resident() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _child(model: str, plan: str, memory: str) -> dict[str, float]:
    import tvm
    from tvm import relax

    from symalloc.pool.instrumented_pool import InstrumentedPool
    from symalloc.relax.passes.pipeline import pipeline
    from symalloc.relax.run.machine import memory_cfg

    module, name = {"chain": _chain, "decoder": _decoder}[model]()
    chosen = {"relax_pipeline": pipeline("llvm")} if plan == "symalloc" else {}
    program = relax.build(module, target="llvm", **chosen)
    pool = InstrumentedPool() if memory == "pool" else None
    machine = relax.VirtualMachine(
        program, tvm.cpu(), memory_cfg=memory if pool is None else memory_cfg(pool)
    )
    source = random.Random(3)
    lengths = source.sample(range(*MODELS[model]), LENGTHS)
    lengths += [source.choice(lengths) for _ in range(CALLS - LENGTHS)]
    tokens, *rest = module[name].params
    weights = [_zeros(p, 1) for p in rest]
    inputs = [_zeros(tokens, n) for n in lengths]

    def once() -> None:
        for each in inputs:
            machine[name](each, *weights)

    before = _resident()
    first, _ = timed(once)
    grown = _resident() - before
    counted, faulted = None if pool is None else pool.statistics(), _faults()
    warm, _ = timed(once)
    faults = _faults() - faulted
    found = {"first": first, "warm": warm, "grown": grown, "faults": faults / CALLS}
    if pool is not None and counted is not None:
        now = pool.statistics()
        found |= {
            "allocations": (now.allocs - counted.allocs) / CALLS,
            "given": (now.decommits - counted.decommits) / CALLS,
            "ratio": now.peak_reserved / now.peak_used,
        }
    return found


def _run(*case: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.pool_vm", "--child", ",".join(case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _models(model: str, rounds: int) -> None:
    found = in_turns(rounds, {case: partial(_run, model, *case) for case in CASES})
    figures = {case: {k: median(f[k] for f in all_) for k in all_[0]} for case, all_ in found.items()}
    stock = figures[STOCK]
    click.echo(
        f"{model}: {CALLS} calls, {LENGTHS} lengths, medians of {rounds}; ratios to {' on '.join(STOCK)}"
    )
    forms = {"plan": "10", "memory": "8", "grown MiB": ">10.1f", "first s": ">9.3f", "warm s": ">9.3f"}
    forms |= {"grown /": ">9.3f", "first /": ">9.3f", "warm /": ">9.3f", "faults": ">8.1f"}
    forms |= {"allocs": ">8.2f", "given back": ">12.2f", "reserved/used": ">15.3f"}
    rows = []
    for case, m in figures.items():
        ratios = [m[k] / stock[k] for k in ("grown", "first", "warm")]
        pooled = [m[k] for k in ("allocations", "given", "ratio") if k in m]
        values = (*case, m["grown"] / 2**20, m["first"], m["warm"], *ratios, m["faults"], *pooled)
        rows.append(dict(zip(forms, values, strict=False)))
    print_table(forms, rows)
    click.echo("  faults, allocs, given back: of pages, of the pool, to the system; a warm call")


def _warmed(action: Any, *args: Any) -> Callable[[], float]:
    """A measure of `action` behind a run that does not count: what ran before may leave the caches cold."""
    measure = cpu_seconds(action, *args)

    def second() -> float:
        action(*args)
        return measure()

    return second


def _pairs() -> None:
    """A storage and its kill through the machine, less the call itself: it holds 2000 pairs."""
    import numpy as np
    import tvm
    from tvm import relax

    from symalloc.pool.instrumented_pool import InstrumentedPool
    from symalloc.relax.run.machine import memory_cfg

    click.echo(f"storage + kill through the machine, ns a pair, medians of {PAIR_ROUNDS}")
    for size in PAIR_SIZES:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((1,), "float32"))
        with builder.function("main", [x], attrs={"relax.force_pure": True}):
            for _ in range(PAIRS):
                storage = relax.op.memory.alloc_storage(relax.ShapeExpr([size]), 0, "global", "uint8")
                builder.emit(relax.op.memory.kill_storage(builder.emit(storage)))
            builder.emit_func_output(relax.Tuple([]))
        program = relax.build(builder.get(), target="llvm")
        choices = {"pool": memory_cfg(InstrumentedPool()), "pooled": "pooled", "naive": "naive"}
        machines = {k: relax.VirtualMachine(program, tvm.cpu(), memory_cfg=v) for k, v in choices.items()}
        given = tvm.runtime.tensor(np.zeros(1, "float32"))
        found = in_turns(PAIR_ROUNDS, {k: _warmed(m["main"], given) for k, m in machines.items()})
        m = medians(found)
        figures = "  ".join(f"{k} {v / PAIRS * 1e9:.0f}" for k, v in m.items())
        click.echo(f"  {size:>8} B: {figures}   pool / pooled: {m['pool'] / m['pooled']:.3f}")


@click.command()
@rounds_option
@click.option("--model", "models", multiple=True, type=click.Choice(tuple(MODELS)), help="Both without it.")
@click.option("--pairs", is_flag=True, help="Only the pairs.")
@click.option("--child", hidden=True)
def main(rounds: int, models: tuple[str, ...], pairs: bool, child: str | None) -> None:
    if child is not None:
        click.echo(json.dumps(_child(*child.split(","))))
        return
    for model in () if pairs else models or MODELS:
        _models(model, rounds)
    _pairs()


if __name__ == "__main__":
    main()
