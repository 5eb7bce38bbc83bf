"""KillOnPaths: where a function branches, memory goes on each path behind its last use there.

Stands behind VMShapeLower.  TVM's KillAfterLastUse drops nothing behind an If that was there before it, nor
on the path that does not use a tensor; and the machine keeps what a branch yields in a register of the
branch, which nothing outside can drop.  So the kills of such functions are made anew, by liveness on every
path, and a branch whose value must go later yields it in a tuple, which is emptied behind the If.  Functions
without an If keep the kills that TVM gave them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, Op

from symalloc.relax.emit.emit_function import VIEW
from symalloc.relax.ir_types import Node, TypeNode, VarNode, elements
from symalloc.relax.passes.vm_lines import (
    ALLOC_STORAGE,
    ALLOC_TENSOR,
    KILL,
    RESHAPE,
    WITH_MACHINE,
    Blocks,
    Line,
    allocates,
    flat,
    read_lines,
)

_KILL = Op.get(KILL)
# what gives its argument another handle, and takes no memory
_HANDED_ON = frozenset({ALLOC_TENSOR, RESHAPE, VIEW, "vm.builtin.ensure_zero_offset"})
_EMPTY = relax.ExternFunc("vm.builtin.tuple_reset_item")

Vars: TypeAlias = frozenset[int]
"""Variables by their addresses."""

_NONE: Vars = frozenset()


@tvm.transform.module_pass(opt_level=0, name="KillOnPaths")
class KillOnPaths:
    """Drops each handle behind its last use on each path, where that can free memory before more is taken."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with other kills in the functions that branch; what it computes is the same."""
        changed = module.clone()
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
                blocks = read_lines(function.body)
                if any(line.sides for line in flat(blocks)):
                    changed.update_func(variable, _rewritten(function, blocks))
        return changed


def _rewritten(function: relax.Function, blocks: Blocks) -> relax.Function:
    holds = _Holdings.of(blocks)
    early = _Early(holds=holds)
    early.sequence(function.body, blocks, _Behind())
    writer = _Writer(holds=holds, early=frozenset(early.found))
    body, _ = writer.sequence(function.body, blocks, _Behind())
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


# -- what each variable holds --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Holdings:
    """For each variable the allocations that it may hold, by the variables that they were bound to first; of
    a tuple those of each field, too.  With the variables themselves, and their order in the text.  Parameters
    hold nothing: their memory is the caller's.
    """

    of_var: dict[int, Vars] = field(default_factory=dict)
    fields: dict[int, tuple[Vars, ...]] = field(default_factory=dict)
    variables: dict[int, Node] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, blocks: Blocks) -> _Holdings:
        found = cls()
        for line in flat(blocks):
            var = line.binding.var
            handle = var.__chandle__()
            found.fields[handle] = found.parts(line.value)
            held = found.value(line)
            if held:
                found.of_var[handle] = held
                found.variables[handle] = var
                found.order[handle] = line.place
        return found

    def among(self, handles: Iterable[int]) -> Vars:
        return _NONE.union(*(self.of_var.get(h, _NONE) for h in handles))

    def value(self, line: Line) -> Vars:
        """What the variable of a line holds."""
        if type(line.value) is not Call or line.name in _HANDED_ON:
            return self.handed_on(line.value)
        fresh = frozenset({line.binding.var.__chandle__()})
        if line.name == ALLOC_STORAGE:
            return fresh
        if line.name == WITH_MACHINE or not _may_hold(line.binding.var.ty):
            return _NONE  # the heap of shapes is read in places that name no variable of it
        return self.handed_on(line.value) | fresh

    def handed_on(self, value: Node) -> Vars:
        """What an expression holds of what its operands do."""
        if type(value) is relax.If:
            return self.handed_on(value.true_branch.body) | self.handed_on(value.false_branch.body)
        if type(value) is relax.TupleGetItem:
            parts = self.parts(value.tuple_value)
            return parts[value.index] if parts else self.among(_used(value.tuple_value))
        return self.among(_used(value))

    def parts(self, value: Node) -> tuple[Vars, ...]:
        """What each field of a tuple holds; none where the fields are not seen."""
        if type(value) is relax.Tuple:
            return tuple(self.handed_on(part) for part in elements(value.fields))
        if type(value) is relax.Var:
            return self.fields.get(value.__chandle__(), ())
        if type(value) is not relax.If:
            return ()
        sides = (self.parts(value.true_branch.body), self.parts(value.false_branch.body))
        return tuple(map(frozenset.union, *sides)) if all(sides) else ()


