"""Writes a plan into a Relax function: a guard and an arena at entry, a view of it for each planned tensor.

The function must stand where StaticPlanBlockMemory stands: after CallTIRRewrite, no dataflow blocks.
Each planned `t = R.builtin.alloc_tensor(shape, dtype)` becomes a view of the arena at the tensor's offset
and, as `t` itself, `R.memory.ensure_zero_offset` of the view, because compiled kernels refuse a byte
offset; at multiples of 64 no bytes are copied.  What is not planned is left for LowerAllocTensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.ir import Call, Op, StringImm
from tvm.relax.op import memory

from symalloc.plan.live import allocations
from symalloc.plan.model import Arena, Guard, Placement, Plan
from symalloc.program.model import Function
from symalloc.relax.tir_emit import condition_to_prim, to_prim
from symalloc.size.condition import conjunction
from symalloc.size.expr import Expr

__all__ = ["EmissionError", "emit_function"]

ASSERT = "relax.run.assert_op"  # what LegalizeOps makes of R.assert_op
# what LowerRuntimeBuiltin makes of R.memory.view.  That operator's type inference compares the view with
# the arena by TVM's analyser: up to 50 ms a tensor, and again in every pass that visits it
VIEW = "runtime.TVMTensorCreateView"


_BUILTIN_ALLOC = Op.get("relax.builtin.alloc_tensor")


class EmissionError(Exception):
    """The plan and the function to write it into do not belong together: a fault of ours, not of the
    user's.
    """


def emit_function(
    function: relax.Function, seen: Function, plan: Plan, variables: Mapping[str, Any]
) -> relax.Function:
    """`function` with `plan` written into it.

    `seen` is the extracted form that the plan was made from; `variables` holds the function's symbolic
    variables by the names that `seen` gives them.  Raises EmissionError where `function` allocates other
    tensors than `seen`.
    """
    if not any(arena.placements for arena in plan.arenas):
        return function
    placements = plan.placements
    places = [placements.get(a.var) for a in allocations(seen.body)]
    writer = _Writer(places=deque(places), variables=variables)
    entry = [*writer.guards(plan.guards, plan.function), *writer.arenas(plan.arenas)]
    body = writer.sequence(function.body, entry)
    if writer.places:
        raise EmissionError(f"`{plan.function}` allocates fewer tensors than were planned")
    rewritten = relax.Function(
        function.params,
        body,
        function.ret_ty,
        is_pure=function.is_pure,
        attrs=function.attrs,
        span=function.span,
    )
    # guard and views are calls of packed functions, which TVM takes for impure
    return rewritten.with_attr("relax.force_pure", True) if function.is_pure else rewritten


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Walks the function in the order of `allocations`, which `places` follows."""

    places: deque[tuple[Arena, Placement] | None]
    variables: Mapping[str, Any]
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    homes: dict[tuple[int, str], relax.Var] = field(default_factory=dict)

    def bind(self, name: str, value: Any) -> relax.VarBinding:
        value = self.builder.normalize(value)
        return relax.VarBinding(relax.Var(name, value.ty), value)

    def size(self, expr: Expr) -> Any:
        return to_prim(expr, self.variables)

    # -- what stands at entry ------------------------------------------------------------------------------

    def guards(self, guards: Sequence[Guard], function: str) -> Iterator[relax.VarBinding]:
        """One check for all guards."""
        if not guards:
            return
        names = sorted(frozenset().union(*(g.condition.symbols for g in guards)))
        test = condition_to_prim(conjunction(g.check for g in guards), self.variables)
        wanted = " and ".join(str(g.condition) for g in guards)
        values = ", ".join(f"{name} = {{}}" for name in names)
        message = f"{function}: these shapes need more bytes than 64 bits count: got {values}; need {wanted}"
        arguments = [test, StringImm(message), *(self.variables[n] for n in names)]
        call = Call(relax.ExternFunc(ASSERT), arguments, ty_args=[relax.TupleType([])])
        yield self.bind("guard", call)

    def arenas(self, arenas: Sequence[Arena]) -> Iterator[relax.VarBinding]:
        for arena in arenas:
            if not arena.placements:
                continue
            extent = relax.ShapeExpr([self.size(arena.size)])
            storage = self.bind(
                "arena_storage", memory.alloc_storage(extent, arena.device, arena.scope, "uint8")
            )
            whole = self.bind("arena", memory.alloc_tensor(storage.var, 0, extent, "uint8", arena.device))
            self.homes[arena.device, arena.scope] = whole.var
            yield storage
            yield whole

    # -- the body ------------------------------------------------------------------------------------------

    def sequence(self, seq: relax.SeqExpr, entry: Sequence[relax.VarBinding] = ()) -> relax.SeqExpr:
        blocks = [self.block(b) for b in seq.blocks]
        if entry:
            blocks.insert(0, relax.BindingBlock(list(entry)))
        return self.builder.normalize(relax.SeqExpr(blocks, seq.body))

    def block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if isinstance(block, relax.DataflowBlock):
            raise EmissionError("a dataflow block where memory is planned; run ToNonDataflow first")
        return relax.BindingBlock([new for old in block.bindings for new in self.binding(old)])

    def binding(self, binding: relax.Binding) -> list[relax.Binding]:
        value = binding.value
        if isinstance(value, relax.If):
            branch = relax.If(
                value.cond, self.sequence(value.true_branch), self.sequence(value.false_branch), value.span
            )
            return [relax.VarBinding(binding.var, self.builder.normalize(branch))]
        if isinstance(value, Call) and value.op == _BUILTIN_ALLOC:
            return self.allocation(binding)
        return [binding]

    def allocation(self, binding: relax.VarBinding) -> list[relax.Binding]:
        if not self.places:
            raise EmissionError("more tensors are allocated than were planned")
        place = self.places.popleft()
        if place is None:
            return [binding]
        arena, placement = place
        shape, dtype = binding.value.args[0], binding.value.args[1]
        arguments = [self.homes[arena.device, arena.scope], shape, dtype, self.size(placement.offset)]
        call = Call(relax.ExternFunc(VIEW), arguments, ty_args=[binding.var.ty])
        view = self.bind(f"{binding.var.name}_view", call)
        settled = self.builder.normalize(memory.ensure_zero_offset(view.var))
        return [view, relax.VarBinding(binding.var, settled)]
