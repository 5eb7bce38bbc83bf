"""What `benchmarks.plan_zoo` measures of one model, in the process of its own.

    python -m benchmarks.zoo_measures MODEL ROUNDS PART ...

Each part that is done is printed at once, as a line of JSON: TVM's own planner may crash on the next one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from statistics import median
from time import process_time
from typing import Any

from benchmarks.harness import cpu_seconds, in_turns
from benchmarks.zoo_models import case_named
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.measure import Floor, load
from tests.models.planned import Call, Case, Kind, Variants, calls, difference, needed

__all__ = ["OURS", "PARTS", "UNBUILDABLE"]

UNBUILDABLE = "TVM cannot build it, planned or not"
OURS = ("case", "plan", "memory")  # the parts in which TVM's planner does not run a call

TURN = 0.004  # seconds of calls that are timed together
MOST_CALLS = 100

Part = Callable[[Variants, int], Any]


def plan(variants: Variants, rounds: int) -> dict[str, Any]:
    """What is planned, and seconds of planning and of TVM's build in turns, behind one of each."""
    found = variants.planned.plans[variants.case.function]
    variants.machine("tvm")
    measures = {
        "build": cpu_seconds(variants.build, "tvm"),
        "plan": cpu_seconds(plan_lowered, variants.lowered),
    }
    taken = in_turns(rounds, measures)
    return {
        **taken,
        "share": median(p / b for p, b in zip(taken["plan"], taken["build"], strict=True)),
        "planned": sum(len(arena.placements) for arena in found.arenas),
        "unplanned": len(found.unplanned),
        "arenas": [str(arena.size) for arena in found.arenas],
        "fallbacks": [asdict(fallback) for fallback in found.fallbacks],
    }


def memory(variants: Variants, _rounds: int) -> list[dict[str, Any]]:
    """Our plan beside the unplanned module, a record for each binding and path; bytes are measured."""
    found = []
    for binding in variants.case.bindings:
        paths = calls(variants, binding)
        found += [_beside(call, floor) for call, floor in zip(paths, needed(paths), strict=True)]
    return found


def tvm(variants: Variants, _rounds: int) -> list[dict[str, Any]]:
    """TVM's plans at the same calls: with the bounds that are declared, where they hold, and without."""
    case = variants.case
    if case.theirs:
        raise ValueError(case.theirs)
    free, bounded = variants.theirs
    return [
        {
            "tvm": None if bounded is None or case.beyond(c.binding) else asdict(c.on(bounded).usage),
            "tvm without bounds": asdict(c.on(free).usage),
        }
        for c in _all_calls(variants)
    ]


def time(variants: Variants, rounds: int) -> list[dict[str, Any]]:
    """Seconds of a call at the first and the last binding, on TVM's own allocator, in turns with its plan
    where that holds.
    """
    case = variants.case
    ends = dict.fromkeys((0, len(case.bindings) - 1))
    return [_timed(variants, case.bindings[index], rounds) for index in ends]


PARTS: Mapping[str, Part] = {"plan": plan, "memory": memory, "tvm": tvm, "time": time}


def _all_calls(variants: Variants) -> Iterator[Call]:
    for binding in variants.case.bindings:
        yield from calls(variants, binding)


def _beside(call: Call, floor: Floor) -> dict[str, Any]:
    variants = call.variants
    expected, ours = call.on(variants.unplanned), call.on(variants.ours)
    return {
        "binding": call.binding,
        "path": call.path,
        "difference": difference(ours, expected),
        "floor": asdict(floor),
        "ours": asdict(ours.usage),
        "unplanned": asdict(expected.usage),
    }


def _timed(variants: Variants, binding: Any, rounds: int) -> dict[str, Any]:
    call = calls(variants, binding)[0]
    theirs = not variants.case.theirs and not variants.case.beyond(binding)
    kinds: tuple[Kind, ...] = ("unplanned", "ours", "tvm") if theirs else ("unplanned", "ours")
    arguments = call.arguments()
    functions = {kind: variants.machine(kind, "pooled")[variants.case.function] for kind in kinds}
    for function in functions.values():
        function(*arguments)
    started = process_time()
    functions["unplanned"](*arguments)
    count = max(1, min(MOST_CALLS, round(TURN / max(process_time() - started, 1e-9))))

    def turn(function: Any) -> float:
        started = process_time()
        for _ in range(count):
            function(*arguments)
        return (process_time() - started) / count

    taken = in_turns(3 * rounds, {kind: partial(turn, f) for kind, f in functions.items()})
    return {"binding": binding, **taken}


def _said(part: Part, variants: Variants, rounds: int) -> dict[str, Any]:
    """What the part gives, or why it gives nothing."""
    try:
        return {"found": part(variants, rounds)}
    except Exception as error:  # TVM raises all kinds, and the other parts may do
        lines = str(error).strip().splitlines() or [""]
        whose = "" if _builds(variants) else f"{UNBUILDABLE}: "
        return {"problem": f"{whose}{type(error).__name__}: {lines[-1].strip()[:200]}"}


def _builds(variants: Variants) -> bool:
    """Whether TVM can build the model without a plan."""
    try:
        variants.build("unplanned")
    except Exception:  # TVM raises all kinds
        return False
    return True


def _case_line(case: Case) -> dict[str, Any]:
    return {"bindings": list(case.bindings), "paths": 2 ** len(case.paths)}


def main(name: str, rounds: str, *parts: str) -> None:
    """Write a line for the model, then one for each part.  What TVM prints goes to the error stream."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load()
    variants = Variants(case_named(name))
    print(json.dumps({"part": "case", "found": _case_line(variants.case)}), file=lines, flush=True)
    for part in parts:
        said = _said(PARTS[part], variants, int(rounds))
        print(json.dumps({"part": part, **said}), file=lines, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
