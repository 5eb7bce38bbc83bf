"""The assignments that are tried, one by one, each judged at sample bindings.

`arena_assignment` says which come in which order, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class JudgedGroups(NamedTuple):
    """An assignment, by how much it exceeds the limit, and how many times the floor its arenas take."""

    groups: Groups
    over: float
    spread: float

    def within(self, tolerance: float) -> bool:
        """Return whether neither the limit nor the floor is exceeded by more."""
        return self.over <= tolerance and self.spread <= 1 + tolerance


class ArenaAttempts:
    """The assignments of `planned` tensors, each made and judged when it is first needed.

    `hosts` are those of `results` whose memory may be used.
    """

    def __init__(
        self, timeline: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
    ) -> None:
        self.timeline, self.planned, self.results, self.hosts = timeline, planned, results, hosts
        self.few = max(FEW, len(planned) // MEMBERS_EACH) if timeline.columns.alike else len(planned)
        self._made: list[JudgedGroups] = []
        self._coming = self._attempts()

    def chosen(self, pass_over: int) -> Groups:
        """Return the first of the assignments that keeps to the limit and to the floor with few arenas,
        `pass_over` of those aside; else the one with fewest arenas that is tolerable, or takes least.
        """
        found: list[JudgedGroups] = []
        for one in self._judged():
            found.append(one)
            if one.within(EXACT) and len(one.groups) - len(self.results) <= self.few:
                pass_over -= 1
                if pass_over < 0:
                    return one.groups
        tolerable = [one.groups for one in found if one.within(TOLERABLE)]
        return min(tolerable, key=len) if tolerable else min(found, key=lambda one: one[1:]).groups

    def _judged(self) -> Iterator[JudgedGroups]:
        yield from self._made
        for groups in self._coming:
            timeline = self.timeline
            self._made.append(JudgedGroups(groups, timeline.excess(groups), timeline.spread(groups)))
            yield self._made[-1]

    def _attempts(self) -> Iterator[Groups]:
        timeline, planned, results, hosts = self.timeline, self.planned, self.results, self.hosts
        lone = [[i] for i in results]
        whole = fewest_arenas(timeline, planned)
        yield [*lone, *whole]
        if len(whole) == 1 and hosts:
            found = relieved(timeline, whole[0], results, hosts)
            if found is not None:
                yield [*(one for one in lone if one[0] not in hosts), *found]
        cut_first = len(planned) > MANY
        for attempt in (
            (early_arena, few_arenas, first_fit) if cut_first else (few_arenas, early_arena, first_fit)
        ):
            found = attempt(timeline, planned, results, hosts)
            if found is not None:
                yield found
        yield [*lone, *([i] for i in planned)]


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
