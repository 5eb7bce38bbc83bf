"""A Relax function taken apart into lists that can be changed, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

__all__ = ["EditableFunction", "Sequence", "Step", "inline_sizes", "rebuild", "rewritten", "take_apart"]


@dataclass(eq=False, slots=True)
class Sequence:
    """Steps in order, and the expression that they end with."""

    steps: list[Step]
    result: Any


@dataclass(eq=False, slots=True)
class Step:
    """One binding; `branches` holds both sides of an If, `cast` the type of a match_cast."""

    var: Any
    value: Any
    cast: Any = None
    branches: tuple[Sequence, Sequence] | None = None

    @property
    def operator(self) -> str:
        """The operator's or the callee's name, or the empty string."""
        op = getattr(self.value, "op", None)
        if op is None:
            return ""
        if isinstance(op, tvm.ir.GlobalVar):
            return str(op.name_hint)
        return str(getattr(op, "name", getattr(op, "global_symbol", "")))

    def calls_global(self) -> bool:
        """Whether it calls a function or kernel of the module."""
        return isinstance(getattr(self.value, "op", None), tvm.ir.GlobalVar)


@dataclass(eq=False, slots=True)
class EditableFunction:
    """A function as a tree of steps.

    `renamed` maps variables that a mutation gave another type.  `kernels` holds the PrimFuncs of the module
    by name; those that a mutation changes go into `changed`, new ones into `added`.
    `reference` is a body that does what the changed one should do, where that is not what the original does.
    """

    original: Any
    body: Sequence
    renamed: dict[Any, Any] = field(default_factory=dict)
    kernels: Mapping[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)
    added: dict[Any, Any] = field(default_factory=dict)
    reference: Sequence | None = None

    def sequences(self) -> Iterator[Sequence]:
        """The body and every branch in it."""
        pending = [self.body]
        while pending:
            here = pending.pop()
            yield here
            pending += [side for step in here.steps if step.branches for side in step.branches]

    def find(self, test: Callable[[Step], bool]) -> list[tuple[Sequence, int]]:
        """Where steps stand that satisfy `test`."""
        return [(s, i) for s in self.sequences() for i, step in enumerate(s.steps) if test(step)]


def take_apart(function: Any, kernels: Mapping[str, Any] | None = None) -> EditableFunction:
    """The function as lists."""
    return EditableFunction(original=function, body=_sequence(function.body), kernels=kernels or {})


def _sequence(body: Any) -> Sequence:
    if type(body).__name__ != "SeqExpr":
        return Sequence([], body)
    return Sequence([_step(b) for block in body.blocks for b in block.bindings], body.body)


def _step(binding: Any) -> Step:
    value = binding.value
    if type(binding).__name__ == "MatchCast":
        return Step(binding.var, value, cast=binding.ty)
    if type(value).__name__ == "If":
        return Step(
            binding.var, value, branches=(_sequence(value.true_branch), _sequence(value.false_branch))
        )
    return Step(binding.var, value)


def rebuild(edited: EditableFunction, body: Sequence | None = None) -> Any:
    """A Relax function of what the lists hold now, or of another `body`."""
    function, names = edited.original, edited.renamed
    body = _rebuild_sequence(body or edited.body, names)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def rewritten(mod: tvm.IRModule, change: Callable[[Sequence], None]) -> tvm.IRModule:
    """`mod` with every sequence of its Relax functions changed."""
    functions = dict(mod.functions_items())
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function):
            edited = take_apart(function)
            for sequence in edited.sequences():
                change(sequence)
            functions[name] = rebuild(edited)
    return tvm.IRModule(functions, attrs=mod.attrs)


def _rebuild_sequence(sequence: Sequence, names: dict[Any, Any]) -> Any:
    bindings = [_rebuild_step(step, names) for step in sequence.steps]
    return relax.SeqExpr([relax.BindingBlock(bindings)], replace(sequence.result, names))


def _rebuild_step(step: Step, names: dict[Any, Any]) -> Any:
    var = names.get(step.var, step.var)
    if step.branches:
        then, otherwise = (_rebuild_sequence(side, names) for side in step.branches)
        return relax.VarBinding(var, relax.If(replace(step.value.cond, names), then, otherwise))
    value = replace(step.value, names)
    if step.cast is not None:
        return relax.MatchCast(var, value, step.cast)
    return relax.VarBinding(var, value)


def replace(expression: Any, names: dict[Any, Any]) -> Any:
    """`expression` with Relax variables replaced."""
    if not names:
        return expression
    kind = type(expression).__name__
    if kind == "Var":
        return names.get(expression, expression)
    if kind == "Tuple":
        return relax.Tuple([replace(item, names) for item in expression.fields])
    if kind == "TupleGetItem":
        return relax.TupleGetItem(replace(expression.tuple_value, names), expression.index)
    if kind == "Call":
        return with_arguments(expression, [replace(a, names) for a in expression.args])
    return expression


def with_arguments(call: Any, arguments: list[Any]) -> Any:
    """The same call of other arguments."""
    return relax.Call(call.op, arguments, call.attrs, call.ty_args)


def inline_sizes(sequence: Sequence, known: Mapping[Any, Any] | None = None) -> None:
    """Write out the offsets and shapes that variables hold: steps can then be moved about."""
    held: dict[Any, Any] = dict(known or {})
    for step in sequence.steps:
        if type(step.value).__name__ == "Call" and step.operator:
            step.value = with_arguments(step.value, [_written_out(a, held) for a in step.value.args])
        elif isinstance(step.var.ty, tvm.ir.PrimType | relax.ShapeType) and step.cast is None:
            held[step.var] = _written_out(step.value, held)
        for side in step.branches or ():
            inline_sizes(side, held)


def _written_out(expression: Any, held: Mapping[Any, Any]) -> Any:
    kind = type(expression).__name__
    if kind == "Var":
        return held.get(expression, expression)
    if kind == "ShapeExpr":
        return relax.ShapeExpr([_written_out(extent, held) for extent in expression.values])
    if hasattr(expression, "a") and hasattr(expression, "b"):
        return type(expression)(_written_out(expression.a, held), _written_out(expression.b, held))
    return expression
