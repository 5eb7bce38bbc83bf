"""Writes the plans of a program into its module: kernels that take offsets, functions, and their variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax
from tvm.ir import GlobalVar

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Plan
from symalloc.planner.planner_options import GuardKind
from symalloc.program.ir import Var
from symalloc.relax.emit.emit_function import EmitContext, emit_function
from symalloc.relax.emit.guard_calls import GuardWriter
from symalloc.relax.emit.kernel_offsets import OffsetKernels, offset_uses, with_offsets
from symalloc.relax.emit.prim_builder import PrimBuilder, entry_symbols
from symalloc.relax.extract.tir_to_expr import NotASizeError
from symalloc.relax.ir_types import Node
from symalloc.relax.rewrite import copied, referenced, without


def emit_module(
    module: tvm.IRModule,
    analyses: Mapping[str, FunctionAnalysis],
    plans: Mapping[str, Plan],
    *,
    guards: GuardKind = "assert",
    addresses: bool = True,
    keeps_reshapes: bool = False,
) -> tvm.IRModule:
    """`module` with `plans` written into it; `plans` holds callees before their callers.

    `analyses` are those of the program that was extracted from `module`, with handles.  `addresses`: the
    target brings a tensor to offset zero without copying it; where it does not, none that needs that may lie
    elsewhere.  `keeps_reshapes` is that of `EmitContext`.
    """
    emitter = _ModuleWriter(
        module=module,
        analyses=analyses,
        plans=plans,
        kind=guards,
        addresses=addresses,
        keeps_reshapes=keeps_reshapes,
    )
    for name, plan in plans.items():
        if plan.guards or any(arena.placements for arena in plan.arenas):
            emitter.function(name, plan)
    return emitter.finished()


@dataclass(slots=True, kw_only=True)
class _ModuleWriter:
    """`offset_parameters` are the positions at which kernels will be given tensors at an offset, `kernels`
    tells where they could be.
    """

    module: tvm.IRModule
    analyses: Mapping[str, FunctionAnalysis]
    plans: Mapping[str, Plan]
    kind: GuardKind
    addresses: bool
    keeps_reshapes: bool
    guards: GuardWriter = field(init=False)
    written: tvm.IRModule = field(init=False)
    kernels: OffsetKernels = field(init=False)
    globals: dict[str, GlobalVar] = field(init=False)
    callees: dict[str, GlobalVar] = field(default_factory=dict)
    offset_parameters: dict[str, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.globals = {v.name_hint: v for v in self.module.get_global_vars()}
        self.kernels = OffsetKernels(self.module)
        self.guards = GuardWriter(kind=self.kind, taken=set(self.globals))
        self.written = self.module.clone()

    def function(self, name: str, plan: Plan) -> None:
        """Write the plan of one function into it, and into a variant where callers lend their arenas."""
        variable = self.globals[name]
        function = self.module[variable]
        context = self.context(name, plan, function)
        try:
            variant = self.variant(name, function, plan, context) if name in self.lent_to else None
            planned = emit_function(function, self.analyses[name].cfg, plan, context)
        except NotASizeError as error:
            raise PlanRefusedError(f"the plan for `{name}` cannot be written: {error}") from None
        if variant is not None:
            self.callees[name] = variant
        self.written.update_func(variable, planned)

    @property
    def lent_to(self) -> frozenset[str]:
        """The functions that work in a caller's arena."""
        placements = (p for plan in self.plans.values() for a in plan.arenas for p in a.placements)
        return frozenset(p.buffer.callee for p in placements if p.buffer.callee is not None)

    def context(self, name: str, plan: Plan, function: relax.Function) -> EmitContext:
        found = offset_uses(self.analyses[name], self.kernels.positions, _away(plan))
        for kernel, positions in found.offset_parameters.items():
            self.offset_parameters[kernel] = self.offset_parameters.get(kernel, frozenset()) | positions
        fallback = self.kind == "fallback" and any(g.defined_by is None for g in plan.guards)
        return EmitContext(
            needs_zero_offset=found.needs_zero_offset,
            guards=self.guards,
            callees=self.callees,
            unplanned=self.unplanned(name, plan, function) if fallback else None,
            addresses=self.addresses,
            keeps_reshapes=self.keeps_reshapes,
        )

    def unplanned(self, name: str, plan: Plan, function: relax.Function) -> GlobalVar:
        """Add what runs where a guard fails: the function as it was, its match_casts checked alike."""
        bare = replace(plan, arenas=(), guards=())
        context = EmitContext(guards=self.guards, keeps_reshapes=self.keeps_reshapes)
        written = emit_function(function, self.analyses[name].cfg, bare, context)
        bare_copy = copied(written)
        if bare_copy is None:
            problem = f"TVM cannot copy `{name}` for a fallback: a type in it holds a call (if_then_else)"
            raise PlanRefusedError(f"{problem}; choose other guards")
        return self.add(f"{name}_unplanned", bare_copy)

    def variant(
        self, name: str, function: relax.Function, plan: Plan, context: EmitContext
    ) -> GlobalVar | None:
        """Add the variant of a function that works in arenas which its callers bring; None where TVM cannot
        copy the function, which then works in arenas of its own.
        """
        cfg = self.analyses[name].cfg
        prims = PrimBuilder(dict(entry_symbols(function, cfg.function)))
        arenas = [
            relax.Var(f"arena{i}", relax.TensorType([prims(arena.size)], "uint8"))
            for i, arena in enumerate(plan.entry_arenas)
        ]
        written = emit_function(function, cfg, plan, replace(context, arenas=arenas))
        variant = copied(written)
        return None if variant is None else self.add(f"{name}_in_arena", variant)

    def add(self, name: str, function: Node) -> GlobalVar:
        """Add a function that only the module itself calls."""
        private = function.without_attr("global_symbol")
        # a builder gives the variable its type; one that held the module would look through all of it
        variable = relax.BlockBuilder().add_func(private, self.guards.free_name(name))
        self.written.update_func(variable, private)
        return variable

    def finished(self) -> tvm.IRModule:
        """The module, with the kernels that were found wanting, less what nothing refers to any more."""
        module = self.written
        for name, kernel in self.guards.kernels.items():
            module[name] = kernel
        for name, positions in self.offset_parameters.items():
            variable = self.globals[name]
            module.update_func(variable, with_offsets(self.module[variable], positions))
        for name in self.callees:
            if self.analyses[name].cfg.function.private and name not in referenced(module):
                module = without(module, {name})
        return module


def _away(plan: Plan) -> frozenset[Var]:
    """The allocations that may lie elsewhere than at the start of their storage."""
    placed = (p for arena in plan.arenas for p in arena.placements)
    return frozenset(p.buffer.var for p in placed if p.buffer.var is not None and p.offset.as_constant != 0)
