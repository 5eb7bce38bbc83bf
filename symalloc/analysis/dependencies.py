"""The dependency graph of a function: its dispatches, and the edges that say which has to wait for which.

An If is one dispatch, and so is a call of another function: what is inside keeps its order.  Instructions
that only name, place, view or free memory are none; what uses their variables waits for what these come from.
Two tensors on one storage are two memories here, wherever they lie: edges are what the program means.  The
order that a plan needs besides are its fences (`symalloc.analysis.happens_before`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import PointsTo, Region
from symalloc.analysis.sets import RegionSet, contains, members
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.operands import callee_of, expressions_of, instructions_of, tensor_type
from symalloc.program.span import Span


class EdgeKind(StrEnum):
    """The reasons for which a dispatch waits for another."""

    DATA = "data"  # it reads what the other made
    MEMORY = "memory"  # it writes what the other reads or writes, as the program says
    EFFECT = "effect"  # both do more than write tensors, or the other checks something
    FENCE = "fence"  # it writes where a plan has put what the other reads or writes


class Edge(NamedTuple):
    """Dispatch `target` waits for dispatch `source`; `names` are the tensors or values that it is about."""

    source: int
    target: int
    kind: EdgeKind
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One step that an executor starts: a kernel, a call, a check, a copy, or an If with all that is in it.

    `operator` is what it calls.  `inputs` and `outputs` name the tensors and objects that it reads and
    writes, `device` is the number of the device that it runs on.  The program points [first, last] are it.
    """

    number: int
    operator: str
    instruction: ir.Instruction
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    device: int = 0
    first: int
    last: int

    @property
    def name(self) -> str:
        """The variable that it binds."""
        return self.instruction.var.name

    @property
    def source(self) -> Span | None:
        """The place in the source."""
        return self.instruction.span


class Touch(NamedTuple):
    """A program point of a dispatch that reads or writes a memory; the end of the function has the number
    behind the last dispatch.
    """

    point: int
    dispatch: int
    reads: bool
    writes: bool


@dataclass(frozen=True, kw_only=True)
class DependencyGraph:
    """The dispatches of one function, in the order of the program, which is a topological one, and edges.

    `touches` are those of each memory: of a tensor or an object, by the number of its region, in order.
    """

    function: str
    nodes: tuple[Dispatch, ...]
    edges: tuple[Edge, ...]
    touches: Mapping[int, Sequence[Touch]] = field(default_factory=dict)
    points_to: PointsTo = field(repr=False)

    @cached_property
    def predecessors(self) -> Sequence[frozenset[int]]:
        """The dispatches that each one waits for."""
        found: list[set[int]] = [set() for _ in self.nodes]
        for edge in self.edges:
            found[edge.target].add(edge.source)
        return [frozenset(one) for one in found]

    @cached_property
    def successors(self) -> Sequence[frozenset[int]]:
        """The dispatches that wait for each one."""
        found: list[set[int]] = [set() for _ in self.nodes]
        for edge in self.edges:
            found[edge.source].add(edge.target)
        return [frozenset(one) for one in found]

    def order(self, first: Iterable[int] = ()) -> tuple[int, ...]:
        """A topological order: the dispatches `first`, one after the other, each behind what it waits for,
        then the others as they stand.
        """
        found: dict[int, None] = {}
        for wanted in (*first, *range(len(self.nodes))):
            waiting, stack = {wanted}, [wanted]
            while stack:
                more = [n for n in self.predecessors[stack.pop()] if n not in waiting and n not in found]
                waiting.update(more)
                stack += more
            found.update(dict.fromkeys(sorted(waiting)))
        return tuple(found)

    def with_edges(self, edges: Iterable[Edge]) -> DependencyGraph:
        """The graph with further edges, each from an earlier dispatch to a later one."""
        return replace(self, edges=(*self.edges, *edges))


def dependency_graph(analysis: FunctionAnalysis) -> DependencyGraph:
    """The dependency graph of a function."""
    return _GraphBuilder(analysis).build()


def memory_of(points_to: PointsTo, region: Region) -> int:
    """The number of the memory that a region is part of: a tensor on a storage, else its root."""
    handed = points_to.contents_of  # what functions do somewhere on a storage is done to all of it
    while region.parent is not None and (
        not contains(points_to.storages, region.parent) or region.parent in handed
    ):
        region = points_to.regions[region.parent]
    return region.number


