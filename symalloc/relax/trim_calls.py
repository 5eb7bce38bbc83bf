"""TrimCalls: what the virtual machine need not do twice, or not at all.

Stands behind VMShapeLower.  There every shape and every scalar is a call that reads the function's shape
heap, whose cells are written once: a second call with the same cells gives the same value.  Handles of
tensors are dropped one by one, although their memory goes only with the last of them; where nothing is
allocated between that moment and the end of the function, the end drops them just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, Op

from symalloc.relax.emit_guards import ASSERT
from symalloc.relax.extract.arrays import elements

__all__ = ["TrimCalls"]

_ALLOC_STORAGE = Op.get("relax.vm.alloc_storage").__chandle__()
_ALLOC_TENSOR = Op.get("relax.vm.alloc_tensor").__chandle__()
_KILL = Op.get("relax.vm.kill_object").__chandle__()
_MAKE = "vm.builtin.make_prim_value"
_MATCH = "vm.builtin.match_prim_value"  # (value, heap, what to do, cell, message)
_STORE = 1
_READS = frozenset({"vm.builtin.make_shape", _MAKE})
_ALLOCATE_NOTHING = _READS | {
    ASSERT,
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
    names = _Names()
    needless = _needless_kills(_flat(function.body), names)
    body = _Trimmer(names=names, needless=needless).sequence(function.body)
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


@dataclass(slots=True)
class _Names:
    """The symbols of external functions, by the address of the node that names them: many calls share one."""

    known: dict[int, str] = field(default_factory=dict)

    def __call__(self, op: Any) -> str:
        handle = op.__chandle__()
        if handle not in self.known:
            self.known[handle] = str(op.global_symbol)
        return self.known[handle]


# -- kills ---------------------------------------------------------------------------------------------------


def _flat(seq: relax.SeqExpr) -> Iterator[Any]:
    """The values that `seq` binds in the order of the text, those of branches in front of their If."""
    for block in elements(seq.blocks):
        for binding in elements(block.bindings):
            value = binding.value
            if type(value) is relax.If:
                yield from _flat(value.true_branch)
                yield from _flat(value.false_branch)
            yield binding.var, value


def _needless_kills(bindings: Iterable[tuple[Any, Any]], names: _Names) -> frozenset[int]:
    """The variables, by address, whose kill may go: behind the last kill that belongs to their storage
    nothing is called that could allocate; a kernel may, for its scratch.
    """
    storages: dict[int, int] = {}
    last_kill: dict[int, int] = {}
    last_allocation = -1
    for position, (var, value) in enumerate(bindings):
        if type(value) is not Call:
            continue
        op = value.op
        handle = op.__chandle__()
        if handle == _KILL:
            storage = storages.get(value.args[0].__chandle__())
            if storage is not None:
                last_kill[storage] = position
        elif handle == _ALLOC_TENSOR:
            storages[var.__chandle__()] = value.args[0].__chandle__()
        elif handle == _ALLOC_STORAGE:
            storages[var.__chandle__()] = var.__chandle__()
            last_allocation = position
        elif type(op) is not relax.ExternFunc or names(op) not in _ALLOCATE_NOTHING:
            last_allocation = position
    late = {storage for storage, position in last_kill.items() if position > last_allocation}
    return frozenset(var for var, storage in storages.items() if storage in late)


# -- shapes and scalars --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Trimmer:
    """`known` holds, by builtin and arguments, the variable of each value made so far on this path;
    `instead` what stands for a variable that is bound no more.
    """

    names: _Names
    needless: frozenset[int]
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    instead: dict[int, Any] = field(default_factory=dict)
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)

    def sequence(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [relax.BindingBlock(list(self.bindings(elements(block.bindings)))) for block in seq.blocks]
        return self.builder.normalize(
            relax.SeqExpr(blocks, self.instead.get(seq.body.__chandle__(), seq.body))
        )

    def now(self, value: Any) -> Any:
        return self.instead.get(value.__chandle__(), value)

    def bindings(self, bindings: Sequence[relax.Binding]) -> Iterator[relax.Binding]:
        for binding in bindings:
            value = binding.value
            kind = type(value)
            if kind is Call:
                yield from self.call(binding, value)
            elif kind is relax.If:
                yield self.branches(binding, value)
            else:
                yield binding

    def branches(self, binding: relax.VarBinding, value: relax.If) -> relax.VarBinding:
        sides = []
        for side in (value.true_branch, value.false_branch):
            outside = self.known
            self.known = dict(outside)
            sides.append(self.sequence(side))
            self.known = outside
        chosen = relax.If(self.now(value.cond), *sides, value.span)
        return relax.VarBinding(binding.var, self.builder.normalize(chosen))

    def call(self, binding: relax.VarBinding, call: Any) -> Iterator[relax.VarBinding]:
        op, arguments = call.op, elements(call.args)
        if op.__chandle__() == _KILL and arguments[0].__chandle__() in self.needless:
            return
        name = self.names(op) if type(op) is relax.ExternFunc else ""
        if name in _READS:
            key = (name, *map(_cell, arguments))
            made = self.known.get(key)
            if made is not None:
                self.instead[binding.var.__chandle__()] = made
                return
            self.known[key] = binding.var
        elif name == _MATCH and arguments[2].value == _STORE:
            value, heap, code, cell, *_ = arguments
            self.known.setdefault((_MAKE, *map(_cell, (heap, code, cell))), self.now(value))
        yield self.renewed(binding, call, arguments)

    def renewed(self, binding: relax.VarBinding, call: Any, arguments: Sequence[Any]) -> relax.VarBinding:
        """The binding with what stands now for its arguments."""
        if not self.instead or not any(a.__chandle__() in self.instead for a in arguments):
            return binding
        value = Call(call.op, list(map(self.now, arguments)), call.attrs, call.ty_args, call.span)
        return relax.VarBinding(binding.var, self.builder.normalize(value))


def _cell(argument: Any) -> int:
    """An argument of a call that reads the heap: the heap itself, or an integer literal."""
    return int(argument.value) if isinstance(argument, tirx.IntImm) else int(argument.__chandle__())
