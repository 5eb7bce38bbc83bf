"""Plans on a GPU: each model unplanned, with our plan and with TVM's, built by the target's pipeline and run.

At every binding and path the results of the planned module, and what it was passed, are compared with those
of the unplanned one, bit for bit.  Freed memory is overwritten, and every storage is counted.  Each model has
a process of its own; one at a time uses the device.

    calls      calls that were compared, of each plan
    bits       calls of our plan with other bits than the unplanned module / of TVM's
    cpu        calls of the unplanned module whose results are not close to those for the CPU
    /unplanned bytes of our calls over the unplanned module's, results included; the worst call
    /TVM       the same over TVM's plan, with the bounds that are declared where they hold
    /floor     the same over the most that is needed at one moment
    time       seconds of a call over the unplanned module's at the last binding, on TVM's pooled allocator,
               median of turns: ours / TVM's
    graphs     with CUDA graphs, bounds declared at the largest extents and ours reserved: calls with other
               bits than the unplanned module, ours / TVM's; kernels captured, ours / TVM's; seconds of a
               replayed call, ours over TVM's

Exit status 1 where a result differs, or a model cannot be built or run that TVM builds and runs; 2 where
there is no such device.

    python -m benchmarks.plan_device [MODEL ...] [--target cuda] [--jobs 8] [--rounds 9] [--json]
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy as np
import tvm
from tvm import relax

import symalloc
from benchmarks.harness import in_turns, json_option, rounds_option
from benchmarks.plan_graphs import captured, declared
from benchmarks.zoo_models import GROUPS, case_named
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.files.load import has_device
from symalloc.relax.ir_types import error_text
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.measure import load
from tests.models.planned import Call, Variants, calls, difference, needed
from tests.models.planned.call import Found
from tests.models.planned.variants import Machine

GRAPHS = {"relax.backend.use_cuda_graph": True}
UNBUILDABLE = "TVM cannot build it for this target, planned or not: "
UNRUNNABLE = "TVM cannot run it on this target: "
TURN = 0.02  # seconds of calls that are timed together
CLOSE = {"rtol": 1e-2, "atol": 1e-3}  # kernels for a GPU add up in another order
LOCK = "SYMALLOC_DEVICE_LOCK"  # the file that whoever uses the device holds a lock on


def examine(model: str, target: str, rounds: int) -> dict[str, Any]:
    """What all parts found for one model; a part that fails says why."""
    load()
    case = replace(case_named(model), pipeline="target")
    variants = Variants(case, tvm.target.Target(target))
    row: dict[str, Any] = {"model": model}
    parts = {
        "calls": compared,
        "time": partial(timed, rounds=rounds),
        "graphs": partial(graphed, rounds=rounds),
    }
    for name, part in parts.items():
        try:
            row[name] = part(variants)
        except Exception as error:  # TVM raises whatever it raises
            row[name] = {"problem": _whose(variants) + error_text(error, most=1)}
    return row


def _whose(variants: Variants) -> str:
    """What to say in front of a problem that TVM has without us."""
    try:
        machine = variants.machine("tvm without bounds", "pooled")
    except Exception:  # TVM raises whatever it raises
        return UNBUILDABLE
    try:
        with alone():
            machine[variants.case.function](*calls(variants, variants.case.bindings[0])[0].arguments())
    except Exception:  # the same
        return UNRUNNABLE
    return ""


def compared(variants: Variants) -> list[dict[str, Any]]:
    """A record for each call: what differs, and the bytes."""
    case = variants.case
    machines = {kind: variants.machine(kind) for kind in ("unplanned", "ours")}
    on_cpu = Variants(case, "llvm")
    there = on_cpu.machine("unplanned")
    theirs, why_not = _theirs(variants)
    with alone():
        found = []
        for binding in case.bindings:
            paths = calls(variants, binding)
            for call, floor in zip(paths, needed(paths), strict=True):
                expected = call.on(machines["unplanned"])
                ours = call.on(machines["ours"])
                plan = theirs.get(_bounded(variants, binding), None)
                other = call.on(plan) if plan is not None else None
                here = replace(call, variants=on_cpu).on(there)
                found.append(
                    {
                        "binding": binding,
                        "path": call.path,
                        "difference": difference(ours, expected),
                        "TVM's difference": None if other is None else difference(other, expected),
                        "why not TVM": why_not,
                        "close": _close(expected, here),
                        "floor": floor.total,
                        "unplanned": expected.usage.total,
                        "ours": ours.usage.total,
                        "TVM": None if other is None else other.usage.total,
                    }
                )
    return found


def _theirs(variants: Variants) -> tuple[Mapping[bool, Machine], str | None]:
    """TVM's plans by whether they rely on declared bounds, and why there are none."""
    case = variants.case
    if case.theirs:
        return {}, case.theirs
    found = {False: variants.machine("tvm without bounds")}
    return ({**found, True: variants.machine("tvm")} if case.declared else found), None