_DISPATCHED = (
    ir.Assert,
    ir.CallFunction,
    ir.CallKernel,
    ir.CallOperator,
    ir.CallPacked,
    ir.CallTIR,
    ir.If,
    ir.NotUnderstood,
)
_WITH_EFFECTS = ("relax.print", "relax.ccl.", "relax.invoke_closure")


class _GraphBuilder:
    """Walks through the outermost points; `makers` are the dispatches that a variable or a symbol comes from.

    Of each memory `writers` are the dispatches that what it holds may come from, and `readers` those that
    have read it since.
    """

    def __init__(self, analysis: FunctionAnalysis) -> None:
        self.analysis, self.cfg, self.points_to = analysis, analysis.cfg, analysis.points_to
        self.impure = functions_with_effects(analysis.program)
        self.nodes: list[Dispatch] = []
        self.makers: dict[ir.Var | str, frozenset[int]] = {}
        self.writers: defaultdict[int, list[int]] = defaultdict(list)
        self.readers: defaultdict[int, list[int]] = defaultdict(list)
        self.touches: defaultdict[int, list[Touch]] = defaultdict(list)
        self.edges: dict[tuple[int, int, EdgeKind], dict[str, None]] = {}
        self.checks: list[int] = []
        self.effects: list[int] = []

    def build(self) -> DependencyGraph:
        end = -1
        for point, one in self.cfg.at(PointKind.INSTRUCTION, PointKind.BRANCH):
            if point > end:
                end = self.cfg.joins[point][1] if point in self.cfg.joins else point
                self.take(one, point, end)
        self.touch(len(self.nodes), self.cfg.exit, self.cfg.exit)
        edges = (Edge(*key, tuple(names)) for key, names in self.edges.items())
        return DependencyGraph(
            function=self.cfg.function.name,
            nodes=tuple(self.nodes),
            edges=tuple(sorted(edges, key=lambda edge: (edge.target, edge.source, edge.kind))),
            touches=dict(self.touches),
            points_to=self.points_to,
        )

    def take(self, one: ir.Instruction, first: int, last: int) -> None:
        """Take in an instruction of the outermost block, which is the points [first, last]."""
        inside = [one, *(i for side in _sides(one) for i in instructions_of(side))]
        used: dict[ir.Var | str, None] = {v: None for p in self.cfg.points[first : last + 1] for v in p.uses}
        used.update((name, None) for i in inside for e in expressions_of(i) for name in sorted(e.symbols))
        sources: frozenset[int] = frozenset().union(*(self.makers.get(value, ()) for value in used))
        copies = isinstance(one, ir.View) and one.kind == "ensure_zero_offset"
        made = sources
        if isinstance(one, _DISPATCHED) or copies:
            number = len(self.nodes)
            made = frozenset((number,))
            for value in used:
                for source in self.makers.get(value, ()):
                    self.add(source, number, EdgeKind.DATA, value if isinstance(value, str) else value.name)
            self.wait_for_effects(number, inside)
            reads, writes = self.touch(number, first, last)
            self.nodes.append(
                Dispatch(
                    number=number,
                    operator="if" if isinstance(one, ir.If) else callee_of(one) or _word(one),
                    instruction=one,
                    inputs=self.named(reads),
                    outputs=self.named(writes) or (one.var.name,) * (not isinstance(one, ir.Assert)),
                    device=self.device((*writes, *reads)),
                    first=first,
                    last=last,
                )
            )
        for i in inside:
            self.makers[i.var] = made
            if isinstance(i, ir.MatchCast):
                self.makers.update(dict.fromkeys(i.defines, made))

    def wait_for_effects(self, number: int, inside: Sequence[ir.Instruction]) -> None:
        """Add the edges of effects: from the last check, and from the last that has effects to the next."""
        for check in self.checks[-1:]:
            self.add(check, number, EdgeKind.EFFECT)
        unknown = any(isinstance(i, ir.NotUnderstood) for i in inside)
        if unknown or any(has_effects(i, self.impure) for i in inside):
            for before in range(number) if unknown else self.effects[-1:]:
                self.add(before, number, EdgeKind.EFFECT)
            self.effects.append(number)
        if unknown or any(isinstance(i, ir.Assert) for i in inside):
            self.checks.append(number)

    def touch(self, number: int, first: int, last: int) -> tuple[dict[int, None], dict[int, None]]:
        """Note what the points [first, last] read and write; return these memories."""
        read: dict[int, None] = {}
        written: dict[int, None] = {}
        for point in range(first, last + 1):
            effect = self.analysis.effects[point]
            reads = self.memories(effect.reads | effect.may_reads | self.copied(point))
            writes = self.memories(effect.written)
            for memory in dict.fromkeys((*reads, *writes)):
                self.touches[memory].append(Touch(point, number, memory in reads, memory in writes))
            if first == last:
                self.forget(effect.must_defs & ~self.points_to.phis, reads)
            read |= reads
            written |= writes
        if first == self.cfg.exit:
            return read, written
        for memory in read:
            for writer in self.writers[memory]:
                self.add(writer, number, EdgeKind.DATA, self.name(memory))
        for memory in written:
            for before in (*self.readers[memory], *self.writers[memory][-1:]):
                self.add(before, number, EdgeKind.MEMORY, self.name(memory))
        for memory in read:
            self.readers[memory].append(number)
        for memory in written:
            self.readers[memory] = []
            self.writers[memory].append(number)
        return read, written

    def forget(self, rewritten: RegionSet, read: Mapping[int, None]) -> None:
        """Forget who has written a memory that a dispatch writes all of, and of which it reads nothing."""
        for memory in members(rewritten):
            if memory_of(self.points_to, self.points_to.regions[memory]) == memory and memory not in read:
                self.readers[memory] += self.writers[memory]
                self.writers[memory] = []

    def copied(self, point: int) -> RegionSet:
        """The regions that an ensure_zero_offset may copy."""
        view = self.cfg.points[point].instruction
        found = self.points_to.regions_of(view.source) if isinstance(view, ir.View) else RegionSet()
        return found & ~self.points_to.storages

    def memories(self, regions: RegionSet) -> dict[int, None]:
        """The memories of regions, constants left out."""
        found = self.points_to.resolve(regions) & ~self.points_to.constants
        return {memory_of(self.points_to, self.points_to.regions[n]): None for n in members(found)}

    def name(self, memory: int) -> str:
        return self.points_to.regions[memory].name

    def named(self, memories: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.name, memories)))

    def device(self, memories: Iterable[int]) -> int:
        """The device of the first memory of which it is known."""
        for memory in memories:
            region = self.points_to.regions[memory]
            made = region.instruction
            if isinstance(made, ir.AllocFresh | ir.AllocTensor):
                return made.device
            kind = tensor_type(region.var)
            if kind is not None:
                return kind.device
        return 0

    def add(self, source: int, target: int, kind: EdgeKind, name: str = "") -> None:
        if source != target:
            self.edges.setdefault((source, target, kind), {}).update({name: None} if name else {})


def _sides(one: ir.Instruction) -> tuple[ir.Block, ...]:
    return (one.then, one.otherwise) if isinstance(one, ir.If) else ()


def _word(one: ir.Instruction) -> str:
    return {ir.Assert: "check", ir.View: "ensure_zero_offset"}.get(type(one), "unknown")


def has_effects(one: ir.Instruction, impure: frozenset[str]) -> bool:
    """True for an instruction that may do more than read and write what it is given; `impure` are functions
    that do.
    """
    match one:
        case ir.CallPacked():
            return not one.pure and one.contract.writes is None
        case ir.CallFunction(name=name):
            return name in impure
        case ir.CallOperator(name=name):
            return name.startswith(_WITH_EFFECTS)
    return isinstance(one, ir.NotUnderstood)


def functions_with_effects(program: ir.Program) -> frozenset[str]:
    """The functions of a program that may do more than read and write what they are given, or check it."""
    bodies = {name: [*instructions_of(f.body)] for name, f in program.functions.items()}
    found: frozenset[str] = frozenset()
    while True:
        more = frozenset(
            name
            for name, body in bodies.items()
            if any(has_effects(one, found) or isinstance(one, ir.Assert) for one in body)
        )
        if more == found:
            return found
        found = more
