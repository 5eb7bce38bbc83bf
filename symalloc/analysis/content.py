"""Content: what each program point needs memory to hold already, beside what it reads of its own writing.

An effect says what a point may touch; here stands what it surely reads before it has written it.  A kernel
that only loads from a buffer needs its content, one that initialises it first does not.  Looking at a shape,
handing on a handle and killing one read nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from symalloc.analysis.call_expansion import arguments_of, bind_kernel
from symalloc.analysis.kernels.coverage import (
    UNKNOWN_ELEMENTS,
    Elements,
    KernelCoverage,
    ParameterCoverage,
    Range,
)
from symalloc.analysis.kernels.uninitialized import MemoryRange
from symalloc.analysis.regions import (
    AbstractValue,
    FunctionSummary,
    PointsTo,
    Region,
    TuplePointees,
    leaves_of,
    pointees_of,
)
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, only_member
from symalloc.program import ir
from symalloc.program.control_flow import PointKind, ProgramPoint
from symalloc.program.operands import tensor_type
from symalloc.program.operator_effects import READS_SOME, SHAPE_ARGUMENTS
from symalloc.size.condition import Condition, Relation
from symalloc.size.expr import ZERO, symbol
from symalloc.size.sign import is_nonnegative

# -- calls of kernels --------------------------------------------------------------------------------------


KernelCall = ir.CallKernel | ir.CallTIR


KernelCoverages: TypeAlias = Callable[[str], KernelCoverage]
"""Return the coverage of the kernel of a name; see `kernel_coverage`."""


class RequiredContents(NamedTuple):
    """The regions whose content one point reads as it was before.

    `may` are those that it may not read after all.  `assumed` are regions that count as written behind the
    point, whatever its effect says: something that is not understood was handed them, or a kernel of which
    that is not known.
    """

    must: RegionSet = NO_REGIONS
    may: RegionSet = NO_REGIONS
    assumed: RegionSet = NO_REGIONS


NOTHING_REQUIRED = RequiredContents()


def surely_meant(points_to: PointsTo, value: AbstractValue) -> RegionSet:
    """The regions of each handle in a value, each on its branch; none where it may as well be another."""
    found = NO_REGIONS
    for must, may, _ in leaves_of(value):
        if must and not may:
            alone = only_member(must) is not None
            if alone or all(points_to.regions[number].path for number in members(must)):
                found |= must
    return found


# -- all points --------------------------------------------------------------------------------


class Content:
    """The content that the points of a function need memory to hold, and how much of it they fill."""

    def __init__(
        self,
        program: ir.Program,
        points_to: PointsTo,
        summaries: Mapping[str, FunctionSummary],
        coverages: KernelCoverages,
    ) -> None:
        self.program, self.points_to, self.summaries = program, points_to, summaries
        self.coverages, self.tensors = coverages, ~points_to.storages
        extents = (ir.Origin.DIMENSION, ir.Origin.CAST)
        symbols = points_to.cfg.function.symbols.items()
        self.extents = frozenset(name for name, origin in symbols if origin in extents)
        self._at_calls: dict[Hashable, tuple[object, Sequence[Elements]]] = {}

    @cached_property
    def needs(self) -> Sequence[RequiredContents]:
        """An entry for each point; nothing that plans memory asks for it."""
        return [self.needs_at(point) for point in self.points_to.cfg.points]

    def reads(self, point: int, number: int) -> Sequence[MemoryRange]:
        """The parts of a region that a point which needs it reads."""
        call = self.points_to.cfg.points[point].instruction
        whole = MemoryRange(self.points_to.regions[number])
        if isinstance(call, ir.CallOperator) and call.name in READS_SOME:
            return (whole._replace(elements=Elements((), exact=False)),)
        return self._parts(call, number, lambda known: known.reads) or (whole,)

    def writes(self, point: int, number: int) -> Sequence[MemoryRange]:
        """The parts that hold all that a point may write of a region; exact where it surely does."""
        call = self.points_to.cfg.points[point].instruction
        region = self.points_to.regions[number]
        sure = contains(self.points_to.defs.get(point, NO_REGIONS), number) or (
            isinstance(call, ir.CallPacked)
            and contains(
                self.surely([a for i, a in enumerate(call.arguments) if i in call.contract.defines]), number
            )
        )
        parts = self._parts(call, number, lambda known: known.writes)
        return (_part_of(region, exact=sure),) if parts is None else parts

    def loads(self, point: int, number: int) -> Sequence[MemoryRange]:
        """The parts that hold all that a point may read of what a region held before; exact where it surely
        does.
        """
        points_to, call = self.points_to, self.points_to.cfg.points[point].instruction
        region = points_to.regions[number]
        if not isinstance(call, KernelCall) or call.kernel not in self.program.kernels:
            some = isinstance(call, ir.CallOperator) and call.name in READS_SOME
            surely = points_to.with_choices(self.needs[point].must | self.needs[point].may)
            return (_part_of(region, exact=not some and contains(surely, number)),)
        family = points_to.family(RegionSet(1 << number))
        given = map(pointees_of, self.values(call))
        named = [points_to.resolve(must | may) & self.tensors for must, may in given]
        if all(only_member(one) == number for one in named if one & family):
            return self._parts(call, number, lambda found: found.loads) or ()
        return (_part_of(region, exact=False),)

    def _parts(
        self,
        call: ir.Instruction | None,
        number: int,
        chosen: Callable[[ParameterCoverage], Sequence[Elements]],
    ) -> Sequence[MemoryRange] | None:
        """The parts of a region that a call accesses; None where they are not known."""
        if not isinstance(call, KernelCall):
            return None
        region = self.points_to.regions[number]
        found: list[MemoryRange] | None = None
        for position, known, value in self.covered(call):
            if contains(self.points_to.resolve(pointees_of(value)[0]), number):
                boxes = self.at_call(call, position, chosen(known))
                kind = tensor_type(arguments_of(call)[position])
                if kind is not None and kind.nbytes != region.nbytes:  # a reshape, maybe of a part
                    boxes = [one._replace(exact=one.exact and not one.is_whole) for one in boxes]
                parts = (MemoryRange(region, kind if one.ranges else None, one) for one in boxes)
                found = [*(found or ()), *parts]
        return found

    # -- by instruction -----------------------------------------------------------------------------------

    def needs_at(self, point: ProgramPoint) -> RequiredContents:
        """The needs of one point."""
        if point.kind is PointKind.INSTRUCTION:
            handler = _NEEDS.get(type(point.instruction))
            return NOTHING_REQUIRED if handler is None else handler(self, point.instruction)
        if point.kind is PointKind.EXIT:
            return RequiredContents(self.surely((point.operand,)))
        return (
            RequiredContents(self.surely(point.uses)) if point.kind is PointKind.BRANCH else NOTHING_REQUIRED
        )

    def surely(self, operands: Sequence[ir.Operand | None]) -> RegionSet:
        """The tensors that operands surely point to, each on its branch."""
        values = TuplePointees(tuple(map(self.points_to.value_of, operands)))
        return surely_meant(self.points_to, values) & self.tensors

    def call_kernel(self, call: KernelCall) -> RequiredContents:
        tensors = self.tensors
        must = may = whole = NO_REGIONS
        for position, known, value in self.covered(call):
            read = surely_meant(self.points_to, value) & tensors if known.needed else NO_REGIONS
            must, may = (must | read, may) if known.surely else (must, may | read)
            if any(one.is_whole for one in self.at_call(call, position, known.writes)):
                whole |= pointees_of(value)[0] & tensors
        return RequiredContents(must, may, whole)

    def call_packed(self, call: ir.CallPacked) -> RequiredContents:
        known = call.contract
        if known.writes is not None:
            read = [a for index, a in enumerate(call.arguments) if known.reads_argument(index)]
            return RequiredContents(self.surely(read))
        return RequiredContents(may=self.surely(call.arguments)) if call.pure else NOTHING_REQUIRED

    def call_operator(self, call: ir.CallOperator) -> RequiredContents:
        looked_at = SHAPE_ARGUMENTS.get(call.name, frozenset())
        return RequiredContents(self.surely([a for i, a in enumerate(call.arguments) if i not in looked_at]))

    def call_function(self, call: ir.CallFunction) -> RequiredContents:
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None or len(callee.params) != len(call.arguments):
            return self.not_understood(call.arguments)
        found = NO_REGIONS
        for number, (_, leaf) in enumerate(self.points_to.argument_leaves(call.arguments, callee)):
            if contains(summary.needs, number):
                found |= surely_meant(self.points_to, leaf)
        return RequiredContents(found & self.tensors)

    def not_understood(self, operands: Sequence[ir.Operand]) -> RequiredContents:
        must, may = self.points_to.pointees(operands)
        return RequiredContents(assumed=self.points_to.resolve(must | may))

    # -- calls of kernels ---------------------------------------------------------------------------------

    def covered(self, call: KernelCall) -> Sequence[tuple[int, ParameterCoverage, AbstractValue]]:
        """The parameters of a kernel with their coverage, each with what it is given."""
        values, known = self.values(call), self.coverages(call.kernel)
        return [(position, known[position], values[position]) for position in known if position < len(values)]

    def values(self, call: KernelCall) -> Sequence[AbstractValue]:
        """The values of the arguments, as the kernel sees them."""
        value_of = self.points_to.value_of
        if isinstance(call, ir.CallKernel):
            return [*map(value_of, call.arguments)]
        made = list(leaves_of(self.points_to.values[call.var]))
        donors = (*call.inplace, *(None for _ in call.outputs))
        fresh = [leaf for leaf, donor in zip(made, donors, strict=False) if donor is None]
        return [*map(value_of, call.inputs), *fresh]

    def at_call(self, call: KernelCall, position: int, boxes: Sequence[Elements]) -> Sequence[Elements]:
        """Boxes of a parameter in symbols of the caller; what is plainly all of the argument stands so.

        Calls that bring arguments of the same types share them.
        """
        arguments = arguments_of(call)
        told = (id(one.type if isinstance(one, ir.Var | ir.ConstantTensor) else one) for one in arguments)
        key = call.kernel, position, id(boxes), *told
        if key not in self._at_calls:  # what is told by its address is kept with it
            self._at_calls[key] = (boxes, arguments), [*self._bound(call.kernel, arguments, position, boxes)]
        return self._at_calls[key][1]

    def _bound(
        self, kernel: str, arguments: Sequence[ir.Operand], position: int, boxes: Sequence[Elements]
    ) -> Iterator[Elements]:
        kind = tensor_type(arguments[position])
        shape = () if kind is None or kind.shape is None else kind.shape
        for box in sorted(boxes, key=lambda one: not one.is_whole):
            if box.is_whole and box.points is None:
                yield box if box is UNKNOWN_ELEMENTS else box._replace(ranges=(None,) * len(shape))
                continue
            bound = bind_kernel(self.program.kernels[kernel], arguments)
            if not box.symbols <= bound.keys() or len(box.ranges) != len(shape):
                yield Elements((None,) * len(shape), exact=False)
                continue
            known = box.substitute(bound)
            guards = tuple(c for c in known.guards if not self.is_plain(c))
            runs = tuple(c for c in known.runs if not self.is_plain(c))
            pairs = zip(known.ranges, shape, strict=True)
            ranges = tuple(None if found == Range(ZERO, extent) else found for found, extent in pairs)
            yield known._replace(ranges=ranges, guards=guards, runs=runs)

    def is_plain(self, condition: Condition) -> bool:
        """True for a condition that plainly holds wherever no extent is 0."""
        if condition.as_bool is not None:
            return condition.as_bool
        if not isinstance(condition, Relation) or condition.operator != "<=":
            return False
        values = {name: symbol(name) + 1 for name in condition.symbols & self.extents}
        return is_nonnegative(-condition.expr.substitute(values), condition.symbols - self.extents)


def _part_of(region: Region, *, exact: bool) -> MemoryRange:
    """All of a region, or, if not exact, what is not known of it."""
    return MemoryRange(region, elements=Elements((), exact=exact))


_NEEDS: dict[type, Callable[[Content, Any], RequiredContents]] = {
    ir.Assert: lambda content, i: RequiredContents(content.surely(i.reads)) if i.reads else NOTHING_REQUIRED,
    ir.CallFunction: Content.call_function,
    ir.CallKernel: Content.call_kernel,
    ir.CallOperator: Content.call_operator,
    ir.CallPacked: Content.call_packed,
    ir.CallTIR: Content.call_kernel,
    ir.NotUnderstood: lambda content, i: content.not_understood(i.reads),
}
