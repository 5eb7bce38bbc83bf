"""KillOnPaths: memory goes on each path behind its last use there.

Stands behind VMShapeLower, in place of TVM's KillAfterLastUse.  That one drops nothing behind an If that was
there before it, nor on the path that does not use a tensor, nor what a call returns and nothing uses; and the
machine keeps what a branch yields in a register of the branch, which nothing outside can drop.  So a branch
whose value must go later yields it in a tuple, which is emptied behind the If.

Nor does TVM's pass ask whether a kill frees anything.  Handles of tensors are dropped one by one, although
their memory goes only with the last of them; where nothing is allocated between that moment and the end of
the function, the end drops them just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax
from tvm.ir import Call, Op, PrimType, TupleType

from symalloc.program.packed_contracts import packed_contract
from symalloc.relax.ir_types import (
    NOTHING,
    BindingNode,
    Node,
    TypeNode,
    VarNode,
    bound,
    effect,
    elements,
    of_type,
    typed_call,
    typed_var,
)
from symalloc.relax.passes.canonical_kernels import NAMED_STORAGE, NAMED_TENSOR, WITH_MACHINE
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body

_KILL = Op.get("relax.vm.kill_object")
_EMPTY = relax.ExternFunc("vm.builtin.tuple_reset_item")

_ALLOC_STORAGE, _ALLOC_TENSOR = "relax.vm.alloc_storage", "relax.vm.alloc_tensor"
_LIES_ON_FIRST = frozenset({_ALLOC_TENSOR, "vm.builtin.reshape", "runtime.TVMTensorCreateView"})


@tvm.transform.module_pass(opt_level=0, name="KillOnPaths")
class KillOnPaths:
    """Drops each handle behind its last use on each path, where that can free memory before more is taken."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its kills made anew; what it computes is the same."""
        return map_functions(module, lambda _, function: _KillWriter().rewritten(function))


@dataclass(slots=True)
class _Ahead:
    """The part of a path that is ahead of a place, up to the end of the function.

    `live` are the variables, by address, that it uses; the memory of `lasting` storages stays to the end of
    each path from there, whatever is dropped.  `allocates`: it may take memory.
    """

    live: set[int]
    lasting: set[int]
    allocates: bool = False


