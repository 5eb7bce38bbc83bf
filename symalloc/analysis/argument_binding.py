"""A call held against the parameters of its callee: the values of the callee's symbols, and what is compared.

A kernel, when it is entered, binds each of its symbols at the first place where the symbol stands alone (an
extent, or a scalar parameter); every other extent must then equal what the argument brings.  A Relax function
binds the symbols of its parameters alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.program import ir
from symalloc.program.operands import extent_pairs, type_of
from symalloc.program.types import ScalarType, Type
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
    return bind_parameters([parameter.type for parameter in kernel.parameters], arguments)


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
    for kind, argument in zip(kinds, arguments, strict=False):
        for actual, declared in _extents(argument, kind):
            name = declared.as_symbol
            if name is not None:
                bound.setdefault(name, actual)
    return bound


def entry_checks(
    callee: ir.Function, arguments: Sequence[ir.Operand], bound: Mapping[str, Expr]
) -> tuple[Condition, ...]:
    """The conditions over symbols in `bound` that the callee checks on entry, and that may not hold."""
    given = zip(arguments, callee.params, strict=False)
    pairs = (pair for argument, param in given for pair in _extents(argument, param.type))
    checks = (eq(a, d.substitute(bound)) for a, d in pairs if d.symbols <= bound.keys())
    return tuple(dict.fromkeys(check for check in checks if check.as_bool is not True))


def comparisons(kernel: ir.Kernel, arguments: Sequence[ir.Operand]) -> Iterator[ExtentComparison]:
    """The extents that the kernel compares; those that bind a symbol are compared with themselves.

    An extent over a symbol that nothing binds has no comparison: what the kernel makes of it is not known.
    """
    bound = bind_kernel(kernel, arguments)
    for position, (parameter, argument) in enumerate(zip(kernel.parameters, arguments, strict=False)):
        if not isinstance(parameter, ir.KernelBuffer):
            continue
        for axis, (actual, declared) in enumerate(_extents(argument, parameter.type)):
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


def _extents(argument: ir.Operand, kind: Type) -> Iterator[tuple[Expr, Expr]]:
    """The extents and scalars of an argument beside those that the type of its parameter declares.

    A shape of one extent may be given as a scalar.
    """
    if isinstance(kind, ScalarType) and isinstance(argument, ir.ShapeValue) and len(argument.values) == 1:
        argument = ir.Scalar(argument.values[0])
    return extent_pairs(type_of(argument), kind)
