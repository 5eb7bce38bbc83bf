"""Arenas of plans beside TVM's storages: how many, what a call takes at most, what is reserved in all.

Models are those of `benchmarks.plan_zoo`, or modules in files that stand in front of a memory planner, as
`tvm.ir.save_json` writes them, packed by gzip or not.  A row is a function; of the standard bindings within
the declared bounds, these among them, it shows the worst.

    tensors         planned tensors
    arenas          of the function, those aside that are the memory of results; `before`: in an earlier run
    /unplanned      the most that a call holds, as far as that is known, over the same without a plan
    over            bytes by which it is more
    allocations     what a call takes from the allocator, ours and behind StaticPlanBlockMemory
    reserved        bytes of all arenas, and of TVM's storages
    /TVM            the most that a call holds over the same behind TVM's planner
    fewest          with --fewest, of functions without Ifs that have more than three: no fewer arenas keep
                    the limit, however they are stacked; `>=` where the search ends before it knows more

Exit status 1 where a function without an If has more than three arenas, and more than that, or a call
takes more than 2 % and 64 KiB above the unplanned one.

    python -m benchmarks.arenas [FILE or MODEL ...] [--group imported|ordinary|made] [--fewest STATES]
                                [--before FILE] [--json]
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import tvm

from benchmarks.harness import json_option, patched, print_table
from benchmarks.zoo_models import GROUPS, case_named
from symalloc.analysis.timeline import Reservation, Timeline
from symalloc.planner.buffers.assignment import Assignment, assign
from symalloc.planner.buffers.candidates import Candidates
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.function_report import PlanOutcome, bound_label, own_memory, standard
from symalloc.program.ir import Function, If
from symalloc.relax.files.plan_file import compare_with_tvm, plan_outcomes
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.size.expr import evaluated
from tests.models.planned import within_limit
from tests.planner.fewest_arenas import fewest

MOST = 3  # arenas of a function without an If


def lowered_of(name: str) -> tvm.IRModule:
    """The module of a file, or of a model of the zoo, in front of a memory planner."""
    path = Path(name)
    if not path.is_file():
        case = case_named(name)
        return lower(case.build(), "llvm", pipeline=case.pipeline)
    content = path.read_bytes()
    return tvm.ir.load_json((gzip.decompress(content) if path.suffix == ".gz" else content).decode())


def rows_of(name: str, states: int = 0) -> Iterator[dict[str, Any]]:
    """A row for each function of a module that has planned tensors; fewer arenas are looked for in so many
    `states`.
    """
    lowered, chosen = lowered_of(name), dict[str, Assignment]()

    def recorded(candidates: Candidates, *args: Any, **named: Any) -> Assignment:
        found = assign(candidates, *args, **named)
        chosen[candidates.cfg.function.name] = found
        return found

    with patched({"symalloc.planner.plan_functions.assign": recorded}):
        planned = plan_lowered(lowered)
    theirs, outcomes = compare_with_tvm(lowered), plan_outcomes(planned)
    for function, plan in planned.plans.items():
        if any(arena.placements for arena in plan.arenas):
            compared = theirs[function].bounded or theirs[function].unbounded
            row = row_of(planned.program.functions[function], plan, outcomes[function], compared)
            if states and row["arenas"] > MOST and not row["ifs"]:
                least, known = fewest(chosen[function].chosen[0].held, states)
                row["least"], row["fewest"] = least, f"{'' if known else '>= '}{least}"
            yield {"name": f"{Path(name).name.split('.')[0]}:{function}", **row}


def row_of(function: Function, plan: Plan, ours: PlanOutcome, theirs: Timeline) -> dict[str, Any]:
    """The figures of one function."""
    own = [arena for arena in plan.arenas if arena.result is None]
    held = ours.planned.taken()
    plans = [each.known for each in (ours.planned, ours.unplanned, theirs)]
    symbols = frozenset().union(*(one.size.symbols for one in held if one.size is not None))
    found: dict[str, Any] = {
        "tensors": sum(len(arena.placements) for arena in plan.arenas),
        "arenas": len(own),
        "ifs": any(isinstance(one, If) for one in function.body.instructions),
        "allocations": f"{len(held)}/{len(theirs.taken()) or '-'}",
        "unplanned": 1.0,
        "over": 0,
        "tvm": 0.0,
        "reserved": 0,
        "theirs": 0,
    }
    for at in (at for at in standard(symbols, function) if bound_label(at, function) != "beyond"):
        call, without, stock = (each.peak(at) for each in plans)
        sizes = [evaluated(arena.size, at) or 0 for arena in own]
        found["reserved"] = max(found["reserved"], sum(sizes))
        found["theirs"] = max(found["theirs"], _reserved(own_memory(theirs, "storage"), at))
        if call is not None and without:
            found["unplanned"] = max(found["unplanned"], call / without)
            found["over"] = max(found["over"], call - without)
            found["broken"] = found.get("broken", False) or call > within_limit(without)
        if call is not None and stock:
            found["tvm"] = max(found["tvm"], call / stock)
    return found


def _reserved(storages: Sequence[Reservation], at: Mapping[str, int]) -> int:
    return sum((evaluated(one.size, at) or 0) for one in storages if one.size is not None)


def missed(row: Mapping[str, Any]) -> bool:
    """Whether a row is beyond what is asked."""
    return bool(row.get("broken")) or (row["arenas"] > max(MOST, row.get("least", 0)) and not row["ifs"])


@click.command(help=__doc__.split("\n\n", maxsplit=1)[0])
@click.argument("names", nargs=-1)
@click.option("--group", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="Models of a group.")
@click.option("--fewest", "states", type=int, default=0, help="States of a search for fewer arenas.")
@click.option("--before", type=click.Path(exists=True, path_type=Path), help="The JSON of an earlier run.")
@json_option
def main(
    names: tuple[str, ...], groups: tuple[str, ...], states: int, before: Path | None, as_json: bool
) -> None:
    """Print the table; see the module's docstring."""
    earlier = {} if before is None else {row["name"]: row["arenas"] for row in json.loads(before.read_text())}
    rows = []
    for name in [*names, *(model for group in groups for model in GROUPS[group])]:
        try:
            rows += list(rows_of(name, states))
        except Exception as error:  # TVM raises all kinds
            print(f"{name}: {type(error).__name__}: {str(error).strip()[-200:]}", file=sys.stderr)
    for row in rows:
        row.setdefault("fewest", "-")
        row["before"] = earlier.get(row["name"], "-")
        row["missed"] = "  <" if missed(row) else ""
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        columns = {
            "name": "<46", "tensors": ">9", "before": ">8", "arenas": ">8", "fewest": ">8",
            "unplanned": ">11.3f", "over": ">12,", "allocations": ">13", "reserved": ">15,", "theirs": ">15,",
            "tvm": ">7.3f", "missed": "<4",
        }  # fmt: skip
        print_table(columns, rows)
    sys.exit(any(map(missed, rows)))


if __name__ == "__main__":
    main()
