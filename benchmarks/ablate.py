"""Measure what each mechanism is worth: models that get worse without it, seconds, and its lines.

A heuristic, layer, quick path or option of the pool stays in the package only with a row here that shows its
worth: some model is worse without it, or takes longer.  Worse is a model whose call holds more of the
unplanned call, whose arenas take more of their floor, or which has more of them or more checks.

    planner    plans of models of the zoo and their reports, with and without each heuristic and quick path
    shrink     what a call takes, workspace among it, without each remedy of --shrink safe; what --chunks
               is worth, which cuts nothing unless it is asked for, `benchmarks.chunks` says
    full       the time of calls with --shrink full, without what leaves paddings in front of short sums
    orders     floors of plans for any order, over the heaviest antichain, with and without its search
    layers     heights of arenas of deep models over their floors, without layers that are stacked alike
    stacking   heights of random problems over their floors, without each way to stack buffers
    passes     time and bytes of a call of models built with and without each pass behind the planner
    lint       seconds to lint a decoder of 32 layers without each quick path of the linter
    prover     decided questions and their times: see `benchmarks.ablate_prover`

Each model is planned with all and without each mechanism in turns, so that other work on the machine counts
for all alike; `longest` is the time of the plan that suffers most, beside its own with all.  With
`--rounds 2` the planner's table takes three to four minutes of one processor, `--without NAME` one row of it.

    python -m benchmarks.ablate [planner|shrink|full|orders|layers|stacking|… ...] [--model NAME ...]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import geometric_mean
from time import process_time
from typing import Any

import click
import tvm

from benchmarks.ablate_full import FULL_COLUMNS, full_rows
from benchmarks.ablate_layers import LAYER_COLUMNS, layer_rows
from benchmarks.ablate_passes import PASS_COLUMNS, pass_rows
from benchmarks.ablate_prover import main as ablate_prover
from benchmarks.ablate_stacking import STACKING_COLUMNS, stacking_rows
from benchmarks.harness import decoder_of, in_turns, patched, print_table, rounds_option
from benchmarks.lint_llama import planned as planned_by_tvm
from benchmarks.mechanism import Mechanism
from benchmarks.order import NETWORKS, order_floors
from benchmarks.plan_overhead import TARGET
from benchmarks.plan_zoo import chosen
from benchmarks.zoo_models import case_named
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.linter.function_prover import KernelProofs
from symalloc.linter.linter import check
from symalloc.planner.buffers.assignment import Partition, _Attempts
from symalloc.planner.buffers.call_bytes import Groups
from symalloc.planner.check.obligations import Obligation
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.function_report import floors
from symalloc.program.ir import Program
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.files.plan_file import memory_reports
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.shrink.written_over import WrittenOver, write_over
from symalloc.rulebook.rule import load_rules
from symalloc.size.expr import highest
from tests.models.planned import CASES

AREAS = ("planner", "shrink", "full", "orders", "layers", "stacking", "passes", "lint", "prover")
USUAL = (
    "model/llama_rotary",
    "model/llama_decode_concat",
    "model/gru",
    "model/nested_branches",
    "onnx_nested_branch",
    "torch_decode_step",
    "torch_gemma",
    "torch_qwen3",
    "torch_t5_encoder",
    "llama_32_layers",
    "merged_weights",
    "symbols_4",
    "symbols_8",
)
"""The models that are planned where none are named: one for each mechanism that is known to need it."""

SLIGHTLY = 0.005  # of a ratio, which is no difference


def _parts(module: str, names: str) -> list[str]:
    """Functions and classes of a module."""
    return [f"{module}.{name}" for name in names.split()]


_ASSIGNMENT, _STACK = "symalloc.planner.buffers.assignment", "symalloc.planner.stack"
_GRID = "symalloc.planner.grid"
_OFFSETS, _GUARDS = "symalloc.planner.offsets", "symalloc.planner.overflow_guards"
_VALIDATE, _OBLIGATIONS = "symalloc.planner.check.validate", "symalloc.planner.check.obligations"


_UNSEEN = Obligation("apart", "two are not apart", where=(), sides=())


def _none(*_args: object, **_options: object) -> None:
    return None


def _without_tails() -> Mechanism:
    """The search through time without an arena for what is made from the cut on."""
    divided = _Attempts.divided

    def stand_in(attempts: _Attempts, way: Partition) -> Groups:
        return () if way.tail else divided(attempts, way)

    return Mechanism(stand_ins={f"{_ASSIGNMENT}._Attempts.divided": stand_in})


PLANNER: Mapping[str, Mechanism] = {
    "a search through time": Mechanism(
        stand_ins={f"{_ASSIGNMENT}._Attempts.divided": lambda *_: ()},
        code=[f"{_ASSIGNMENT}._Attempts.divided", f"{_ASSIGNMENT}._divided"],
    ),
    "memory of results": Mechanism(stand_ins={f"{_ASSIGNMENT}._Assigning.lends": lambda *_: False}),
    "three arenas": _without_tails(),
    "arenas one by one": Mechanism(
        stand_ins={f"{_ASSIGNMENT}._FirstFit.run": _none}, code=[f"{_ASSIGNMENT}._FirstFit"]
    ),
    "arenas that are joined": Mechanism(
        stand_ins={f"{_ASSIGNMENT}._joined": lambda _held, groups, _results: groups},
        code=[f"{_ASSIGNMENT}._joined"],
    ),
    "shapes that are searched for": Mechanism(
        stand_ins={f"{_ASSIGNMENT}._Assigning.worst": lambda *_: ()},
        code=[f"{_ASSIGNMENT}._Assigning.worst", "symalloc.planner.grid.worst_shapes"],
    ),
    "shapes at which sizes cross": Mechanism(
        stand_ins={f"{_GRID}._crossings": lambda *_: iter(())},
        code=[f"{_GRID}._lines", f"{_GRID}._crossings"],
    ),
    "maxima within others": Mechanism(
        stand_ins={f"{_OFFSETS}.LONG": 1 << 60},
        code=[f"{_OFFSETS}._one_maximum"],
    ),
    "comparisons at samples": Mechanism(
        stand_ins={f"{_OFFSETS}.Dominance.may_reach": lambda *_: True},
        code=[f"{_OFFSETS}.Dominance.may_reach"],
    ),
    "checks seen to be implied": Mechanism(
        stand_ins={f"{_GUARDS}._limits": lambda *_: {}}, code=[f"{_GUARDS}._limits"]
    ),
    "only what lies directly on another": Mechanism(
        stand_ins={f"{_OBLIGATIONS}.ArenaObligations.piled_up": lambda _: [_UNSEEN]},
        code=[
            f"{_OBLIGATIONS}.ArenaObligations.piled_up",
            *(f"{_OBLIGATIONS}.{name}" for name in ("directly_above", "_from_below")),
        ],
    ),
    "limits that follow from a guard": Mechanism(
        stand_ins={f"{_VALIDATE}.ObligationProver._limits": lambda *_: []},
        code=[f"{_VALIDATE}.ObligationProver._limits", f"{_VALIDATE}._follows"],
    ),
    "local search": Mechanism(
        stand_ins={f"{_STACK}._StackingSearch.improve": _none},
        code=[f"{_STACK}._StackingSearch.improve", f"{_STACK}.improved"],
    ),
}
"""The heuristics and quick paths of planning."""


# -- plans ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A planned model: seconds, the worst call over unplanned and arena over floor, arenas and checks."""

    seconds: float
    call: float
    floor: float
    arenas: int
    checks: int

    def worse_than(self, other: Planned) -> bool:
        """Whether it holds more, has more arenas, or checks more when it is called."""
        more = self.call > other.call + SLIGHTLY or self.floor > other.floor + SLIGHTLY
        return more or self.arenas > other.arenas or self.checks > other.checks


