"""TrimCalls: what the virtual machine need not do twice, or not at all.

Stands behind VMShapeLower.  There every shape and every scalar is a call that reads the function's shape
heap, whose cells are written once: a second call with the same cells gives the same value.  Handles of
tensors are dropped one by one, although their memory goes only with the last of them; where nothing is
allocated between that moment and the end of the function, the end drops them just as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.ir import Call, Op

from symalloc.relax.emit.guards import ASSERT
from symalloc.relax.extract.arrays import elements

__all__ = ["TrimCalls"]

_ALLOC_STORAGE = "relax.vm.alloc_storage"
_ALLOC_TENSOR = "relax.vm.alloc_tensor"
_KILL = "relax.vm.kill_object"
_MAKE = "vm.builtin.make_prim_value"
_MATCH = "vm.builtin.match_prim_value"  # (value, heap, what to do, cell, message)
_STORE = 1
_READS = frozenset({"vm.builtin.make_shape", _MAKE})
_WITH_MACHINE = "relax.call_builtin_with_ctx"
_ALLOCATE_NOTHING = _READS | {
    ASSERT,
    _ALLOC_TENSOR,
    _KILL,
    "vm.builtin.check_shape_info",
    "vm.builtin.check_tensor_info",
    _MATCH,
    "vm.builtin.match_shape",
    "vm.builtin.reshape",
}


@tvm.transform.module_pass(opt_level=0, name="TrimCalls")
class TrimCalls:
    """Makes each shape and scalar once, where it is first wanted, and leaves out kills that free nothing."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with fewer calls; what it computes, and the most it holds, is the same."""
        trimmed = module.clone()
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
                trimmed.update_func(variable, _trimmed(function))
        return trimmed


def _trimmed(function: relax.Function) -> relax.Function:
    blocks = _Reader().blocks(function.body)
    trimmer = _Trimmer(needless=_needless_kills(_flat(blocks)))
    body = trimmer.sequence(function.body, blocks)
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


# -- one reading for all that is asked -----------------------------------------------------------------------


class _Line(NamedTuple):
    """A binding, its place in the text, its value, and the name of the operator or external function that it
    calls, "" for anything else; `sides` are the blocks of the two branches of an If.
    """

    place: int
    binding: Any
    value: Any
    name: str
    sides: tuple[_Blocks, ...] = ()


_Blocks: TypeAlias = list[list[_Line]]


@dataclass(slots=True)
class _Reader:
    """Reads the bindings of a function.  `names` holds what was asked before, by the address of the node that
    is called: many calls share one.
    """

    names: dict[int, str] = field(default_factory=dict)
    places: Iterator[int] = field(default_factory=count)

    def blocks(self, seq: relax.SeqExpr) -> _Blocks:
        return [[self.line(b) for b in elements(block.bindings)] for block in elements(seq.blocks)]

    def line(self, binding: Any) -> _Line:
        value = binding.value
        if type(value) is Call:
            return _Line(next(self.places), binding, value, self.name(value.op))
        sides = (value.true_branch, value.false_branch) if type(value) is relax.If else ()
        return _Line(next(self.places), binding, value, "", tuple(map(self.blocks, sides)))

    def name(self, op: Any) -> str:
        handle = op.__chandle__()
        found = self.names.get(handle)
        if found is None:
            found = self.names[handle] = _name(op)
        return found


def _name(op: Any) -> str:
    if isinstance(op, relax.ExternFunc):
        return str(op.global_symbol)
    return str(op.name) if isinstance(op, Op) else ""


def _flat(blocks: _Blocks) -> Iterator[_Line]:
    """The lines in the order of the text, those of branches in front of their If."""
    for block in blocks:
        for line in block:
            for side in line.sides:
                yield from _flat(side)
            yield line


# -- kills ---------------------------------------------------------------------------------------------------


