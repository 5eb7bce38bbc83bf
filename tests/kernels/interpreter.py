"""Executes the body of a PrimFunc in Python and notes what it loads and stores.

It knows nothing of symalloc: what it finds is what the linter's reading of kernels is compared with.  Numbers
are Python's, memory is a dictionary for each buffer, what is loaded before it is stored is drawn at random.
Whatever lies outside of a buffer can be loaded and stored like any other element.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

__all__ = ["Performed", "UnsupportedError", "perform"]


class UnsupportedError(Exception):
    """A construct that the interpreter does not know."""


class _Leave(Exception):  # noqa: N818 - no error
    """Control leaves a loop, or the kernel."""


class _LeaveLoop(_Leave):
    pass


class _NextPass(_Leave):
    pass


class Performed(NamedTuple):
    """An executed access: number of the parameter (-1: the kernel's own), indices, extents of the buffer."""

    parameter: int
    kind: str
    indices: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def outside(self) -> bool:
        """True where an index is not inside its extent."""
        return any(not 0 <= i < n for i, n in zip(self.indices, self.shape, strict=True))


@dataclass
class _Machine:
    values: dict[int, Any]
    draw: random.Random
    limit: int
    parameters: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    memory: dict[int, dict[tuple[int, ...], Any]] = field(default_factory=dict)
    found: list[Performed] = field(default_factory=list)
    known_parts: dict[tuple[int, str], tuple[Any, ...]] = field(default_factory=dict)
    steps: int = 0

    def parts(self, node: Any, name: str) -> tuple[Any, ...]:
        """The elements of a field: going through an array of TVM's is dear, and loops come back to it."""
        key = node.__chandle__(), name
        found = self.known_parts.get(key)
        if found is None:
            found = self.known_parts[key] = tuple(getattr(node, name))
        return found

    # -- statements --------------------------------------------------------------------------------------

    def run(self, node: Any) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise UnsupportedError("too many steps")
        execute = _STATEMENTS.get(type(node))
        if execute is None:
            raise UnsupportedError(type(node).__name__)
        execute(self, node)

    def sequence(self, node: Any) -> None:
        for inner in self.parts(node, "seq"):
            self.run(inner)

    def branches(self, node: Any) -> None:
        if self.value(node.condition):
            self.run(node.then_case)
        elif node.else_case is not None:
            self.run(node.else_case)

    def store(self, node: Any) -> None:
        value = self.value(node.value)
        for indices in self.places(self.parts(node, "indices")):
            self.touch("store", node.buffer, indices)[indices] = value

    def evaluate(self, node: Any) -> None:
        self.value(node.value)

    def bind(self, node: Any) -> None:
        self.values[node.var.__chandle__()] = self.value(node.value)

    def attribute(self, node: Any) -> None:
        if node.attr_key in ("thread_extent", "virtual_thread"):
            self.each(node.node.var, range(self.value(node.value)), node.body)
        else:
            self.run(node.body)

    def asserted(self, node: Any) -> None:
        if not self.value(node.condition):
            raise _Leave

    def leave(self, node: Any) -> None:
        raise {tirx.Break: _LeaveLoop, tirx.Continue: _NextPass}.get(type(node), _Leave)

    def allocate(self, buffer: Any) -> None:
        """Memory of the kernel's own has the number -1."""
        shape = tuple(self.value(extent) for extent in buffer.ty.shape)
        self.parameters[buffer.__chandle__()] = -1, shape

    def loop(self, node: Any) -> None:
        first, extent = self.value(node.min), self.value(node.extent)
        step = 1 if node.step is None else self.value(node.step)
        self.each(node.loop_var, range(first, first + extent, step), node.body)

    def each(self, var: Any, values: range, body: Any) -> None:
        for value in values:
            self.values[var.__chandle__()] = value
            try:
                self.run(body)
            except _NextPass:
                continue
            except _LeaveLoop:
                break

    def while_(self, node: Any) -> None:
        while self.value(node.condition):
            try:
                self.run(node.body)
            except _NextPass:
                continue
            except _LeaveLoop:
                break

    def block(self, node: Any) -> None:
        block = node.block
        values = [self.value(value) for value in self.parts(node, "iter_values")]
        if not self.value(node.predicate):
            return
        axes = self.parts(block, "iter_vars")
        for axis, value in zip(axes, values, strict=True):
            self.values[axis.var.__chandle__()] = value
        for buffer in self.parts(block, "alloc_buffers"):
            self.allocate(buffer)
        if self.parts(block, "match_buffers"):
            raise UnsupportedError("match_buffer")
        reduced = [
            (axis, value)
            for axis, value in zip(axes, values, strict=True)
            if axis.iter_type == tirx.IterVar.CommReduce
        ]
        if block.init is not None and all(v == self.value(axis.dom.min) for axis, v in reduced):
            self.run(block.init)
        self.run(block.body)

    # -- memory ------------------------------------------------------------------------------------------

    def places(self, indices: tuple[Any, ...]) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()]
        for index in indices:
            if type(index) is prim.Ramp:
                base, stride = self.value(index.base), self.value(index.stride)
                lanes = index.lanes if isinstance(index.lanes, int) else int(index.lanes)
                found = [(*f, base + stride * lane) for f in found for lane in range(lanes)]
            else:
                found = [(*f, self.value(index)) for f in found]
        return found

    def touch(self, kind: str, buffer: Any, indices: tuple[int, ...]) -> dict[tuple[int, ...], Any]:
        key = buffer.__chandle__()
        known = self.parameters.get(key)
        if known is not None:
            self.found.append(Performed(known[0], kind, indices, known[1]))
        return self.memory.setdefault(key, {})

    def load(self, node: Any) -> Any:
        places = self.places(self.parts(node, "indices"))
        for indices in places:
            memory = self.touch("load", node.source, indices)
            if indices not in memory:
                memory[indices] = self.fresh(str(node.source.ty.dtype))
        return self.memory[node.source.__chandle__()][places[0]]

    def fresh(self, dtype: str) -> Any:
        if "bool" in dtype:
            return self.draw.random() < 0.5
        return self.draw.randrange(-2, 4) if "int" in dtype else self.draw.uniform(-2, 2)

    # -- values ------------------------------------------------------------------------------------------

    def value(self, node: Any) -> Any:
        kind = type(node)
        if kind in (prim.IntImm, prim.FloatImm):
            return node.value
        if kind in _BINARY:
            return _BINARY[kind](self.value(node.a), self.value(node.b))
        evaluate = _EXPRESSIONS.get(kind)
        if evaluate is None:
            raise UnsupportedError(kind.__name__)
        return evaluate(self, node)

    def variable(self, node: Any) -> Any:
        key = node.__chandle__()
        if key not in self.values:
            raise UnsupportedError(f"variable {node.name}")
        return self.values[key]

    def select(self, node: Any) -> Any:
        return self.value(node.true_value if self.value(node.condition) else node.false_value)

    def let(self, node: Any) -> Any:
        self.values[node.var.__chandle__()] = self.value(node.value)
        return self.value(node.body)

    def cast(self, node: Any) -> Any:
        value, dtype = self.value(node.value), str(node.ty.dtype)
        if "bool" in dtype:
            return bool(value)
        return int(value) if "int" in dtype else float(value)

    def call(self, node: Any) -> Any:
        name = getattr(node.op, "name", "")
        if name == "prim.if_then_else":
            test, then, otherwise = node.args
            return self.value(then if self.value(test) else otherwise)
        if name == "tirx.break_loop":
            raise _LeaveLoop
        if name == "tirx.continue_loop":
            raise _NextPass
        if name in ("tirx.ret", "tirx.thread_return"):
            raise _Leave
        if name in ("tirx.address_of", "tirx.buffer_data", "tirx.call_extern", "tirx.tvm_access_ptr"):
            raise UnsupportedError(name)
        for argument in node.args:
            if type(argument) is not ir.StringImm:
                self.value(argument)
        return self.fresh(str(node.ty.dtype))


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b if b else 0.0
    if b == 0:
        raise UnsupportedError("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a >= 0) == (b >= 0) else -quotient


def _floor(a: Any, b: Any) -> Any:
    if b == 0:
        raise UnsupportedError("division by zero")
    return a // b


_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    prim.Add: operator.add,
    prim.Sub: operator.sub,
    prim.Mul: operator.mul,
    prim.Div: _divided,
    prim.Mod: lambda a, b: a - b * _divided(a, b),
    prim.FloorDiv: _floor,
    prim.FloorMod: lambda a, b: a - b * _floor(a, b),
    prim.Min: min,
    prim.Max: max,
    prim.LT: operator.lt,
    prim.LE: operator.le,
    prim.GT: operator.gt,
    prim.GE: operator.ge,
    prim.EQ: operator.eq,
    prim.NE: operator.ne,
    prim.LShift: operator.lshift,
    prim.RShift: operator.rshift,
    prim.BitwiseAnd: lambda a, b: int(a) & int(b),
    prim.BitwiseOr: lambda a, b: int(a) | int(b),
    prim.BitwiseXor: lambda a, b: int(a) ^ int(b),
}


