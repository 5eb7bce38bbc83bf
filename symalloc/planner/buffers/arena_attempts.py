"""The assignments that are tried, one by one, each judged at sample bindings.

`arena_assignment` says which come in which order, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.early_arena import early_arena
from symalloc.planner.buffers.first_fit import few_arenas, first_fit
from symalloc.planner.buffers.result_memory import relieved
from symalloc.planner.buffers.storage_slots import storage_slots

EXACT = 1e-9
TOLERABLE = 0.01
FEW = 6  # arenas, or one for every MEMBERS_EACH tensors: as many are worth it to stay at the limit exactly
MEMBERS_EACH = 6
MANY = 200  # tensors, of which a cut through time takes less work than looking at each by itself

Groups: TypeAlias = Sequence[Sequence[int]]
"""The members of each arena, by index; a result comes first where an arena lies in its memory."""


Attempt: TypeAlias = Callable[
    [CallTimeline, Sequence[int], Sequence[int], Sequence[int]], Sequence[Sequence[int]] | None
]


class JudgedGroups(NamedTuple):
    """An assignment, by how much it exceeds the limit, and how many times the floor its arenas take; and how
    it was made, where that takes long, or by which coefficients.
    """

    groups: Groups
    over: float
    spread: float
    made_by: Attempt | None = None
    made_on: CallTimeline | None = None

    def within(self, tolerance: float) -> bool:
        """Return whether neither the limit nor the floor is exceeded by more."""
        return self.over <= tolerance and self.spread <= 1 + tolerance


class ArenaAttempts:
    """The assignments of `planned` tensors, each made and judged when it is first needed.

    `hosts` are those of `results` whose memory may be used.  With `coefficients` of many symbols that few
    tensors have, these are grouped one by one so that it shows that the limit is kept: samples say little of
    so many, and are followed by others at which the arenas take more.
    """

    def __init__(
        self,
        timeline: CallTimeline,
        planned: Sequence[int],
        results: Sequence[int],
        hosts: Sequence[int],
        coefficients: CallTimeline | None = None,
    ) -> None:
        self.timeline, self.planned, self.results, self.hosts = timeline, planned, results, hosts
        self.few = max(FEW, len(planned) // MEMBERS_EACH) if timeline.columns.alike else len(planned)
        self._made: list[JudgedGroups] = []
        self._coming = _attempts(timeline, planned, results, hosts, coefficients)

    def again(self, made_by: Attempt | None) -> JudgedGroups | None:
        """Return what one way of making an assignment comes to, where that keeps to the limit and to the
        floor.
        """
        if made_by is None:
            return None
        groups = made_by(self.timeline, self.planned, self.results, self.hosts)
        one = None if groups is None else self._judge(groups, made_by)
        return one if one is not None and one.within(EXACT) else None

    def chosen(self, pass_over: int) -> JudgedGroups:
        """Return the first of the assignments that keeps to the limit and to the floor with few arenas or is
        seen to by coefficients, `pass_over` of those aside; else the one with fewest arenas that is
        tolerable, or takes least.
        """
        found: list[JudgedGroups] = []
        for one in self._judged():
            found.append(one)
            few = len(one.groups) - len(self.results) <= self.few
            if one.within(EXACT) and (few or one.made_on is not None):
                pass_over -= 1
                if pass_over < 0:
                    return one
        tolerable = [one for one in found if one.within(TOLERABLE)]
        if tolerable:
            return min(tolerable, key=lambda one: len(one.groups))
        return min(found, key=lambda one: (one.over, one.spread))

    def _judged(self) -> Iterator[JudgedGroups]:
        yield from self._made
        for groups, made_by, made_on in self._coming:
            self._made.append(self._judge(groups, made_by, made_on))
            yield self._made[-1]

    def _judge(
        self, groups: Groups, made_by: Attempt | None, made_on: CallTimeline | None = None
    ) -> JudgedGroups:
        timeline = self.timeline
        return JudgedGroups(groups, timeline.excess(groups), timeline.spread(groups), made_by, made_on)


def _attempts(
    timeline: CallTimeline,
    planned: Sequence[int],
    results: Sequence[int],
    hosts: Sequence[int],
    coefficients: CallTimeline | None,
) -> Iterator[tuple[Groups, Attempt | None, CallTimeline | None]]:
    """Yield assignments, how each was made, and on what.

    It knows no ArenaAttempts: one that holds what is yielded here would keep all of a plan until the garbage
    collector looks at everything.
    """
    lone = [[i] for i in results]
    whole = fewest_arenas(timeline, planned)
    yield [*lone, *whole], None, None
    if len(whole) == 1 and hosts:
        found = relieved(timeline, whole[0], results, hosts)
        if found is not None:
            yield [*(one for one in lone if one[0] not in hosts), *found], None, None
    cut_first = len(planned) > MANY
    attempts: Sequence[Attempt] = (
        (early_arena, few_arenas, first_fit) if cut_first else (few_arenas, early_arena, first_fit)
    )
    for attempt in attempts:
        groups = attempt(timeline, planned, results, hosts)
        if groups is not None:
            yield groups, attempt, None
        if attempt is few_arenas and coefficients is not None:
            groups = first_fit(coefficients, planned, results, hosts)
            if groups is not None:
                yield groups, None, coefficients
    yield [*lone, *([i] for i in planned)], None, None


def fewest_arenas(timeline: CallTimeline, planned: Sequence[int]) -> list[list[int]]:
    """Return few groups that are possible, whatever a call takes then; those of grounded tensors as small as
    they can be.
    """
    columns = timeline.columns
    if columns.alike:
        return by_definition(columns, planned)
    grounded = [i for i in planned if timeline.tenants[i].grounded]
    others = [i for i in planned if not timeline.tenants[i].grounded]
    return [*by_definition(columns, others), *storage_slots(timeline, grounded)]


def by_definition(columns: CallColumns, planned: Sequence[int]) -> list[list[int]]:
    """Return the fewest groups, in the order of the text, at whose first tensor all sizes are known."""
    if columns.all_known:
        return [list(planned)] if planned else []
    groups: list[list[int]] = []
    for i in sorted(planned, key=lambda i: (columns.tenants[i].made, i)):
        fitting = (g for g in groups if columns.may_join(g, i))
        group = next(fitting, None)
        if group is None:
            groups.append([i])
        else:
            group.append(i)
    return groups
