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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import tvm
from tvm import relax
from tvm.ir import Call, Op, PrimType, TupleType

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.register_lifetimes import Place, Where, last_uses
from symalloc.program import ir
from symalloc.program.packed_contracts import packed_contract
from symalloc.program.types import holds_memory
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    TypeNode,
    VarNode,
    bound,
    elements,
    of_type,
    typed_call,
    typed_var,
)
from symalloc.relax.passes.name_tensors import NAMED_STORAGE, NAMED_TENSOR
from symalloc.relax.rewrite import BindingRewriter, by_binding, map_functions, with_body

_KILL = Op.get("relax.vm.kill_object")
_WITH_MACHINE = Op.get("relax.call_builtin_with_ctx")
_EMPTY = relax.ExternFunc("vm.builtin.tuple_reset_item")

_NOTHING = TupleType([])
_ALLOC_STORAGE, _ALLOC_TENSOR = "relax.vm.alloc_storage", "relax.vm.alloc_tensor"
_LIES_ON_FIRST = frozenset({_ALLOC_TENSOR, "vm.builtin.reshape", "runtime.TVMTensorCreateView"})


@tvm.transform.module_pass(opt_level=0, name="KillOnPaths")
class KillOnPaths:
    """Drops each handle behind its last use on each path, where that can free memory before more is taken."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its kills made anew; what it computes is the same."""
        analyses: Mapping[str, FunctionAnalysis] = {}

        def rewritten(name: str, function: relax.Function) -> relax.Function | None:
            nonlocal analyses
            straight = _Straight.of(function)
            if straight is not None:
                return straight.written(function)
            analyses = analyses or analyse(extract(module, name="module", handles=True, open_shapes=True))
            return _KillWriter.of(analyses[name]).rewritten(function)

        return map_functions(module, rewritten)


def _killed(variable: VarNode) -> BindingNode:
    return bound(typed_var("_", _NOTHING), typed_call(_KILL, [variable], _NOTHING))


