"""Carries the places that calls come from through TVM's passes, most of which drop the spans of what they
rewrite.

TVM keeps the variables: what is bound to a variable behind a pass comes from what was bound to it before.
Behind CallTIRRewrite that is the allocation: `y = call_tir(f)` is `a = alloc_tensor(); f(a); y = a` then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax
from tvm.ir import Call
from tvm.ir.transform import Pass, Sequential

from symalloc.relax.ir_types import BindingNode, CallNode, Node, VarNode, bindings_in, each
from symalloc.relax.passes.fused_places import fused_calls
from symalloc.relax.source_spans import map_places, place_of


def keeping_places(passes: Sequence[Pass], module: tvm.IRModule) -> tvm.IRModule:
    """`module` behind `passes`, with the places of its calls.

    A call that FuseOps has made comes from where the last one in it comes from.
    """
    kept = _Places()
    kept.note(module)
    if not kept.known:
        return Sequential(list(passes))(module)
    for one in passes:
        after = Sequential([one])(module)
        if not after.same_as(module):
            module = kept.restored(module, after)
    return module


class _Places:
    """The places of what variables are bound to, with the variables, which stay alive."""

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
        for var, last in fused_calls(before, module):
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
        for field in each(value.fields):
            yield from _variables(field)


def _without(call: CallNode, span: Node | None) -> Node | None:
    return span if call.span is None else None
