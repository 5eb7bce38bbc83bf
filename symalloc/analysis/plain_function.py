"""Functions of nothing but allocations, second names and calls of kernels, one behind the other.

Most of what importers make is of this kind.  Each variable is one region for sure, so that numbers stand
where the analyses of any function have sets, and what is found is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from symalloc.analysis.liveness import Intervals, LiveRange, LiveRanges
from symalloc.analysis.regions import ByteCounts
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.operands import tensor_type
from symalloc.program.record import from_fields
from symalloc.program.types import FunctionType, ScalarType, ShapeType, StorageType, TupleType, Type
from symalloc.size.expr import Expr

_NOTHING, _CONSTANT = -1, 0

_Value: TypeAlias = int | tuple["_Value", ...]
"""The number of a region, or one of the above; of a tuple the values of its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFunction:
    """The effect of a plain function on memory; regions have the numbers that they have in its `PointsTo`.

    `allocated` are the numbers of allocations by variable, and `nbytes` their sizes by number.  `called`
    holds the calls of kernels, each with the regions of its arguments.  `returned` are the regions that the
    function returns.  `touched` says when.
    """

    allocated: Mapping[ir.Var, int]
    nbytes: Mapping[int, Expr | None]
    called: Sequence[tuple[ir.CallKernel, Sequence[int]]]
    returned: frozenset[int]
    touched: Touched

    def live_ranges(self, numbers: Iterable[int]) -> LiveRanges:
        """The live ranges of allocations by number, as `find_live_ranges` finds them."""
        points, first, last = self.touched.points, self.touched.first, self.touched.last
        wanted = [number for number in sorted(set(numbers)) if number in first]
        ranges = [(self.live(n), points[first[n]], points[last[n]]) for n in wanted]
        return LiveRanges(
            {n: from_fields(LiveRange, one) for n, one in zip(wanted, ranges, strict=True)}, points
        )

    def live(self, number: int) -> Intervals:
        """The positions at which an allocation is live."""
        touched = self.touched
        if number in touched.rewritten:
            return _needed(touched.rewritten[number])
        return ((touched.first[number], touched.last[number] + 1),) if number in touched.first else ()


def plain_function(cfg: ControlFlowGraph, program: ir.Program) -> PlainFunction | None:
    """Return the effect of a function of `program` on memory; None where it is not plain."""
    if cfg.joins or not cfg.types <= READERS.keys():
        return None
    try:
        return PlainReader(program).read(cfg)
    except NotPlainError:
        return None


class NotPlainError(Exception):
    """Something is of another kind than those that are looked at here."""


class _Buffers(NamedTuple):
    """The positions of the arguments of a kernel, so `many`, that it reads and that it only writes; of these
    `defined` are written as a whole, whatever they held.
    """

    many: int
    read: tuple[int, ...]
    written: tuple[int, ...]
    defined: frozenset[int]


class _Touch(NamedTuple):
    """A position at which a region is read or written; `defines`: all of it is written."""

    position: int
    reads: bool
    defines: bool


@dataclass(slots=True)
class Touched:
    """When regions are touched, in positions: one for each call of a kernel, and one for the end.

    `points` holds the program point of each, `first` and `last` the positions by region.  Regions of which
    some touch behind the first does not read may be without use in between: `rewritten` has all touches.
    """

    points: list[int] = field(default_factory=list)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    rewritten: dict[int, list[_Touch]] = field(default_factory=dict)

    def copy(self) -> Touched:
        """The same, before all touches are noted."""
        return Touched([*self.points], {**self.first}, {**self.last}, {n: [] for n in self.rewritten})


def _needed(touches: Sequence[_Touch]) -> Intervals:
    """The positions at which a region is touched, or what it holds is needed later."""
    (begin, needed, _), *others = reversed(touches)
    found, end = [], begin + 1
    for position, reads, defines in others:
        if not needed and position + 1 < begin:
            found.append((begin, end))
            end = position + 1
        begin, needed = position, reads or (needed and not defines)
    return (*found, (begin, end))[::-1]


