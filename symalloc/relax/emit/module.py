"""Writes the plans of a program into its module: kernels that take offsets, functions, and their variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar
from tvm.relax.utils import copy_with_new_vars

from symalloc.planner.memory_plan import Arena, Plan
from symalloc.planner.options import GuardKind
from symalloc.program.model import Function, Program, Var
from symalloc.relax.emit.function import EmissionError, Surroundings, emit_function
from symalloc.relax.emit.guards import Check
from symalloc.relax.emit.movable import movable, with_offsets
from symalloc.relax.emit.settled import uses
from symalloc.relax.emit.symbols import entry_symbols
from symalloc.relax.emit.tir_emit import PrimBuilder
from symalloc.relax.ir_types import Node


def emit_module(
    module: tvm.IRModule,
    program: Program,
    plans: Mapping[str, Plan],
    *,
    guards: GuardKind = "assert",
    shift: bool = True,
) -> tvm.IRModule:
    """`module` with `plans` written into it; `plans` holds callees before their callers.

    Without `shift` every tensor that does not start its storage is settled at offset zero: for targets
    whose kernels have not been seen to take an offset.
    """
    emitter = _Emitter(module=module, program=program, plans=plans, guards=guards, shift=shift)
    for name, plan in plans.items():
        if any(arena.placements for arena in plan.arenas):
            emitter.function(name, plan)
    return emitter.finished()


@dataclass(slots=True, kw_only=True)
class _Emitter:
    module: tvm.IRModule
    program: Program
    plans: Mapping[str, Plan]
    guards: GuardKind
    shift: bool
    check: Check = field(init=False)
    written: tvm.IRModule = field(init=False)
    globals: dict[str, GlobalVar] = field(init=False)
    callees: dict[str, GlobalVar] = field(default_factory=dict)
    kernels: dict[str, frozenset[int]] = field(default_factory=dict)
    shifted: dict[str, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.globals = {v.name_hint: v for v in self.module.get_global_vars()}
        self.check = Check(kind=self.guards, taken=set(self.globals))
        self.written = self.module.clone()

    def function(self, name: str, plan: Plan) -> None:
        """Writes the plan of one function into it, and into a variant where callers lend their arenas."""
        seen, variable = self.program.functions[name], self.globals[name]
        function = self.module[variable]
        around = self.surroundings(seen, plan, function)
        if name in self.lent_to:
            self.callees[name] = self.variant(function, seen, plan, around)
        planned = emit_function(function, seen, plan, entry_symbols(function, seen), around)
        self.written.update_func(variable, planned)

    @property
    def lent_to(self) -> frozenset[str]:
        """The functions that work in a caller's arena."""
        placements = (p for plan in self.plans.values() for a in plan.arenas for p in a.placements)
        return frozenset(p.buffer.callee for p in placements if p.buffer.callee is not None)

    def surroundings(self, seen: Function, plan: Plan, function: relax.Function) -> Surroundings:
        found = uses(seen, self.movable, _away(plan))
        for kernel, positions in found.shifted.items():
            self.shifted[kernel] = self.shifted.get(kernel, frozenset()) | positions
        fallback = self.guards == "fallback" and any(g.after is None for g in plan.guards)
        unplanned = self.unplanned(seen, plan, function) if fallback else None
        return Surroundings(
            settled=found.settled, check=self.check, callees=self.callees, unplanned=unplanned
        )

    def unplanned(self, seen: Function, plan: Plan, function: relax.Function) -> GlobalVar:
        """Adds what runs where a guard fails: the function as it was, its match_casts checked alike."""
        copy = copy_with_new_vars(function).without_attr("global_symbol")
        bare = replace(plan, arenas=(), guards=())
        written = emit_function(copy, seen, bare, entry_symbols(copy, seen), Surroundings(check=self.check))
        return self.add(f"{seen.name}_unplanned", written)

    def movable(self, kernel: str) -> frozenset[int]:
        """The positions at which `kernel` can be made to take an offset."""
        if not self.shift:
            return frozenset()
        if kernel not in self.globals:
            raise EmissionError(f"the module holds no kernel `{kernel}`, which was planned for")
        if kernel not in self.kernels:
            function = self.module[self.globals[kernel]]
            self.kernels[kernel] = movable(function) if isinstance(function, tirx.PrimFunc) else frozenset()
        return self.kernels[kernel]

    def variant(
        self, function: relax.Function, seen: Function, plan: Plan, around: Surroundings
    ) -> GlobalVar:
        """Adds the variant of a function that works in arenas which its callers bring."""
        copy = copy_with_new_vars(function).without_attr("global_symbol")
        variables = entry_symbols(copy, seen)
        prims = PrimBuilder(dict(variables))
        arenas = [
            relax.Var(f"arena{i}", relax.TensorType([prims(arena.size)], "uint8"))
            for i, arena in enumerate(entry_arenas(plan))
        ]
        inside = Surroundings(
            settled=around.settled,
            check=self.check,
            callees=self.callees,
            arenas=arenas,
            unplanned=around.unplanned,
        )
        return self.add(f"{seen.name}_in_arena", emit_function(copy, seen, plan, variables, inside))

    def add(self, name: str, function: Node) -> GlobalVar:
        """Adds a function that only the module itself calls."""
        private = function.without_attr("global_symbol")
        # a builder gives the variable its type; one that held the module would look through all of it
        variable = relax.BlockBuilder().add_func(private, self.check.free_name(name))
        self.written.update_func(variable, private)
        return variable

    def finished(self) -> tvm.IRModule:
        """The module, with the kernels that were found wanting, less what nothing refers to any more."""
        module = self.written
        for name, kernel in self.check.kernels.items():
            module[name] = kernel
        for name, positions in self.shifted.items():
            variable = self.globals[name]
            module.update_func(variable, with_offsets(self.module[variable], positions))
        for name in self.callees:
            if self.program.functions[name].private and name not in _called(module):
                module = _without(module, self.globals[name])
        return module


def entry_arenas(plan: Plan) -> tuple[Arena, ...]:
    """The arenas that are reserved at entry, which a caller can bring."""
    return tuple(arena for arena in plan.arenas if arena.after is None and arena.placements)


def _away(plan: Plan) -> frozenset[Var]:
    """The allocations that may lie elsewhere than at the start of their storage."""
    placed = (p for arena in plan.arenas for p in arena.placements)
    return frozenset(p.buffer.var for p in placed if p.buffer.var is not None and p.offset.as_constant != 0)


def _called(module: tvm.IRModule) -> frozenset[str]:
    """The names that Relax functions of `module` refer to."""
    return frozenset(_references(module))


def _references(module: tvm.IRModule) -> Iterator[str]:
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            yield from (v.name_hint for v in relax.analysis.all_global_vars(function))


def _without(module: tvm.IRModule, variable: GlobalVar) -> tvm.IRModule:
    kept = {v: f for v, f in module.functions_items() if not v.same_as(variable)}
    return tvm.IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)
