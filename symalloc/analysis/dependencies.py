"""The dependency graph of a function: its dispatches, and the edges that say which has to wait for which.

What is inside an If or a function that is called keeps its order.  Two tensors on one storage are two
memories here: edges are what the program means.  The order that a plan needs besides are its fences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, reduce
from itertools import chain, combinations
from operator import and_, or_
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import PointsTo, Region
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, region_set
from symalloc.program import ir
from symalloc.program.control_flow import EVERY_PATH, PathCondition, PointKind, consistent
from symalloc.program.operands import (
    callee_of,
    expressions_of,
    instructions_of,
    leaves_in,
    tensor_type,
    type_of,
)
from symalloc.program.types import ALIGNMENT, OpaqueType, type_leaves
from symalloc.size.expr import ZERO


class EdgeKind(StrEnum):
    """The reasons for which a dispatch waits for another."""

    DATA = "data"  # it reads what the other made
    MEMORY = "memory"  # it writes what the other reads or writes, as the program says
    EFFECT = "effect"  # both do more than write tensors, or the other checks something
    FENCE = "fence"  # it writes where a plan has put what the other reads or writes


class Edge(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """Dispatch `target` waits for dispatch `source`, because of the tensors or values `names`."""

    source: int
    target: int
    kind: EdgeKind
    names: tuple[str, ...] = ()


class Dispatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step that an executor starts: a kernel, a call, a check, a copy, or an If with all that is in it.

    `name` is the variable that it binds; `inputs` and `outputs` name what it reads and writes.  A document
    has the place of the `source` that it comes from, and `live`: the moments of the plan at which it runs,
    half-open.
    """

    number: int
    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: int
    source: str | None = None
    live: tuple[int, int] = (0, 0)


class Touch(NamedTuple):
    """A point of a dispatch that reads or writes a memory, or the part `region` of it, where `path` is taken.

    The end of the function counts as one.  `certain` unless it may be another memory, or not written.
    """

    point: int
    dispatch: int
    writes: bool
    region: int
    path: PathCondition = EVERY_PATH
    certain: bool = True


@dataclass(frozen=True, kw_only=True)
class DependencyGraph:
    """The dispatches of one function, in the order of the program, which is a topological one, and edges.

    `touches` are those of each memory: of a tensor or an object, by the number of its region, in order;
    `instructions` are the dispatches in the program, and `spans` their first and last points.
    """

    function: str
    nodes: tuple[Dispatch, ...]
    instructions: tuple[ir.Instruction, ...]
    spans: tuple[tuple[int, int], ...]
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


_DISPATCHED = (ir.Assert, ir.CallFunction, ir.CallKernel, ir.CallOperator, ir.CallPacked, ir.CallTIR, ir.If)
_WITH_EFFECTS = (
    *("relax.print", "relax.ccl.", "relax.invoke_closure"),
    *("runtime.disco.", "tvm.contrib.random.", "vm.builtin.tensor_cache."),
)


