"""The paths that control can take: Ifs on one condition go the same way, and no path contradicts itself.

This is the one notion of "on some path" that findings rest on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.analysis.facts import NO_TESTS, BranchTests, FunctionFacts
from symalloc.program.control_flow import ControlFlowGraph, PathCondition, consistent
from symalloc.size.condition import Condition, negate

Possible: TypeAlias = Callable[[tuple[Condition, ...]], bool | None]
"""Return whether conditions can hold together; None where that is not decided."""

MOST_STEPS = 256
"""The number of paths that `uncovered` looks at before it gives up."""


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    """The answer of `FeasiblePaths.uncovered`; not `decided` where the search was given up."""

    path: PathCondition | None
    decided: bool = True


class FeasiblePaths:
    """Tells which paths through a function are possible.

    Without `facts` every If is independent of the others.  `possible` judges conditions on sizes.  `at`: the
    branches that lead to each point.
    """

    def __init__(
        self,
        cfg: ControlFlowGraph,
        facts: FunctionFacts | None = None,
        tests: BranchTests = NO_TESTS,
        possible: Possible = lambda _: None,
    ) -> None:
        self.cfg, self.facts, self.tests, self.possible, self.at = cfg, facts, tests, possible, cfg.paths
        self._standing: dict[tuple[PathCondition, int | None], bool | None] = {}

    def feasible(self, path: PathCondition, until: int | None = None) -> bool:
        """False where no path takes all of these branches, and gets to the point `until` if one is given."""
        return self._stands(self.whole(path, until), until) is not False

    def reaches(self, first: int, second: int) -> bool:
        """True if some path goes through `first`, then through `second`."""
        return first < second and self.feasible(self.at[first] | self.at[second], second)

    def uncovered(
        self, path: PathCondition, others: Iterable[PathCondition], until: int | None = None
    ) -> UncoveredPath:
        """A feasible path that takes all of `path` and gets to `until`, and takes none of `others` in full.

        Its `path` holds the branches that matter; it is None where there is no such path.
        """
        if not self.cfg.joins:  # one path, which takes no branch
            return UncoveredPath(None if any(True for _ in others) else path)
        start = self.whole(path, until)
        if self._stands(start, until) is False:
            return UncoveredPath(None)
        avoided = [self.whole(other) for other in others]
        pending = [start]
        for _ in range(MOST_STEPS):
            if not pending:
                return UncoveredPath(None)
            taken = pending.pop()
            rest = next((tuple(sorted(o - taken)) for o in avoided if consistent(o | taken)), None)
            if rest is None:
                return UncoveredPath(taken)
            ways = (
                self.whole(taken | {*rest[:index], (branch, not side)})
                for index, (branch, side) in enumerate(rest)
            )
            pending += reversed([way for way in ways if self._stands(way, until) is not False])
        return UncoveredPath(start, decided=False)

    def doubt(self, path: PathCondition, until: int | None = None) -> str | None:
        """The reason for which control may not take `path`; None where nothing speaks against it."""
        whole = self.whole(path, until)
        if len(whole) < 2:
            return None
        if self._stands(whole, until) is None:
            return "whether the branches on this path can be taken together is not decided"
        pair = self.tests.related([branch for branch, _ in sorted(whole)])
        if pair is None:
            return None
        one, other = (self.tests.name(self.cfg, branch) for branch in pair)
        return f"the conditions {one} and {other} are computed from the same values"

    def text(self, path: PathCondition) -> str:
        """The path in words: "`cond` is true and `n <= 4` is false"; empty for one that takes no branch."""
        said = [(self.tests.name(self.cfg, branch), then) for branch, then in sorted(self.whole(path))]
        parts = [f"{name} is {'true' if then else 'false'}" for name, then in dict.fromkeys(said)]
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    def conditions(self, path: PathCondition, until: int | None = None) -> tuple[Condition, ...]:
        """The conditions on sizes, and on what Ifs test, that hold on `path`, in front of `until`."""
        if self.facts is None:
            return ()
        known = self.facts.before[until].guards if until is not None else ()
        tested = (self.facts.tests.get(branch) for branch, _ in sorted(path))
        sides = zip(tested, (then for _, then in sorted(path)), strict=True)
        more = (test if then else negate(test) for test, then in sides if test is not None)
        parts = (part for condition in more for part in (condition.conjuncts or (condition,)))
        return tuple(dict.fromkeys((*known, *parts)))

    def whole(self, path: PathCondition, until: int | None = None) -> PathCondition:
        """`path` with the branches that lead to those on it, and to the point `until`."""
        if until is not None and self.cfg.joins:
            path |= self.at[until]
        for branch, _ in path if path else ():
            if not self.at[branch] <= path:
                path |= self.at[branch]
        return path

    def _stands(self, path: PathCondition, until: int | None) -> bool | None:
        """Return whether control can take `path`; None where that is not decided."""
        if not path and (until is None or self.facts is None or not self.facts.before[until].guards):
            return True
        if not consistent(path):
            return False
        key = (path, until)
        if key not in self._standing:
            last = max(path)[0] if until is None else until
            self._standing[key] = self._together(self.conditions(path, last))
        return self._standing[key]

    def _together(self, conditions: tuple[Condition, ...]) -> bool | None:
        """Return whether conditions can hold together, judged by sight where that will do."""
        known = frozenset(conditions)
        if any(c.as_bool is False or negate(c) in known for c in conditions):
            return False
        seen: set[str] = set()
        for condition in conditions:
            if not condition.symbols <= self.tests.opaque or seen & condition.symbols:
                return self.possible(conditions)
            seen |= condition.symbols
        return True
