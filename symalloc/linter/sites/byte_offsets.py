"""Sites of kind `ignored-offset`: tensors at a byte offset, handed to what may ignore it.

A packed function gets the pointer and the byte offset apart, and the machine's own test of a condition, the
reading of a shape from a tensor and TVM's sorting functions use the pointer alone.  A Relax function is
compiled for parameters that begin at byte 0 where it passes them on to one of these, or to a kernel without
an `elem_offset` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from symalloc.analysis.argument_binding import arguments_of
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.regions import Pointees, leaves_of
from symalloc.analysis.sets import NO_REGIONS
from symalloc.analysis.summary import align
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site, caller_name, name_of
from symalloc.program.control_flow import PointKind, ProgramPoint
from symalloc.program.model import (
    CallFunction,
    CallKernel,
    CallPacked,
    CallTIR,
    If,
    KernelBuffer,
    Operand,
    Program,
)
from symalloc.program.tvm_functions import packed_function
from symalloc.program.types import Type
from symalloc.size.expr import ZERO, Expr

StrictLeaves = Mapping[str, frozenset[int]]
"""By function, the leaves of its parameters whose byte offset something in it ignores or refuses."""

_NONE: frozenset[int] = frozenset()


@function_sites("ignored-offset")
def ignored_offsets(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each tensor that may begin behind byte 0 where that may be overlooked, with the point."""
    for index, point in enumerate(context.analysis.cfg.points):
        for operand, offset, uncertainty in _given(context, point):
            if offset.terms:
                yield index, _site(point, operand, offset, uncertainty)


def strict_leaves(program: Program, analysis: FunctionAnalysis, known: StrictLeaves) -> frozenset[int]:
    """The leaves of the parameters of one function; `known` holds those of its callees."""
    points_to = analysis.points_to
    given = reduce(or_, (leaf.must for leaf in points_to.parameters), NO_REGIONS)
    found = NO_REGIONS
    for point in analysis.cfg.points:
        for cell in _strict_arguments(program, points_to, point, known):
            here = points_to.resolve(cell.must) & given
            if here and ZERO in points_to.offsets_of(cell):
                found |= here
    return frozenset(i for i, leaf in enumerate(points_to.parameters) if leaf.must & found)


def _given(context: FunctionContext, point: ProgramPoint) -> Iterator[tuple[Operand, Expr, str | None]]:
    """The tensors whose byte offsets a point may overlook: operand, offset, why it may be no fault."""
    points_to, instruction = context.points_to, point.instruction
    match instruction:
        case If(test=test) if point.kind is PointKind.BRANCH:
            yield from ((test, offset, None) for offset in points_to.offsets(test))
        case CallPacked(name=name, arguments=arguments) if packed_function(name).byte_offset != "respected":
            ignored = packed_function(name).byte_offset == "ignored"
            uncertainty = None if ignored else f"`{name}` may add the offset to the pointer"
            for argument in arguments:
                yield from ((argument, offset, uncertainty) for offset in points_to.offsets(argument))
        case CallFunction(name=name, arguments=arguments):
            wanted = context.strict_leaves.get(name, _NONE)
            for argument, leaf, cell in _leaves(context.program, points_to, instruction):
                if leaf in wanted:
                    yield from ((argument, offset, None) for offset in points_to.offsets_of(cell))


def _strict_arguments(
    program: Program, points_to: PointsTo, point: ProgramPoint, known: StrictLeaves
) -> Iterator[Pointees]:
    """The tensors that a point hands to what ignores or refuses a byte offset."""
    match point.instruction:
        case If(test=test) if point.kind is PointKind.BRANCH:
            yield from leaves_of(points_to.value_of(test))
        case CallPacked(name=name, arguments=arguments) if packed_function(name).byte_offset == "ignored":
            for argument in arguments:
                yield from leaves_of(points_to.value_of(argument))
        case CallKernel() | CallTIR() as call:
            yield from _refused(program, points_to, call)
        case CallFunction(name=name) as call:
            wanted = known.get(name, _NONE)
            yield from (cell for _, leaf, cell in _leaves(program, points_to, call) if leaf in wanted)


def _refused(program: Program, points_to: PointsTo, call: CallKernel | CallTIR) -> Iterator[Pointees]:
    kernel = program.kernels.get(call.kernel)
    if kernel is None:
        return
    for parameter, argument in zip(kernel.parameters, arguments_of(call), strict=False):
        if isinstance(parameter, KernelBuffer) and parameter.dtype and parameter.offset_factor is None:
            yield from leaves_of(points_to.value_of(argument))


def _leaves(
    program: Program, points_to: PointsTo, call: CallFunction
) -> Iterator[tuple[Operand, int, Pointees]]:
    """The leaves of a call's arguments, numbered as those of the callee's parameters."""
    function = program.functions.get(call.name)
    kinds: Sequence[Type] = () if function is None else [param.type for param in function.params]
    leaf = 0
    for argument, kind in zip(call.arguments, kinds, strict=False):
        for cell in align(points_to.value_of(argument), kind):
            yield argument, leaf, cell
            leaf += 1


def _site(point: ProgramPoint, operand: Operand, offset: Expr, uncertainty: str | None) -> Site:
    receiver = "the test of an If" if point.kind is PointKind.BRANCH else caller_name(point.instruction)
    return ConstraintSite(
        kind="ignored-offset",
        instruction=point.instruction,
        quantities={"offset": offset},
        texts={"tensor": name_of(operand), "receiver": receiver},
        uncertainty=uncertainty,
    )
