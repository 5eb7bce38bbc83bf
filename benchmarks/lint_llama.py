"""How long linting takes beside building: a 32-layer Llama-style module, as TVM plans it.

Both are timed in one process on the same module: `relax.build` of the model, and `symalloc.lint` of what
StaticPlanBlockMemory and KillAfterLastUse make of it.  Every lint starts with an empty proof cache.  The
first one of a process also reads the rules and runs the code for the first time (cold); later
ones do not (warm).  Importing symalloc's modules, once a process, is timed by itself.

    python -m benchmarks.lint_llama [--layers 32] [--rounds 5] [--json]
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from importlib import import_module

import tvm
from tvm import relax
from tvm.relax import transform

import symalloc
from benchmarks.harness import in_turns, medians, parse_arguments, print_result, seconds, timed
from symalloc.linter.engine import check
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.rulebook.book import load_rules
from tests.models.zoo.llama import Shape, decoder

LIMIT = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds are wall time; `build` and `warm` hold one figure a round, shares are of the median build.

    `extract` and `check` are the two halves of a lint.  `decided_by` counts the constraints that the prover
    was asked about, by the layer that decided them; the others are equal to one of those but for the names of
    symbols, or hold by sight (both sides equal, constants).
    """

    layers: int
    bindings: int
    build: tuple[float, ...]
    imports: float
    cold: float
    warm: tuple[float, ...]
    extract: float
    check: float
    share_cold: float
    share_warm: float
    constraints: int
    decided_by: dict[str, int]
    errors: int


def planned(mod: tvm.IRModule) -> tvm.IRModule:
    """The module after TVM's own memory planning and placement of kills."""
    passes = [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
    ]
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(passes)(mod)


def measure(layers: int, rounds: int) -> Result:
    """Build and lint in turn, `rounds` times."""
    mod = decoder(Shape(layers=layers, hidden=64, heads=4, kv_heads=4, inner=128, vocabulary=256))
    plan = planned(mod)
    imports, _ = timed(
        lambda: (import_module("symalloc.api"), import_module("symalloc.relax.workers.programs"))
    )
    cold, report = timed(lambda: symalloc.lint(plan, stage="as-is"))
    found = in_turns(
        rounds,
        {
            "build": seconds(lambda: relax.build(mod, target="llvm")),
            "warm": seconds(lambda: symalloc.lint(plan, stage="as-is")),
        },
    )
    median, warm = medians(found).values()
    extracted, program = timed(lambda: extract(plan, name="module"))
    prover = Prover()
    checked, _ = timed(lambda: check(program, load_rules(), prover))
    return Result(
        layers=layers,
        bindings=sum(len(b.bindings) for b in plan["forward"].body.blocks),
        build=tuple(found["build"]),
        imports=imports,
        cold=cold,
        warm=tuple(found["warm"]),
        extract=extracted,
        check=checked,
        share_cold=cold / median,
        share_warm=warm / median,
        constraints=report.summary.constraints,
        decided_by=dict(prover.decided),
        errors=sum(d.severity == "error" for d in report),
    )


def show(result: Result) -> None:
    """Print the figures."""
    build, warm = statistics.median(result.build), statistics.median(result.warm)
    print(f"Llama-style decoder, {result.layers} layers, planned: {result.bindings} bindings")
    rounds = f"median of {len(result.build)}, {min(result.build):.3f} at best"
    print(f"  relax.build        {build:7.3f} s   {rounds}")
    print(f"  imports            {result.imports:7.3f} s   once a process, in neither share")
    print(f"  symalloc.lint cold {result.cold:7.3f} s   {result.share_cold:6.1%} of the build")
    print(f"  symalloc.lint warm {warm:7.3f} s   {result.share_warm:6.1%} of the build")
    print(f"    of it, extraction {result.extract:.3f} s, checking {result.check:.3f} s")
    asked = sum(result.decided_by.values())
    print(f"  {result.constraints} constraints, {result.errors} errors; decided by")
    rest = {"sight or repetition": result.constraints - asked}
    for layer, count in sorted((rest | result.decided_by).items(), key=lambda item: -item[1]):
        print(f"    {layer:20} {count:6}   {count / result.constraints:7.2%}")


def main() -> int:
    """1 where a warm lint takes more than a tenth of the build, or reports an error."""
    options = parse_arguments(__doc__, layers=32, rounds=5)
    result = measure(options.layers, options.rounds)
    print_result(result, options.json, show)
    return int(result.share_warm > LIMIT or result.errors > 0)


if __name__ == "__main__":
    sys.exit(main())