class _GraphBuilder:
    """Walks through the outermost points; `makers` are the dispatches that a variable or a symbol comes from,
    `writers` those that what a memory holds may come from, and `readers` those that have read it since;
    `filled` are the regions that something has written.
    """

    def __init__(self, analysis: FunctionAnalysis) -> None:
        self.analysis, self.cfg, self.points_to = analysis, analysis.cfg, analysis.points_to
        self.impure = functions_with_effects(analysis.program)
        changed = reduce(or_, (effect.changes for effect in analysis.effects), NO_REGIONS)
        self.constants = self.points_to.constants & ~self.points_to.resolve(changed)
        self.nodes: list[Dispatch] = []
        self.instructions: list[ir.Instruction] = []
        self.spans: list[tuple[int, int]] = []
        self.makers: dict[ir.Var | str, frozenset[int]] = {}
        self.writers: defaultdict[int, list[int]] = defaultdict(list)
        self.readers: defaultdict[int, list[int]] = defaultdict(list)
        self.touches: defaultdict[int, list[Touch]] = defaultdict(list)
        self.edges: defaultdict[tuple[int, int, EdgeKind], dict[str, None]] = defaultdict(dict)
        self.filled: set[int] = set()
        self.checks: list[int] = []
        self.effects: list[int] = []

    def build(self) -> DependencyGraph:
        end = -1
        for point, one in self.cfg.at(PointKind.INSTRUCTION, PointKind.BRANCH):
            if point > end:
                end = self.cfg.joins[point][1] if point in self.cfg.joins else point
                self.take(one, point, end)
        self.touch(self.cfg.exit, self.cfg.exit)
        edges = (Edge(*key, tuple(names)) for key, names in self.edges.items() if key[0] != key[1])
        return DependencyGraph(
            function=self.cfg.function.name,
            nodes=tuple(self.nodes),
            instructions=tuple(self.instructions),
            spans=tuple(self.spans),
            edges=tuple(sorted(edges, key=lambda edge: (edge.target, edge.source, edge.kind))),
            touches=dict(self.touches),
            points_to=self.points_to,
        )

    def take(self, one: ir.Instruction, first: int, last: int) -> None:
        """Take in an instruction of the outermost block, which is the points [first, last]."""
        sides = (one.then, one.otherwise) if isinstance(one, ir.If) else ()
        inside = [one, *(i for side in sides for i in instructions_of(side))]
        used: dict[ir.Var | str, None] = {v: None for p in self.cfg.points[first : last + 1] for v in p.uses}
        used.update((name, None) for i in inside for e in expressions_of(i) for name in sorted(e.symbols))
        made: frozenset[int] = frozenset().union(*(self.makers.get(value, ()) for value in used))
        copies = isinstance(one, ir.View) and one.kind == "ensure_zero_offset"
        if copies or isinstance(one, (*_DISPATCHED, ir.NotUnderstood)):
            number = len(self.nodes)
            for value in used:
                for source in self.makers.get(value, ()):
                    name = value if isinstance(value, str) else value.name
                    self.edges[source, number, EdgeKind.DATA][name] = None
            self.wait_for_effects(number, inside, any(map(self.checks_only, range(first, last + 1))))
            reads, writes = self.touch(first, last)
            kind = {ir.Assert: "check", ir.If: "if", ir.View: "ensure_zero_offset"}.get(type(one), "unknown")
            own = () if isinstance(one, ir.Assert) else (one.var.name,)
            self.nodes.append(
                Dispatch(
                    number=number,
                    operator=callee_of(one) or kind,
                    name=one.var.name,
                    inputs=tuple(dict.fromkeys(map(self.name, reads))),
                    outputs=tuple(dict.fromkeys(map(self.name, writes))) or own,
                    device=next((d for d in map(self.device, (*writes, *reads)) if d is not None), 0),
                )
            )
            self.instructions.append(one)
            self.spans.append((first, last))
            made = frozenset((number,))
        for i in inside:
            self.makers.update(dict.fromkeys((i.var, *getattr(i, "defines", ())), made))

    def checks_only(self, point: int) -> bool:
        """True for a check: a point that touches no memory, and raises an error or does nothing."""
        one = self.cfg.points[point].instruction
        return isinstance(one, ir.Assert) or (
            isinstance(one, ir.CallKernel) and not self.analysis.effects[point].touched
        )

    def wait_for_effects(self, number: int, inside: Sequence[ir.Instruction], checks: bool) -> None:
        """Add the edges of effects: from the last check, and from the last that has effects to the next."""
        unknown = any(isinstance(i, ir.NotUnderstood) for i in inside)
        effects = unknown or any(has_effects(i, self.impure) for i in inside)
        last = (*self.checks[-1:], *(self.effects[-1:] if effects or checks else ()))
        before = range(number) if unknown else last
        self.edges.update(((source, number, EdgeKind.EFFECT), {}) for source in before)
        self.effects += [number] if effects else []
        self.checks += [number] if unknown or checks else []

    def touch(self, first: int, last: int) -> tuple[dict[int, None], dict[int, None]]:
        """Note what the points [first, last] read and write; return these memories."""
        number, read, written = len(self.nodes), dict[int, None](), dict[int, None]()
        for point in range(first, last + 1):
            reads, writes = dict[int, None](), dict[int, None]()
            for one in self.accesses(point, number):
                memory = memory_of(self.points_to, self.points_to.regions[one.region])
                self.touches[memory].append(one)
                (writes if one.writes else reads)[memory] = None
            if first == last:
                self.forget(self.analysis.effects[point].must_defs & ~self.points_to.phis, reads)
            read |= reads
            written |= writes
        if first == self.cfg.exit:
            return read, written
        for memory in read:
            for source in self.writers[memory]:
                self.edges[source, number, EdgeKind.DATA][self.name(memory)] = None
        for memory in written:
            for source in (*self.readers[memory], *self.writers[memory][-1:]):
                self.edges[source, number, EdgeKind.MEMORY][self.name(memory)] = None
        for memory in read:
            self.readers[memory].append(number)
        for memory in written:
            self.readers[memory] = []
            self.writers[memory].append(number)
        return read, written

    def accesses(self, point: int, number: int) -> Iterator[Touch]:
        """The reads and writes of a point of dispatch `number`, those of constants that nothing writes left
        out.
        """
        effect, objects = self.analysis.effects[point], self.objects(point)
        read, written = effect.reads | self.copied(point), effect.writes | effect.defs
        may_write = effect.may_writes | effect.may_defs
        around = self.cfg.paths[point]
        for writes, must, may in ((False, read, effect.may_reads), (True, written, may_write)):
            for region, path, certain in self.points_to.targets(must | objects, may):
                fills = contains(effect.may_defs, region) and region not in self.filled
                if not contains(self.constants, region) and consistent(path | around):
                    sure = certain or fills  # nothing else gives it content
                    yield Touch(point, number, writes, region, path | around, sure)
                    self.filled |= {region} if writes else set()

    def forget(self, rewritten: RegionSet, read: Mapping[int, None]) -> None:
        """Forget who has written a memory that a dispatch writes all of, and of which it reads nothing."""
        for memory in members(rewritten):
            if memory_of(self.points_to, self.points_to.regions[memory]) == memory and memory not in read:
                self.readers[memory] += self.writers[memory]
                self.writers[memory] = []

    def copied(self, point: int) -> RegionSet:
        """The regions that an ensure_zero_offset may copy: those that may begin at no multiple of 64 B."""
        view = self.cfg.points[point].instruction
        if not isinstance(view, ir.View) or view.kind != "ensure_zero_offset":
            return NO_REGIONS
        found = self.points_to.regions_of(view.source) & ~self.points_to.storages
        at = {n: self.points_to.regions[n].offset for n in members(found)}
        return region_set(n for n, offset in at.items() if offset is None or offset % ALIGNMENT != ZERO)

    def objects(self, point: int) -> RegionSet:
        """The regions of the objects that a call is given, whose state it may change."""
        one = self.cfg.points[point].instruction
        given = one.arguments if isinstance(one, ir.CallFunction | ir.CallPacked) else ()
        leaves = (leaf for operand in given for leaf in leaves_in(operand))
        found = (o for o in leaves if any(type(t) is OpaqueType for _, t in type_leaves(type_of(o))))
        return reduce(or_, map(self.points_to.regions_of, found), NO_REGIONS)

    def name(self, memory: int) -> str:
        return self.points_to.regions[memory].name

    def device(self, memory: int) -> int | None:
        region = self.points_to.regions[memory]
        made, kind = region.instruction, tensor_type(region.var)
        if isinstance(made, ir.AllocFresh | ir.AllocTensor):
            return made.device
        return None if kind is None else kind.device


