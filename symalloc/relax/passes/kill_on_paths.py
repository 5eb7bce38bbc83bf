"""KillOnPaths: where a function branches, memory goes on each path behind its last use there.

Stands behind VMShapeLower.  TVM's KillAfterLastUse drops nothing behind an If that was there before it, nor
on the path that does not use a tensor, nor what a call returns and nothing uses; and the machine keeps what a
branch yields in a register of the branch, which nothing outside can drop.  So the kills of such functions are
made anew, by liveness on every path, and a branch whose value must go later yields it in a tuple, which is
emptied behind the If.  Other functions keep the kills that TVM gave them, and get those of idle results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import tvm
from tvm import relax
from tvm.ir import Call, Op, PrimType
from tvm.relax.analysis import used_vars

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.register_lifetimes import Place, Where, last_uses
from symalloc.program import ir
from symalloc.program.types import holds_memory
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import BindingNode, Node, TypeNode, VarNode, bindings_in, elements
from symalloc.relax.rewrite import BindingRewriter, by_binding, map_functions

_KILL = Op.get("relax.vm.kill_object")
_WITH_MACHINE = Op.get("relax.call_builtin_with_ctx")
_EMPTY = relax.ExternFunc("vm.builtin.tuple_reset_item")


@tvm.transform.module_pass(opt_level=0, name="KillOnPaths")
class KillOnPaths:
    """Drops each handle behind its last use on each path, where that can free memory before more is taken."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with other kills in the functions that need them; what it computes is the same."""
        analyses: Mapping[str, FunctionAnalysis] = {}

        def rewritten(name: str, function: relax.Function) -> relax.Function | None:
            nonlocal analyses
            bindings = [(binding, binding.value) for binding in bindings_in(function.body)]
            if not any(type(value) is relax.If for _, value in bindings):
                return _without_idle_results(function, bindings)
            analyses = analyses or analyse(extract(module, name="module", handles=True, open_shapes=True))
            return _KillWriter.of(analyses[name]).rewritten(function)

        return map_functions(module, rewritten)


def _without_idle_results(
    function: relax.Function, bindings: Sequence[tuple[BindingNode, Node]]
) -> relax.Function | None:
    """A function without Ifs that drops what a call returns and nothing uses; None where it has none."""
    results = [one for one, value in bindings if _returns_memory(value)]
    used = {variable.__chandle__() for variable in elements(used_vars(function))} if results else set()
    idle = frozenset(one.__chandle__() for one in results if one.var.__chandle__() not in used)
    return _IdleKiller(idle=idle).rewritten(function) if idle else None


@dataclass(slots=True, kw_only=True)
class _IdleKiller(BindingRewriter):
    idle: frozenset[int]

    def rewrite(self, binding: BindingNode) -> list[relax.Binding]:
        """A binding, and the kill of an idle result behind it."""
        idle = binding.__chandle__() in self.idle
        return [binding, self.bind("_", Call(_KILL, [binding.var]))] if idle else [binding]


def _returns_memory(value: Node) -> bool:
    """Return whether a value is a call that may return a tensor, of anything but an operator."""
    return type(value) is Call and type(value.op) is not Op and _holds_memory(value.ty)


def _holds_memory(type_: TypeNode) -> bool:
    """Return whether a value of this type may hold a tensor."""
    if type(type_) is relax.TupleType:
        return any(map(_holds_memory, type_.fields))
    return type(type_) not in (relax.ShapeType, PrimType)


# -- functions with Ifs --------------------------------------------------------------------------------------


def _is_dropped(instruction: ir.Instruction) -> bool:
    """Return whether what an instruction binds may hold memory, and all who use it name it.

    What a builtin of the machine makes, such as the heap of shapes, is read in places that do not.
    """
    handle: BindingNode = instruction.handle  # type: ignore[assignment]
    of_machine = isinstance(handle.value, Call) and handle.value.op == _WITH_MACHINE
    return holds_memory(instruction.var.type) and not of_machine


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
        """A binding with the kills behind it; TVM's own kills go."""
        instruction = self.instructions[binding.__chandle__()]
        if isinstance(instruction, ir.Kill):
            return []
        var = instruction.var
        self.variables[var] = binding.var
        written = self.chosen(binding, var) if isinstance(instruction, ir.If) else [binding]
        return [*written, *self.dropped((var, "behind"))]

    def dropped(self, place: Place) -> list[relax.VarBinding]:
        """The kills at a place."""
        return [self.bind("_", Call(_KILL, [self.variables[var]])) for var in self.kills.get(place, ())]

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
        return [fields, *dropped, carried, self.bind("_", Call(_KILL, [fields.var]))], carried.var
