"""The memory that a call of a function holds at each moment, as its text reserves and uses it.

Each storage, and each tensor with memory of its own, is held from where it is reserved to the last point that
touches anything in it; results are held to the end.  So frees TVM's virtual machine, whoever planned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from symalloc.analysis.argument_binding import values_at_call
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.paths import enumerate_paths
from symalloc.analysis.regions import Region
from symalloc.planner.memory_plan import ALIGNMENT
from symalloc.planner.memory_report.non_arena import maker
from symalloc.planner.memory_report.sample_bindings import combined, evaluated
from symalloc.planner.memory_report.tensor_origin import OperatorCall, operator_calls
from symalloc.program.ir import AllocFresh, AllocStorage, CallFunction, Instruction, Program, Var
from symalloc.size.expr import Expr

_MOST_PATHS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Memory of `size` bytes (None where it is not known), held from program point `begin` to `end`.

    `called`: the function that is called at `begin` makes it, and counts it as its own until it returns.
    `var` is what the program calls it.
    """

    size: Expr | None
    begin: int
    end: int
    called: bool = False
    var: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalleeMemory:
    """The memory of the function `name`, called at `point`; `values` gives its symbols in the caller's."""

    point: int
    memory: CallMemory
    values: Mapping[str, Expr]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMemory:
    """The memory of a call: storages, tensors with memory of their own (made here, or by what is called, and
    not returned), results, and what called functions hold meanwhile.  `calls` are the operators that run
    meanwhile, in the order of the text.  `paths` holds the same for each path
    through the function; none where it does not branch, or has too many.
    """

    storages: tuple[HeldMemory, ...] = ()
    fresh: tuple[HeldMemory, ...] = ()
    results: tuple[HeldMemory, ...] = ()
    callees: tuple[CalleeMemory, ...] = ()
    calls: tuple[OperatorCall, ...] = ()
    paths: tuple[CallMemory, ...] = ()

    def peak(self, binding: Mapping[str, int], *, results: bool) -> int | None:
        """The most bytes held at one moment at `binding`, with or without results; None where a size is not
        known there.

        Sizes are rounded up to 64.  It is no less than what is held where paths are too many, or some of
        them are never taken.
        """
        if self.paths:
            return combined(max, (path.peak(binding, results=results) for path in self.paths))
        held = [*self.storages, *self.fresh, *(self.results if results else ())]
        taken = [(h, padded(evaluated(h.size, binding))) for h in held]
        changes: list[tuple[int, int, int]] = []
        for call in self.callees:
            size = _peak(call, binding)
            if size is None:
                return None
            changes += [(call.point, 0, size), (call.point, 1, -size)]
        for one, size in taken:
            if size is None:
                return None
            changes += [(one.begin, 2 if one.called else 0, size), (one.end, 3, -size)]
        return max(accumulate((change for *_, change in sorted(changes)), initial=0))


def call_memory(
    program: Program, analyses: Mapping[str, FunctionAnalysis], name: str, callers: tuple[str, ...] = ()
) -> CallMemory:
    """Return the memory of a call of the function `name`; recursion is not followed."""
    within = (*callers, name)
    analysis = analyses[name]
    called = {i.name for _, i in analysis.cfg.instructions if isinstance(i, CallFunction)}
    callees = {
        other: call_memory(program, analyses, other, within)
        for other in sorted(called & program.functions.keys() - set(within))
    }
    function = analysis.cfg.function
    paths = enumerate_paths(function, most=_MOST_PATHS, alike=True) if analysis.cfg.joins else None
    variants = [analyse_variant(program, path, analyses) for path in paths or ()]
    joined = {_branch(analysis, number).var: join for number, (_, join) in analysis.cfg.joins.items()}
    whole = _straight(program, analysis, callees, {point: var for var, point in joined.items()})
    found = []
    for variant in variants:
        yielded = {point: i.var for point, i in variant.cfg.instructions if i.var in joined}
        found.append(_straight(program, variant, callees, yielded))
    return replace(whole, paths=tuple(found))


