"""Sites of kinds `call-argument` and `match-cast`: what the program itself compares when it runs.

A call of a PrimFunc compares what it brings with what the buffers declare, R.match_cast compares extents.
"""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.analysis.argument_binding import arguments_of, comparisons
from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site, name_of
from symalloc.program.casts import read_cast
from symalloc.program.ir import CallKernel, CallTIR, ConstantTensor, KernelBuffer, MatchCast, Operand
from symalloc.program.operands import tensor_type
from symalloc.program.types import TensorType
from symalloc.size.condition import eq
from symalloc.size.expr import ONE, ZERO, Expr, constant, mod


@instruction_sites("call-argument", CallKernel, CallTIR)
def call_arguments(context: FunctionContext, call: CallKernel | CallTIR) -> Iterator[Site]:
    """The sites of one call of a PrimFunc: number of arguments, dtype, number of dimensions, extents,
    byte offset.
    """
    kernel = context.program.kernels.get(call.kernel)
    if kernel is None:
        return
    arguments = arguments_of(call)
    if len(arguments) != len(kernel.parameters):
        given, wanted = constant(len(arguments)), constant(len(kernel.parameters))
        texts = {"subject": "number of arguments", "declarer": f"`{call.kernel}` takes"}
        yield argument_site(call, "the call", "", "number of arguments", given, wanted, texts)
        return
    for position, argument in enumerate(arguments):
        parameter = kernel.parameters[position]
        if isinstance(parameter, KernelBuffer):
            yield from _properties(context, call, parameter, argument)
    for found in comparisons(kernel, arguments):
        if found.actual == found.expected and found.actual.symbols:
            continue
        buffer, argument = kernel.parameters[found.position], arguments[found.position]
        what = f"extent {found.axis}"
        yield argument_site(
            call, argument_name(call, argument), buffer.name, what, found.actual, found.expected
        )


@instruction_sites("match-cast", MatchCast)
def match_casts(context: FunctionContext, cast: MatchCast) -> Iterator[Site]:
    """The sites of one cast; extents that bind a symbol are compared with nothing."""
    reading = read_cast(cast)
    for index, source, target in reading.compared:
        yield ConstraintSite(
            kind="match-cast",
            instruction=cast,
            quantities={"source.extent": source, "extent": target},
            texts={"value": cast.var.name, "source": name_of(cast.source), "index": str(index)},
            checked=None if index in reading.unchecked else eq(source, target),
        )


def _properties(
    context: FunctionContext, call: CallKernel | CallTIR, buffer: KernelBuffer, argument: Operand
) -> Iterator[Site]:
    """The properties of an argument that must be equal whatever the shapes are."""
    kind = tensor_type(argument)
    if kind is None:
        return
    name = argument_name(call, argument)
    if buffer.dtype is not None and kind.dtype is not None and buffer.dtype.name != kind.dtype.name:
        texts = {"actual": kind.dtype.name, "expected": buffer.dtype.name}
        yield argument_site(call, name, buffer.name, "dtype", ONE, ZERO, texts)
    dimensions = _dimensions(kind)
    if buffer.shape is not None and dimensions is not None and dimensions != len(buffer.shape):
        declared = constant(len(buffer.shape))
        yield argument_site(call, name, buffer.name, "number of dimensions", constant(dimensions), declared)
    if buffer.dtype is None or (buffer.layout is not None and buffer.layout.elem_offset):
        return
    for offset in dict.fromkeys(context.points_to.offsets(argument)):
        if not offset.terms:
            continue
        if buffer.offset_factor is None:
            yield argument_site(call, name, buffer.name, "byte offset", offset, ZERO)
        else:
            point = buffer.offset_factor * buffer.dtype.itemsize
            yield argument_site(
                call, name, buffer.name, f"byte offset modulo {point}", mod(offset, point), ZERO
            )


def argument_site(
    call: CallKernel | CallTIR,
    argument: str,
    parameter: str,
    what: str,
    actual: Expr,
    expected: Expr,
    texts: dict[str, str] | None = None,
    kind: str = "call-argument",
) -> ConstraintSite:
    """A site of `kind`, at which a property of an argument must be what a parameter declares."""
    named = {"kernel": call.kernel, "parameter": parameter, "argument": argument, "property": what}
    named |= {"subject": f"{what} of `{argument}`", "declarer": f"`{call.kernel}` declares for `{parameter}`"}
    return ConstraintSite(
        kind=kind,
        instruction=call,
        quantities={"actual": actual, "expected": expected},
        texts={**named, **(texts or {})},
        checked=eq(actual, expected),
    )


def argument_name(call: CallKernel | CallTIR, argument: Operand) -> str:
    """The name of an argument: that of the result where the call allocates it."""
    fresh = isinstance(call, CallTIR) and isinstance(argument, ConstantTensor) and argument not in call.inputs
    return call.var.name if fresh else name_of(argument)


def _dimensions(kind: TensorType) -> int | None:
    return len(kind.shape) if kind.shape is not None else kind.ndim
