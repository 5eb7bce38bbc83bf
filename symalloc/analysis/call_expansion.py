"""Calls written out: a function with the instructions of its callees in place of calls.

A summary says what a callee may write and return; it does not say in which order, where on a storage that it
was handed, or which of its results share memory.  Where that matters the call is written out: the parameters
become aliases of the arguments, the instructions follow with variables and symbols of their own, and the
result is an alias of what the callee returns.  A kill in the callee so drops the handle of the callee only.

A call held against the parameters of its callee gives the values of the callee's symbols, and what is
compared.  A kernel, when it is entered, binds each of its symbols at the first place where the symbol stands
alone (an extent, or a scalar parameter); every other extent must then equal what the argument brings.  A
Relax function binds the symbols of its parameters alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain, count
from typing import Any, NamedTuple

from symalloc.program import ir
from symalloc.program.operands import extent_pairs, tensor_type, type_of
from symalloc.program.types import ScalarType, TensorType, TupleType, Type
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr, mod, symbol

MOST_UNDER_WAY = 3
"""The number of calls of one function that are written out inside each other."""
MOST_INSTRUCTIONS = 20_000
"""The number of instructions that a function may have for further calls in it to be written out."""
_MOST_NESTED = 64


class CopiedInstruction(NamedTuple):
    """The instruction of a callee that another was copied from, and the calls that lead to it, outermost
    first.
    """

    original: ir.Instruction
    calls: tuple[ir.CallFunction, ...]


class LeftCall(NamedTuple):
    """A call that is not written out, as it stands in the expanded function.

    `repeated` are the variables of the parameters in a call around it of the same function with the same
    sizes, if there is one.
    """

    call: ir.CallFunction
    repeated: tuple[ir.Var, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedFunction:
    """A function with calls written out.

    `copies` tells by the variable of an instruction where it was copied from; `written_out` names the
    functions that calls were written out of.  `left` holds, by variable, the calls that still stand
    there, because of recursion or size.
    """

    function: ir.Function
    copies: Mapping[ir.Var, CopiedInstruction]
    written_out: frozenset[str]
    left: Mapping[ir.Var, LeftCall]

    def original(self, instruction: ir.Instruction) -> ir.Instruction:
        """The instruction of the program that `instruction` of `function` stands for."""
        found = self.copies.get(instruction.var)
        return instruction if found is None else found.original

    def calls_to(self, instruction: ir.Instruction | None) -> tuple[ir.CallFunction, ...]:
        """The calls that lead to an instruction of `function`, outermost first."""
        found = None if instruction is None else self.copies.get(instruction.var)
        return () if found is None else found.calls


def expand_calls(program: ir.Program, function: ir.Function) -> ExpandedFunction | None:
    """Write out the calls in `function`, those inside callees too; None where there is none."""
    expander = _Expander(program, function)
    body = expander.block(function.body, _Scope({}, {}, ()))
    if not expander.written_out:
        return None
    return ExpandedFunction(
        function=replace(function, body=body, symbols=expander.symbols),
        copies=expander.copies,
        written_out=frozenset(expander.written_out),
        left=expander.left,
    )


class _Scope(NamedTuple):
    """A call under way: what the callee's variables and symbols stand for, and the calls that lead here."""

    variables: dict[ir.Var, ir.Var]
    symbols: Mapping[str, Expr]
    calls: tuple[ir.CallFunction, ...]


