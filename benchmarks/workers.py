"""Kernels on several threads, and many requests at once: time, bits, peaks, and what is left behind.

`branchy` and `experts` are functions whose kernels may run side by side.  Each is called on the virtual
machine and on threads in turns, with the same plan:

    bits        outputs that are the same to the bit, of those of all calls
    time        of a call on threads over that on the machine, wall clock, median of turns
    peak        the most bytes of the pool that a call held, over those of arenas, results and tables of sizes

Then `--requests` calls go through `pool.admit` against a limit that fits two, on several threads, and one in
a hundred raises within a kernel.

Exit status 1 where a bit differs, a peak is higher, a request is lost, the limit is passed or memory is left.

    python -m benchmarks.workers [--workers 2] [--rounds 9] [--requests 10000]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import local
from time import perf_counter
from typing import Any

import click
import numpy as np
import tvm
from tvm import relax, tirx

import symalloc
from benchmarks.harness import in_turns, print_table, rounds_option
from symalloc.planner.memory_plan import PlanOptions
from symalloc.pool.instrumented_pool import claimed
from symalloc.relax.run.runner import Runner

COLUMNS = 192


def branchy(width: int = 4, depth: int = 3) -> tvm.IRModule:
    """Several chains of matmuls of one input, joined and mixed, twice."""
    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, COLUMNS), "float32"))
    weights = relax.Var("w", relax.TensorType((COLUMNS, COLUMNS), "float32"))
    with builder.function("main", [x, weights]):
        with builder.dataflow():
            found = x
            for _ in range(2):
                ends = []
                for _ in range(width):
                    one = found
                    for _ in range(depth):
                        one = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(one, weights))))
                    ends.append(one)
                found = builder.emit(relax.op.add(ends[0], ends[1]))
                for end in ends[2:]:
                    found = builder.emit(relax.op.add(found, end))
                found = builder.emit(relax.op.nn.softmax(found))
            result = builder.emit_output(found)
        builder.emit_func_output(result)
    return builder.finalize()


def experts(count: int = 6) -> tvm.IRModule:
    """A mixture of experts: each a matmul up and one down, weighed and summed up."""
    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, COLUMNS), "float32"))
    gate = relax.Var("gate", relax.TensorType((COLUMNS, 1), "float32"))
    up = [relax.Var(f"up{i}", relax.TensorType((COLUMNS, 2 * COLUMNS), "float32")) for i in range(count)]
    down = [relax.Var(f"down{i}", relax.TensorType((2 * COLUMNS, COLUMNS), "float32")) for i in range(count)]
    with builder.function("main", [x, gate, *up, *down]):
        with builder.dataflow():
            share = builder.emit(relax.op.sigmoid(builder.emit(relax.op.matmul(x, gate))))
            total = x
            for one, other in zip(up, down, strict=True):
                wide = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, one))))
                narrow = builder.emit(relax.op.matmul(wide, other))
                total = builder.emit(relax.op.add(total, builder.emit(relax.op.multiply(narrow, share))))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.finalize()


def measured(name: str, module: tvm.IRModule, workers: int, rounds: int) -> dict[str, Any]:
    """One model on the machine and on threads, in turns."""
    binding, options, pool = {"n": 128}, PlanOptions(), symalloc.Pool()
    ways = {"machine": 1, "threads": workers}
    runners = {
        way: Runner(module, options=options, workers=count, pool=pool if count > 1 else None)
        for way, count in ways.items()
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    same = peak = 0

    def once(way: str) -> float:
        nonlocal same, peak
        found = runners[way].run(binding, check=True, seed=len(seconds[way]))
        same += found.difference is None
        peak = max(peak, found.pool.peak_live if found.pool else 0)
        seconds[way].append(found.seconds[0])
        return found.seconds[0]

    for way in ways:
        once(way)
    in_turns(rounds, {way: lambda way=way: once(way) for way in ways})
    planned = runners["threads"].outcome
    assert planned is not None
    tables = 64 * (workers + 1)  # of sizes, one a machine
    held = planned.reserved.peak(binding) + 128 * COLUMNS * 4 + tables
    return {
        "model": name,
        "bits": f"{same}/{2 * (rounds + 1)}",
        "machine, ms": 1e3 * median(seconds["machine"][1:]),
        "threads, ms": 1e3 * median(seconds["threads"][1:]),
        "time": median(b / a for a, b in zip(seconds["machine"][1:], seconds["threads"][1:], strict=True)),
        "peak": peak / held,
        "ok": same == 2 * (rounds + 1) and peak <= held,
    }


def _kernel_that_fails(x: Any, y: Any) -> None:
    if np.from_dlpack(x)[0, 0] < 0:
        raise ValueError("planted")
    np.from_dlpack(y)[:] = np.from_dlpack(x)


def fails_at_times() -> tvm.IRModule:
    """A chain of kernels, one of which raises where the first element is negative."""
    tvm.register_global_func("benchmarks.workers.fails", _kernel_that_fails, override=True)
    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    kind = relax.TensorType((n, 16), "float32")
    x = relax.Var("x", kind)
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(relax.op.add(x, x))
            call = relax.op.call_dps_packed("benchmarks.workers.fails", (first,), kind)
            second = builder.emit(relax.op.add(builder.emit(call), first))
            result = builder.emit_output(relax.op.nn.softmax(second))
        builder.emit_func_output(result)
    return builder.finalize()


def served(requests: int, threads: int) -> tuple[str, bool]:
    """Requests of many lengths against a limit that fits two of the longest."""
    options = {"arena": "caller", "results": "caller"}
    passes = symalloc.pipeline("llvm", **options)  # type: ignore[arg-type]
    built = relax.build(fails_at_times(), "llvm", relax_pipeline=passes)
    own, longest = local(), 1024

    def sizes(machine: Any, n: int) -> tuple[int, int]:
        """Bytes of the arena and of the result.  A machine that is called lets go of its last result."""
        return int(machine["main_bytes"](tvm.runtime.ShapeTuple([n]))), 16 * n * 4

    pool = symalloc.Pool()
    pool.limit = 2 * claimed(sum(sizes(relax.VirtualMachine(built, tvm.cpu()), longest)), 2)
    ended: Counter[str] = Counter()

    def request(number: int) -> str:
        machine = getattr(own, "machine", None)
        if machine is None:
            machine = own.machine = relax.VirtualMachine(built, tvm.cpu())
        n = 1 + number * 37 % longest
        values = np.full((n, 16), 1 + number % 7, dtype="float32")
        if number % 100 == 13:
            values[0, 0] = -1
        arena_bytes, result_bytes = sizes(machine, n)
        with pool.admit(arena_bytes + result_bytes, f"request {number}", blocks=2):
            arena = tvm.runtime.from_dlpack(pool.empty((arena_bytes,), "uint8"))
            result = np.from_dlpack(pool.empty((n, 16), "float32"))
            try:
                machine["main"](tvm.runtime.tensor(values), tvm.runtime.from_dlpack(result), arena)
            except Exception as error:
                return "planted" if "planted" in str(error) else f"other: {error}"
            finally:
                sizes(machine, 1)
            return "right" if np.allclose(result.sum(axis=1), 1, atol=1e-5) else "wrong"

    started = perf_counter()
    with ThreadPoolExecutor(threads) as pool_of_threads:
        ended.update(pool_of_threads.map(request, range(requests)))
    left, peak = pool.statistics().live, pool.statistics().peak_reserved
    planted = len(range(13, requests, 100))
    ok = ended == {"right": requests - planted, "planted": planted} and not left and peak <= (pool.limit or 0)
    told = ", ".join(f"{count:,} {how}" for how, count in sorted(ended.items()))
    return (
        f"{requests:,} requests on {threads} threads in {perf_counter() - started:.1f} s: {told}; "
        f"at most {peak:,} of {pool.limit:,} bytes, {left} left"
    ), ok


@click.command()
@click.option("--workers", default=2, show_default=True, help="Threads that run kernels.")
@click.option("--requests", default=10_000, show_default=True, help="Requests against a limit.")
@rounds_option
def main(workers: int, requests: int, rounds: int) -> None:
    """Run models on threads, and many requests at once."""
    models: dict[str, Callable[[], tvm.IRModule]] = {"branchy": branchy, "experts": experts}
    rows = [measured(name, build(), workers, rounds) for name, build in models.items()]
    columns = {"model": "<12", "bits": ">8", "machine, ms": ">13.2f", "threads, ms": ">13.2f"}
    print_table({**columns, "time": ">8.3f", "peak": ">8.3f"}, rows)
    told, ok = served(requests, 8)
    print(told)
    sys.exit(not (ok and all(row["ok"] for row in rows)))


if __name__ == "__main__":
    main()
