"""Executes a PrimFunc on bytes, each of which knows whether it was written: the oracle of kernels.

It knows nothing of symalloc.  A body is made a tree of Python functions once, and run at many sizes.
Integers are those of the machine, they wrap; floats, and what functions return, are 1, or drawn at random.
The statements of a vectorized loop go through all lanes one by one, as TVM compiles them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, TypeAlias

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

__all__ = ["ByteMachine", "Performed", "TooLongError", "UnsupportedError"]

Values: TypeAlias = dict[Any, Any]
Run: TypeAlias = Callable[[Values], Any]
_LANE = "lane"


class TooLongError(Exception):
    """The body takes more steps than are allowed."""


class UnsupportedError(Exception):
    """A construct that the machine does not know."""


class _Leave(Exception):  # noqa: N818 - no error
    """Control leaves a loop, or the kernel."""


class _Next(_Leave):
    pass


class _Stop(_Leave):
    pass


class _Return(_Leave):
    pass


class _Failed(_Leave):
    """An assertion does not hold."""


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
class _Memory:
    """The bytes of one buffer; `writer` is None where nothing has written, else the pass side by side."""

    data: bytearray
    writer: list[object]


@dataclass
class ByteMachine:
    """A PrimFunc; `faults` are the kinds that a run has met.

    `unwritten`: a byte is read that nothing has written.  `outside`: an access lies outside of its memory.
    `elsewhere`: an index is not inside its dimension.  `race`: what another pass of a parallel loop does.
    `ended`: an assertion has ended the program.  With `draw` values are drawn, and `performed` are the
    accesses of the run.
    """

    function: Any
    draw: Random | None = None
    performed: list[Performed] = field(default_factory=list)
    faults: set[str] = field(default_factory=set)
    memory: dict[int, _Memory] = field(default_factory=dict)
    of: dict[int, tuple[int, Any]] = field(default_factory=dict)
    steps: int = 0
    limit: int = 400_000
    side: tuple[object, int] | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        self.numbers = {param.__chandle__(): number for number, param in enumerate(self.function.params)}
        for param in self.function.params:
            if type(param.ty) is BufferType:
                self.of[param.__chandle__()] = param.__chandle__(), param.ty
        self.body = self.statement(self.function.body)

    def run(
        self, sizes: Mapping[str, int], written: int, given: Sequence[object | None] | None = None
    ) -> set[str]:
        """The faults where symbols have values `sizes`, and the first `written` parameters are, the first one
        perhaps as far as `given` says; beside them `left` where a byte of another parameter is not written in
        the end.
        """
        self.faults, self.memory, self.steps, self.side, self.ended = set(), {}, 0, None, False
        self.performed = []
        values: Values = {_LANE: 0}
        for param in self.function.params:
            for extent in param.ty.shape if type(param.ty) is BufferType else (param,):
                if type(extent) is ir.Var and extent.name in sizes:
                    values[extent.__chandle__()] = sizes[extent.name]
            if type(param.ty) is BufferType and type(param.ty.elem_offset) is ir.Var:
                values[param.ty.elem_offset.__chandle__()] = 0
        for number, param in enumerate(self.function.params):
            if type(param.ty) is BufferType:
                self.allocate(param, values, () if number < written else None)
                if number == 0 and given is not None:
                    self.memory[param.__chandle__()].writer = list(given)
        try:
            with suppress(_Return):
                self.body(values)
        except (_Failed, ZeroDivisionError):  # both end the program
            self.ended = True
            return self.faults
        results = (p.__chandle__() for p in list(self.function.params)[written:] if type(p.ty) is BufferType)
        if any(writer is None for key in results for writer in self.memory[key].writer):
            self.faults.add("left")
        return self.faults

    def left(self) -> Sequence[object | None]:
        """The bytes of the last parameter, None for one that is not written."""
        return [
            None if one is None else () for one in self.memory[self.function.params[-1].__chandle__()].writer
        ]

    def allocate(self, buffer: Any, values: Values, writer: object = None) -> None:
        size = _size(buffer.ty)
        for extent in buffer.ty.shape:
            size *= max(self.value(extent)(values), 0)
        memory = self.memory[buffer.__chandle__()] = _Memory(bytearray(size), [writer] * size)
        if self.draw and (width := _size(buffer.ty)):
            drawn = (self.draw.randrange(-2, 4) % (1 << 8 * width) for _ in range(size // width))
            memory.data = bytearray().join(number.to_bytes(width, "little") for number in drawn)

    def any_float(self) -> float:
        return self.draw.uniform(-2, 2) if self.draw else 1

    def spend(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooLongError

    # -- statements -----------------------------------------------------------------------------------------

    def statement(self, node: Any) -> Run:
        if type(node) not in _STATEMENTS:
            raise UnsupportedError(type(node).__name__)
        return _STATEMENTS[type(node)](self, node)

    def sequence(self, node: Any) -> Run:
        parts = [self.statement(inner) for inner in node.seq]
        return lambda values: [part(values) for part in parts] and None

    def allocated(self, node: Any) -> Run:
        self.of[node.buffer.__chandle__()] = node.buffer.__chandle__(), node.buffer.ty
        return lambda values: self.allocate(node.buffer, values)

    def declared(self, node: Any) -> Run:
        data = node.data.args[0] if type(node.data) is ir.Call else node.data
        self.of[node.buffer.__chandle__()] = self.of[data.__chandle__()][0], node.buffer.ty
        return lambda values: None

    def bound(self, node: Any) -> Run:
        key, value = node.var.__chandle__(), self.value(node.value)
        return lambda values: values.__setitem__(key, value(values))

    def raising(self, kind: type[_Leave]) -> Run:
        def run(_: Values) -> None:
            raise kind

        return run

    def branch(self, test: Run, then: Run, otherwise: Run) -> Run:
        return lambda values: then(values) if test(values) else otherwise(values)

    def branches(self, node: Any) -> Run:
        otherwise = (lambda _: None) if node.else_case is None else self.statement(node.else_case)
        return self.branch(self.value(node.condition), self.statement(node.then_case), otherwise)

    def while_(self, node: Any) -> Run:
        test, body = self.value(node.condition), self.statement(node.body)

        def run(values: Values) -> None:
            while test(values):
                self.spend()
                try:
                    body(values)
                except _Next:
                    continue
                except _Stop:
                    break

        return run

    def loop(self, node: Any) -> Run:
        first, extent, key = self.value(node.min), self.value(node.extent), node.loop_var.__chandle__()
        step = (lambda _: 1) if node.step is None else self.value(node.step)
        if node.kind == tirx.ForKind.VECTORIZED:
            return self.lanes(node.body, key, first, extent)
        body, parallel = self.statement(node.body), node.kind == tirx.ForKind.PARALLEL

        def run(values: Values) -> None:
            begin, around, instance = first(values), self.side, object()
            for value in range(begin, begin + extent(values), step(values)):
                self.spend()
                values[key] = value
                self.side = (instance, value) if parallel else around
                try:
                    body(values)
                except _Next:
                    continue
                except _Stop:
                    break
            self.side = around

        return run

    def lanes(self, node: Any, key: int, first: Run, extent: Run) -> Run:
        if type(node) is tirx.SeqStmt:
            parts = [self.lanes(inner, key, first, extent) for inner in node.seq]
            return lambda values: [part(values) for part in parts] and None
        if type(node) is not tirx.BufferStore:
            raise NotImplementedError(f"{type(node).__name__} in lanes")
        value, places = self.value(node.value), self.places("store", node.buffer, node.indices)

        def run(values: Values) -> None:
            found = []
            for lane in range(first(values), first(values) + extent(values)):
                self.spend()
                values[key] = lane
                found.append((places(values), value(values)))
            for place, stored in found:
                self.put(place, stored)

        return run

    def block(self, node: Any) -> Run:
        block = node.block
        pairs = zip(block.iter_vars, node.iter_values, strict=True)
        axes = [(axis.var.__chandle__(), self.value(value)) for axis, value in pairs]
        for buffer in block.alloc_buffers:
            self.of[buffer.__chandle__()] = buffer.__chandle__(), buffer.ty
        reduced = [
            (axis.var.__chandle__(), self.value(axis.dom.min))
            for axis in block.iter_vars
            if axis.iter_type == tirx.IterVar.CommReduce
        ]
        predicate, body = self.value(node.predicate), self.statement(block.body)
        init = None if block.init is None else self.statement(block.init)

        def run(values: Values) -> None:
            values.update([(key, value(values)) for key, value in axes])
            if not predicate(values):
                return
            for buffer in block.alloc_buffers:
                self.allocate(buffer, values)
            if init is not None and all(values[key] == least(values) for key, least in reduced):
                init(values)
            body(values)

        return run

    # -- memory ---------------------------------------------------------------------------------------------

    def places(self, access: str, buffer: Any, indices: Any) -> Run:
        """The place of an access: memory, first byte, number of bytes, element type."""
        key, kind = self.of[buffer.__chandle__()]
        parameter = self.numbers.get(buffer.__chandle__(), -1)
        size, dtype, found = _size(kind), str(kind.dtype.dtype), [self.value(index) for index in indices]
        offset, extents = self.value(kind.elem_offset), [self.value(extent) for extent in kind.shape]
        strides = [self.value(stride) for stride in kind.strides]

        def place(values: Values) -> tuple[_Memory, int, int, str]:
            memory, number = self.memory[key], 0
            known = [index(values) for index in found]
            shape = [extent(values) for extent in extents]
            if self.draw:
                self.performed.append(Performed(parameter, access, tuple(known), tuple(shape)))
            if any(not 0 <= i < n for i, n in zip(known, shape, strict=True)):
                self.faults.add("elsewhere")
            if strides:
                number = sum(i * stride(values) for i, stride in zip(known, strides, strict=True))
            else:
                for i, n in zip(known, shape, strict=True):
                    number = number * n + i
            begin = (number + offset(values)) * size
            if not 0 <= begin <= len(memory.data) - size:
                self.faults.add("outside")
            return memory, begin, size, dtype

        return place

    def put(self, place: tuple[_Memory, int, int, str], value: Any) -> None:
        memory, begin, size, dtype = place
        inside = range(max(begin, 0), min(begin + size, len(memory.data)))
        if "float" not in dtype and len(inside) == size:
            memory.data[begin : begin + size] = (int(value) % (1 << 8 * size)).to_bytes(size, "little")
        for at in inside:
            memory.writer[at] = self.side or ()

    def store(self, node: Any) -> Run:
        value, places = self.value(node.value), self.places("store", node.buffer, node.indices)
        lanes = next((int(i.lanes) for i in node.indices if type(i) is prim.Ramp), 1)

        def run(values: Values) -> None:
            self.spend()
            found = []
            for values[_LANE] in range(lanes):
                found.append((places(values), value(values)))
            values[_LANE] = 0
            for place, stored in found:
                self.put(place, stored)

        return run

    def load(self, node: Any) -> Run:
        places = self.places("load", node.source, node.indices)

        def run(values: Values) -> Any:
            self.spend()
            memory, begin, size, dtype = places(values)
            for writer in memory.writer[max(begin, 0) : max(begin + size, 0)]:
                if writer is None:
                    self.faults.add("unwritten")
                elif self.side and writer and writer[0] is self.side[0] and writer != self.side:  # type: ignore[index]
                    self.faults.add("race")
            if "float" in dtype or not 0 <= begin <= len(memory.data) - size:
                return self.any_float() if "float" in dtype else 1
            found = int.from_bytes(memory.data[begin : begin + size], "little")
            return _wrapped(found, dtype)

        return run

    # -- values ---------------------------------------------------------------------------------------------

    def value(self, node: Any) -> Run:
        kind = type(node)
        if kind in (prim.IntImm, prim.FloatImm):
            number = node.value
            return lambda _: number
        if kind is ir.Var:
            key = node.__chandle__()
            return lambda values: values[key]
        if kind in _BINARY:
            a, b, operation = self.value(node.a), self.value(node.b), _BINARY[kind]
            dtype = str(node.ty.dtype)
            if "int" in dtype and kind in _WRAPPING:
                return lambda values: _wrapped(operation(a(values), b(values)), dtype)
            if "float" in dtype and kind is prim.Div:
                return lambda values: (b(values), a(values))[1]
            return lambda values: operation(a(values), b(values))
        if kind not in _VALUES:
            raise UnsupportedError(kind.__name__)
        return _VALUES[kind](self, node)

    def call(self, node: Any) -> Run:
        name = getattr(node.op, "name", "")
        if name in _LEAVING:
            return self.raising(_LEAVING[name])
        if name in _POINTERS:
            raise UnsupportedError(name)
        arguments = [self.value(argument) for argument in node.args if type(argument) is not ir.StringImm]
        if name == "prim.if_then_else":
            return self.branch(*arguments)
        return lambda values: ([argument(values) for argument in arguments], self.any_float())[1]

    def both(self, node: Any) -> Run:
        a, b, both = self.value(node.a), self.value(node.b), type(node) is prim.And
        return lambda values: a(values) and b(values) if both else a(values) or b(values)

    def negated(self, node: Any) -> Run:
        inner = self.value(node.a)
        return lambda values: not inner(values)

    def inverted(self, node: Any) -> Run:
        inner, dtype = self.value(node.a), str(node.ty.dtype)
        return lambda values: _wrapped(~inner(values), dtype)

    def let(self, node: Any) -> Run:
        bound, body = self.bound(node), self.value(node.body)
        return lambda values: (bound(values), body(values))[1]

    def ramp(self, node: Any) -> Run:
        base, stride = self.value(node.base), self.value(node.stride)
        return lambda values: base(values) + stride(values) * values[_LANE]

    def cast(self, node: Any) -> Run:
        inner, dtype = self.value(node.value), str(node.ty.dtype)
        return (lambda values: _wrapped(int(inner(values)), dtype)) if "int" in dtype else inner


def _size(kind: Any) -> int:
    """The bytes of an element."""
    return int(kind.dtype.dtype.bits * kind.dtype.dtype.lanes + 7) // 8


def _wrapped(value: int, dtype: str) -> int:
    bits = int("".join(c for c in dtype.split("x", maxsplit=1)[0] if c.isdigit()) or 1)  # bool: one
    value %= 1 << bits
    return value if dtype.startswith(("u", "b")) or value < 1 << (bits - 1) else value - (1 << bits)


def _truncated(a: Any, b: Any) -> Any:
    return (abs(a) // abs(b)) * (1 if (a >= 0) == (b >= 0) else -1)


_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    prim.Add: operator.add,
    prim.Sub: operator.sub,
    prim.Mul: operator.mul,
    prim.Div: _truncated,
    prim.Mod: lambda a, b: a - b * _truncated(a, b),
    prim.FloorDiv: operator.floordiv,
    prim.FloorMod: operator.mod,
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
    prim.BitwiseAnd: operator.and_,
    prim.BitwiseOr: operator.or_,
    prim.BitwiseXor: operator.xor,
}
_LEAVING: Mapping[str, type[_Leave]] = {
    "tirx.break_loop": _Stop,
    "tirx.continue_loop": _Next,
    "tirx.ret": _Return,
    "tirx.thread_return": _Return,
}
_POINTERS = ("tirx.address_of", "tirx.buffer_data", "tirx.call_extern", "tirx.tvm_access_ptr")
_WRAPPING = frozenset({prim.Add, prim.Sub, prim.Mul, prim.LShift})
_VALUES: Mapping[type, Callable[[ByteMachine, Any], Run]] = {
    ir.TensorLoad: ByteMachine.load,
    prim.And: ByteMachine.both,
    prim.Or: ByteMachine.both,
    prim.Not: ByteMachine.negated,
    prim.BitwiseNot: ByteMachine.inverted,
    prim.Let: ByteMachine.let,
    prim.Ramp: ByteMachine.ramp,
    prim.Broadcast: lambda machine, node: machine.value(node.value),
    prim.Cast: ByteMachine.cast,
    prim.Select: lambda machine, node: machine.branch(
        *map(machine.value, (node.condition, node.true_value, node.false_value))
    ),
    ir.Call: ByteMachine.call,
}
_STATEMENTS: Mapping[type, Callable[[ByteMachine, Any], Run]] = {
    tirx.SeqStmt: ByteMachine.sequence,
    tirx.BufferStore: ByteMachine.store,
    tirx.For: ByteMachine.loop,
    tirx.While: ByteMachine.while_,
    tirx.IfThenElse: ByteMachine.branches,
    s_tir.SBlockRealize: ByteMachine.block,
    tirx.AllocBuffer: ByteMachine.allocated,
    tirx.DeclBuffer: ByteMachine.declared,
    tirx.Bind: ByteMachine.bound,
    tirx.AssertStmt: lambda machine, node: machine.branch(
        machine.value(node.condition), lambda _: None, machine.raising(_Failed)
    ),
    tirx.AttrStmt: lambda machine, node: machine.statement(node.body),
    tirx.Break: lambda machine, node: machine.raising(_Stop),
    tirx.Continue: lambda machine, node: machine.raising(_Next),
    tirx.Return: lambda machine, node: machine.raising(_Return),
    tirx.stmt.Evaluate: lambda machine, node: machine.value(node.value),
}