class _Expander:
    """Copies block after block."""

    def __init__(self, program: ir.Program, function: ir.Function) -> None:
        self.program = program
        self.symbols = dict(function.symbols)
        self.copies: dict[ir.Var, CopiedInstruction] = {}
        self.written_out: set[str] = set()
        self.left: dict[ir.Var, LeftCall] = {}
        self.frames: list[tuple[str, Mapping[str, Expr], tuple[ir.Var, ...]]] = []
        self.under_way = Counter([function.name])
        self.count = 0

    def block(self, block: ir.Block, scope: _Scope) -> ir.Block:
        made: list[ir.Instruction] = []
        self.lay_out(block, scope, made)
        return ir.Block(instructions=tuple(made), result=_copied(block.result, scope))

    def lay_out(self, block: ir.Block, scope: _Scope, made: list[ir.Instruction]) -> None:
        """Append the instructions of `block`, calls in them written out."""
        for original in block.instructions:
            self.count += 1
            instruction = self.copy(original, scope)
            if isinstance(instruction, ir.CallFunction) and instruction.name in self.program.functions:
                self.call(instruction, scope, made)
            else:
                made.append(instruction)

    def copy(self, original: ir.Instruction, scope: _Scope) -> ir.Instruction:
        """The instruction as it stands in the expanded function."""
        changes: dict[str, Any] = {}
        if isinstance(original, ir.If):
            changes = {
                "then": self.block(original.then, scope),
                "otherwise": self.block(original.otherwise, scope),
            }
        if not scope.calls:
            return replace(original, **changes) if changes else original
        for field in fields(original):
            if field.name not in _KEPT and field.name not in changes:
                changes[field.name] = _copied(getattr(original, field.name), scope)
        if isinstance(original, ir.MatchCast):
            names = {old: scope.symbols[old].as_symbol for old in original.defines & scope.symbols.keys()}
            changes["defines"] = frozenset(names.get(old) or old for old in original.defines)
        var = scope.variables[original.var] = _copied_var(original.var, scope)
        self.copies[var] = CopiedInstruction(original, scope.calls)
        return replace(original, var=var, **changes)

    def call(self, call: ir.CallFunction, scope: _Scope, made: list[ir.Instruction]) -> None:
        """Append what `call` does."""
        callee = self.program.functions[call.name]
        deep = self.under_way[call.name] >= MOST_UNDER_WAY or len(scope.calls) >= _MOST_NESTED
        if len(call.arguments) != len(callee.params) or deep or self.count > MOST_INSTRUCTIONS:
            self.left[call.var] = LeftCall(call, self.repeated(call, callee))
            made.append(call)
            return
        self.written_out.add(call.name)
        known = self.copies.get(call.var)
        original = known.original if known and isinstance(known.original, ir.CallFunction) else call
        inner = _Scope({}, self.bindings(call, callee), (*scope.calls, original))
        for param, argument in zip(callee.params, call.arguments, strict=True):
            var = inner.variables[param] = _bound_var(param, argument, inner)
            made.append(ir.Alias(var=var, span=call.span, source=argument))
        for condition in entry_checks(callee, call.arguments, inner.symbols):
            made.append(ir.Assert(var=ir.Var("_", _NOTHING), span=call.span, condition=condition))
        self.under_way[call.name] += 1
        self.frames.append((call.name, inner.symbols, tuple(inner.variables[p] for p in callee.params)))
        self.lay_out(callee.body, inner, made)
        self.frames.pop()
        self.under_way[call.name] -= 1
        result = _copied(callee.body.result, inner)
        made.append(ir.Alias(var=call.var, span=call.span, source=result))

    def repeated(self, call: ir.CallFunction, callee: ir.Function) -> tuple[ir.Var, ...]:
        """The parameters of a call under way of `callee` with the sizes of `call`."""
        bound = bind_function(callee, call.arguments)
        for name, symbols, params in reversed(self.frames):
            if name == call.name and all(symbols.get(one) == value for one, value in bound.items()):
                return params
        return ()

    def bindings(self, call: ir.CallFunction, callee: ir.Function) -> Mapping[str, Expr]:
        """The callee's symbols in those of the caller; what the arguments do not tell gets a new name."""
        bound = bind_function(callee, call.arguments)
        for name, origin in callee.symbols.items():
            if name not in bound:
                fresh = self.unused(name)
                self.symbols[fresh] = origin
                bound[name] = symbol(fresh)
        return bound

    def unused(self, name: str) -> str:
        names = chain((name,), (f"{name}_{number}" for number in count(2)))
        return next(fresh for fresh in names if fresh not in self.symbols)


_NOTHING = TupleType(fields=())
_KEPT = frozenset({"var", "span", "text", "handle", "defines"})


def _copied(value: Any, scope: _Scope) -> Any:
    """A field of an instruction, with variables and symbols replaced."""
    if isinstance(value, ir.Var):
        return scope.variables.get(value, value)
    if isinstance(value, Expr | Condition):
        return value.substitute(scope.symbols)
    if isinstance(value, tuple):
        return tuple([_copied(item, scope) for item in value])
    if is_dataclass(value) and not isinstance(value, ir.ConstantTensor | type):
        parts = {field.name: _copied(getattr(value, field.name), scope) for field in fields(value)}
        return replace(value, **parts)
    return value


def _copied_var(var: ir.Var, scope: _Scope) -> ir.Var:
    return ir.Var(var.name, _copied(var.type, scope))


def _bound_var(param: ir.Var, argument: ir.Operand, scope: _Scope) -> ir.Var:
    """The variable that stands for a parameter: of the argument's own type where that tells the extents.

    On entry they are compared with what is declared.
    """
    given = tensor_type(argument)
    if given is None or given.shape is None or given.dtype is None or not isinstance(param.type, TensorType):
        return _copied_var(param, scope)
    return ir.Var(param.name, given)


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
    """The values of the kernel's symbols, in symbols of the caller; without those that nothing binds.

    Scalars bind first: extents of buffers are compared with them.
    """
    given = zip(kernel.parameters, arguments, strict=False)
    ordered = sorted(given, key=lambda pair: isinstance(pair[0], ir.KernelBuffer))
    bound = bind_parameters([parameter.type for parameter, _ in ordered], [one for _, one in ordered])
    for name, held in kernel.narrow.items():
        if name in bound:
            bound[name] = mod(bound[name] - held.start, len(held)) + held.start
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
    stated = () if kernel.narrow else comparisons(kernel, arguments)
    facts = (eq(c.actual, c.expected) for c in stated if c.actual != c.expected)
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
