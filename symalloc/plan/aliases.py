"""Which allocations each variable may stand for, and which of them outlive their function's own care
(escape).

A token is the variable of an R.builtin.alloc_tensor, or a parameter.  Tuples are followed field by field.
Where knowledge ends, a token escapes: this analysis may only err towards leaving memory unplanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from symalloc.program.model import (
    Alias,
    AllocFresh,
    Block,
    CallFunction,
    CallKernel,
    CallOperator,
    CallPacked,
    CallTIR,
    Function,
    If,
    Instruction,
    MakeTuple,
    MatchCast,
    NotUnderstood,
    Operand,
    Ownership,
    Program,
    TakeField,
    TupleValue,
    Var,
    View,
)

__all__ = ["Aliases", "Value", "aliases", "tokens"]

Tokens: TypeAlias = frozenset[Var]
Value: TypeAlias = Tokens | tuple["Value", ...]

NOTHING: Tokens = frozenset()
# operators that survive legalisation and only look at their arguments' shapes
LOOKING = frozenset({"relax.shape_of", "relax.size", "relax.shape_to_tensor", "relax.tensor_to_shape"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """`values`: what each variable may stand for; `escapes`: why a token may be reached after the call or
    kept.
    """

    values: Mapping[Var, Value]
    escapes: Mapping[Var, str]

    def of(self, operand: Operand) -> Tokens:
        """The tokens that `operand` may touch."""
        return tokens(_value(operand, self.values))


def aliases(function: Function, program: Program) -> Aliases:
    """The aliases of `function`; calls to functions of `program` are looked into, recursion is taken as
    unknown.
    """
    return _analyse(function, program, (function.name,))


def tokens(value: Value) -> Tokens:
    """All tokens of a value, those of every field for a tuple."""
    if isinstance(value, frozenset):
        return value
    return NOTHING.union(*map(tokens, value))


def _analyse(function: Function, program: Program, callers: tuple[str, ...]) -> Aliases:
    walk = _Walk(program=program, callers=callers)
    walk.values.update((p, frozenset({p})) for p in function.params)
    walk.block(function.body)
    walk.escape(walk.of(function.body.result), "it is returned")
    return Aliases(values=walk.values, escapes=walk.escapes)


def _value(operand: Operand, values: Mapping[Var, Value]) -> Value:
    if isinstance(operand, Var):
        return values.get(operand, NOTHING)
    if isinstance(operand, TupleValue):
        return tuple(_value(item, values) for item in operand.items)
    return NOTHING


def _either(left: Value, right: Value) -> Value:
    """What may be one or the other."""
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return tuple(_either(a, b) for a, b in zip(left, right, strict=True))
    return tokens(left) | tokens(right)


@dataclass(slots=True, kw_only=True)
class _Walk:
    program: Program
    callers: tuple[str, ...]
    values: dict[Var, Value] = field(default_factory=dict)
    escapes: dict[Var, str] = field(default_factory=dict)

    def value(self, operand: Operand) -> Value:
        return _value(operand, self.values)

    def of(self, operand: Operand) -> Tokens:
        return tokens(self.value(operand))

    def all_of(self, operands: Iterable[Operand]) -> Tokens:
        return NOTHING.union(*map(self.of, operands))

    def escape(self, found: Tokens, reason: str) -> None:
        for token in found:
            self.escapes.setdefault(token, reason)

    def block(self, block: Block) -> None:
        for instruction in block.instructions:
            self.values[instruction.var] = self.result(instruction)

    def result(self, instruction: Instruction) -> Value:
        """What the instruction's variable may stand for; notes the escapes that it causes."""
        match instruction:
            case AllocFresh(var=var):
                return frozenset({var})
            case Alias(source=source) | MatchCast(source=source) | View(source=source):
                return self.value(source)
            case MakeTuple(fields=fields):
                return tuple(self.value(f) for f in fields)
            case TakeField(source=source, index=index):
                whole = self.value(source)
                return whole[index] if isinstance(whole, tuple) else whole
            case If(then=then, otherwise=otherwise):
                self.block(then)
                self.block(otherwise)
                return _either(self.value(then.result), self.value(otherwise.result))
            case NotUnderstood(what=what, reads=reads):
                self.escape(
                    self.all_of(reads), f"it is handed to a construct that is not understood ({what})"
                )
                return NOTHING
        return self.call(instruction)

    def call(self, instruction: Instruction) -> Value:
        match instruction:
            case CallTIR(inputs=inputs, inplace=inplace):
                fields = tuple(NOTHING if i is None else self.value(inputs[i]) for i in inplace)
                return fields[0] if len(fields) == 1 else fields
            case CallPacked(ownership=Ownership.UNKNOWN, name=name, arguments=arguments):
                self.escape(self.all_of(arguments), f"the packed function `{name}` may keep or return it")
                return NOTHING
            case CallPacked(ownership=Ownership.ARGUMENT, arguments=arguments):
                return self.all_of(arguments)
            case CallOperator(name=name, arguments=arguments) if name not in LOOKING:
                self.escape(self.all_of(arguments), f"the operator `{name}` is not lowered")
            case CallFunction(name=name, arguments=arguments):
                self.call_function(name, arguments)
            case CallKernel() | CallPacked() | CallOperator():
                pass  # the result is fresh, or nothing
        return NOTHING

    def call_function(self, name: str, arguments: tuple[Operand, ...]) -> None:
        callee = self.program.functions.get(name)
        if callee is None or name in self.callers or len(callee.params) != len(arguments):
            self.escape(self.all_of(arguments), f"the function `{name}` is not looked into")
            return
        inside = _analyse(callee, self.program, (*self.callers, name))
        for param, argument in zip(callee.params, arguments, strict=True):
            if param in inside.escapes:
                self.escape(self.of(argument), f"in the function `{name}`, {inside.escapes[param]}")
