"""A call held against the parameters of its callee: the values of the callee's symbols, and what is compared.

A kernel, when it is entered, binds each of its symbols at the first place where the symbol stands alone (an
extent, or a scalar parameter); every other extent must then equal what the argument brings.  A Relax function
binds the symbols of its parameters alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.program import ir
from symalloc.program.operands import extent_pairs, tensor_type, type_of
from symalloc.program.types import ScalarType, TensorType, Type
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr, symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentComparison:
    """Extent `axis` of argument `position`: the `actual` one, and the one that the kernel expects."""

    position: int
    axis: int
    actual: Expr
    expected: Expr


def arguments_of(call: ir.CallKernel | ir.CallTIR) -> tuple[ir.Operand, ...]:
    """The arguments as the PrimFunc sees them: of R.call_tir the inputs, then the results.

    Results that are fresh stand as constants of their types.
    """
    if isinstance(call, ir.CallKernel):
        return call.arguments
    inplace = (*call.inplace, *(None for _ in call.outputs))
    fresh = (
        ir.ConstantTensor(type=t) for t, donor in zip(call.outputs, inplace, strict=False) if donor is None
    )
    return (*call.inputs, *fresh)


def bind_kernel(kernel: ir.Kernel, arguments: Sequence[ir.Operand]) -> dict[str, Expr]:
    """The values of the kernel's symbols, in symbols of the caller; without those that nothing binds."""
    bound: dict[str, Expr] = {}
    for parameter, argument in zip(kernel.parameters, arguments, strict=False):
        if isinstance(parameter, ir.KernelScalar):
            value = _scalar(argument)
            if value is not None:
                bound.setdefault(parameter.name, value)
            continue
        for declared, actual in _extents(parameter, argument):
            name = declared.as_symbol
            if name is not None:
                bound.setdefault(name, actual)
    return bound


def bind_function(callee: ir.Function, arguments: Sequence[ir.Operand]) -> dict[str, Expr]:
    """The values of the symbols of a Relax function's parameters, in symbols of the caller."""
    return bind_parameters([param.type for param in callee.params], arguments)


def values_at_call(callee: ir.Function, call: ir.CallFunction) -> dict[str, Expr]:
    """The values of the callee's symbols; those that it defines itself are called `callee.symbol`."""
    found = bind_function(callee, call.arguments)
    return {name: found.get(name, symbol(f"{callee.name}.{name}")) for name in callee.symbols}


def bind_parameters(kinds: Sequence[Type], arguments: Sequence[ir.Operand]) -> dict[str, Expr]:
    """The values of the symbols in the types of parameters, in symbols of the caller."""
    bound: dict[str, Expr] = {}
    for actual, declared in _given(kinds, arguments):
        name = declared.as_symbol
        if name is not None:
            bound.setdefault(name, actual)
    return bound


def entry_checks(
    callee: ir.Function, arguments: Sequence[ir.Operand], bound: Mapping[str, Expr]
) -> tuple[Condition, ...]:
    """The conditions over symbols in `bound` that the callee checks on entry, and that may not hold."""
    pairs = (
        (actual, declared) for actual, declared in _given([param.type for param in callee.params], arguments)
    )
    checks = (eq(a, d.substitute(bound)) for a, d in pairs if d.symbols <= bound.keys())
    return tuple(dict.fromkeys(check for check in checks if check.as_bool is not True))


def _given(kinds: Sequence[Type], arguments: Sequence[ir.Operand]) -> Iterator[tuple[Expr, Expr]]:
    """The extents and scalars of the arguments beside those that the types of parameters declare."""
    for kind, argument in zip(kinds, arguments, strict=False):
        value = _scalar(argument) if isinstance(kind, ScalarType) else None
        yield from extent_pairs(
            type_of(argument) if value is None else ScalarType(value=value, dtype=None), kind
        )


def comparisons(kernel: ir.Kernel, arguments: Sequence[ir.Operand]) -> Iterator[ExtentComparison]:
    """The extents that the kernel compares; those that bind a symbol are compared with themselves.

    An extent over a symbol that nothing binds has no comparison: what the kernel makes of it is not known.
    """
    bound = bind_kernel(kernel, arguments)
    for position, (parameter, argument) in enumerate(zip(kernel.parameters, arguments, strict=False)):
        if not isinstance(parameter, ir.KernelBuffer):
            continue
        for axis, (declared, actual) in enumerate(_extents(parameter, argument)):
            if declared.symbols <= bound.keys():
                expected = declared.substitute(bound)
                yield ExtentComparison(position=position, axis=axis, actual=actual, expected=expected)


def kernel_facts(kernel: ir.Kernel, arguments: Sequence[ir.Operand]) -> tuple[Condition, ...]:
    """The facts behind the entry of a kernel: its comparisons, without those that hold by themselves."""
    facts = (eq(c.actual, c.expected) for c in comparisons(kernel, arguments) if c.actual != c.expected)
    return tuple(fact for fact in facts if fact.as_bool is None)


def asserted(kernel: ir.Kernel, arguments: Sequence[ir.Operand]) -> tuple[Condition, ...]:
    """The facts behind a call because the kernel asserts them, where the arguments tell."""
    if not kernel.asserts:
        return ()
    bound = bind_kernel(kernel, arguments)
    return tuple(c.substitute(bound) for c in kernel.asserts if c.symbols <= bound.keys())


def _scalar(argument: ir.Operand) -> Expr | None:
    if isinstance(argument, ir.Scalar):
        return argument.value
    if isinstance(argument, ir.ShapeValue) and len(argument.values) == 1:
        return argument.values[0]
    kind = type_of(argument)
    return kind.value if isinstance(kind, ScalarType) else None


def _extents(parameter: ir.KernelBuffer, argument: ir.Operand) -> Iterator[tuple[Expr, Expr]]:
    """The declared and the actual extents, where both are known and their number is the same."""
    kind: TensorType | None = tensor_type(argument)
    if kind is None or kind.shape is None or parameter.shape is None:
        return
    if len(kind.shape) == len(parameter.shape):
        yield from zip(parameter.shape, kind.shape, strict=True)
