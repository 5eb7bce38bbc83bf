"""The memory that a call of a function holds at each moment, as its text reserves and uses it.

Each storage, and each tensor with memory of its own, is held from where it is reserved to the last point that
touches anything in it; results are held to the end.  So frees TVM's virtual machine, whoever planned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from symalloc.analysis.argument_binding import values_at_call
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.paths import EVERY_PATH, PathCondition, enumerate_paths
from symalloc.analysis.regions import Region
from symalloc.analysis.tensor_origin import OperatorCall, operator_calls
from symalloc.program.ir import (
    AllocFresh,
    AllocStorage,
    CallFunction,
    CallOperator,
    CallPacked,
    If,
    Instruction,
    Kill,
    Ownership,
    Program,
    Var,
)
from symalloc.program.types import ALIGNMENT, TensorType
from symalloc.size.evaluation import combined, evaluated
from symalloc.size.expr import Expr

_MOST_PATHS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Memory of `size` bytes (None where it is not known), held from program point `begin` to `end`.

    `called`: the function that is called at `begin` makes it, and counts it as its own until it returns.
    `var` is what the program calls it; the instruction that reserves it binds `bound`.
    """

    size: Expr | None
    begin: int
    end: int
    called: bool = False
    var: Var | None = None
    bound: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalleeMemory:
    """The memory of the function `name`, called at `point`; `values` gives its symbols in the caller's.

    The call binds `bound`.
    """

    point: int
    memory: CallMemory
    values: Mapping[str, Expr]
    name: str = ""
    bound: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMemory:
    """The memory of a call: storages, tensors with memory of their own (made here, or by what is called, and
    not returned), results, and what called functions hold meanwhile.  `calls` are the operators that run
    meanwhile, in the order of the text.  `paths` holds the same for each path
    through the function, which takes the branches `path`; none where it does not branch, or has too many:
    then it is not `exact`, and the most that is held may be less.  `recursive`: a function is called within a
    call of itself, how many times is not known; the inner call is left out.
    """

    storages: tuple[HeldMemory, ...] = ()
    fresh: tuple[HeldMemory, ...] = ()
    results: tuple[HeldMemory, ...] = ()
    callees: tuple[CalleeMemory, ...] = ()
    calls: tuple[OperatorCall, ...] = ()
    paths: tuple[CallMemory, ...] = ()
    path: PathCondition = EVERY_PATH
    exact: bool = True
    recursive: bool = False

    def peak(self, binding: Mapping[str, int], *, results: bool) -> int | None:
        """The most bytes held at one moment at `binding`, with or without results; None where a size is not
        known there.

        Sizes are rounded up to 64.  It is no less than what is held where paths are too many, or some of
        them are never taken.  None, too, where the call is `recursive`.
        """
        if self.recursive:
            return None
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
    """Return the memory of a call of the function `name`, within calls of `callers`."""
    within = (*callers, name)
    analysis = analyses[name]
    called = {i.name for _, i in analysis.cfg.instructions if isinstance(i, CallFunction)}
    callees = {
        other: call_memory(program, analyses, other, within)
        for other in sorted(called & program.functions.keys() - set(within))
    }
    paths = enumerate_paths(analysis.cfg, most=_MOST_PATHS, alike=True) if analysis.cfg.joins else None
    variants = [analyse_variant(program, path, analyses) for path in paths or ()]
    joined = {_branch(analysis, number).var: join for number, (_, join) in analysis.cfg.joins.items()}
    whole = _straight(program, analysis, callees, {point: var for var, point in joined.items()})
    found = []
    for variant in variants:
        yielded = {point: i.var for point, i in variant.cfg.instructions if i.var in joined}
        straight = _straight(program, variant, callees, yielded)
        found.append(replace(straight, path=_branches_taken(analysis, variant)))
    exact = not analysis.cfg.joins or paths is not None
    recursive = not called.isdisjoint(within) or any(callee.recursive for callee in callees.values())
    return replace(whole, paths=tuple(found), exact=exact, recursive=recursive)


