"""How long linting takes beside building: a 32-layer Llama-style module, as TVM plans it.

Both are timed in one process on the same module: `relax.build` of the model, and `symalloc.lint` of what
StaticPlanBlockMemory and KillAfterLastUse make of it.  Every lint starts with an empty proof cache.  The
first one of a process also reads the rules and runs the code for the first time (cold); later
ones do not (warm).  Importing symalloc's modules, once a process, is timed by itself.

    python -m benchmarks.lint_llama [--layers 32] [--rounds 5] [--json]
"""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib import import_module
from statistics import median
from time import process_time
from typing import Any

import click
import tvm
from tvm import relax
from tvm.relax import transform

import symalloc
from benchmarks.harness import (
    cpu_seconds,
    decoder_of,
    in_turns,
    json_option,
    layers_option,
    rounds_option,
    timed,
)
from symalloc.linter.linter import check
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.rulebook.rule import load_rules

LIMIT = 0.07


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


def measure(layers: int, rounds: int) -> dict[str, Any]:
    """Build and lint in turn, `rounds` times.

    `build` and `warm` hold one figure a round, seconds of process time; shares are of the median build.
    `extract` and `check` are the two halves of a lint.  `decided_by` counts the constraints that the prover
    was asked about, by the layer that decided them; the others are equal to one of those but for the names of
    symbols, or hold by sight (both sides equal, constants).
    """
    mod = decoder_of(layers)
    plan = planned(mod)
    imports, _ = timed(
        lambda: (import_module("symalloc.session.api"), import_module("symalloc.relax.workers.programs"))
    )
    lint = partial(symalloc.lint, plan, stage="as-is")
    started = process_time()
    report = lint()
    cold = process_time() - started
    found = in_turns(
        rounds, {"build": cpu_seconds(relax.build, mod, target="llvm"), "warm": cpu_seconds(lint)}
    )
    extracted, program = timed(extract, plan, name="module")
    prover = Prover()
    checked, _ = timed(lambda: check(program, load_rules(), prover))
    return {
        "layers": layers,
        "bindings": sum(len(b.bindings) for b in plan["forward"].body.blocks),
        **found,
        "imports": imports,
        "cold": cold,
        "extract": extracted,
        "check": checked,
        "share_cold": cold / median(found["build"]),
        "share_warm": median(found["warm"]) / median(found["build"]),
        "constraints": report.summary.constraints,
        "decided_by": dict(prover.decided),
        "errors": sum(d.severity == "error" for d in report),
    }


def show(f: dict[str, Any]) -> None:
    """Print the figures."""
    build, warm = f["build"], f["warm"]
    print(f"Llama-style decoder, {f['layers']} layers, planned: {f['bindings']} bindings")
    print(f"  relax.build        {median(build):7.3f} s   median of {len(build)}, {min(build):.3f} at best")
    print(f"  imports            {f['imports']:7.3f} s   once a process, in neither share")
    print(f"  symalloc.lint cold {f['cold']:7.3f} s   {f['share_cold']:6.1%} of the build")
    print(f"  symalloc.lint warm {median(warm):7.3f} s   {f['share_warm']:6.1%} of the build")
    print(f"    of it, extraction {f['extract']:.3f} s, checking {f['check']:.3f} s")
    constraints, decided = f["constraints"], f["decided_by"]
    print(f"  {constraints} constraints, {f['errors']} errors; decided by")
    rest = {"sight or repetition": constraints - sum(decided.values())}
    for layer, count in sorted((rest | decided).items(), key=lambda item: -item[1]):
        print(f"    {layer:20} {count:6}   {count / constraints:7.2%}")


@click.command()
@layers_option
@rounds_option
@json_option
def main(layers: int, rounds: int, as_json: bool) -> None:
    """Exit with 1 where a warm lint takes more than 7 % of the build, or reports an error."""
    figures = measure(layers, rounds)
    print(json.dumps(figures)) if as_json else show(figures)
    sys.exit(figures["share_warm"] > LIMIT or figures["errors"] > 0)


if __name__ == "__main__":
    main()