def _may_hold(type_: TypeNode) -> bool:
    """Whether a value of this type may hold a tensor."""
    if isinstance(type_, relax.TupleType):
        return any(map(_may_hold, type_.fields))
    return not isinstance(type_, relax.ShapeType | tvm.ir.PrimType)


def _used(value: Node) -> Vars:
    """The variables that an expression, itself no If, refers to."""
    if type(value) is relax.Var:
        return frozenset({value.__chandle__()})
    if type(value) is Call:
        return _NONE.union(*map(_used, elements(value.args)))
    if type(value) is relax.Tuple:
        return _NONE.union(*map(_used, elements(value.fields)))
    if type(value) is relax.TupleGetItem:
        return _used(value.tuple_value)
    return _NONE


# -- liveness, backwards -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Behind:
    """What holds behind a point: the variables that are used, and whether memory may be taken."""

    live: Vars = _NONE
    allocates: bool = False

    def either(self, other: _Behind) -> _Behind:
        return _Behind(self.live | other.live, self.allocates or other.allocates)

    def using(self, handles: Vars) -> _Behind:
        return _Behind(self.live | handles, self.allocates)

    def without(self, var: VarNode) -> _Behind:
        return _Behind(self.live - {var.__chandle__()}, self.allocates)


def _in_front(line: Line, behind: _Behind) -> _Behind:
    """Of a line that is no If."""
    live = behind.without(line.binding.var).live | _used(line.value)
    return _Behind(live, behind.allocates or allocates(line))