def _needless_kills(lines: Iterable[_Line]) -> frozenset[int]:
    """The places of kills that may go: behind the last kill that belongs to their storage nothing is called
    that could allocate; a kernel may, for its scratch.
    """
    storages: dict[int, int] = {}
    kills: list[tuple[int, int]] = []
    allocations = 0
    last_kill: dict[int, int] = {}  # how many allocations stand in front of it
    for place, binding, value, name, _ in lines:
        if name == _KILL:
            storage = storages.get(_first(value))
            if storage is not None:
                kills.append((place, storage))
                last_kill[storage] = allocations
        elif name == _ALLOC_TENSOR:
            storages[binding.var.__chandle__()] = _first(value)
        elif name == _ALLOC_STORAGE:
            storage = binding.var.__chandle__()
            storages[storage] = storage
            allocations += 1
        elif name not in _ALLOCATE_NOTHING and type(value) is Call:
            allocations += 1
    return frozenset(place for place, storage in kills if last_kill[storage] == allocations)


def _first(call: Any) -> int:
    """The address of the first argument."""
    return int(call.args[0].__chandle__())


# -- shapes and scalars --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Trimmer:
    """`known` holds, by builtin and arguments, the variable of each value made so far on this path;
    `instead` what stands for a variable that is bound no more.
    """

    needless: Collection[int]
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    instead: dict[int, Any] = field(default_factory=dict)
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)

    def sequence(self, seq: relax.SeqExpr, blocks: _Blocks) -> relax.SeqExpr:
        written = [relax.BindingBlock(list(self.bindings(block))) for block in blocks]
        return self.builder.normalize(relax.SeqExpr(written, self.now(seq.body)))

    def now(self, value: Any) -> Any:
        return self.instead.get(value.__chandle__(), value)

    def bindings(self, lines: Sequence[_Line]) -> Iterator[relax.Binding]:
        for line in lines:
            if line.sides:
                yield self.branches(line)
            elif line.place not in self.needless and not (line.name in _READS and self.is_known(line)):
                if line.name == _MATCH:
                    self.note(line.value)
                yield self.renewed(line) if self.instead and line.name != _KILL else line.binding

    def branches(self, line: _Line) -> relax.VarBinding:
        value, sides = line.value, []
        for side, blocks in zip((value.true_branch, value.false_branch), line.sides, strict=True):
            outside = self.known
            self.known = dict(outside)
            sides.append(self.sequence(side, blocks))
            self.known = outside
        chosen = relax.If(self.now(value.cond), *sides, value.span)
        return relax.VarBinding(line.binding.var, self.builder.normalize(chosen))

    def is_known(self, line: _Line) -> bool:
        """Whether the value of a call that reads the heap was made before; it is the known one from here
        on.
        """
        key = (line.name, *map(_cell, elements(line.value.args)))
        made, var = self.known.get(key), line.binding.var
        if made is None:
            self.known[key] = var
        else:
            self.instead[var.__chandle__()] = made
        return made is not None

    def renewed(self, line: _Line) -> Any:
        """The binding with what stands now for its arguments."""
        binding, call = line.binding, line.value
        if type(call) is not Call:
            return binding
        arguments = elements(call.args)
        if line.name == _WITH_MACHINE:  # what it is called with stands in a tuple
            return self.with_machine(binding, call)
        if self.instead.keys().isdisjoint([a.__chandle__() for a in arguments]):
            return binding
        renewed = list(map(self.now, arguments))
        value = Call(call.op, renewed, call.attrs, call.ty_args, call.span, ret_ty=call.ty)
        return relax.VarBinding(binding.var, value)

    def with_machine(self, binding: Any, call: Any) -> Any:
        function, given = elements(call.args)
        renewed = [function, relax.Tuple(list(map(self.now, elements(given.fields))))]
        value = Call(call.op, renewed, call.attrs, call.ty_args, call.span, ret_ty=call.ty)
        return relax.VarBinding(binding.var, value)

    def note(self, call: Any) -> None:
        """A scalar that is put into a cell of the heap need not be read from it."""
        value, heap, code, cell, *_ = elements(call.args)
        if code.value == _STORE:
            self.known.setdefault((_MAKE, *map(_cell, (heap, code, cell))), self.now(value))


def _cell(argument: Any) -> int:
    """An argument of a call that reads the heap: the heap itself, or an integer literal."""
    return int(argument.value) if isinstance(argument, tirx.IntImm) else int(argument.__chandle__())
