"""The places of calls that FuseOps has put in the place of several.

FuseOps makes new variables, and one function of all groups that look alike: what is within says where one of
them comes from.  So a group is followed call by call, from its arguments, to what stood there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op, PrimType

from symalloc.relax.ir_types import CallNode, Node, bindings_in, each

_FUSED = "Primitive"  # the attribute of a function that FuseOps has made

Value: TypeAlias = "int | tuple[Value, ...] | None"
"""What a variable was before: a variable or constant by its address, the field of one by a number of its own,
a tuple of these, or not known.
"""


def fused_calls(before: tvm.IRModule, after: tvm.IRModule) -> Iterator[tuple[Node, int]]:
    """The variables that calls of fused functions are bound to in `after`, each with the address of the
    variable that the last call within was bound to in `before`; only those that are found.
    """
    fused = {
        variable.name_hint: function
        for variable, function in after.functions_items()
        if isinstance(function, relax.Function) and _FUSED in (function.attrs or {})
    }
    old = {variable.name_hint: function for variable, function in before.functions_items()}
    for variable, function in after.functions_items() if fused else ():
        name = variable.name_hint
        if isinstance(function, relax.Function) and name in old and name not in fused:
            yield from _Follower(calls=_calls(old[name]), fused=fused).follow(function)


def _calls(function: relax.Function) -> dict[tuple[Value, ...], list[int]]:
    """The variables of a function by what is called for them, and with what."""
    found: dict[tuple[Value, ...], list[int]] = {}
    values: dict[int, Value] = {}
    for binding in bindings_in(function.body):
        number, value = binding.var.__chandle__(), binding.value
        if isinstance(value, Call):
            found.setdefault(_key(value, values), []).append(number)
        else:
            values[number] = _value(value, values)
    return found


@dataclass(slots=True, kw_only=True)
class _Follower:
    """`calls` are those before, `fused` the functions that FuseOps has made; `values` what variables were."""

    calls: dict[tuple[Value, ...], list[int]]
    fused: Mapping[str, relax.Function]
    values: dict[int, Value] = field(default_factory=dict)

    def follow(self, function: relax.Function) -> Iterator[tuple[Node, int]]:
        """The calls of fused functions in `function`, with the last variable of each."""
        for binding in bindings_in(function.body):
            var, value = binding.var, binding.value
            callee = _callee(value, self.fused)
            if callee is not None:
                self.values[var.__chandle__()], last = self._within(callee, value)
                if last is not None:
                    yield var, last
            elif not isinstance(value, Call):
                self.values[var.__chandle__()] = _value(value, self.values)

    def _within(self, callee: relax.Function, call: CallNode) -> tuple[Value, int | None]:
        """The value that a call gives, and the variable that the last call within was bound to."""
        given = zip(each(callee.params), each(call.args), strict=False)
        known = {p.__chandle__(): _value(argument, self.values) for p, argument in given}
        last: int | None = None
        for binding in bindings_in(callee.body):
            number, value = binding.var.__chandle__(), binding.value
            if not isinstance(value, Call):
                known[number] = _value(value, known)
                continue
            equal = self.calls.get(_key(value, known), ())
            known[number] = last = equal[0] if len(equal) == 1 else None
        return _value(callee.body.body, known), last


def _callee(value: Node, fused: Mapping[str, relax.Function]) -> relax.Function | None:
    named = isinstance(value, Call) and isinstance(value.op, GlobalVar)
    return fused.get(value.op.name_hint) if named else None


def _key(call: CallNode, values: Mapping[int, Value]) -> tuple[Value, ...]:
    """A call by its operator, or its kernel, and by the tensors that it is given."""
    return (_called(call.op), *(_value(argument, values) for argument in each(call.args)))


def _called(op: Node) -> int:
    return hash(op.name if isinstance(op, Op) else getattr(op, "name_hint", ""))


def _value(node: Node, values: Mapping[int, Value]) -> Value:
    """The value that `node` had before: a variable that FuseOps has not made is what it was before."""
    if isinstance(node, relax.Tuple):
        return tuple(_value(one, values) for one in each(node.fields))
    if isinstance(node, relax.TupleGetItem):
        whole = _value(node.tuple_value, values)
        return whole[node.index] if isinstance(whole, tuple) else hash((whole, int(node.index)))
    if isinstance(node, relax.Var) and not isinstance(node.ty, PrimType):
        return values.get(node.__chandle__(), node.__chandle__())
    if isinstance(node, GlobalVar):
        return _called(node)
    return node.__chandle__() if isinstance(node, GenericConst) else None
