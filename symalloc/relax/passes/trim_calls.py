"""TrimCalls: what the virtual machine need not do twice, or not at all.

Stands behind VMShapeLower.  There every shape and every scalar is a call that reads the function's shape
heap, whose cells are written once: a second call with the same cells gives the same value.  Handles of
tensors are dropped one by one, although their memory goes only with the last of them; where nothing is
allocated between that moment and the end of the function, the end drops them just as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from symalloc.relax.ir_types import BindingNode, CallNode, Node, VarNode, elements
from symalloc.relax.passes.vm_lines import (
    ALLOC_STORAGE,
    ALLOC_TENSOR,
    KILL,
    MAKE,
    MATCH,
    READS,
    WITH_MACHINE,
    Blocks,
    Line,
    allocates,
    flat,
    read_lines,
)

_STORE = 1  # of what `MATCH` is told to do


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
    blocks = read_lines(function.body)
    trimmer = _Trimmer(needless=_needless_kills(flat(blocks)))
    body = trimmer.sequence(function.body, blocks)
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


# -- kills ---------------------------------------------------------------------------------------------------


def _needless_kills(lines: Iterable[Line]) -> frozenset[int]:
    """The places of kills that may go: behind the last kill that belongs to their storage nothing is called
    that could allocate.  None of a function that branches: there KillOnPaths leaves those that count.
    """
    storages: dict[int, int] = {}
    kills: list[tuple[int, int]] = []
    allocations = 0
    last_kill: dict[int, int] = {}  # how many allocations stand in front of it
    for line in lines:
        if line.sides:
            return frozenset()
        if line.name == KILL:
            storage = storages.get(_first(line.value))
            if storage is not None:
                kills.append((line.place, storage))
                last_kill[storage] = allocations
        elif line.name == ALLOC_TENSOR:
            storages[line.binding.var.__chandle__()] = _first(line.value)
        elif line.name == ALLOC_STORAGE:
            storage = line.binding.var.__chandle__()
            storages[storage] = storage
        allocations += allocates(line)
    return frozenset(place for place, storage in kills if last_kill[storage] == allocations)


def _first(call: CallNode) -> int:
    """The address of the first argument."""
    return int(call.args[0].__chandle__())


# -- shapes and scalars --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Trimmer:
    """`known` holds, by builtin and arguments, the variable of each value made so far on this path;
    `instead` what stands for a variable that is bound no more.
    """

    needless: Collection[int]
    known: dict[tuple[object, ...], VarNode] = field(default_factory=dict)
    instead: dict[int, Node] = field(default_factory=dict)
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)

    def sequence(self, seq: relax.SeqExpr, blocks: Blocks) -> relax.SeqExpr:
        written = [relax.BindingBlock(list(self.bindings(block))) for block in blocks]
        return self.builder.normalize(relax.SeqExpr(written, self.now(seq.body)))

    def now(self, value: Node) -> Node:
        return self.instead.get(value.__chandle__(), value)

    def bindings(self, lines: Sequence[Line]) -> Iterator[relax.Binding]:
        for line in lines:
            if line.sides:
                yield self.branches(line)
            elif line.place not in self.needless and not (line.name in READS and self.is_known(line)):
                if line.name == MATCH:
                    self.note(line.value)
                yield self.renewed(line) if self.instead and line.name != KILL else line.binding

    def branches(self, line: Line) -> relax.VarBinding:
        value, sides = line.value, []
        for side, blocks in zip((value.true_branch, value.false_branch), line.sides, strict=True):
            outside = self.known
            self.known = dict(outside)
            sides.append(self.sequence(side, blocks))
            self.known = outside
        chosen = relax.If(self.now(value.cond), *sides, value.span)
        return relax.VarBinding(line.binding.var, self.builder.normalize(chosen))

    def is_known(self, line: Line) -> bool:
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

    def renewed(self, line: Line) -> Node:
        """The binding with what stands now for its arguments."""
        binding, call = line.binding, line.value
        if not isinstance(call, Call):
            return binding
        arguments = elements(call.args)
        if line.name == WITH_MACHINE:  # what it is called with stands in a tuple
            return self.with_machine(binding, call)
        if self.instead.keys().isdisjoint([a.__chandle__() for a in arguments]):
            return binding
        renewed = list(map(self.now, arguments))
        value = Call(call.op, renewed, call.attrs, call.ty_args, call.span, ret_ty=call.ty)
        return relax.VarBinding(binding.var, value)

    def with_machine(self, binding: BindingNode, call: CallNode) -> Node:
        function, given = elements(call.args)
        renewed = [function, relax.Tuple(list(map(self.now, elements(given.fields))))]
        value = Call(call.op, renewed, call.attrs, call.ty_args, call.span, ret_ty=call.ty)
        return relax.VarBinding(binding.var, value)

    def note(self, call: CallNode) -> None:
        """A scalar that is put into a cell of the heap need not be read from it."""
        value, heap, code, cell, *_ = elements(call.args)
        if code.value == _STORE:
            self.known.setdefault((MAKE, *map(_cell, (heap, code, cell))), self.now(value))


def _cell(argument: Node) -> int:
    """An argument of a call that reads the heap: the heap itself, or an integer literal."""
    return int(argument.value) if isinstance(argument, tirx.IntImm) else int(argument.__chandle__())