_EXPRESSIONS: Mapping[type, Callable[[_Machine, Any], Any]] = {
    ir.Var: _Machine.variable,
    ir.TensorLoad: _Machine.load,
    ir.Call: _Machine.call,
    prim.Select: _Machine.select,
    prim.Let: _Machine.let,
    prim.Cast: _Machine.cast,
    prim.And: lambda m, node: bool(m.value(node.a)) and bool(m.value(node.b)),
    prim.Or: lambda m, node: bool(m.value(node.a)) or bool(m.value(node.b)),
    prim.Not: lambda m, node: not m.value(node.a),
    prim.Broadcast: lambda m, node: m.value(node.value),
}

_STATEMENTS: Mapping[type, Callable[[_Machine, Any], None]] = {
    tirx.SeqStmt: _Machine.sequence,
    tirx.For: _Machine.loop,
    tirx.While: _Machine.while_,
    tirx.IfThenElse: _Machine.branches,
    s_tir.SBlockRealize: _Machine.block,
    tirx.BufferStore: _Machine.store,
    tirx.stmt.Evaluate: _Machine.evaluate,
    tirx.Bind: _Machine.bind,
    tirx.AttrStmt: _Machine.attribute,
    tirx.AssertStmt: _Machine.asserted,
    tirx.AllocBuffer: lambda m, node: m.allocate(node.buffer),
    tirx.Break: _Machine.leave,
    tirx.Continue: _Machine.leave,
    tirx.Return: _Machine.leave,
}


def perform(
    function: Any, sizes: Mapping[str, int], *, seed: int = 0, limit: int = 200_000
) -> list[Performed]:
    """The accesses of `function` in order, where its symbols have the values `sizes`.

    Raises `UnsupportedError` for what the interpreter does not know.
    """
    machine = _Machine(values={}, draw=random.Random(seed), limit=limit)
    for param in function.params:
        extents = param.ty.shape if type(param.ty) is BufferType else (param,)
        for extent in extents:
            if type(extent) is ir.Var and extent.name in sizes:
                machine.values[extent.__chandle__()] = sizes[extent.name]
    for number, param in enumerate(function.params):
        if type(param.ty) is BufferType:
            shape = tuple(machine.value(extent) for extent in param.ty.shape)
            machine.parameters[param.__chandle__()] = number, shape
    with suppress(_Leave):
        machine.run(function.body)
    return machine.found