# -- functions without Ifs -----------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A binding, the address of its variable, what it calls (None for no call), and the addresses of the
    variables that it uses.
    """

    binding: BindingNode
    address: int
    called: str | None
    used: Sequence[int]


@dataclass(slots=True)
class _Straight:
    """A function without Ifs.

    `owned` are the variables, by address, whose registers may hold what no parameter holds; `storages` tells
    the storage that such a variable is, or lies on, where that is known.
    """

    steps: list[_Step] = field(default_factory=list)
    owned: dict[int, VarNode] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, function: relax.Function) -> _Straight | None:
        """The steps of `function`; None where it has an If."""
        found = cls()
        lent = {param.__chandle__() for param in elements(function.params)}
        for block in elements(function.body.blocks):
            for binding in elements(block.bindings):
                value = binding.value
                if type(value) is relax.If:
                    return None
                found.add(binding, value, lent)
        return found

    def add(self, binding: BindingNode, value: Node, lent: set[int]) -> None:
        """Take up the next binding; what `lent` variables hold a parameter holds as well."""
        var, called, used = binding.var, _called(value), _addresses_in(value)
        address = var.__chandle__()
        self.steps.append(_Step(binding, address, called, used))
        if called in _LIES_ON_FIRST or type(value) in (tvm.ir.Var, relax.TupleGetItem):
            under = used[0] if used else 0  # a view may be of a constant
            if under in lent:
                lent.add(address)
                return
            if under in self.storages:
                self.storages[address] = self.storages[under]
        elif called == _ALLOC_STORAGE:
            self.storages[address] = address
        if called != _WITH_MACHINE.name:
            self.owned[address] = var

    def written(self, function: relax.Function) -> relax.Function | None:
        """`function` with its kills made anew; None where it has none and needs none."""
        body = function.body
        live = set(_addresses_in(body.body))
        lasting = {self.storages[one] for one in live if one in self.storages}
        allocates = changed = False
        turned: list[BindingNode] = []
        for binding, address, called, used in reversed(self.steps):
            if called == _KILL.name:
                changed = True
                continue
            ended = [one for one in dict.fromkeys((*used, address)) if one not in live]
            live.update(used)
            if allocates:
                killed = [_killed(self.owned[one]) for one in ended if self.frees(one, lasting)]
                changed = changed or bool(killed)
                turned += killed
            else:
                lasting.update(self.storages[one] for one in ended if one in self.storages)
                allocates = _may_allocate(called)
            turned.append(binding)
        if not changed:
            return None
        block = relax.BindingBlock(turned[::-1])
        return with_body(function, of_type(relax.SeqExpr([block], body.body, body.span), body.ty))

    def frees(self, address: int, lasting: Collection[int]) -> bool:
        """Return whether memory may go with the register of a variable, where that of `lasting` storages
        stays up to the end.
        """
        if address not in self.owned or self.storages.get(address) in lasting:
            return False
        return _holds_memory(self.owned[address].ty)


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
    named = name == _WITH_MACHINE.name and value.args[0].global_symbol == NAMED_STORAGE.global_symbol
    return _ALLOC_STORAGE if named else name


def _may_allocate(called: str | None) -> bool:
    """Return whether a value may take memory; a kernel may, for its scratch."""
    return called is not None and called != _ALLOC_TENSOR and packed_contract(called).allocates


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


# -- functions with Ifs --------------------------------------------------------------------------------------


def _is_dropped(instruction: ir.Instruction) -> bool:
    """Return whether what an instruction binds may hold memory, and all who use it name it.

    What a builtin of the machine makes, such as the heap of shapes, is read in places that do not.
    """
    handle: BindingNode = instruction.handle  # type: ignore[assignment]
    return holds_memory(instruction.var.type) and _called(handle.value) != _WITH_MACHINE.name


@dataclass(slots=True, kw_only=True)
class _KillWriter(BindingRewriter):
    """Writes one function.

    `kills` holds the variables to drop at each place; the Ifs among `all_dropped` yield tuples, so that no
    register of a branch holds what they yield.  `variables` are TVM's, as far as they are bound already.
    """

    instructions: Mapping[int, ir.Instruction]
    kills: Mapping[Place, list[ir.Var]]
    all_dropped: Collection[ir.Var]
    variables: dict[ir.Var, VarNode] = field(default_factory=dict)

    @classmethod
    def of(cls, analysis: FunctionAnalysis) -> _KillWriter:
        """Plan the kills of what is used no more where, on some path, memory may still be taken."""
        instructions = by_binding(analysis.cfg)
        dropped = {one.var: i for i, one in enumerate(instructions.values()) if _is_dropped(one)}
        uses = (use for use in last_uses(analysis.cfg.function.body) if use.allocates)
        kills = {use.place: sorted(dropped.keys() & use.variables, key=dropped.__getitem__) for use in uses}
        return cls(
            instructions=instructions,
            kills=kills,
            all_dropped=frozenset(chain.from_iterable(kills.values())),
        )

    def rewrite(self, binding: BindingNode) -> list[relax.Binding]:
        """A binding with the kills behind it; those that are there already go."""
        instruction = self.instructions[binding.__chandle__()]
        if isinstance(instruction, ir.Kill):
            return []
        var = instruction.var
        self.variables[var] = binding.var
        written = self.chosen(binding, var) if isinstance(instruction, ir.If) else [binding]
        return [*written, *self.dropped((var, "behind"))]

    def dropped(self, place: Place) -> list[relax.Binding]:
        """The kills at a place; TVM's planner uses storages of a branch outside of it, too."""
        bound_here = (var for var in self.kills.get(place, ()) if var in self.variables)
        return [_killed(self.variables[var]) for var in bound_here]

    # -- branches --------------------------------------------------------------------------------------------

    def chosen(self, binding: BindingNode, var: ir.Var) -> list[relax.Binding]:
        value = binding.value
        then = self.side(value.true_branch, var, "then", "yielded by then")
        otherwise = self.side(value.false_branch, var, "else", "yielded by else")
        chosen = relax.If(value.cond, then, otherwise, value.span)
        if var not in self.all_dropped:
            return [relax.VarBinding(binding.var, self.builder.normalize(chosen))]
        carried = self.bind(f"{var.name}_carried", chosen)
        taken = relax.VarBinding(binding.var, self.builder.normalize(relax.TupleGetItem(carried.var, 0)))
        emptied = Call(_EMPTY, [carried.var, relax.prim_value(0)], ty_args=[relax.TupleType([])])
        return [carried, taken, self.bind("_", emptied)]

    def side(self, seq: relax.SeqExpr, var: ir.Var, start: Where, end: Where) -> relax.SeqExpr:
        """A branch, which first drops what only the other one, or the condition, needs."""
        body = self.sequence(seq, self.dropped((var, start)))
        if var not in self.all_dropped:
            return body
        bindings, carried = self.carried(seq.body, self.dropped((var, end)))
        return self.builder.normalize(relax.SeqExpr([*body.blocks, relax.BindingBlock(bindings)], carried))

    def carried(self, value: Node, dropped: list[relax.Binding]) -> tuple[list[relax.Binding], relax.Var]:
        """The bindings that put `value` into a tuple, and that tuple's variable."""
        if not isinstance(value, relax.Tuple):
            carried = self.bind("carried", relax.Tuple([value]))
            return [carried, *dropped], carried.var
        fields = self.bind("yielded", value)  # within the other tuple its register would have no name
        carried = self.bind("carried", relax.Tuple([fields.var]))
        return [fields, *dropped, carried, _killed(fields.var)], carried.var