def _branches_taken(analysis: FunctionAnalysis, path: FunctionAnalysis) -> PathCondition:
    """Return the branches of a function that one of its paths takes, where it matters which."""
    taken = {instruction.var for _, instruction in path.cfg.instructions}
    found = set()
    for number in analysis.cfg.joins:
        branch = _branch(analysis, number)
        if not isinstance(branch, If) or branch.var not in taken:
            continue
        then, otherwise = ({i.var for i in side.instructions} for side in (branch.then, branch.otherwise))
        if then or otherwise:
            found.add((number, not taken.isdisjoint(then) if then else taken.isdisjoint(otherwise)))
    return frozenset(found)


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
    taken = {region.number: region for region in points_to.regions if _takes_memory(region, callees)}
    last = dict(_last_touched(analysis, taken))
    for point, var in yielded.items():
        for root in points_to.roots(points_to.regions_of(var)):
            last[root] = max(last.get(root, 0), point)
    typed: defaultdict[int, list[Expr | None]] = defaultdict(list)  # by the point that makes them
    for region in taken.values():
        typed[_begin(region, analysis)].append(region.nbytes)
    found: dict[str, list[HeldMemory]] = {"storages": [], "fresh": [], "results": []}
    for number, region in taken.items():
        begin = _begin(region, analysis)
        until = end if number in returned else last.get(number, begin)
        made = region.instruction
        called = isinstance(made, CallFunction) and made.name in callees
        held = HeldMemory(
            size=_returned_bytes(program, region, typed[begin], callees) if called else region.nbytes,
            begin=begin,
            end=max(begin, until),
            called=called,
            var=region.var,
            bound=None if made is None else made.var,
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
                bound=call.var,
            )
            for point, call in analysis.cfg.instructions
            if isinstance(call, CallFunction) and call.name in callees
        ),
        calls=tuple(operator_calls(analysis)),
    )


def _last_touched(analysis: FunctionAnalysis, roots: Collection[int]) -> Mapping[int, int]:
    """Return the last point that touches a root or anything in it, hands it to a function, or kills it.

    A caller keeps what it hands over until the call returns, whether the function looks at it or not.
    """
    regions = analysis.points_to.regions
    parts = [region.number for region in regions if region.root in roots]
    last: dict[int, int] = {}
    for part, found in analysis.live_ranges(parts).of.items():
        root = regions[part].root
        last[root] = max(last.get(root, 0), found.last)
    points_to = analysis.points_to
    held: Sequence[tuple[int, CallFunction | Kill]] = analysis.cfg.of_type(CallFunction, Kill)
    for point, one in held:
        for operand in one.arguments if isinstance(one, CallFunction) else (one.target,):
            for root in points_to.roots(points_to.regions_of(operand)):
                last[root] = max(last.get(root, 0), point)
    return last


def _takes_memory(region: Region, callees: Mapping[str, CallMemory]) -> bool:
    """Return whether a region is memory that a call holds.

    What a callee reserves and returns counts where its type does not tell what it is, too, such as a storage:
    its size is not known then.
    """
    if region.parent is not None:
        return False
    made = region.instruction
    if isinstance(made, CallFunction) and region.nbytes is None and made.name in callees:
        memory = callees[made.name]
        return any(one.results for one in (memory, *memory.paths))
    if region.external:
        return False
    return isinstance(made, AllocStorage | AllocFresh) or maker(region) is not None


def _returned_bytes(
    program: Program, region: Region, typed: Sequence[Expr | None], callees: Mapping[str, CallMemory]
) -> Expr | None:
    """Return what the caller holds of memory that a callee returns; its results are `typed` bytes long.

    A storage may be larger than the tensor on it: None where it cannot be told which result has which.
    """
    call = region.instruction
    assert isinstance(call, CallFunction)
    memory, values = callees[call.name], values_at_call(program.functions[call.name], call)
    reserved = [
        Counter(None if held.size is None else held.size.substitute(values) for held in one.results)
        for one in memory.paths or (memory,)
    ]
    if all(each <= Counter(typed) for each in reserved):
        return region.nbytes
    sizes = {size for each in reserved for size in each}
    return sizes.pop() if len(sizes) == len(typed) == 1 else None


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


def maker(region: Region) -> str | None:
    """Return the name of the call that makes the memory of a tensor, where one always does."""
    tensor = region.nbytes is not None or (region.var is not None and isinstance(region.var.type, TensorType))
    if region.external or region.parent is not None or not tensor:
        return None
    match region.instruction:
        case CallFunction(name=name) | CallOperator(name=name):
            return name
        case CallPacked(name=name, ownership=Ownership.FRESH):
            return name
    return None