@dataclass(slots=True, kw_only=True)
class _Early:
    """Finds the allocations that die on some path while memory may still be taken."""

    holds: _Holdings
    found: set[int] = field(default_factory=set)

    def sequence(self, seq: relax.SeqExpr, blocks: Blocks, behind: _Behind) -> _Behind:
        now = behind.using(_used(seq.body))
        for block in reversed(blocks):
            for line in reversed(block):
                now = self.line(line, now)
        return now

    def line(self, line: Line, behind: _Behind) -> _Behind:
        if line.name == KILL:
            return behind
        if not line.sides:
            self.dying(_used(line.value) | {line.binding.var.__chandle__()}, behind)
            return _in_front(line, behind)
        self.dying(frozenset({line.binding.var.__chandle__()}), behind)
        value, within = line.value, behind.without(line.binding.var)
        fronts = [
            self.sequence(side, blocks, within)
            for side, blocks in zip((value.true_branch, value.false_branch), line.sides, strict=True)
        ]
        front = fronts[0].either(fronts[1]).using(_used(value.cond))
        for side, one in zip((value.true_branch, value.false_branch), fronts, strict=True):
            self.dying(front.live - one.live, one)
            self.dying(_used(side.body), behind)
        return front

    def dying(self, handles: Vars, behind: _Behind) -> None:
        """Notes what `handles` hold and nothing behind them does."""
        if behind.allocates:
            self.found |= self.holds.among(handles - behind.live) - self.holds.among(behind.live)


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Writes the kills of what is held of the allocations `early`."""

    holds: _Holdings
    early: Vars
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)

    def sequence(self, seq: relax.SeqExpr, blocks: Blocks, behind: _Behind) -> tuple[relax.SeqExpr, _Behind]:
        """The new body, and what holds in front of it."""
        now = behind.using(_used(seq.body))
        written: list[relax.BindingBlock] = []
        for block in reversed(blocks):
            lines: list[relax.Binding] = []
            for line in reversed(block):
                bindings, now = self.line(line, now)
                lines += reversed(bindings)
            written.append(relax.BindingBlock(lines[::-1]))
        return self.builder.normalize(relax.SeqExpr(written[::-1], seq.body)), now

    def line(self, line: Line, behind: _Behind) -> tuple[list[relax.Binding], _Behind]:
        """A line with the kills behind it."""
        if line.name == KILL:
            return [], behind
        if line.sides:
            return self.branches(line, behind)
        ended = _used(line.value) | {line.binding.var.__chandle__()}
        return [line.binding, *self.kills(ended, behind)], _in_front(line, behind)

    def kills(self, handles: Vars, behind: _Behind) -> Iterator[relax.VarBinding]:
        """The kills of those of `handles` that nothing behind uses, where that may free memory."""
        if behind.allocates:
            ended = (h for h in handles - behind.live if self.holds.of_var.get(h, _NONE) & self.early)
            yield from map(self.kill, sorted(ended, key=self.holds.order.__getitem__))

    def kill(self, handle: int) -> relax.VarBinding:
        return self.bind("_", Call(_KILL, [self.holds.variables[handle]]))

    def bind(self, name: str, value: Node) -> relax.VarBinding:
        value = self.builder.normalize(value)
        return relax.VarBinding(relax.Var(name, value.ty), value)

    # -- branches --------------------------------------------------------------------------------------------

    def branches(self, line: Line, behind: _Behind) -> tuple[list[relax.Binding], _Behind]:
        value, var = line.value, line.binding.var
        wrapped = behind.allocates and bool(self.holds.of_var.get(var.__chandle__(), _NONE) & self.early)
        within = behind.without(var)
        sides = [
            self.side(side, blocks, within, wrapped=wrapped)
            for side, blocks in zip((value.true_branch, value.false_branch), line.sides, strict=True)
        ]
        front = sides[0][1].either(sides[1][1]).using(_used(value.cond))
        bodies = [self.entered(body, front.live - own.live, own) for body, own in sides]
        chosen = relax.If(value.cond, *bodies, value.span)
        ended = list(self.kills(frozenset({var.__chandle__()}), behind))
        if not wrapped:
            return [relax.VarBinding(var, self.builder.normalize(chosen)), *ended], front
        carried = self.bind(f"{var.name}_carried", chosen)
        taken = relax.VarBinding(var, self.builder.normalize(relax.TupleGetItem(carried.var, 0)))
        emptied = Call(_EMPTY, [carried.var, relax.prim_value(0)], ty_args=[relax.TupleType([])])
        return [carried, taken, self.bind("_", emptied), *ended], front

    def side(
        self, seq: relax.SeqExpr, blocks: Blocks, behind: _Behind, *, wrapped: bool
    ) -> tuple[relax.SeqExpr, _Behind]:
        """A branch; `wrapped` in a tuple what it yields, so that no register of its own holds that."""
        body, front = self.sequence(seq, blocks, behind)
        if not wrapped:
            return body, front
        bindings, carried = self.carried(seq.body, behind)
        extended = [*body.blocks, relax.BindingBlock(bindings)]
        return self.builder.normalize(relax.SeqExpr(extended, carried)), front

    def carried(self, value: Node, behind: _Behind) -> tuple[list[relax.Binding], relax.Var]:
        """The bindings that put `value` into a tuple, and that tuple's variable."""
        ended = list(self.kills(_used(value), behind))
        if not isinstance(value, relax.Tuple):
            carried = self.bind("carried", relax.Tuple([value]))
            return [carried, *ended], carried.var
        fields = self.bind("yielded", value)  # within the other tuple its register would have no name
        carried = self.bind("carried", relax.Tuple([fields.var]))
        return [fields, *ended, carried, self.bind("_", Call(_KILL, [fields.var]))], carried.var

    def entered(self, body: relax.SeqExpr, ended: Vars, own: _Behind) -> relax.SeqExpr:
        """A branch that first drops what only the other one, or the condition, needs."""
        kills = list(self.kills(ended, own))
        if not kills:
            return body
        return self.builder.normalize(relax.SeqExpr([relax.BindingBlock(kills), *body.blocks], body.body))