def planned(model: str, mechanisms: Mapping[str, Mechanism], rounds: int) -> dict[str, Planned]:
    """A model planned without each of `mechanisms`, in turns; the quickest of `rounds` counts."""
    lowered = lower((CASES.get(model) or case_named(model)).build(), TARGET)

    def once(mechanism: Mechanism) -> tuple[float, PlannedModule]:
        with patched(mechanism.stand_ins):
            started = process_time()
            made = plan_lowered(lowered)
            return process_time() - started, made

    found = in_turns(rounds, {name: partial(once, mechanism) for name, mechanism in mechanisms.items()})
    return {
        name: _figures(min(seconds for seconds, _ in turns), turns[-1][1], lowered)
        for name, turns in found.items()
    }


def _figures(seconds: float, made: PlannedModule, lowered: tvm.IRModule) -> Planned:
    samples = [sample for report in memory_reports(made, TARGET) for sample in report.samples]
    return Planned(
        seconds=seconds,
        call=max((s.call_ratio or 1.0 for s in samples), default=1.0),
        floor=max((s.ratio or 1.0 for s in samples), default=1.0),
        arenas=sum(len(plan.arenas) for plan in made.plans.values()),
        checks=sum(len(plan.guards) for plan in made.plans.values()),
    )


def planner_rows(models: Sequence[str], without: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for all mechanisms of the planner together, and one without each."""
    mechanisms = {"-": Mechanism(stand_ins={}), **{name: PLANNER[name] for name in without or PLANNER}}
    found = {model: planned(model, mechanisms, rounds) for model in models}
    for name, mechanism in mechanisms.items():
        pairs = {model: (one[name], one["-"]) for model, one in found.items()}
        worse = [model for model, (one, usual) in pairs.items() if one.worse_than(usual)]
        longer = {model: one.seconds / usual.seconds for model, (one, usual) in pairs.items()}
        slowest = max(longer, key=longer.__getitem__)
        yield {
            "without": name,
            "lines": mechanism.lines,
            "worse": len(worse),
            "call": max(one.call for one, _ in pairs.values()),
            "floor": max(one.floor for one, _ in pairs.values()),
            "arenas": sum(one.arenas for one, _ in pairs.values()),
            "checks": sum(one.checks for one, _ in pairs.values()),
            "seconds": sum(one.seconds for one, _ in pairs.values()),
            "longest": longer[slowest],
            "which": "  " + ", ".join([*worse[:3], f"(time: {slowest})"]),
        }


PLANNER_COLUMNS = {
    "without": "36",
    "lines": ">7",
    "worse": ">7",
    "call": ">8.3f",
    "floor": ">8.3f",
    "arenas": ">8",
    "checks": ">8",
    "seconds": ">9.2f",
    "longest": ">9.2f",
    "which": "",
}


# -- shrink --------------------------------------------------------------------------------------------------

_SHRINK, _PASS = "symalloc.relax.shrink", "symalloc.relax.passes.plan_pass"
_SHRUNK, _OVER = f"{_SHRINK}.shrink_kernels", f"{_SHRINK}.written_over"


def _results_apart(
    module: tvm.IRModule,
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    larger: Mapping[str, int],
    tried: dict[object, bool],
) -> tuple[tvm.IRModule, Mapping[str, Sequence[WrittenOver]]]:
    """The module with outputs written over what calls read last, but for results."""
    return write_over(module, program, analyses, {name: 1 + larger.get(name, 0) for name in analyses}, tried)


SHRINK: Mapping[str, Mechanism] = {
    "stages in those that read them": Mechanism(
        stand_ins={f"{_SHRINK}.shrink_kernels.inline_stages": lambda kernel, **_: kernel},
        code=_parts(
            _SHRUNK,
            "inline_stages _can_go _may_wrap _is_simplified _repeats_nothing _combines_alike _axis "
            "_is_renaming _is_copy _passed_on _is_product _contracts",
        ),
    ),
    "buffers in outputs, and in each other": Mechanism(
        stand_ins={
            f"{_SHRINK}.shrink_kernels.share_buffers": lambda kernel: (
                kernel,
                {buffer.name: "it is left" for buffer in kernel.body.block.alloc_buffers},
            )
        },
        code=_parts(_SHRUNK, "share_buffers _uses _is_full _is_output _dead_before _merged"),
    ),
    "workspace in the plan": Mechanism(
        stand_ins={f"{_PASS}.plan_workspaces": lambda shrunk: shrunk},
        code=_parts(
            _SHRUNK,
            "plan_workspaces _allocating _Lifted _symbols _extent _lifted _used_in_several_parts _is_pooled",
        ),
    ),
    "outputs over what is read last": Mechanism(
        stand_ins={f"{_PASS}.write_over": lambda module, *_: (module, {})},
        code=_parts(_OVER, "WrittenOver write_over OverwriteSearch"),
    ),
    "order of calls": Mechanism(
        stand_ins={f"{_PASS}.order_for_memory": lambda module, *_: (module, ())},
        code=[
            *_parts(_OVER, "order_for_memory _may_move better_order _HeldTensors _address _rewritten"),
            f"{_PASS}._ordered",
        ],
    ),
    "tensors in larger ones": Mechanism(
        stand_ins={f"{_PASS}.write_in_parts": lambda module, *_: (module, {})},
        code=[f"{_SHRINK}.kernel_parts", f"{_PASS}._in_parts"],
    ),
    "results over what is read last": Mechanism(stand_ins={f"{_PASS}.write_over": _results_apart}),
    "both plans, and the better": Mechanism(
        stand_ins={f"{_PASS}._Attempt.larger": lambda *_: frozenset()}, code=[f"{_PASS}._Attempt"]
    ),
}
"""The remedies of `--shrink safe`."""
SHRUNK = (
    *("model/bert", "torch_gpt2", "torch_vit", "torch_t5_encoder"),
    *("torch_convnext", "torch_unet", "torch_cross_attention", "torch_autoencoder"),
    *("torch_decode_step", "torch_op_six_lengths", "branchy", "onnx_inception"),
)
"""Models for `shrink`.  Of the last four an order of calls helps two, and concatenations two: a mean over all
is none over the zoo.
"""


def shrink_rows() -> Iterator[dict[str, Any]]:
    """A row for each remedy: what a call takes without it over what it takes with all, and without any."""
    options, all_of = PlanOptions(shrink="safe"), Mechanism(stand_ins={})
    with_all: dict[str, list[int]] = {}
    for without, mechanism in {"-": all_of, "any": all_of, **SHRINK}.items():
        more, seconds = dict[str, list[float]](), 0.0
        for model in SHRUNK:
            lowered = lower((CASES.get(model) or case_named(model)).build(), TARGET)
            with patched(mechanism.stand_ins):
                started = process_time()
                made = plan_lowered(lowered, options=PlanOptions() if without == "any" else options)
                seconds += process_time() - started
            taken = [s.whole or 1 for report in memory_reports(made, TARGET) for s in report.samples]
            usual = with_all.setdefault(model, taken)
            more[model] = [one / other for one, other in zip(taken, usual, strict=True)]
        every = [one for of in more.values() for one in of]
        heaviest = max(more, key=lambda model: max(more[model]))
        row = {"without": without, "lines": mechanism.lines, "mean": geometric_mean(every)}
        yield {**row, "worst": max(every), "least": min(every), "seconds": seconds, "which": f"  {heaviest}"}


SHRINK_COLUMNS = {
    "without": "40",
    "lines": ">7",
    "mean": ">8.3f",
    "worst": ">8.3f",
    "least": ">8.3f",
    "seconds": ">9.2f",
    "which": "",
}


# -- orders --------------------------------------------------------------------------------------------------

ORDERS: Mapping[str, Mechanism] = {
    "heaviest antichains": Mechanism(
        stand_ins={"symalloc.planner.interference.BufferOrder.heaviest_over": lambda *_: []},
        code=["symalloc.planner.interference.BufferOrder.heaviest_over"],
    )
}


def order_rows() -> Iterator[dict[str, Any]]:
    """A row for each network: what is told as the floor of its plan for any order, over the true one."""
    for network, build in NETWORKS.items():
        module, function, at = build()
        lowered = lower(module, TARGET)
        true = order_floors(plan_lowered(lowered), function, at)[1]
        for without, mechanism in {"-": Mechanism(stand_ins={}), **ORDERS}.items():
            with patched(mechanism.stand_ins):
                started = process_time()
                plan = plan_lowered(lowered, options=PlanOptions(order="dag")).plans[function]
                taken = process_time() - started
            told = sum(highest(floor.sums, at) or 0 for floor in floors(plan))
            size = sum(arena.size.evaluate(at) for arena in plan.arenas)
            row = {"network": network, "without": without, "lines": mechanism.lines, "told": told / true}
            yield {**row, "arenas": size / true, "seconds": taken}


ORDER_COLUMNS = {
    "network": "12",
    "without": "24",
    "lines": ">7",
    "told": ">8.3f",
    "arenas": ">8.3f",
    "seconds": ">9.2f",
}


# -- lint ----------------------------------------------------------------------------------------------------


def _found_anew(table: Any, kernel: object) -> object:
    return table._find(kernel)


_NUMBERS = count()

LINT: Mapping[str, Mechanism] = {
    "instructions known to be clean": Mechanism(
        stand_ins={"symalloc.linter.function_check.MemoKeys.of": _none},
        code=["symalloc.linter.function_check.MemoKeys"],
    ),
    "kernels that were looked at before": Mechanism(
        stand_ins={"symalloc.analysis.kernels.coverage.KernelTable.of": _found_anew},
        code=["symalloc.analysis.kernels.coverage.KernelTable"],
    ),
    "sites that one like them was asked about": Mechanism(
        stand_ins={"symalloc.linter.sites.site.Site.memo_key": property(lambda _: object())},
        code=["symalloc.linter.function_check.FunctionCheck._site"],
    ),
    "constraints that one like them was judged for": Mechanism(
        stand_ins={"symalloc.linter.function_prover.PlacedConstraint.__hash__": lambda _: next(_NUMBERS)},
        code=["symalloc.linter.function_check.FunctionCheck._broken"],
    ),
}
"""The quick paths of the linter."""


def lint_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each quick path: the seconds that linting takes without it, and beside building.

    Linted are the decoder as TVM plans it and as we do: tensors of one arena are sites of pairs; and as TVM
    plans it for a bound, which each tensor needs.
    """
    module, rules = decoder_of(32), load_rules(())
    started = process_time()
    tvm.relax.build(module, TARGET)
    build = process_time() - started
    bounded = tvm.IRModule(module.functions)
    bounded["forward"] = module["forward"].with_attr("tir_var_upper_bound", {"n": 2048})
    planned = [*map(planned_by_tvm, (module, bounded)), plan_lowered(lower(module, TARGET)).module]
    programs = [extract(one, name="decoder") for one in planned]
    for without, mechanism in {"-": Mechanism(stand_ins={}), **LINT}.items():
        taken = []
        with patched(mechanism.stand_ins):
            for _ in range(rounds):
                started = process_time()
                prover = Prover()
                kernels = KernelProofs(prover)
                for program in programs:
                    check(program, rules, prover, kernels=kernels)
                taken.append(process_time() - started)
        row = {"without": without, "lines": mechanism.lines, "seconds": min(taken)}
        yield {**row, "of the build": min(taken) / build}


LINT_COLUMNS = {"without": "36", "lines": ">7", "seconds": ">9.2f", "of the build": ">14.3f"}


# -- the tables ----------------------------------------------------------------------------------------------


@click.command()
@click.argument("areas", nargs=-1, type=click.Choice(AREAS))
@click.option("--model", "models", multiple=True, help="A model of the zoo to plan, in place of the usual.")
@click.option("--without", "mechanisms", multiple=True, type=click.Choice(list(PLANNER)))
@rounds_option
def main(areas: tuple[str, ...], models: tuple[str, ...], mechanisms: tuple[str, ...], rounds: int) -> None:
    """Print a table for each area, all where none is named."""
    wanted = areas or AREAS
    if "planner" in wanted:
        print_table(
            PLANNER_COLUMNS, planner_rows(chosen(models, ()) if models else USUAL, mechanisms, rounds)
        )
    if "shrink" in wanted:
        print_table(SHRINK_COLUMNS, shrink_rows())
    if "full" in wanted:
        print_table(FULL_COLUMNS, full_rows(rounds))
    if "orders" in wanted:
        print_table(ORDER_COLUMNS, order_rows())
    if "layers" in wanted:
        print_table(LAYER_COLUMNS, layer_rows(TARGET))
    if "stacking" in wanted:
        print_table(STACKING_COLUMNS, stacking_rows())
    if "passes" in wanted:
        print_table(PASS_COLUMNS, pass_rows(rounds))
    if "lint" in wanted:
        print_table(LINT_COLUMNS, lint_rows(rounds))
    if "prover" in wanted:
        ablate_prover(args=[], standalone_mode=False)


if __name__ == "__main__":
    main()