def _branch(analysis: FunctionAnalysis, point: int) -> Instruction:
    instruction = analysis.cfg.points[point].instruction
    assert instruction is not None
    return instruction


def _straight(
    program: Program,
    analysis: FunctionAnalysis,
    callees: Mapping[str, CallMemory],
    yielded: Mapping[int, Var],
) -> CallMemory:
    """Return what is held when control goes through all of the text.

    TVM holds what an If yields until there: `yielded` has the results of Ifs by program point.
    """
    points_to, end = analysis.points_to, len(analysis.cfg.points) - 1
    returned = points_to.roots(points_to.regions_of(analysis.cfg.function.body.result))
    taken = {region.number: region for region in points_to.regions if _takes_memory(region)}
    last = dict(_last_touched(analysis, taken))
    for point, var in yielded.items():
        for root in points_to.roots(points_to.regions_of(var)):
            last[root] = max(last.get(root, 0), point)
    found: dict[str, list[HeldMemory]] = {"storages": [], "fresh": [], "results": []}
    for number, region in taken.items():
        begin = _begin(region, analysis)
        until = end if number in returned else last.get(number, begin)
        made = region.instruction
        called = isinstance(made, CallFunction) and made.name in callees
        held = HeldMemory(
            size=region.nbytes, begin=begin, end=max(begin, until), called=called, var=region.var
        )
        found[_kind(region, number in returned)].append(held)
    return CallMemory(
        storages=tuple(found["storages"]),
        fresh=tuple(found["fresh"]),
        results=tuple(found["results"]),
        callees=tuple(
            CalleeMemory(
                point=point,
                memory=callees[call.name],
                values=values_at_call(program.functions[call.name], call),
                name=call.name,
            )
            for point, call in analysis.cfg.instructions
            if isinstance(call, CallFunction) and call.name in callees
        ),
        calls=tuple(operator_calls(analysis)),
    )


def _last_touched(analysis: FunctionAnalysis, roots: Collection[int]) -> Mapping[int, int]:
    """Return the last program point that touches a root or anything in it."""
    regions = analysis.points_to.regions
    parts = [region.number for region in regions if region.root in roots]
    last: dict[int, int] = {}
    for part, found in analysis.live_ranges(parts).of.items():
        root = regions[part].root
        last[root] = max(last.get(root, 0), found.last)
    return last


def _takes_memory(region: Region) -> bool:
    if region.external or region.parent is not None:
        return False
    return isinstance(region.instruction, AllocStorage | AllocFresh) or maker(region) is not None


def _kind(region: Region, returned: bool) -> str:
    if returned:
        return "results"
    return "storages" if isinstance(region.instruction, AllocStorage) else "fresh"


def _begin(region: Region, analysis: FunctionAnalysis) -> int:
    assert region.instruction is not None
    return analysis.cfg.starts[region.instruction.var]


def _peak(callee: CalleeMemory, binding: Mapping[str, int]) -> int | None:
    """Return what a callee holds at most, what it returns included."""
    values = {name: evaluated(value, binding) for name, value in callee.values.items()}
    known = {name: value for name, value in values.items() if value is not None}
    return callee.memory.peak(known, results=True)


def padded(size: int | None) -> int | None:
    """Return `size` rounded up to 64 bytes, as memory is taken."""
    return None if size is None else -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """A call of one function as it was planned (`planned`), and with no plan at all (`unplanned`).

    `fallback`: a call that the check at entry refuses runs without the plan.
    """

    planned: CallMemory
    unplanned: CallMemory
    fallback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmPlan:
    """A call of one function behind StaticPlanBlockMemory; `problem` says why there is no plan."""

    memory: CallMemory = CallMemory()
    problem: str | None = None

    def peak(self, binding: Mapping[str, int], *, results: bool) -> int | None:
        """See `CallMemory.peak`; None where there is no plan."""
        return None if self.problem is not None else self.memory.peak(binding, results=results)


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmComparison:
    """TVM's plan with the bounds that the function declares (None where it declares none), and without."""

    bounded: TvmPlan | None
    unbounded: TvmPlan