def _bounded(variants: Variants, binding: Mapping[str, int]) -> bool:
    return bool(variants.case.declared) and not variants.case.beyond(binding)


def _close(found: Found, expected: Found) -> bool:
    if len(found.arrays) != len(expected.arrays):
        return False
    pairs = zip(found.arrays, expected.arrays, strict=True)
    return all(
        a.shape == b.shape and np.allclose(_plain(a), _plain(b), equal_nan=True, **CLOSE) for a, b in pairs
    )


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind not in "biu" else array


def timed(variants: Variants, rounds: int) -> dict[str, float]:
    """Seconds of a call at the last binding, medians of turns."""
    case = variants.case
    kinds = ("unplanned", "ours", *(() if case.theirs else ("tvm without bounds",)))
    call = calls(variants, case.bindings[-1])[0]
    machines = {kind: variants.machine(kind, "pooled") for kind in kinds}
    with alone():
        return _seconds(call, machines, rounds)


def _seconds(
    call: Call, machines: Mapping[str, Machine], rounds: int, weights: Sequence[Any] = ()
) -> dict[str, float]:
    arguments, device = call.arguments(), call.variants.device[0]
    arguments[len(arguments) - len(weights) :] = weights
    functions = {name: machine[call.variants.case.function] for name, machine in machines.items()}

    def turn(function: Any, count: int) -> float:
        started = perf_counter()
        for _ in range(count):
            function(*arguments)
        device.sync()
        return (perf_counter() - started) / count

    for function in functions.values():  # kernels are loaded, and graphs captured, at the first calls
        turn(function, 3)
    count = max(1, round(TURN / turn(functions[next(iter(functions))], 3)))
    taken = in_turns(rounds, {name: partial(turn, f, count) for name, f in functions.items()})
    return {name: median(times) for name, times in taken.items()}


def graphed(variants: Variants, rounds: int) -> dict[str, Any] | None:
    """The same with CUDA graphs, all symbols bounded by the largest extents that are called with; None where
    the target has none.
    """
    target, case = variants.target, variants.case
    if target.kind.name != "cuda":
        return None
    extents = {name: max(b[name] for b in case.bindings) for b in case.bindings for name in b}
    module = declared(variants.module, max(extents.values(), default=1))
    reserved = PlanOptions(bounds="reserve")
    kinds: dict[str, Any] = {"ours": symalloc.pipeline(target, bounds="reserve")}
    if not case.theirs:
        kinds["TVM"] = relax.get_default_pipeline(target)
    built = {}
    for name, pipeline in kinds.items():
        with tvm.transform.PassContext(config=GRAPHS):
            executable = relax.build(module, target, relax_pipeline=pipeline)
        built[name] = relax.VirtualMachine(executable, variants.device)
    lowered = lower(module, target, pipeline="target")
    plans = {"ours": plan_lowered(lowered, options=reserved, keeps_reshapes=True).module}
    if "TVM" in kinds:
        plans["TVM"] = relax.transform.StaticPlanBlockMemory()(lowered)
    every = [call for binding in case.bindings for call in calls(variants, binding)]
    with alone():
        weights = _weights(every[0])
        wrong = {
            n: sum(not _replays(call, machine, weights) for call in every) for n, machine in built.items()
        }
        seconds = _seconds(every[-1], built, rounds, weights)
    kernels = {name: captured(plan)[1] for name, plan in plans.items()}
    return {"calls": len(every), "wrong": wrong, "kernels": kernels, "seconds": seconds}


def _weights(call: Call) -> list[Any]:
    """The arguments that the module promises to be the same in each call: graphs keep their addresses."""
    promised = (call.variants.module[call.variants.case.function].attrs or {}).get("num_input")
    return [] if promised is None else call.arguments()[int(promised) :]


def _replays(call: Call, machine: Machine, weights: Sequence[Any]) -> bool:
    """Whether a first call, which captures, and two more have the bits of the unplanned module."""
    expected = call.on(call.variants.unplanned, weights)
    return all(difference(call.on(machine, weights), expected) is None for _ in range(3))


@contextmanager
def alone() -> Iterator[None]:
    """Keep the device for this process."""
    with Path(os.environ[LOCK]).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- the table -----------------------------------------------------------------------------------------------


def measured(model: str, target: str, rounds: int) -> dict[str, Any]:
    """`examine` in a process of its own, as TVM may crash."""
    code = "import json; from benchmarks.plan_device import examine; "
    code += f"print(json.dumps(examine({model!r}, {target!r}, {rounds})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        problem = {"problem": f"the process ended with {done.returncode}: {last[:200]}"}
        return {"model": model, "calls": problem, "time": problem, "graphs": problem}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(row: Mapping[str, Any]) -> str:
    """One row of the table, and a line for each problem."""
    text = f"{row['model']:28}" + _calls(row["calls"]) + _times(row["time"]) + _graphs(row["graphs"])
    problems = [
        f"    {name}: {row[name]['problem']}" for name in ("calls", "time", "graphs") if failed(row[name])
    ]
    return "\n".join([text, *problems])