class PlainReader:
    """Reads instruction after instruction; `values` are those of the variables so far."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.count = _CONSTANT + 1
        self.values: dict[ir.Var, _Value] = {}
        self.allocated: dict[ir.Var, int] = {}
        self.nbytes: dict[int, Expr | None] = {}
        self.bytes_of = ByteCounts().of
        self.buffers: dict[str, _Buffers] = {}
        self.called: list[tuple[ir.CallKernel, list[int]]] = []  # by position
        self.touched = Touched()

    def read(self, cfg: ControlFlowGraph) -> PlainFunction:
        """Look at the whole function; raises NotPlainError."""
        self.parameters(cfg.function)
        for point, instruction in cfg.instructions:
            READERS[type(instruction)](self, point, instruction)
        return self.found(cfg)

    def found(self, cfg: ControlFlowGraph) -> PlainFunction:
        """The effect of all that was read, up to the end of the function."""
        returned = frozenset(regions_in(self.value(cfg.function.body.result)))
        self.end(cfg.exit, returned)
        self.rewritten(returned)
        return PlainFunction(
            allocated=self.allocated,
            nbytes=self.nbytes,
            called=self.called,
            returned=returned,
            touched=self.touched,
        )

    def parameters(self, function: ir.Function) -> None:
        for param in function.params:
            self.values[param] = self.parameter(param.type)

    def parameter(self, kind: Type) -> _Value:
        """Memory of the caller's, one region a leaf."""
        if isinstance(kind, TupleType):
            return tuple([self.parameter(leaf) for leaf in kind.fields])
        if isinstance(kind, StorageType):
            raise NotPlainError
        if isinstance(kind, ShapeType | ScalarType | FunctionType):
            return _NOTHING
        return self.new_region()

    def new_region(self) -> int:
        self.count += 1
        return self.count - 1

    def value(self, operand: ir.Operand | None) -> _Value:
        if type(operand) is ir.Var:
            return self.values.get(operand, _NOTHING)
        if isinstance(operand, ir.TupleValue):
            return tuple([self.value(item) for item in operand.items])
        return _CONSTANT if isinstance(operand, ir.ConstantTensor) else _NOTHING

    # -- instructions --------------------------------------------------------------------------------------

    def allocation(self, _: int, made: ir.AllocFresh) -> None:
        number = self.values[made.var] = self.allocated[made.var] = self.count
        self.count = number + 1
        self.nbytes[number] = self.bytes_of(made.shape, made.dtype)

    def alias(self, _: int, made: ir.Alias) -> None:
        self.values[made.var] = self.value(made.source)

    def match_cast(self, _: int, made: ir.MatchCast) -> None:
        self.values[made.var] = self.value(made.source if made.returns else None)

    def view(self, _: int, made: ir.View) -> None:
        source = self.value(made.source)
        if made.kind != "reshape" or isinstance(source, tuple):
            raise NotPlainError
        self.values[made.var] = source

    def make_tuple(self, _: int, made: ir.MakeTuple) -> None:
        self.values[made.var] = tuple([self.value(one) for one in made.fields])

    def take_field(self, _: int, made: ir.TakeField) -> None:
        source = self.value(made.source)
        if isinstance(source, tuple):
            source = source[made.index] if 0 <= made.index < len(source) else _NOTHING
        self.values[made.var] = source

    def kernel(self, point: int, call: ir.CallKernel) -> None:
        values, buffers = self.values, self.buffers.get(call.kernel) or self.buffers_of(call.kernel)
        row: list[Any] = [
            values.get(a, _NOTHING) if type(a) is ir.Var else self.value(a) for a in call.arguments
        ]
        if len(row) != buffers.many or tuple in map(type, row):
            raise NotPlainError
        self.called.append((call, row))
        touched = self.touched
        first, last, position = touched.first, touched.last, len(touched.points)
        touched.points.append(point)
        for index in buffers.read:
            last[row[index]] = position
            if row[index] not in first:
                first[row[index]] = position
        for index in buffers.written:
            last[row[index]] = position
            if row[index] in first:
                touched.rewritten[row[index]] = []
            else:
                first[row[index]] = position

    def buffers_of(self, kernel: str) -> _Buffers:
        known = self.program.kernels.get(kernel)
        if known is None:
            raise NotPlainError
        buffers = [(i, p) for i, p in enumerate(known.parameters) if isinstance(p, ir.KernelBuffer)]
        found = self.buffers[kernel] = _Buffers(
            len(known.parameters),
            tuple(i for i, p in buffers if p.reads),
            tuple(i for i, p in buffers if p.writes and not p.reads),
            frozenset(i for i, p in buffers if p.must_def),
        )
        return found

    def unread(self, _: int, other: ir.Instruction) -> None:
        raise NotPlainError

    # -- time ----------------------------------------------------------------------------------------------

    def end(self, point: int, returned: Iterable[int]) -> None:
        """Count the last position, at which the caller takes what is returned."""
        position = len(self.touched.points)
        self.touched.points.append(point)
        for number in returned:
            self.touched.first.setdefault(number, position)
            self.touched.last[number] = position

    def rewritten(self, returned: Collection[int]) -> None:
        """Note all touches of the regions of which the first and the last do not say everything."""
        rewritten = self.touched.rewritten
        if not rewritten:
            return
        for position, (call, row) in enumerate(self.called):
            buffers = self.buffers[call.kernel]
            read = {row[i] for i in buffers.read}
            defined = {row[i] for i in buffers.defined if self.is_whole(row[i], call.arguments[i])}
            for number in rewritten.keys() & {*read, *(row[i] for i in buffers.written)}:
                rewritten[number].append(_Touch(position, number in read, number in defined))
        for number in rewritten.keys() & returned:
            rewritten[number].append(_Touch(len(self.called), reads=True, defines=False))

    def is_whole(self, number: int, argument: ir.Operand) -> bool:
        """True if an allocation is as large as the tensor `argument`."""
        if type(argument) is ir.Var and self.allocated.get(argument) == number:
            return True
        kind = tensor_type(argument)
        return kind is not None and kind.nbytes is not None and kind.nbytes == self.nbytes.get(number)


def regions_in(value: _Value) -> Iterator[int]:
    if isinstance(value, tuple):
        for one in value:
            yield from regions_in(one)
    elif value != _NOTHING:
        yield value


READERS: dict[type, Callable[[PlainReader, int, Any], None]] = {
    ir.Alias: PlainReader.alias,
    ir.AllocFresh: PlainReader.allocation,
    ir.CallKernel: PlainReader.kernel,
    ir.MakeTuple: PlainReader.make_tuple,
    ir.MatchCast: PlainReader.match_cast,
    ir.TakeField: PlainReader.take_field,
    ir.View: PlainReader.view,
}
