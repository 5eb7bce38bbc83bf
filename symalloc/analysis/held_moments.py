"""The moments of a call at which it takes memory, with the bytes that it holds then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from symalloc.analysis.call_memory import CalleeMemory, CallMemory, HeldMemory
from symalloc.analysis.paths import EVERY_PATH, PathCondition
from symalloc.analysis.register_machine import UnknownMemoryError
from symalloc.program.ir import Var
from symalloc.program.types import ALIGNMENT
from symalloc.size.condition import Condition
from symalloc.size.expr import ZERO, Expr, round_up
from symalloc.size.sign import undominated

KnownAt: TypeAlias = Callable[[str, PathCondition, Var | None], Sequence[Condition]]
"""The conditions that hold in a function, on a path, in front of the instruction that binds a variable; where
that is None, when the function returns.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMoment:
    """The `size` bytes that a call holds once the instruction that binds `bound` has taken its memory.

    `path`: the branches on which that is so.  `inner` are conditions that hold in the functions called then,
    in symbols of the caller.  Not `exact`: the call may hold less.
    """

    size: Expr
    bound: Var | None
    path: PathCondition = EVERY_PATH
    inner: frozenset[Condition] = frozenset()
    exact: bool = True


def held_moments(memory: CallMemory, known: KnownAt = lambda *_: ()) -> list[HeldMoment]:
    """Return the moments at which a call takes memory: the largest size is `CallMemory.peak` with results.

    `known` tells what holds in the functions that are called.  Raises UnknownMemoryError.
    """
    if memory.recursive:
        raise UnknownMemoryError("a call within itself holds more than can be said")
    if memory.paths:
        return [moment for path in memory.paths for moment in held_moments(path, known)]
    spans = [_span(held) for held in (*memory.storages, *memory.fresh, *memory.results)]
    called = {(callee.point, 0): list(_within(callee, known)) for callee in memory.callees}
    called |= {(callee.point, 2): [_returned(callee, known)] for callee in memory.callees}
    bound = {begin: var for _, begin, _, var in spans}
    bound |= {(callee.point, 0): callee.bound for callee in memory.callees}
    found: list[HeldMoment] = []
    for at, var in sorted(bound.items(), key=lambda one: one[0]):
        alive = sum((size for size, begin, end, _ in spans if begin <= at < end), start=ZERO)
        here = HeldMoment(size=alive, bound=var, path=memory.path, exact=memory.exact)
        inner = called.get(at) or [HeldMoment(size=ZERO, bound=None)]
        found += [
            replace(here, size=alive + one.size, inner=one.inner, exact=memory.exact and one.exact)
            for one in inner
        ]
    return list(dict.fromkeys(found))


def call_sums(memory: CallMemory, signed: Collection[str] = ()) -> tuple[Expr, ...] | None:
    """Return the sums of bytes that a call holds together: the largest is `CallMemory.peak` with results.

    Symbols are >= 0, but for those that are `signed`.  None where a size is not known, or a callee's is not
    in the caller's symbols.
    """
    try:
        return undominated((moment.size for moment in held_moments(memory)), signed)
    except UnknownMemoryError:
        return None


_Moment: TypeAlias = tuple[int, int]  # a program point, and what comes first there


def _span(held: HeldMemory) -> tuple[Expr, _Moment, _Moment, Var | None]:
    if held.size is None:
        name = f"`{held.var.name}`" if held.var is not None else "some memory"
        raise UnknownMemoryError(f"the size of {name} is not known")
    return round_up(held.size, ALIGNMENT), (held.begin, 2 if held.called else 0), (held.end, 3), held.bound


def _within(callee: CalleeMemory, known: KnownAt) -> Iterator[HeldMoment]:
    """Yield what a called function holds, over the symbols of its caller."""
    for moment in held_moments(callee.memory, known):
        if not moment.size.symbols <= callee.values.keys():
            raise UnknownMemoryError(f"what `{callee.name}` holds is not known where it is called")
        given = () if moment.bound is None else known(callee.name, moment.path, moment.bound)
        yield replace(
            moment,
            size=moment.size.substitute(callee.values),
            inner=frozenset(_translated((*given, *moment.inner), callee.values)),
        )


def _returned(callee: CalleeMemory, known: KnownAt) -> HeldMoment:
    """Return the moment at which a called function returns: the caller counts its results from then on."""
    given = known(callee.name, EVERY_PATH, None)
    return HeldMoment(size=ZERO, bound=None, inner=frozenset(_translated(given, callee.values)))


def _translated(conditions: Sequence[Condition], values: Mapping[str, Expr]) -> Iterator[Condition]:
    """Yield those of `conditions` that the caller can tell, over its symbols."""
    for condition in conditions:
        if condition.symbols <= values.keys():
            told = condition.substitute(values)
            if told.as_bool is None:
                yield told
