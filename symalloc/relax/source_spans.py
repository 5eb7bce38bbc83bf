"""The places in an author's model that calls come from, as spans of TVM's on the calls themselves.

A script's calls have theirs from TVM's parser.  An imported model has no text: the span is named after the
part of the model, such as a node or the path of a module, and has the line of a source file or none.

Most passes of TVM drop the spans of what they rewrite, and keep the variables: what is bound to a variable
behind a pass comes from what was bound to it before.  Behind CallTIRRewrite that is the allocation:
`y = call_tir(f)` is `a = alloc_tensor(); f(a); y = a` then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op, PrimType, SourceName, Span

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.tensor_origin import TensorOrigin, tensor_origins
from symalloc.program.ir import Var
from symalloc.relax.ir_types import (
    BindingNode,
    CallNode,
    Node,
    VarNode,
    bindings_in,
    bound,
    elements,
    relax_functions,
    typed_call,
)
from symalloc.relax.rewrite import map_bindings

_INSTALLED = "/site-packages/"


def place_span(part: str, file: str = "", line: int = 0) -> Node:
    """A span for the place `part` of a model, in that line of `file`; either may be ""."""
    name = f"{part} at {file}" if part and file else part or file
    return Span(SourceName(name), line, line, 0, 0)


def place_text(span: Node | None) -> str:
    """The place at `span` for a person: `model.py:12`, `layers.0 at model.py:12`, `node_7`; "" for None."""
    if span is None:
        return ""
    name, line = str(span.source_name.name), int(span.line)
    if line <= 0:
        return name
    part, at, file = name.rpartition(" at ")
    return f"{part}{at}{_short(file, str(Path.cwd()))}:{line}"


def at_place(call: CallNode, span: Node) -> CallNode:
    """`call` with that span."""
    return typed_call(call.op, elements(call.args), call.ty, call.ty_args, span, call.attrs)


def place_of(value: Node | None) -> Node | None:
    """The span of `value` where it is a call that has one."""
    return value.span if isinstance(value, Call) else None


def source_of(binding: object) -> str:
    """The place of what `binding` binds, for a person; "" where none is known."""
    return place_text(place_of(getattr(binding, "value", None)))


def origins_in(analysis: FunctionAnalysis) -> Mapping[Var, TensorOrigin]:
    """The origins of the tensors of a function, with the places that its calls come from."""
    found = ((one.var, source_of(one.handle)) for _, one in analysis.cfg.instructions)
    return tensor_origins(analysis, {var: place for var, place in found if place})


@lru_cache(maxsize=256)
def _short(file: str, here: str) -> str:
    """`file` relative to the directory `here`, or to where packages are installed, if it lies there."""
    if _INSTALLED in file:
        return file.rpartition(_INSTALLED)[2]
    return os.path.relpath(file, here) if Path(file).is_relative_to(here) else file


Finder = Callable[[VarNode, CallNode], Node | None]
"""The span for a call without one that is bound to a variable; None where nothing is known."""


def map_places(module: tvm.IRModule, find: Finder) -> tvm.IRModule:
    """`module` with the spans that `find` gives for its calls without one; nothing else changes."""

    def placed(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value, lacks = binding.value, type(binding) is relax.VarBinding and type(binding.value) is Call
        span = find(binding.var, value) if lacks and value.span is None else None
        return None if span is None else [bound(binding.var, at_place(value, span))]

    return map_bindings(module, placed)


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