def _calls(found: Any) -> str:
    if failed(found):
        return f"{'-':>6}{'-':>8}{'-':>5}{'-':>11}{'-':>8}{'-':>8}"
    wrong = sum(c["difference"] is not None for c in found)
    theirs = sum(c["TVM's difference"] is not None for c in found)
    away = sum(not c["close"] for c in found)
    ratios = "".join(
        format(ratio, form) if (ratio := worst(found, name)) is not None else form[:-2].format("-").rjust(8)
        for name, form in (("unplanned", ">11.3f"), ("TVM", ">8.3f"), ("floor", ">8.3f"))
    )
    return f"{len(found):>6}{f'{wrong}/{theirs}':>8}{away:>5}{ratios}"


def worst(found: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The largest ratio of our bytes to those of `name`; None where there are none."""
    return max((c["ours"] / c[name] for c in found if c[name]), default=None)


def _times(found: Any) -> str:
    if failed(found):
        return f"{'-':>12}"
    base = found["unplanned"]
    ratios = "/".join(f"{found[k] / base:.2f}" for k in ("ours", "tvm without bounds") if k in found)
    return f"{ratios:>12}"


def _graphs(found: Any) -> str:
    if found is None or failed(found):
        return f"{'-':>22}"
    wrong, kernels = ("/".join(map(str, found[k].values())) for k in ("wrong", "kernels"))
    seconds = found["seconds"]
    ratio = f"{seconds['ours'] / seconds['TVM']:.2f}" if "TVM" in seconds else "-"
    return f"{wrong:>7}{kernels:>9}{ratio:>6}"


def failed(found: Any) -> bool:
    """Whether a part gave a problem."""
    return isinstance(found, dict) and "problem" in found


def failures(row: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a row."""
    model = row["model"]
    for name in ("calls", "time", "graphs"):
        if failed(row[name]) and not row[name]["problem"].startswith((UNBUILDABLE, UNRUNNABLE)):
            yield f"{model}: {name}: {row[name]['problem']}"
    if not failed(row["calls"]):
        for call in row["calls"]:
            if call["difference"] is not None:
                yield f"{model} at {call['binding']} {call['path']}: {call['difference']}"
    if row["graphs"] is not None and not failed(row["graphs"]) and row["graphs"]["wrong"]["ours"]:
        yield f"{model}: {row['graphs']['wrong']['ours']} calls with CUDA graphs have other bits"


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--target", default="cuda", show_default=True, help="The target; its device 0 is used.")
@click.option("--jobs", default=2, show_default=True, help="Models that are built at a time.")
@rounds_option
@json_option
def main(models: Sequence[str], target: str, jobs: int, rounds: int, as_json: bool) -> None:
    """Exit with 1 where something is wrong, 2 for a model or a device that there is not."""
    known = [name for names in GROUPS.values() for name in names]
    unknown = [name for name in models if name not in known]
    if unknown:
        raise click.UsageError(f"no such model: {', '.join(unknown)}; there are {', '.join(known)}")
    if not has_device(tvm.target.Target(target)):
        raise click.UsageError(f"this machine has no device of {target}")
    _without_fast_math()
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(jobs) as workers:
        os.environ[LOCK] = lock.name
        made: Iterator[dict[str, Any]] = workers.map(
            partial(measured, target=target, rounds=rounds), models or GROUPS["imported"]
        )
        rows = list(_shown(made, print if not as_json else lambda *_, **__: None))
    wrong = [text for row in rows for text in failures(row)]
    print(json.dumps({"rows": rows, "wrong": wrong}) if as_json else "\n".join(["", *wrong]).rstrip())
    sys.exit(bool(wrong))


def _without_fast_math() -> None:
    """Have TVM compile CUDA code as it is meant: with its --use_fast_math a power of a negative number is
    NaN, and so are results of models that take one (`x ** 2` in the norms of Llama).
    """
    if shutil.which("nvcc"):
        os.environ.update(TVM_CUDA_COMPILE_MODE="nvcc", TVM_CUDA_NVCC_NO_FAST_MATH="1")


def _shown(rows: Iterator[dict[str, Any]], say: Callable[..., None]) -> Iterator[dict[str, Any]]:
    say(
        f"{'model':28}{'calls':>6}{'bits':>8}{'cpu':>5}{'/unplanned':>11}{'/TVM':>8}{'/floor':>8}{'time':>12}"
        f"{'graphs':>22}"
    )
    for row in rows:
        say(line(row), flush=True)
        yield row


if __name__ == "__main__":
    main()
