"""Carries the places that calls come from through TVM's passes, most of which drop the spans of what they
rewrite.

TVM keeps the variables: what is bound to a variable behind a pass comes from what was bound to it before.
Behind CallTIRRewrite that is the allocation: `y = call_tir(f)` is `a = alloc_tensor(); f(a); y = a` then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op, PrimType

from symalloc.relax.ir_types import BindingNode, Node, VarNode, bindings_in, elements, relax_functions
from symalloc.relax.source_spans import map_places, place_of

_FUSED = "Primitive"  # the attribute of a function that FuseOps has made

Value: TypeAlias = "int | tuple[Value, ...] | None"
"""A number for what a variable is: equal for equal calls of equal values; a tuple of these, or not known."""


def _fused_calls(before: tvm.IRModule, after: tvm.IRModule) -> Iterator[tuple[Node, int]]:
    """The variables that calls are bound to in `after`, which FuseOps has made, each with the address of the
    variable that it, or the last call within a fused function, was bound to in `before`; only those that are
    found.

    FuseOps makes new variables, and one function of all groups that look alike: what is within says where one
    of them comes from.
    """
    old, new = relax_functions(before), relax_functions(after)
    fused = {name: function for name, function in new.items() if _FUSED in (function.attrs or {})}
    for name, function in new.items() if fused else ():
        if name in old and name not in fused:
            found: dict[Value, list[int]] = {}
            for var, value in _computed(old[name].body, {}, {}):
                found.setdefault(value, []).append(var.__chandle__())
            for var, value in _computed(function.body, {}, fused):
                equal = found.get(value, ())
                if len(equal) == 1:
                    yield var, equal[0]


def _computed(
    body: Node, values: dict[int, Value], fused: Mapping[str, relax.Function]
) -> Iterator[tuple[VarNode, Value]]:
    """The variables that calls are bound to, each with what is called for it last; enters into `values` what
    all variables are.
    """
    for binding in bindings_in(body):
        var, value = binding.var, binding.value
        named = isinstance(value, Call) and isinstance(value.op, GlobalVar)
        callee = fused.get(value.op.name_hint) if named else None
        if callee is not None:
            given = zip(elements(callee.params), elements(value.args), strict=False)
            inside = {param.__chandle__(): _value(argument, values) for param, argument in given}
            last = [called for _, called in _computed(callee.body, inside, {})][-1:]
            values[var.__chandle__()] = _value(callee.body.body, inside)
            yield from ((var, called) for called in last)
        elif isinstance(value, Call):
            made = hash((_called(value.op), *(_value(each, values) for each in elements(value.args))))
            values[var.__chandle__()] = made
            yield var, made
        else:
            values[var.__chandle__()] = _value(value, values)


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

    def note(self, module: tvm.IRModule) -> None:
        """Take up the places that `module` has."""
        for binding in _bindings(module):
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
        for binding in _bindings(module):
            var, value = binding.var, binding.value
            if not self._take_up(binding) and var.__chandle__() in self.known:
                span = self.known[var.__chandle__()][1]
                for one in (var,) if isinstance(value, Call) else _variables(value):
                    self.known.setdefault(one.__chandle__(), (one, span))
                    missing.setdefault(one.__chandle__(), span)
        if not missing:
            return module
        return map_places(module, lambda var, _: missing.get(var.__chandle__()))

    def _take_up(self, binding: BindingNode) -> bool:
        """Note where what is bound comes from; False where the binding does not tell."""
        value = binding.value
        number = value.__chandle__() if isinstance(value, relax.Var) else 0
        span = self.known[number][1] if number in self.known else place_of(value)
        if span is not None:
            self.known[binding.var.__chandle__()] = (binding.var, span)
        return span is not None


def _bindings(module: tvm.IRModule) -> Iterator[BindingNode]:
    return (
        binding for function in relax_functions(module).values() for binding in bindings_in(function.body)
    )


def _variables(value: Node) -> Iterator[VarNode]:
    """The variables that `value` is: one, or the fields of a tuple."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for field in elements(value.fields):
            yield from _variables(field)
