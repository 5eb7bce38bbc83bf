"""Sites of what a call, a cast or an index needs of its operands.

A call of a PrimFunc compares what it brings with what the buffers declare, R.match_cast compares extents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symalloc.analysis.argument_binding import arguments_of, comparisons
from symalloc.analysis.conflicts import Access, StaleUse, stale_uses
from symalloc.analysis.kernels.overlap import is_known
from symalloc.linter.sites.site import (
    FunctionContext,
    Site,
    caller_name,
    function_sites,
    instruction_sites,
    name_of,
    places_of,
)
from symalloc.program import ir
from symalloc.program.ir import (
    CallKernel,
    CallOperator,
    CallTIR,
    ConstantTensor,
    KernelBuffer,
    MatchCast,
    Operand,
    Scalar,
)
from symalloc.program.operands import inplace_operands, operands_of, read_cast, tensor_type, type_of
from symalloc.program.types import ScalarType, TensorType
from symalloc.size.condition import eq
from symalloc.size.expr import ONE, ZERO, Expr, constant, mod, product


@instruction_sites(CallKernel, CallTIR)
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


@instruction_sites(MatchCast)
def match_casts(context: FunctionContext, cast: MatchCast) -> Iterator[Site]:
    """The sites of one cast; extents that bind a symbol are compared with nothing."""
    reading = read_cast(cast)
    for index, source, target in reading.compared:
        yield Site(
            kind="match-cast",
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
    dimensions = len(kind.shape) if kind.shape is not None else kind.ndim
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
) -> Site:
    """A site of `kind`, at which a property of an argument must be what a parameter declares."""
    named = {"kernel": call.kernel, "parameter": parameter, "argument": argument, "property": what}
    named |= {"subject": f"{what} of `{argument}`", "declarer": f"`{call.kernel}` declares for `{parameter}`"}
    return Site(
        kind=kind,
        quantities={"actual": actual, "expected": expected},
        texts={**named, **(texts or {})},
        checked=eq(actual, expected),
    )


def argument_name(call: CallKernel | CallTIR, argument: Operand) -> str:
    """The name of an argument: that of the result where the call allocates it."""
    fresh = isinstance(call, CallTIR) and isinstance(argument, ConstantTensor) and argument not in call.inputs
    return call.var.name if fresh else name_of(argument)


@function_sites("constant-write", expanded=True)
def constant_writes(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the calls that write a constant; each with its program point."""
    for access in context.conflicts.writes_to(context.points_to.constants):
        call = context.instruction(access.point)
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
    return Site(
        kind="constant-write",
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
    for use in stale_uses(context.program, context.points_to, context.shared.summaries, context.paths):
        yield use.reader, _stale_use(context, use)


def _stale_use(context: FunctionContext, use: StaleUse) -> Site:
    writer, reader = context.instruction(use.writer), context.instruction(use.reader)
    user = "the function's result" if reader is None else caller_name(reader)
    if use.reader == use.writer:
        user = f"another result of {caller_name(writer)}"
    return Site(
        kind="inplace-operand",
        relation="used-later",
        texts={
            **_through(use, context.analysis.cfg.points[use.reader].uses),
            "operand": name_of(use.operand),
            "writer": caller_name(writer),
            "reader": user,
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


_UNCHECKED = {"relax.take": frozenset({"fast"})}
"""Operators that take indices, and the modes in which they use them as they are."""


@instruction_sites(CallOperator)
def constant_indices(context: FunctionContext, call: CallOperator) -> Iterator[Site]:
    """One site for each different constant index of `call`."""
    modes = _UNCHECKED.get(call.name)
    mode = call.attributes.get("mode", "fast")
    if modes is None or mode not in modes or len(call.arguments) < 2:
        return
    source = tensor_type(call.arguments[0])
    extent, axis = (None, "") if source is None else _extent(source, call.attributes.get("axis"))
    if extent is None:
        return
    for index in dict.fromkeys(_indices(call.arguments[1])):
        yield Site(
            kind="index",
            quantities={"index": index, "extent": extent},
            texts={"operator": call.name, "tensor": name_of(call.arguments[0]), "axis": axis, "mode": mode},
        )


def _indices(operand: Operand) -> tuple[Expr, ...]:
    if isinstance(operand, ConstantTensor):
        return tuple(map(constant, operand.values or ()))
    if isinstance(operand, Scalar):
        return () if operand.value is None else (operand.value,)
    kind = type_of(operand)
    return (kind.value,) if isinstance(kind, ScalarType) and kind.value is not None else ()


def _extent(source: TensorType, axis: str | None) -> tuple[Expr | None, str]:
    """The extent that is indexed, and what to call its axis; without an axis the flattened tensor is
    indexed.
    """
    if source.shape is None:
        return None, ""
    try:
        number = int(axis) if axis not in (None, "None", "") else None
    except ValueError:
        return None, ""
    if number is None:
        return product(source.shape), "flattened"
    inside = -len(source.shape) <= number < len(source.shape)
    return (source.shape[number], str(number % len(source.shape))) if inside else (None, "")