def has_effects(one: ir.Instruction, impure: frozenset[str]) -> bool:
    """True for an instruction that may do more than read and write its operands, as `impure` functions do."""
    match one:
        case ir.CallPacked():
            bare = one.contract.written == frozenset() and not [*type_leaves(one.var.type)]
            unknown = not one.pure and one.contract.writes is None
            return bare or unknown or one.name.startswith(_WITH_EFFECTS)
        case ir.CallFunction(name=name) | ir.CallKernel(kernel=name):
            return name in impure
        case ir.CallOperator(name=name):
            return name.startswith(_WITH_EFFECTS)
    return isinstance(one, ir.NotUnderstood)


def functions_with_effects(program: ir.Program) -> frozenset[str]:
    """The functions and kernels that may do more than read and write what they are given, or check it."""
    bodies = {name: [*instructions_of(f.body)] for name, f in program.functions.items()}
    calls = ((name, one.takers, one.others) for name, one in program.kernels.items())
    kernels = {n for n, some, known in calls if some or any(o.startswith(_WITH_EFFECTS) for o in known)}
    found = frozenset(kernels)
    for _ in bodies:  # calls may be as deep as that
        some = (n for n, b in bodies.items() if any(type(i) is ir.Assert or has_effects(i, found) for i in b))
        found = frozenset(kernels.union(some))
    return found


OrderName: TypeAlias = Literal["total", "lanes", "dag"]


class Collision(NamedTuple):
    """A run in which `writer`, which means memory `written`, writes over memory `lost` before `reader` has
    read what `maker` put there: -1 for the entry.  The end of the function reads what is returned.
    """

    lost: int
    written: int
    maker: Touch
    writer: Touch
    reader: Touch

    @property
    def in_order(self) -> bool:
        """True if the order of the program shows it, too."""
        return self.maker.dispatch <= self.writer.dispatch <= self.reader.dispatch

    @property
    def at_once(self) -> bool:
        """True if it takes two dispatches that run at the same time: an If makes and reads what is lost."""
        return self.maker.dispatch == self.reader.dispatch

    @property
    def path(self) -> PathCondition:
        """The branches that such a run takes."""
        return self.maker.path | self.writer.path | self.reader.path

    @property
    def certain(self) -> bool:
        """True unless one of the three may be no access of these memories."""
        return self.maker.certain and self.writer.certain and self.reader.certain


