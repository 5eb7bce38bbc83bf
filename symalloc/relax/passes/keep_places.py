"""Carries the places that calls come from through TVM's passes, most of which drop the spans of what they
rewrite.

TVM keeps the variables: what is bound to a variable behind a pass comes from what was bound to it before.
Behind CallTIRRewrite that is the allocation: `y = call_tir(f)` is `a = alloc_tensor(); f(a); y = a` then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op, PrimType

from symalloc.relax.ir_types import BindingNode, CallNode, Node, VarNode, bindings_in, elements
from symalloc.relax.source_spans import map_places, place_of

_FUSED = "Primitive"  # the attribute of a function that FuseOps has made

Value: TypeAlias = "int | tuple[Value, ...] | None"
"""What a variable was before: a variable or constant by its address, the field of one by a number of its own,
a tuple of these, or not known.
"""


def _fused_calls(before: tvm.IRModule, after: tvm.IRModule) -> Iterator[tuple[Node, int]]:
    """The variables that calls of fused functions are bound to in `after`, each with the address of the
    variable that the last call within was bound to in `before`; only those that are found.

    FuseOps makes new variables, and one function of all groups that look alike: what is within says where one
    of them comes from.  So a group is followed call by call, from its arguments, to what stood there before.
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
        given = zip(elements(callee.params), elements(call.args), strict=False)
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
    return (_called(call.op), *(_value(argument, values) for argument in elements(call.args)))


def _called(op: Node) -> int:
    return hash(op.name if isinstance(op, Op) else getattr(op, "name_hint", ""))


def _value(node: Node, values: Mapping[int, Value]) -> Value:
    """The value that `node` had before: a variable that FuseOps has not made is what it was before."""
    if isinstance(node, relax.Tuple):
        return tuple(_value(one, values) for one in elements(node.fields))
    if isinstance(node, relax.TupleGetItem):
        whole = _value(node.tuple_value, values)
        return whole[node.index] if isinstance(whole, tuple) else hash((whole, int(node.index)))
    if isinstance(node, relax.Var) and not isinstance(node.ty, PrimType):
        return values.get(node.__chandle__(), node.__chandle__())
    if isinstance(node, GlobalVar):
        return _called(node)
    return node.__chandle__() if isinstance(node, GenericConst) else None


class Places:
    """The places of what variables are bound to, with the variables, which stay alive.

    A call that FuseOps has made comes from where the last one in it comes from.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[VarNode, Node]] = {}
        self._seen: dict[int, relax.Function] = {}

    def note(self, module: tvm.IRModule) -> None:
        """Take up the places that `module` has."""
        for function in self._unseen(module):
            for binding in bindings_in(function.body):
                self._take_up(binding)

    def restored(self, before: tvm.IRModule, module: tvm.IRModule) -> tvm.IRModule:
        """`module`, which a pass has made of `before`, with the places that are known of its variables; takes
        up the others.
        """
        if not self.known or module.same_as(before):
            return module
        for var, last in _fused_calls(before, module):
            if last in self.known:
                self.known[var.__chandle__()] = (var, self.known[last][1])
        missing: dict[int, Node] = {}
        for function in self._unseen(module):
            for binding in bindings_in(function.body):
                self._compare(binding, missing)
        if not missing:
            return module
        placed = map_places(module, lambda var, call: _without(call, missing.get(var.__chandle__())))
        self.note(placed)
        return placed

    def _take_up(self, binding: BindingNode) -> bool:
        """Note where what is bound comes from; False where the binding does not tell."""
        value = binding.value
        number = value.__chandle__() if isinstance(value, relax.Var) else 0
        span = self.known[number][1] if number in self.known else place_of(value)
        if span is not None:
            self.known[binding.var.__chandle__()] = (binding.var, span)
        return span is not None

    def _compare(self, binding: BindingNode, missing: dict[int, Node]) -> None:
        """Enter what the call of a binding lacks, or the allocations that it stands for."""
        var, value = binding.var, binding.value
        if not self._take_up(binding) and var.__chandle__() in self.known:
            for one in (var,) if isinstance(value, Call) else _variables(value):
                missing.setdefault(one.__chandle__(), self.known[var.__chandle__()][1])

    def _unseen(self, module: tvm.IRModule) -> Iterator[relax.Function]:
        """The functions that were not seen as they are."""
        for function in module.functions.values():
            if isinstance(function, relax.Function) and function.__chandle__() not in self._seen:
                self._seen[function.__chandle__()] = function
                yield function


def _variables(value: Node) -> Iterator[VarNode]:
    """The variables that `value` is: one, or the fields of a tuple."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for field in elements(value.fields):
            yield from _variables(field)


def _without(call: CallNode, span: Node | None) -> Node | None:
    return span if call.span is None else None
