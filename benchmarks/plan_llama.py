"""How long planning and proving take beside building: a 32-layer Llama-style module.

Both are timed in one process on the same module, in turn: `relax.build` of the model with TVM's own planner,
and the memory planning of the lowered module (extraction, plan, proof, emission), each with an empty proof
cache; the process's own time counts.  A second plan of each round is timed phase by phase.  Last comes the
whole `relax.build` with `symalloc.pipeline`, in which our planner and its passes stand where TVM's planner
does otherwise.

    python -m benchmarks.plan_llama [--layers 32] [--rounds 5] [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from statistics import median
from typing import Any

import click
import tvm
from tvm import relax

import symalloc
from benchmarks.harness import (
    cpu_seconds,
    decoder_of,
    in_turns,
    json_option,
    layers_option,
    patched,
    rounds_option,
    timed,
)
from symalloc.planner.memory_plan import Plan
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered

LIMIT = 0.06
_FUNCTIONS = "symalloc.planner.plan_functions"
_PASS = "symalloc.relax.passes.plan_pass"
PHASES = {  # what is timed by itself, where it is called
    "extraction": f"{_PASS}.extract",
    "analysis": f"{_PASS}.analyse",
    "lifetimes": f"{_FUNCTIONS}.find_candidates",
    "buffers": f"{_FUNCTIONS}.assign",
    "search": f"{_FUNCTIONS}.search",
    "offsets": f"{_FUNCTIONS}.assemble",
    "guards": f"{_FUNCTIONS}.guards",
    "proof": f"{_FUNCTIONS}.validate",
    "emission": f"{_PASS}.emit_module",
}


def split(lowered: tvm.IRModule) -> dict[str, float]:
    """Plan once; the seconds that each phase takes, wherever the planner has it."""
    spent = dict.fromkeys(PHASES, 0.0)

    def clocked(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            taken, result = timed(function, *args, **named)
            spent[phase] += taken
            return result

        return run

    with patched({name: clocked(phase, resolve_name(name)) for phase, name in PHASES.items()}):
        whole, _ = timed(plan_lowered, lowered)
    return {**spent, "the rest": whole - sum(spent.values())}


def measure(layers: int, rounds: int) -> dict[str, Any]:
    """Build and plan in turn, `rounds` times.

    Seconds are process time, one figure a round; `phases` holds the median of each phase, in wall time;
    `share` is the median of plan over build, round by round; `whole` that of a build with our planner over
    one with TVM's.
    """
    mod = decoder_of(layers)
    lowered = lower(mod, "llvm")
    first, planned = timed(plan_lowered, lowered)
    (plan,) = planned.plans.values()
    build = partial(relax.build, mod, target="llvm")
    measures: dict[str, Callable[[], Any]] = {
        "build": cpu_seconds(build),
        "plan": cpu_seconds(plan_lowered, lowered),
        "whole": cpu_seconds(build, relax_pipeline=symalloc.pipeline("llvm")),
        "phases": partial(split, lowered),
    }
    found = in_turns(rounds, measures)
    return {
        "layers": layers,
        "buffers": sum(len(a.placements) for a in plan.arenas),
        "distinct_offsets": distinct(plan),
        "arena": ", ".join(str(a.size) for a in plan.arenas),
        "build": found["build"],
        "first": first,
        "plan": found["plan"],
        "share": median(p / b for p, b in zip(found["plan"], found["build"], strict=True)),
        "whole": median(w / b for w, b in zip(found["whole"], found["build"], strict=True)),
        "phases": {name: median(s[name] for s in found["phases"]) for name in (*PHASES, "the rest")},
    }


def distinct(plan: Plan) -> int:
    """How many different offsets the VM has to evaluate."""
    return len({p.offset for a in plan.arenas for p in a.placements if p.offset.as_constant is None})


def show(f: dict[str, Any]) -> None:
    """Print the figures."""
    builds, build, plan = f["build"], median(f["build"]), median(f["plan"])
    print(f"Llama-style decoder, {f['layers']} layers: {f['buffers']} planned buffers")
    print(f"  arena {f['arena']}")
    print(f"  {f['distinct_offsets']} distinct offsets to evaluate")
    print(f"  relax.build    {build:7.3f} s   median of {len(builds)}, {min(builds):.3f} at best")
    print(f"  plan and proof {plan:7.3f} s   {f['share']:6.1%} of the build; the first of the process")
    print(f"                              took {f['first']:.3f} s")
    print(f"  a build with symalloc.pipeline takes {f['whole']:.3f} times as long as one with TVM's planner")
    for name, taken in f["phases"].items():
        print(f"    {name:12} {1e3 * taken:7.1f} ms   {taken / build:6.2%}")


@click.command()
@layers_option
@rounds_option
@json_option
def main(layers: int, rounds: int, as_json: bool) -> None:
    """Exit with 1 where planning takes more than 6 % of the build."""
    figures = measure(layers, rounds)
    print(json.dumps(figures)) if as_json else show(figures)
    sys.exit(figures["share"] > LIMIT)


if __name__ == "__main__":
    main()
