"""Sites of kinds `constant-write` and `inplace-operand`: what no call may write, or nobody use any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symalloc.analysis.conflicts import Access
from symalloc.analysis.inplace import StaleUse, stale_uses
from symalloc.analysis.kernel_overlap import is_known
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import (
    FunctionContext,
    RelationSite,
    Site,
    caller_name,
    name_of,
    places_of,
)
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.operands import inplace_operands, operands_of


@function_sites("constant-write", expanded=True)
def constant_writes(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the calls that write a constant; each with its program point."""
    for access in context.conflicts.writes_to(context.points_to.constants):
        call = context.analysis.cfg.points[access.point].instruction
        found = [
            o
            for o in _written(context, call)
            if context.points_to.regions_of(o) & context.points_to.constants
        ]
        if found:
            yield access.point, _constant_write(call, found, access)


def _constant_write(call: ir.Instruction | None, found: Sequence[ir.Operand], access: Access) -> Site:
    named = next((o for o in found if isinstance(o, ir.Var)), None)
    doubt = "what the function does is known in outline only" if isinstance(call, ir.CallFunction) else None
    return RelationSite(
        kind="constant-write",
        instruction=call,
        relation="constant-written",
        texts={
            "writer": caller_name(call),
            "constant": "a constant" if named is None else f"`{name_of(named)}`, a constant",
        },
        uncertainty=doubt if access.certain else "an alias is not certain",
        path=access.path,
        dedup_key=access.point,
    )


def _written(context: FunctionContext, call: ir.Instruction | None) -> Sequence[ir.Operand]:
    """The arguments that a call is known to write."""
    match call:
        case ir.CallKernel(kernel=name, arguments=arguments) if name in context.program.kernels:
            kernel = context.program.kernels[name]
            pairs = zip(range(len(kernel.parameters)), arguments, strict=False)
            return [argument for position, argument in pairs if is_known(kernel, position, "store")]
        case ir.CallTIR() | ir.CallPacked(inplace=(_, *_)):
            return inplace_operands(call)
        case ir.CallPacked(arguments=arguments, writes=writes):
            return [a for i, a in enumerate(arguments) if i in writes]
    return () if call is None else operands_of(call)


@function_sites("inplace-operand", expanded=True)
def inplace_operands_used_later(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the uses of what an in-place call has overwritten; each with its program point."""
    for use in stale_uses(context.program, context.points_to, context.summaries, context.paths):
        yield use.reader, _stale_use(context, use)


def _stale_use(context: FunctionContext, use: StaleUse) -> Site:
    point = context.analysis.cfg.points[use.reader]
    writer = context.analysis.cfg.points[use.writer].instruction
    ends = point.kind is PointKind.EXIT
    reader = (
        f"another result of {caller_name(writer)}"
        if use.reader == use.writer
        else caller_name(point.instruction)
    )
    return RelationSite(
        kind="inplace-operand",
        instruction=point.instruction,
        span=context.function.result_span if ends else None,
        relation="used-later",
        texts={
            **_through(use, point.uses),
            "operand": name_of(use.operand),
            "writer": caller_name(writer),
            "reader": "the function's result" if ends else reader,
        },
        places=places_of(writer=writer),
        uncertainty=None if use.certain else "an alias is not certain",
        path=use.path,
        until=use.reader,
        dedup_key=(use.writer, use.operand),
    )


def _through(use: StaleUse, used: Sequence[ir.Var]) -> Mapping[str, str]:
    """The text `alias`: the variable through which the operand is used, unless it is the operand itself."""
    found = [var for var in used if use.versions.regions_of(var) & use.regions]
    return {"alias": f"`{found[0].name}`"} if found and use.operand not in found else {}
