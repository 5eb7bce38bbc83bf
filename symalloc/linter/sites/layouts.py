"""Sites of kind `buffer-layout`: byte offsets and strides that the buffers of a kernel declare."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.analysis.argument_binding import arguments_of, bind_kernel
from symalloc.linter.sites.comparisons import argument_name, argument_site
from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import FunctionContext, Site
from symalloc.program.ir import CallKernel, CallTIR, KernelBuffer, Operand
from symalloc.program.operands import tensor_type
from symalloc.size.expr import ZERO, constant, product


@instruction_sites("buffer-layout", CallKernel, CallTIR)
def buffer_layouts(context: FunctionContext, call: CallKernel | CallTIR) -> Iterator[Site]:
    """The sites of one call: what a buffer declares beside what its argument, which is row-major, has."""
    kernel = context.program.kernels.get(call.kernel)
    if kernel is None or not any(isinstance(p, KernelBuffer) and p.layout for p in kernel.parameters):
        return
    for parameter, argument in zip(kernel.parameters, arguments_of(call), strict=False):
        if isinstance(parameter, KernelBuffer):
            yield from _offset(context, call, parameter, argument)
            yield from _strides(context, call, parameter, argument)


def _offset(
    context: FunctionContext, call: CallKernel | CallTIR, buffer: KernelBuffer, argument: Operand
) -> Iterator[Site]:
    if buffer.layout is None or not buffer.layout.elem_offset or buffer.dtype is None:
        return
    expected, name = (
        constant(buffer.layout.elem_offset * buffer.dtype.itemsize),
        argument_name(call, argument),
    )
    for offset in dict.fromkeys(context.points_to.offsets(argument)) or (ZERO,):
        yield argument_site(call, name, buffer.name, "byte offset", offset, expected, kind="buffer-layout")


def _strides(
    context: FunctionContext, call: CallKernel | CallTIR, buffer: KernelBuffer, argument: Operand
) -> Iterator[Site]:
    kind, strides = tensor_type(argument), None if buffer.layout is None else buffer.layout.strides
    if strides is None or kind is None or kind.shape is None or len(kind.shape) != len(strides):
        return
    name = argument_name(call, argument)
    bound = bind_kernel(context.program.kernels[call.kernel], arguments_of(call))
    for axis, stride in enumerate(strides):
        if stride is not None and stride.symbols <= bound.keys():
            actual, expected = product(kind.shape[axis + 1 :]), stride.substitute(bound)
            if actual != expected:
                what = f"stride {axis}"
                yield argument_site(call, name, buffer.name, what, actual, expected, kind="buffer-layout")
