"""Sites of kind `constant-write`: what a call must not write, through whatever alias it gets it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import FunctionContext, RelationSite, Site, caller_name, name_of
from symalloc.program import ir
from symalloc.program.operands import operands_of


@function_sites("constant-write")
def constant_writes(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the calls that write a constant; each with its program point."""
    for access in context.conflicts.writes_to(context.points_to.constants):
        call = context.analysis.cfg.points[access.point].instruction
        yield (
            access.point,
            RelationSite(
                kind="constant-write",
                instruction=call,
                relation="constant-written",
                texts={"writer": caller_name(call), "constant": _constant(context, call)},
                uncertainty=None if access.certain else "an alias is not certain",
                dedup_key=access.point,
            ),
        )


def _constant(context: FunctionContext, call: ir.Instruction | None) -> str:
    """The constant that a call writes, as its argument names it."""
    constants = context.points_to.constants
    found = [o for o in _written(context, call) if context.points_to.regions_of(o) & constants]
    named = next((o for o in found if isinstance(o, ir.Var)), None)
    return "a constant" if named is None else f"`{name_of(named)}`, a constant"


def _written(context: FunctionContext, call: ir.Instruction | None) -> Sequence[ir.Operand]:
    """The arguments that a call may write."""
    match call:
        case ir.CallKernel(kernel=name, arguments=arguments) if name in context.program.kernels:
            pairs = zip(context.program.kernels[name].parameters, arguments, strict=False)
            return [a for p, a in pairs if isinstance(p, ir.KernelBuffer) and p.writes]
        case ir.CallTIR(inputs=inputs, inplace=inplace):
            return [inputs[i] for i in inplace if i is not None and i < len(inputs)]
        case ir.CallPacked(arguments=arguments, writes=writes):
            return [a for i, a in enumerate(arguments) if i in writes]
    return () if call is None else operands_of(call)
