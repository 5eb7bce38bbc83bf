"""Misuses on some path: of variables as handles, which are killed, out of scope, never used, or written
through; and reads of memory that nothing has written.

A kill drops the handle that a variable holds; the memory goes with the last handle.  So that is asked of
variables, never of what they point to.

Each read is held against the writes of what it reads, and against the paths.  A tensor on a storage has no
content when it is made, whatever the storage held: what another tensor left there is no content of this one,
unless that is a tensor of another function, on the storage that one was handed by the other, which nothing
else reads.  A view shares the bytes of what it is a view of; what another view of an arena left there, which
is over, may not be meant for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from symalloc.analysis.conflicts import FeasiblePaths, ReuseConflicts
from symalloc.analysis.effects import NO_EFFECT, Effect
from symalloc.analysis.interprocedural import Content
from symalloc.analysis.kernels.uninitialized import (
    MemoryRange,
    UninitializedRange,
    bytes_of,
    uninitialized_ranges,
)
from symalloc.analysis.regions import PointsTo, Region, RegionKind, Target, pointees_of
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members
from symalloc.program import ir
from symalloc.program.control_flow import EVERY_PATH, ControlFlowGraph, PathCondition, PointKind
from symalloc.program.operands import other_names, read_cast, tensor_type, variables_in
from symalloc.program.types import DType, TensorType, holds_memory
from symalloc.size.condition import lt


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleFault:
    """At `point` `var` is used or killed although `earlier` (a Kill, or what binds it) forbids it.

    So it is on paths that take the branches `path`.
    """

    var: ir.Var
    point: int
    earlier: ir.Instruction | None
    kind: str
    path: PathCondition = EVERY_PATH


def uses_after_kill(paths: FeasiblePaths) -> Iterator[HandleFault]:
    """Uses (`use-after-kill`) and kills (`double-kill`) of what some path to them kills, by any name."""
    kills: dict[ir.Var, list[tuple[int, ir.Var]]] = {}
    cfg, names = paths.cfg, dict[ir.Var, ir.Var]()  # KillAfterLastUse makes one register of two names
    for index, point in enumerate(cfg.points):
        made = point.instruction
        if kills:
            kind = "double-kill" if type(made) is ir.Kill else "use-after-kill"
            for var in dict.fromkeys(point.uses):
                known = [one for one in kills.get(names.get(var, var), ()) if paths.reaches(one[0], index)]
                earlier = next((at for at, target in known if target is var), known[0][0] if known else None)
                if earlier is not None and not _is_only_held(cfg, made, var):
                    yield HandleFault(
                        var=var,
                        point=index,
                        earlier=cfg.points[earlier].instruction,
                        kind=kind,
                        path=paths.at[earlier] | paths.at[index],
                    )
        if type(made) is ir.Kill and isinstance(made.target, ir.Var):
            kills.setdefault(names.get(made.target, made.target), []).append((index, made.target))
        elif (
            isinstance(made, ir.Alias) or (isinstance(made, ir.MatchCast) and read_cast(made).definitions)
        ) and isinstance(made.source, ir.Var):
            names[made.var] = names.get(made.source, made.source)


def _is_only_held(cfg: ControlFlowGraph, made: ir.Instruction | None, var: ir.Var) -> bool:
    """True if `made` is a tuple that nothing takes `var` out of: an empty register does no harm in it."""
    if type(made) is not ir.MakeTuple:
        return False
    where = {number for number, item in enumerate(made.fields) if var in variables_in(item)}
    users = [p.instruction for p in cfg.points if made.var in p.uses and type(p.instruction) is not ir.Kill]
    return all(type(one) is ir.TakeField and one.index not in where for one in users)


def out_of_scope(paths: FeasiblePaths) -> Iterator[HandleFault]:
    """The first use of each variable that some path gets to without what binds it."""
    cfg, starts, ends, at = paths.cfg, paths.cfg.starts, paths.cfg.ends, paths.at
    reported = set(cfg.function.params)
    for index, point in enumerate(cfg.points):
        for var in point.uses:
            if var in reported:
                continue
            binding = [at[starts[var]]] if var in starts and ends[var] < index else []
            if binding and binding[0] <= at[index]:
                continue
            around = paths.uncovered(at[index], binding, index).path
            if around is not None:
                reported.add(var)
                earlier = cfg.definitions.get(var)
                yield HandleFault(var=var, point=index, earlier=earlier, kind="not-dominated", path=around)


def used_variables(cfg: ControlFlowGraph) -> set[ir.Var]:
    """The variables that something uses other than a kill, or a binding that is itself not used."""
    used: set[ir.Var] = set()
    for point in reversed(cfg.points):
        made = point.instruction
        if type(made) is not ir.Kill and (type(made) is not ir.Alias or made.var in used):
            used.update(point.uses)
    return used


def written_zero_offset_views(
    points_to: PointsTo, effects: Sequence[Effect]
) -> Mapping[ir.Var, ir.Instruction]:
    """The results of ensure_zero_offset that are written, under whatever name, with the first that does so.

    Names are followed through bindings, casts, reshapes and tuples; what an If yields counts as not written,
    unless both sides yield one, or it is a copy for sure.
    """
    names = _names(points_to.cfg)
    alone = ((var, points_to.only_region(points_to.value_of(var))) for var in names)
    own = (var for var, one in alone if one and one.kind is RegionKind.FRESH and one.var is var)
    copies = {var: points_to.regions_of(var) for var in own}
    written: dict[ir.Var, ir.Instruction] = {}
    for point, effect in zip(points_to.cfg.points, effects, strict=True) if names else ():
        touched = effect.changes
        if not touched or point.instruction is None:
            continue
        for var in point.uses:
            must, may = pointees_of(points_to.value_of(var))
            if var in names and touched & (must | may):
                written.setdefault(names[var], point.instruction)
        for var, memory in copies.items():
            if touched & memory:
                written.setdefault(var, point.instruction)
    return written


def is_read_besides(points_to: PointsTo, effects: Sequence[Effect], view: ir.View) -> bool:
    """True if something behind an ensure_zero_offset reads the memory that it was given under another name.

    That is by a handle of this memory, of a part of it or of what it is part of, or by the result of another
    ensure_zero_offset of it, which may be a copy.  Memory of the caller is read by the caller, and what a
    packed function may have kept, by that.
    """
    cfg, family = points_to.cfg, points_to.family(points_to.regions_of(view.source))
    if any(points_to.regions[number].external for number in members(family)):
        return True
    if any(effect.captures & family for effect in effects):
        return True
    names = _names(cfg)
    sources = {made.var: points_to.regions_of(made.source) for _, made in cfg.of_type(ir.View)}
    for index in range(cfg.ends[view.var] + 1, len(cfg.points)):
        point, read = cfg.points[index], points_to.resolve(effects[index].reads | effects[index].may_reads)
        if not read or isinstance(point.instruction, ir.View):
            continue
        for var in point.uses:
            name, held = names.get(var), points_to.regions_of(var)
            behind = held if name is None else held | sources[name]
            content = points_to.content_of_storages(held)
            if name is not view.var and behind & family and read & (held | content):
                return True
    return False


def _names(cfg: ControlFlowGraph) -> dict[ir.Var, ir.Var]:
    """For each name of a zero-offset view the variable that ensure_zero_offset bound."""
    names = {made.var: made.var for _, made in cfg.of_type(ir.View) if made.kind == "ensure_zero_offset"}

    def bound(operand: ir.Operand) -> ir.Var | None:
        known = other_names(operand, cfg.definitions, views=True)
        return next(
            (names[one] for one, path in known if isinstance(one, ir.Var) and one in names and not path), None
        )

    for _, made in cfg.at(PointKind.INSTRUCTION, PointKind.JOIN) if names else ():
        values = (made.then.result, made.otherwise.result) if isinstance(made, ir.If) else (made.var,)
        found, *others = {bound(value) for value in values}
        if found is not None and not others:
            names[made.var] = found
    return names


class UnwrittenRead(NamedTuple):
    """Point `reader` reads a region, of which nothing has written the bytes of `gap`, on the branches `path`.

    `doubtful`: the reader may not read it; `decided` unless there were too many paths to look at.  `left_by`
    is another tensor in the same arena whose content it finds there, if there is one.
    """

    reader: int
    region: int
    path: PathCondition
    gap: UninitializedRange
    doubtful: bool
    decided: bool
    left_by: Region | None = None


class LostRead(NamedTuple):
    """Point `writer` overwrites a part of region `first` with one of `second`, and `reader` reads the first,
    on the branches `path`, although what stood there before is lost.

    `again` are the parts of `first` that are written anew in between, those that are not exact perhaps.
    `certain` unless it takes a function of unknown ownership to return its argument; `decided` unless there
    were too many paths to look at.
    """

    first: int
    second: int
    writer: int
    reader: int
    path: PathCondition
    again: tuple[MemoryRange, ...]
    certain: bool
    decided: bool


class _Write(NamedTuple):
    """A point that writes a region, or the part `stretch` of it, on the branches `path`."""

    point: int
    stretch: MemoryRange
    path: PathCondition
    certain: bool


class UnwrittenReads:
    """Finds paths that read what they have not written, or what was overwritten since."""

    def __init__(self, conflicts: ReuseConflicts, content: Content) -> None:
        self.conflicts, self.content = conflicts, content
        self.points_to, self.effects, self.paths = conflicts.points_to, conflicts.effects, conflicts.paths
        self.touching = [(n, effect) for n, effect in enumerate(self.effects) if effect is not NO_EFFECT]

    def candidates(self) -> Iterator[tuple[int, Target, bool]]:
        """Reads of what some path to them may not have written in full: (point, what it reads, doubtful)."""
        filled = self.given
        for point, need in enumerate(self.content.needs):
            for wanted, doubtful in ((need.must, False), (need.may, True)):
                left = wanted & ~filled
                for target in self.points_to.targets(left) if left else ():
                    if target.certain and not contains(filled, target.region):
                        yield point, target, doubtful
            if not self.paths.at[point]:
                filled |= self.effects[point].must_defs | (need.assumed & ~self.points_to.views)

    def on_paths(self, point: int, target: Target, *, doubtful: bool) -> Iterator[UnwrittenRead]:
        """The paths on which a candidate is a read of what nothing, or only a part, was written of."""
        writes = [w for w in self.writes_to(target.region) if w.point < point]
        yield from self._besides(writes, point, target, doubtful)
        own = [w for w in writes if not self.is_leftover(w.stretch.region.number, target.region)]
        if len(own) < len(writes):
            other = next(w.stretch.region for w in writes if w not in own)
            for found in self._besides(own, point, target, doubtful):
                yield found._replace(left_by=other)

    def _besides(
        self, writes: Sequence[_Write], point: int, target: Target, doubtful: bool
    ) -> Iterator[UnwrittenRead]:
        """The paths on which `writes` leave a part unwritten."""
        here = self.paths.at[point] | target.path
        for path, decided, taken in self._around(writes, target.region, here, point):
            for wanted in self.content.reads(point, target.region):
                near = [part for part in taken if not self.is_apart(part, wanted)]
                for found in uninitialized_ranges(wanted, near):
                    yield UnwrittenRead(point, target.region, path, found, doubtful, decided)

    def _around(
        self,
        writes: Sequence[_Write],
        number: int,
        path: PathCondition,
        until: int,
        is_whole: Callable[[MemoryRange], bool] = lambda stretch: stretch.elements.is_whole,
    ) -> Iterator[tuple[PathCondition, bool, Sequence[MemoryRange]]]:
        """The paths to a point on which no write of the whole region stands, each with what others write
        there; False where there are too many paths to look at.
        """
        whole = [w for w in writes if is_whole(w.stretch) and self.is_all_of(w.stretch.region, number)]
        parts = [w for w in writes if w not in whole]
        for avoided in _avoided([w.path for w in whole], [w.path for w in parts]):
            free = self.paths.uncovered(path, avoided, until)
            if free.path is not None:
                taken = [part.stretch for part in parts if self.paths.feasible(part.path | free.path)]
                yield free.path, free.decided, taken

    def is_apart(self, part: MemoryRange, wanted: MemoryRange) -> bool:
        """True if two parts are proved to have no byte in common, whatever the sizes."""
        one, other = bytes_of(part), bytes_of(wanted)
        if one is None or other is None:
            return False
        return self.paths.possible((lt(one.begin, other.end), lt(other.begin, one.end))) is False

    # -- overwrites ----------------------------------------------------------------------------------------

    def overwriting(self) -> Iterator[tuple[int, Target, int]]:
        """Writes that may undo what another wrote: (point, what it writes, the region that may be undone).

        `overwritten` says which of them are so on some path.
        """
        points_to, (begins, ends) = self.points_to, self.spans()
        written, in_use = points_to.constants | points_to.given, begins[0]
        for point, effect in self.touching:
            in_use |= begins[point]
            must = effect.writes | (effect.may_defs & ~written)
            written |= points_to.resolve(effect.written)
            for second in points_to.targets(must, effect.may_writes) if must or effect.may_writes else ():
                for first in members(self.conflicts.siblings(second.region) & in_use):
                    if self.owner(first) != self.owner(second.region):
                        yield point, second, first
            in_use &= ~ends[point]

    def spans(self) -> tuple[Mapping[int, RegionSet], Mapping[int, RegionSet]]:
        """By point, the regions that are first written there, and those that are last read there."""
        first, last = {self.owner(number): 0 for number in members(self.points_to.given)}, dict[int, int]()
        for point, effect in self.touching:
            read = (effect.reads | effect.may_reads) & ~effect.looks
            for number in members(self.points_to.resolve(effect.written)):
                first.setdefault(self.owner(number), point)
            for number in members(self.points_to.resolve(read)):
                last[number] = point
        begins, ends = defaultdict[int, RegionSet](RegionSet), defaultdict[int, RegionSet](RegionSet)
        for number, point in last.items():
            begins[first.get(self.owner(number), -1)] |= RegionSet(1 << number)
            ends[point] |= RegionSet(1 << number)
        return begins, ends

    def overwritten(self, point: int, second: Target, first: int) -> Iterator[LostRead]:
        """The paths on which `first` is written, then `second` at `point`, then `first` read.

        Those that are certain go first; there is one for each set of branches and point that reads.
        """
        base = self.paths.at[point] | second.path | self.points_to.regions[first].path
        if not self.paths.feasible(base, point):
            return
        own = [w for w in self.writes_to(first) if self.owner(w.stretch.region.number) == self.owner(first)]
        before: dict[PathCondition, bool] = {}
        for write in own:
            if write.point <= point:
                before[write.path] = write.certain or before.get(write.path, False)
        found: dict[tuple[PathCondition, int], LostRead] = {}
        for read, (path, known) in product(self.conflicts.reads_from(first, point), before.items()):
            again = [write for write in own if point < write.point < read.point]
            around, sure = base | path | read.path, second.certain and known and read.certain
            where = first, second.region, point, read.point
            for one in self.lost(*where, around, again, certain=sure):
                key = one.path, read.point
                if key not in found or (sure and not found[key].certain):
                    found[key] = one
        yield from sorted(found.values(), key=lambda one: (not one.certain, one.reader))

    def lost(
        self,
        first: int,
        second: int,
        writer: int,
        reader: int,
        path: PathCondition,
        again: Sequence[_Write],
        *,
        certain: bool,
    ) -> Iterator[LostRead]:
        """The reads that are lost on a path, where the writes `again` come between `writer` and `reader`."""
        for free, decided, parts in self._around(
            again, first, path, max(writer, reader), lambda one: one.is_whole
        ):
            yield LostRead(first, second, writer, reader, free, tuple(parts), certain, decided)

    # -- regions -------------------------------------------------------------------------------------------

    @cached_property
    def given(self) -> RegionSet:
        """The regions that hold content before the function writes any: those of memory from outside."""
        found = NO_REGIONS
        for region in self.points_to.regions:
            root = self.points_to.regions[region.root]
            made = root.instruction
            if root.external and not (isinstance(made, ir.CallFunction) and made.kept):
                found |= RegionSet(1 << region.number)
        return found

    @cached_property
    def all_writes(self) -> tuple[dict[int, list[_Write]], dict[int, list[_Write]]]:
        """The writes of the function, in order: by the region that they write, or a view of it; and those of
        tensors that nothing reads, and of storages, by root.
        """
        by_base: dict[int, list[_Write]] = {}
        left: dict[int, list[_Write]] = {}
        for point, (effect, need) in enumerate(zip(self.effects, self.content.needs, strict=True)):
            must = effect.writes | effect.may_defs | effect.defs | need.assumed
            if not (must or effect.may_writes):
                continue
            for target in self.points_to.targets(must, effect.may_writes):
                path, parts = self.paths.at[point] | target.path, self.content.writes(point, target.region)
                writes = [_Write(point, one, path, target.certain) for one in parts]
                base = self.base_of(target.region)
                by_base.setdefault(base.number, []).extend(writes)
                if base.kind is RegionKind.STORAGE or not contains(self.read, base.number):
                    left.setdefault(base.root, []).extend(writes)
        return by_base, left

    def writes_to(self, number: int) -> Sequence[_Write]:
        """The writes that give a region content, or a part of it."""
        base, (by_base, left) = self.base_of(number), self.all_writes
        own, others = by_base.get(base.number, []), left.get(base.root, ())
        meant = [w for w in others if self.is_left_for(base, self.base_of(w.stretch.region.number))]
        return sorted((*own, *meant), key=lambda write: write.point) if meant else own

    def is_left_for(self, one: Region, other: Region) -> bool:
        """True if tensor `one` may be meant to find what was written to a storage, or to a tensor on it that
        nothing reads.

        That storage goes by two names: one function was handed it by another.
        """
        if other.number == one.number:
            return False
        if other.kind is RegionKind.STORAGE:
            return True
        made, before = one.instruction, other.instruction
        if not (isinstance(made, ir.AllocTensor) and isinstance(before, ir.AllocTensor)):
            return False
        return made.storage is not before.storage

    @cached_property
    def read(self) -> RegionSet:
        """The regions that something in the function reads, and those that they are views of."""
        found = self.surely_read
        for need in self.content.needs:
            found |= self.points_to.resolve(need.may)
        for view in members(found & self.points_to.views):
            found |= self.points_to.ancestors[view]
        return found

    @cached_property
    def surely_read(self) -> RegionSet:
        """The regions that something in the function reads for sure."""
        found = NO_REGIONS
        for need in self.content.needs:
            found |= self.points_to.resolve(need.must)
        return found

    def base_of(self, number: int) -> Region:
        """The region that a view is a view of, in the end; any other region itself."""
        top = self.outermost_view(number)
        parent = None if top is None else self.points_to.regions[top].parent
        return self.points_to.regions[number if parent is None else parent]

    def outermost_view(self, number: int) -> int | None:
        """The view of no view that a region is, or is a view of; None for anything else."""
        views = self.points_to.views
        around = self.points_to.ancestors[number] & views if contains(views, number) else NO_REGIONS
        return next(members(around), None)

    def is_all_of(self, one: Region, number: int) -> bool:
        """True if a region counts as all of another: as that, or what it is part of."""
        other = self.points_to.regions[number]
        if contains(self.points_to.ancestors[number], one.number):
            return True
        placed = None not in (one.offset, one.nbytes)
        return placed and (one.offset, one.nbytes) == (other.offset, other.nbytes)

    def owner(self, number: int) -> int:
        """The region that content of another is told by: views share what that holds.

        Views of an arena do not, each is a tensor of its own.
        """
        top = self.outermost_view(number)
        parent = None if top is None else self.points_to.regions[top].parent
        if top is None or parent is None:
            return number
        return top if contains(self.arenas, parent) else parent

    # -- memory without content that is meant to be so -------------------------------------------------------

    def is_workspace(self, number: int) -> bool:
        """True if a region is bytes that nothing writes: TVM's AllocateWorkspace gives libraries such."""
        kind = self.points_to.regions[number].var.type
        is_raw = isinstance(kind, TensorType) and kind.ndim == 1 and kind.dtype == _BYTE
        return is_raw and not any(self.writes_to(number))

    @cached_property
    def only_allocates(self) -> bool:
        """True if the function is given no memory and computes nothing: an allocator, such as mlc-llm's
        `alloc_embedding_tensor`.
        """
        cfg = self.points_to.cfg
        given = any(holds_memory(param.type) for param in cfg.function.params)
        return not given and not any(_computes(made) for _, made in cfg.instructions)

    # -- leftovers: turns that the views of an arena take ----------------------------------------------------

    def is_leftover(self, number: int, reader: int) -> bool:
        """True if what region `number` holds is a leftover for `reader`, another view of the same arena."""
        one, other = self.view_in_arena(number), self.view_in_arena(reader)
        if one is None or other is None or one == other:
            return False
        if not self.points_to.descendants[one] & self.surely_read:
            return False
        view = self.points_to.regions[other].var
        return self.last_touch.get(one, -1) < self.points_to.cfg.starts.get(view, -1)

    def view_in_arena(self, number: int) -> int | None:
        """The view of an arena that a region is, or is a view of; None for anything else."""
        top = self.outermost_view(number)
        parent = None if top is None else self.points_to.regions[top].parent
        return top if parent is not None and contains(self.arenas, parent) else None

    @cached_property
    def arenas(self) -> RegionSet:
        """The tensors of bytes on a storage that nothing touches but through views."""
        touched = found = NO_REGIONS
        for effect in self.effects:
            touched |= effect.touched
        for view in members(self.points_to.views):
            parent = self.points_to.regions[view].parent
            region = None if parent is None else self.points_to.regions[parent]
            if region is None or region.kind is not RegionKind.TENSOR:
                continue
            kind = tensor_type(region.var)
            raw = kind is not None and kind.dtype is not None and kind.dtype.name in ("int8", "uint8")
            if raw and not contains(touched, region.number):
                found |= RegionSet(1 << region.number)
        return found

    @cached_property
    def last_touch(self) -> dict[int, int]:
        """The last point that reads or writes each view of an arena."""
        found: dict[int, int] = {}
        for point, effect in enumerate(self.effects):
            for number in members(self.points_to.resolve(effect.touched) & self.points_to.views):
                view = self.view_in_arena(number)
                if view is not None:
                    found[view] = point
        return found


def _computes(made: ir.Instruction) -> bool:
    """True if an instruction may write elements of a tensor."""
    if isinstance(made, ir.CallPacked):
        return made.contract.written != frozenset()
    if isinstance(made, ir.CallOperator):
        return bool(made.arguments)  # R.null_value has none
    return isinstance(made, ir.CallFunction | ir.CallKernel | ir.CallTIR | ir.NotUnderstood)


_BYTE = DType("uint8", 8)
_MOST_PARTS = 8
"""The number of partial writes whose paths are looked at one by one."""


def _avoided(whole: Sequence[PathCondition], parts: Sequence[PathCondition]) -> Iterator[list[PathCondition]]:
    """The writes to find paths around: all, those of the whole and of one part, those of the whole."""
    if parts:
        yield [*whole, *parts]
    for path in [path for path in dict.fromkeys(parts) if path][:_MOST_PARTS]:
        yield [*whole, path]
    yield [*whole]