@dataclass(frozen=True, kw_only=True)
class HappensBefore:
    """The order in which an executor may run the dispatches of `graph`: that of the text (`total`), that on
    each device by itself (`lanes`), or any that edges permit (`dag`).
    """

    graph: DependencyGraph
    order: OrderName

    @cached_property
    def ahead(self) -> Sequence[int]:
        """By dispatch, and for the end of the function, those that are over before it: a bit for each."""
        count = len(self.graph.nodes)
        if self.order == "total":
            return [(1 << number) - 1 for number in range(count + 1)]
        found: list[int] = []
        last: dict[int, int] = {}
        for node, waits in zip(self.graph.nodes, self.graph.predecessors, strict=True):
            before = [*waits, last[node.device]] if node.device in last else [*waits]
            found.append(reduce(lambda known, n: known | found[n] | 1 << n, before, 0))
            if self.order == "lanes":
                last[node.device] = node.number
        return [*found, (1 << count) - 1]

    def is_ahead(self, one: Touch, other: Touch) -> bool:
        """True if a point is over before another, in every run that gets to both."""
        if one.dispatch == other.dispatch or other.dispatch < 0:
            return one.point < other.point
        return bool(self.ahead[other.dispatch] >> one.dispatch & 1)

    def apart(self, one: int, other: int) -> bool:
        """True if all that touches one of two memories is over before anything touches the other."""
        both = self.graph.touches.keys() >= {one, other}
        return not both or self.is_over(one, other) or self.is_over(other, one)

    def is_over(self, one: int, other: int) -> bool:
        """True if all that touches `one` is over before anything touches `other`."""
        left = self.users[one] & ~self.common[other]
        if left & ~self.users[other]:
            return False
        late = [t for t in self.graph.touches[one] if left >> t.dispatch & 1]
        return all(self.is_ahead(a, b) for a in late for b in self.graph.touches[other])

    @cached_property
    def users(self) -> dict[int, int]:
        """By memory, the dispatches that touch it."""
        touches = self.graph.touches.items()
        return {memory: reduce(or_, (1 << t.dispatch for t in of)) for memory, of in touches}

    @cached_property
    def common(self) -> dict[int, int]:
        """By memory, the dispatches that are over before anything touches it."""
        touches = self.graph.touches.items()
        return {memory: reduce(and_, (self.ahead[t.dispatch] for t in of)) for memory, of in touches}

    def collisions(self, one: int, other: int) -> Sequence[Collision]:
        """The runs in which one of two memories at the same bytes is lost before it is read; first those that
        take no two dispatches at the same time, and another order.
        """
        found = [] if self.apart(one, other) else [*self._losses(one, other), *self._losses(other, one)]
        return sorted(found, key=lambda loss: (loss.at_once, loss.in_order, not loss.certain))

    def _losses(self, lost: int, written: int) -> Iterator[Collision]:
        touches = self.graph.touches
        for reader in (t for t in touches[lost] if not t.writes):
            made = [t for t in touches[lost] if t.writes and self._feeds(t, reader)]
            for writer in (t for t in touches[written] if t.writes and not self.is_ahead(reader, t)):
                for maker in made or [Touch(-1, -1, True, lost)]:  # the entry: its caller wrote it
                    loss = Collision(lost, written, maker, writer, reader)
                    if not self.is_ahead(writer, maker) and consistent(loss.path):
                        yield loss

    def _feeds(self, maker: Touch, reader: Touch) -> bool:
        """True for a point that may have made what another reads."""
        if maker.dispatch == reader.dispatch or reader.dispatch == len(self.graph.nodes):
            return maker.point < reader.point
        return (maker.dispatch, reader.dispatch) in self._data

    @cached_property
    def _data(self) -> set[tuple[int, int]]:
        return {(e.source, e.target) for e in self.graph.edges if e.kind is EdgeKind.DATA}

    def showing(self, found: Collision) -> tuple[int, ...]:
        """An order of the dispatches, which the executor may choose, that shows a collision."""
        order: dict[int, None] = {}
        first = (n for n in (found.maker.dispatch, found.writer.dispatch) if n >= 0)
        for n in (*first, *range(len(self.graph.nodes))):
            order.update(dict.fromkeys((*members(RegionSet(self.ahead[n])), n)))
        return tuple(order)


def placed_together(graph: DependencyGraph) -> Iterator[tuple[int, int]]:
    """The pairs of memories that are tensors on one storage."""
    on: defaultdict[int, list[int]] = defaultdict(list)
    for number in graph.touches:
        region = graph.points_to.regions[number]
        if region.parent is not None:
            on[region.root].append(number)
    return chain.from_iterable(combinations(placed, 2) for placed in on.values())
