"""How long planning and proving take beside building: a 32-layer Llama-style module.

Both are timed in one process on the same module, in turn: `relax.build` of the model with TVM's own planner,
and the memory planning of the lowered module (extraction, plan, proof, emission), each with an empty proof
cache.  A second plan of each round is timed phase by phase.  Last comes the whole `relax.build` with
`symalloc.pipeline`, in which our planner and its passes stand where TVM's planner does otherwise.

    python -m benchmarks.plan_llama [--layers 32] [--rounds 5] [--json]
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import tvm
from tvm import relax

import symalloc
from benchmarks.harness import in_turns, parse_arguments, print_result, ratios, seconds, timed
from symalloc.planner import plan_functions
from symalloc.planner.memory_plan import Plan
from symalloc.relax.passes import plan_pass
from symalloc.relax.passes.pipeline import lower
from tests.models.zoo.llama import Shape, decoder

LIMIT = 0.10
PHASES = {  # what is timed by itself, by the module that calls it
    "extraction": (plan_pass, ("extract",)),
    "analysis": (plan_pass, ("analyse",)),
    "buffers": (plan_functions, ("find_buffers",)),
    "search": (plan_functions, ("search",)),
    "offsets": (plan_functions, ("assemble",)),
    "guards": (plan_functions, ("guards",)),
    "proof": (plan_functions, ("validate",)),
    "emission": (plan_pass, ("emit_module",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds are wall time, one figure a round; `phases` holds the median of each phase; `share` is the
    median of plan over build, round by round; `whole` that of a build with our planner over one with TVM's.
    """

    layers: int
    buffers: int
    distinct_offsets: int
    arena: str
    build: tuple[float, ...]
    first: float
    plan: tuple[float, ...]
    share: float
    whole: float
    phases: dict[str, float]


@contextmanager
def clocked(spent: Counter[str]) -> Iterator[None]:
    """Adds the seconds that each phase takes to `spent`, wherever the planner has it."""
    patches = [
        patch.object(module, name, _clocked(getattr(module, name), phase, spent))
        for phase, (module, names) in PHASES.items()
        for name in names
        if hasattr(module, name)
    ]
    for change in patches:
        change.start()
    try:
        yield
    finally:
        for change in patches:
            change.stop()


def _clocked(function: Callable[..., Any], phase: str, spent: Counter[str]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        seconds, result = timed(lambda: function(*args, **named))
        spent[phase] += seconds  # type: ignore[assignment]
        return result

    return run


def split(lowered: tvm.IRModule) -> Counter[str]:
    """Plan once; return the seconds of each phase."""
    spent: Counter[str] = Counter()
    with clocked(spent):
        whole, _ = timed(lambda: plan_pass.plan_lowered(lowered))
    spent["the rest"] = whole - sum(spent.values())  # type: ignore[assignment]
    return spent


def measure(layers: int, rounds: int) -> Result:
    """Build and plan in turn, `rounds` times."""
    mod = decoder(Shape(layers=layers, hidden=64, heads=4, kv_heads=4, inner=128, vocabulary=256))
    lowered = lower(mod, "llvm")
    first, planned = timed(lambda: plan_pass.plan_lowered(lowered))
    (plan,) = planned.plans.values()
    splits: list[Counter[str]] = []
    ours = symalloc.pipeline("llvm")
    measures = {
        "build": seconds(lambda: relax.build(mod, target="llvm")),
        "plan": seconds(lambda: plan_pass.plan_lowered(lowered)),
        "whole": seconds(lambda: relax.build(mod, target="llvm", relax_pipeline=ours)),
        "split": seconds(lambda: splits.append(split(lowered))),
    }
    found = in_turns(rounds, measures)
    share = ratios(found, "build")
    return Result(
        layers=layers,
        buffers=sum(len(a.placements) for a in plan.arenas),
        distinct_offsets=distinct(plan),
        arena=", ".join(str(a.size) for a in plan.arenas),
        build=tuple(found["build"]),
        first=first,
        plan=tuple(found["plan"]),
        share=share["plan"],
        whole=share["whole"],
        phases={name: statistics.median(s[name] for s in splits) for name in (*PHASES, "the rest")},
    )


def distinct(plan: Plan) -> int:
    """How many different offsets the VM has to evaluate."""
    return len({p.offset for a in plan.arenas for p in a.placements if p.offset.as_constant is None})


def show(result: Result) -> None:
    """Print the figures."""
    build, plan = statistics.median(result.build), statistics.median(result.plan)
    print(f"Llama-style decoder, {result.layers} layers: {result.buffers} planned buffers")
    print(f"  arena {result.arena}")
    print(f"  {result.distinct_offsets} distinct offsets to evaluate")
    print(f"  relax.build    {build:7.3f} s   median of {len(result.build)}, {min(result.build):.3f} at best")
    print(f"  plan and proof {plan:7.3f} s   {result.share:6.1%} of the build; the first of the process")
    print(f"                              took {result.first:.3f} s")
    print(
        f"  a build with symalloc.pipeline takes {result.whole:.3f} times as long as one with TVM's planner"
    )
    for name, spent in result.phases.items():
        print(f"    {name:12} {1e3 * spent:7.1f} ms   {spent / build:6.2%}")


def main() -> int:
    """1 where planning takes more than a tenth of the build."""
    options = parse_arguments(__doc__, layers=32, rounds=5)
    result = measure(options.layers, options.rounds)
    print_result(result, options.json, show)
    return int(result.share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
