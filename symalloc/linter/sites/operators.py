"""Sites of operators that need elements: reductions over an axis, and the largest elements of one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from symalloc.linter.sites.site import FunctionContext, Site, instruction_sites, name_of
from symalloc.program import ir
from symalloc.program.operands import tensor_type
from symalloc.program.operator_effects import NEEDS_ELEMENTS
from symalloc.size.expr import constant, product


@instruction_sites(ir.CallOperator)
def needed_elements(_context: FunctionContext, call: ir.CallOperator) -> Iterator[Site]:
    """The elements that `call` goes over, beside those that it takes at least."""
    source = tensor_type(call.arguments[0]) if call.name in NEEDS_ELEMENTS and call.arguments else None
    if source is None or source.shape is None:
        return
    ndim, told = len(source.shape), re.findall(r"-?\d+", call.attributes.get("axis", ""))
    axes = {int(axis) % ndim for axis in told if ndim} or set(range(ndim))
    over = [extent for axis, extent in enumerate(source.shape) if axis in axes]
    others = [extent for axis, extent in enumerate(source.shape) if axis not in axes]
    wanted = int(call.attributes.get("k", 1))
    yield Site(
        kind="needed-elements",
        quantities={"needed": constant(wanted), "elements": product(over), "others": product(others)},
        texts={
            "operator": call.name,
            "tensor": name_of(call.arguments[0]),
            "axis": f"axis {', '.join(map(str, sorted(axes)))} of " if told else "",
        },
    )
