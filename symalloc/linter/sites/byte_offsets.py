"""Sites of kind `ignored-offset`: tensors at a byte offset, handed to what may ignore it.

A packed function gets the pointer and the byte offset apart, and the machine's own test of a condition, the
reading of a shape from a tensor and TVM's sorting functions use the pointer alone.  A Relax function is
compiled for parameters that begin at byte 0 where it passes them on to one of these, or to a kernel without
an `elem_offset` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.analysis.sets import contains
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site, caller_name, name_of
from symalloc.program import ir
from symalloc.program.control_flow import PointKind, ProgramPoint
from symalloc.program.tvm_functions import packed_function
from symalloc.size.expr import Expr


@function_sites("ignored-offset")
def ignored_offsets(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each tensor that may begin behind byte 0 where that may be overlooked, with the point."""
    cfg = context.analysis.cfg
    calls = cfg.of_type(ir.CallPacked, ir.CallFunction)
    for index in sorted((*cfg.joins, *(call for call, _ in calls))):
        point = cfg.points[index]
        for operand, offset, uncertainty in _given(context, point):
            if offset.terms:
                yield index, _site(point, operand, offset, uncertainty)


def _given(context: FunctionContext, point: ProgramPoint) -> Iterator[tuple[ir.Operand, Expr, str | None]]:
    """The tensors whose byte offsets a point may overlook: operand, offset, why it may be no fault."""
    points_to, instruction = context.points_to, point.instruction
    match instruction:
        case ir.If(test=test) if point.kind is PointKind.BRANCH:
            yield from ((test, offset, None) for offset in points_to.offsets(test))
        case ir.CallPacked(name=name, arguments=arguments) if (
            packed_function(name).byte_offset != "respected"
        ):
            ignored = packed_function(name).byte_offset == "ignored"
            uncertainty = None if ignored else f"`{name}` may add the offset to the pointer"
            for argument in arguments:
                yield from ((argument, offset, uncertainty) for offset in points_to.offsets(argument))
        case ir.CallFunction(name=name) as call if name in context.summaries:
            callee, summary = context.program.functions[name], context.summaries[name]
            for number, (argument, leaf) in enumerate(points_to.argument_leaves(call.arguments, callee)):
                if contains(summary.ignores_offset, number):
                    yield from ((argument, offset, None) for offset in points_to.offsets_of(leaf))


def _site(point: ProgramPoint, operand: ir.Operand, offset: Expr, uncertainty: str | None) -> Site:
    receiver = "the test of an If" if point.kind is PointKind.BRANCH else caller_name(point.instruction)
    return ConstraintSite(
        kind="ignored-offset",
        instruction=point.instruction,
        quantities={"offset": offset},
        texts={"tensor": name_of(operand), "receiver": receiver},
        uncertainty=uncertainty,
    )
