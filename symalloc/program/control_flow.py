"""The control-flow graph of a function: its If tree laid out as one list of program points.

An If becomes four kinds of points around its blocks: BRANCH (its test is evaluated), the points of the
then-block, ELSE (the then-block yields its value), the points of the else-block, JOIN (the else-block yields
its value, and the variable of the If is bound).  One EXIT point stands last and holds the result of the
function.  Control only flows forwards: from BRANCH to the next point and to the one behind ELSE, from ELSE
and from JOIN to the point behind JOIN.  So the points stand in a reverse postorder, and one pass with it or
against it solves any dataflow problem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from symalloc.program import ir
from symalloc.program.ir import Block, Function, If, Instruction, Operand, Var
from symalloc.program.operands import function_references, operands_of, variables_in, variables_of

Made = TypeVar("Made", bound=Instruction)


class PointKind(IntEnum):
    """The kinds of program points."""

    INSTRUCTION = 0
    BRANCH = 1
    ELSE = 2
    JOIN = 3
    EXIT = 4


class ProgramPoint(NamedTuple):
    """One program point; its number is its index in `ControlFlowGraph.points`.

    `instruction` is that of an INSTRUCTION, or the If of a BRANCH, ELSE and JOIN.  `uses` are the variables
    that the point refers to.  `branch` is the number of the BRANCH of the innermost If around the point, -1
    outside all; ELSE and JOIN stand in the blocks that they end.  `operand` is the value that a block
    yields: of the then-block at ELSE, of the else-block at JOIN, of the function at EXIT.
    """

    kind: PointKind
    instruction: Instruction | None
    uses: tuple[Var, ...]
    branch: int = -1
    operand: Operand | None = None


PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""
EVERY_PATH: PathCondition = frozenset()
"""The condition that every path meets."""


def consistent(condition: PathCondition) -> bool:
    """True if no If is taken both ways."""
    return len(condition) < 2 or len({branch for branch, _ in condition}) == len(condition)


class ReservationPoint(NamedTuple):
    """The points [begin, end) of the block that memory is reserved in, and the one that it is in front of."""

    block: tuple[int, int]
    point: int


@dataclass(frozen=True, kw_only=True)
class ControlFlowGraph:
    """The program points of a function.

    `joins` holds for the number of a BRANCH those of its ELSE and its JOIN.
    """

    function: Function
    points: tuple[ProgramPoint, ...]
    joins: Mapping[int, tuple[int, int]]

    @property
    def exit(self) -> int:
        """The number of EXIT, the last point."""
        return len(self.points) - 1

    def at(self, *kinds: PointKind) -> Sequence[tuple[int, Instruction]]:
        """The instructions of points of some kinds, in order, each with the number of the point."""
        if not self.joins:
            return self.instructions if PointKind.INSTRUCTION in kinds else ()
        return [(i, p.instruction) for i, p in enumerate(self.points) if p.kind in kinds and p.instruction]

    @cached_property
    def instructions(self) -> tuple[tuple[int, Instruction], ...]:
        """The instructions other than Ifs, in order, each with the number of its point."""
        made = ((i, p.instruction) for i, p in enumerate(self.points))
        return tuple([(i, one) for i, one in made if one is not None and type(one) is not If])

    @cached_property
    def paths(self) -> Sequence[PathCondition]:
        """The branches that lead to each point; ELSE and JOIN are in the blocks that they end.

        Ifs are taken to be independent of each other: `symalloc.analysis.conflicts` knows which are not.
        """
        found: list[PathCondition] = []
        for number, point in enumerate(self.points):
            branch = point.branch
            inside = branch >= 0 and found[branch] | {(branch, number <= self.joins[branch][0])}
            found.append(inside or EVERY_PATH)
        return found

    @cached_property
    def _by_type(self) -> Mapping[type[Instruction], Sequence[tuple[int, Instruction]]]:
        found: defaultdict[type[Instruction], list[tuple[int, Instruction]]] = defaultdict(list)
        for numbered in self.instructions:
            found[type(numbered[1])].append(numbered)
        return found

    def of_type(self, *types: type[Made]) -> Sequence[tuple[int, Made]]:
        """The instructions of `types`, in order, each with the number of its point; Ifs are left out."""
        found: list[Any] = [self._by_type[kind] for kind in types if kind in self._by_type]
        if len(found) > 1:
            return sorted((numbered for one in found for numbered in one), key=itemgetter(0))
        return found[0] if found else ()

    @cached_property
    def starts(self) -> Mapping[Var, int]:
        """By variable, the first point of the instruction that binds it: of an If its BRANCH."""
        return {made.var: number for number, made in self.at(PointKind.INSTRUCTION, PointKind.BRANCH)}

    @cached_property
    def ends(self) -> Mapping[Var, int]:
        """By variable, the last point of the instruction that binds it: of an If its JOIN."""
        return {made.var: number for number, made in self.at(PointKind.INSTRUCTION, PointKind.JOIN)}

    @cached_property
    def definitions(self) -> Mapping[Var, Instruction]:
        """By variable, the instruction that binds it; parameters are left out."""
        return {made.var: made for _, made in self.at(PointKind.INSTRUCTION, PointKind.BRANCH)}

    def reservation(self, points: Iterable[int]) -> ReservationPoint:
        """Return where memory that the instructions at `points` share is reserved.

        That is in front of the first of them, or of the If of that block which the first lies in: the
        innermost that holds them all.
        """
        numbers = frozenset(points)
        first = min(numbers)
        chain = sorted(self.paths[first])  # the outermost If first
        levels = zip(*(sorted(self.paths[number]) for number in numbers), strict=False)
        depth = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
        point = chain[depth][0] if depth < len(chain) else first
        if not depth:
            return ReservationPoint((0, len(self.points)), point)
        branch, then = chain[depth - 1]
        middle, join = self.joins[branch]
        return ReservationPoint((branch + 1, middle) if then else (middle + 1, join), point)


def control_flow_graph(function: Function) -> ControlFlowGraph:
    """The control-flow graph of `function`."""
    points: list[ProgramPoint] = []
    joins: dict[int, tuple[int, int]] = {}
    _lay_out(function.body, -1, points, joins)
    _end(points, PointKind.EXIT, None, -1, function.body.result)
    return ControlFlowGraph(function=function, points=tuple(points), joins=joins)


def _lay_out(block: Block, start: int, points: list[ProgramPoint], joins: dict[int, tuple[int, int]]) -> None:
    for one in block.instructions:
        if type(one) is not If:
            points.append(ProgramPoint(PointKind.INSTRUCTION, one, variables_of(one), start))
            continue
        branch = len(points)
        points.append(ProgramPoint(PointKind.BRANCH, one, variables_of(one), start))
        _lay_out(one.then, branch, points, joins)
        middle = _end(points, PointKind.ELSE, one, branch, one.then.result)
        _lay_out(one.otherwise, branch, points, joins)
        joins[branch] = (middle, _end(points, PointKind.JOIN, one, branch, one.otherwise.result))


def _end(points: list[ProgramPoint], kind: PointKind, branch: If | None, start: int, result: Operand) -> int:
    points.append(ProgramPoint(kind, branch, tuple(variables_in(result)), start, result))
    return len(points) - 1


# -- the call graph ----------------------------------------------------------------------------------------


def call_graph(graphs: Mapping[str, ControlFlowGraph]) -> dict[str, set[str]]:
    """For each function the functions of the program that it calls, or hands to something that may."""
    return {name: _called(cfg) & graphs.keys() for name, cfg in graphs.items()}


def callees_first(callees: Mapping[str, set[str]]) -> tuple[str, ...]:
    """The functions so ordered that callees stand before callers, but for recursion."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    for root in callees:
        stack = [(root, iter(sorted(callees[root])))] if root not in entered else []
        entered.add(root)
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in entered), None)
            if following is None:
                order[name] = None
                stack.pop()
            else:
                entered.add(following)
                stack.append((following, iter(sorted(callees[following]))))
    return tuple(order)


def recursive(callees: Mapping[str, set[str]]) -> frozenset[str]:
    """The functions that are called while they are themselves under way."""
    return frozenset(name for name in callees if name in _reached(callees, name))


def functions_as_values(graphs: Iterable[ControlFlowGraph]) -> set[str]:
    """The functions that are used other than by calling them: who calls these is not known."""
    points = [point for cfg in graphs for point in cfg.points]
    operands = (
        o for p in points for o in (p.operand, *(operands_of(p.instruction) if p.instruction else ()))
    )
    return set(function_references(operand for operand in operands if operand is not None))


def _reached(callees: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    pending = [start]
    while pending:
        fresh = callees[pending.pop()] - reached
        reached |= fresh
        pending.extend(fresh)
    return reached


def _called(cfg: ControlFlowGraph) -> set[str]:
    others: Sequence[tuple[int, ir.Instruction]] = cfg.of_type(ir.CallPacked, ir.NotUnderstood)
    given = (
        operand for _, one in others for operand in operands_of(one)
    )  # these may call what they are given
    return {call.name for _, call in cfg.of_type(ir.CallFunction)}.union(function_references(given))