@dataclass(slots=True, kw_only=True)
class _KillWriter(BindingRewriter):
    """Writes one function from its end to its start.

    `order` numbers its variables, by address, as they are bound.  `owned` are those whose registers may hold
    what no parameter holds; `storages` tells the storage that such a variable is, or lies on, where that is
    known.  `killed` are the variables that are dropped further on.
    """

    order: dict[int, int] = field(default_factory=dict)
    owned: dict[int, VarNode] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    changed: bool = False

    def rewritten(self, function: relax.Function) -> relax.Function | None:
        """`function` with its kills made anew; None where it has none and needs none."""
        body = function.body
        self.read(body, {param.__chandle__() for param in elements(function.params)})
        live = set(_addresses_in(body.body))
        ahead = _Ahead(live, {self.storages[one] for one in live if one in self.storages})
        block = relax.BindingBlock(self.bindings(body, ahead))
        if not self.changed:
            return None
        return with_body(function, of_type(relax.SeqExpr([block], body.body, body.span), body.ty))

    def read(self, seq: relax.SeqExpr, lent: set[int]) -> None:
        """Take up the bindings of a sequence; what `lent` variables hold a parameter holds as well."""
        for block in elements(seq.blocks):
            for binding in elements(block.bindings):
                address, value = binding.var.__chandle__(), binding.value
                self.order[address] = len(self.order)
                if type(value) is relax.If:
                    self.owned[address] = binding.var
                    self.read(value.true_branch, lent)
                    self.read(value.false_branch, lent)
                else:
                    self.read_value(binding.var, value, lent)

    def read_value(self, var: VarNode, value: Node, lent: set[int]) -> None:
        address, called = var.__chandle__(), _called(value)
        if called in _LIES_ON_FIRST or type(value) in (tvm.ir.Var, relax.TupleGetItem):
            under = next(iter(_addresses_in(value)), 0)  # a view may be of a constant
            if under in lent:
                lent.add(address)
                return
            if under in self.storages:
                self.storages[address] = self.storages[under]
        elif called == _ALLOC_STORAGE:
            self.storages[address] = address
        if called != WITH_MACHINE.name:
            self.owned[address] = var

    # -- from the end to the start ---------------------------------------------------------------------------

    def bindings(self, seq: relax.SeqExpr, ahead: _Ahead) -> list[relax.Binding]:
        """The bindings of a sequence with their kills; `ahead` is then what is ahead of the sequence."""
        turned: list[relax.Binding] = []
        for block in reversed(elements(seq.blocks)):
            for binding in reversed(elements(block.bindings)):
                turned += reversed(self.with_kills(binding, ahead))
        return turned[::-1]

    def with_kills(self, binding: BindingNode, ahead: _Ahead) -> list[relax.Binding]:
        """A binding with the kills behind it; those that are there already go."""
        address, value = binding.var.__chandle__(), binding.value
        called = _called(value)
        if called == _KILL.name:
            self.changed = True
            return []
        if type(value) is relax.If:
            behind = self.kills([address], ahead)
            return [*self.chosen(binding, ahead), *behind]
        used = _addresses_in(value)
        behind = self.kills((*used, address), ahead)
        ahead.live.update(used)
        if called is not None and called != _ALLOC_TENSOR:  # a kernel may allocate, for its scratch
            ahead.allocates = ahead.allocates or packed_contract(called).allocates
        return [binding, *behind]

    def kills(self, variables: Iterable[int], ahead: _Ahead) -> list[relax.Binding]:
        """The kills of those variables that nothing ahead uses; none where nothing is allocated there."""
        ended = [one for one in dict.fromkeys(variables) if one not in ahead.live]
        if not ahead.allocates:
            ahead.lasting.update(self.storages[one] for one in ended if one in self.storages)
            return []
        found = [one for one in ended if one in self.owned and self.storages.get(one) not in ahead.lasting]
        found = [one for one in found if _holds_memory(self.owned[one].ty)]
        self.killed.update(found)
        self.changed = self.changed or bool(found)
        return [_killed(self.owned[one]) for one in found]

    def chosen(self, binding: BindingNode, ahead: _Ahead) -> list[relax.Binding]:
        """An If, whose branches first drop what only the other one, or the condition, needs.

        They yield tuples where what they yield is dropped further on.
        """
        address, value = binding.var.__chandle__(), binding.value
        carries, given = address in self.killed, (value.true_branch, value.false_branch)
        paths = [replace(ahead, live=set(ahead.live), lasting=set(ahead.lasting)) for _ in given]
        ends = [self.side(seq, path, carries) for seq, path in zip(given, paths, strict=True)]
        ahead.live = paths[0].live.union(paths[1].live, _addresses_in(value.cond))
        # TVM's planner uses storages of a branch outside of it, too
        before = [one for one in ahead.live if self.order.get(one, len(self.order)) < self.order[address]]
        before.sort(key=self.order.__getitem__)
        starts = [self.kills(before, path) for path in paths]
        ahead.lasting = paths[0].lasting & paths[1].lasting
        ahead.allocates = paths[0].allocates or paths[1].allocates
        sides = [
            relax.SeqExpr([relax.BindingBlock([*start, *bindings])], result)
            for start, (bindings, result) in zip(starts, ends, strict=True)
        ]
        chosen = relax.If(value.cond, *map(self.builder.normalize, sides), value.span)
        if not carries:
            return [relax.VarBinding(binding.var, self.builder.normalize(chosen))]
        carried = self.bind(f"{binding.var.name}_carried", chosen)
        taken = relax.VarBinding(binding.var, self.builder.normalize(relax.TupleGetItem(carried.var, 0)))
        return [carried, taken, effect(_EMPTY, [carried.var, relax.prim_value(0)])]

    def side(self, seq: relax.SeqExpr, path: _Ahead, carries: bool) -> tuple[list[relax.Binding], relax.Expr]:
        """The bindings of a branch, and what it yields: a tuple with that where it `carries` it."""
        value, used = seq.body, _addresses_in(seq.body)
        dropped = self.kills(used, path) if carries else []
        path.live.update(used)
        bindings = self.bindings(seq, path)
        if not carries:
            return bindings, value
        if not isinstance(value, relax.Tuple):
            carried = self.bind("carried", relax.Tuple([value]))
            return [*bindings, carried, *dropped], carried.var
        fields = self.bind("yielded", value)  # within the other tuple its register would have no name
        carried = self.bind("carried", relax.Tuple([fields.var]))
        return [*bindings, fields, *dropped, carried, _killed(fields.var)], carried.var


def _killed(variable: VarNode) -> BindingNode:
    return bound(typed_var("_", NOTHING), typed_call(_KILL, [variable], NOTHING))


def _called(value: Node) -> str | None:
    """The operator or packed function that a value calls, "" for a function or a kernel; None for no call.

    What NameTensors has named is the same allocation.
    """
    if type(value) is not Call:
        return None
    op = value.op
    if type(op) is relax.ExternFunc:
        symbol = str(op.global_symbol)
        return _ALLOC_TENSOR if symbol == NAMED_TENSOR else symbol
    name = str(op.name) if type(op) is Op else ""
    named = name == WITH_MACHINE.name and value.args[0].global_symbol == NAMED_STORAGE.global_symbol
    return _ALLOC_STORAGE if named else name


def _addresses_in(value: Node) -> list[int]:
    """The addresses of the variables in a value that is no If."""
    kind: type = type(value)
    if kind is relax.Function:
        return [one.__chandle__() for one in relax.analysis.free_vars(value)]
    if kind is Call:
        parts: Sequence[Node] = [value.op, *elements(value.args)]
    elif kind is relax.Tuple:
        parts = elements(value.fields)
    else:
        parts = [value.tuple_value if kind is relax.TupleGetItem else value]
    found = [part.__chandle__() for part in parts if type(part) is tvm.ir.Var]
    return found + [one for part in parts if type(part) is relax.Tuple for one in _addresses_in(part)]


def _holds_memory(type_: TypeNode) -> bool:
    """Return whether a value of this type may hold a tensor."""
    if type(type_) is TupleType:
        return any(map(_holds_memory, elements(type_.fields)))
    return type(type_) not in (relax.ShapeType, PrimType)
