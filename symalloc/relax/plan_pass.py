"""PlanMemory: the pass that stands where TVM's StaticPlanBlockMemory stands."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from symalloc.plan.model import Plan
from symalloc.plan.planner import plan_function
from symalloc.plan.validate import PlanRefusedError
from symalloc.program.model import Function, Origin
from symalloc.program.types import ShapeType, TensorType, TupleType, Type
from symalloc.prove.prover import Prover
from symalloc.relax.emit import emit_function
from symalloc.relax.extract import extract
from symalloc.size.expr import Expr

__all__ = ["PlanMemory", "PlannedModule", "plan_lowered"]

tvm_ffi.register_error(PlanRefusedError)  # or it leaves TVM's pass runner as a RuntimeError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModule:
    """A module with its plans written into it, and the plans by function name."""

    module: tvm.IRModule
    plans: Mapping[str, Plan]


def plan_lowered(module: tvm.IRModule, prover: Prover | None = None) -> PlannedModule:
    """Plans every Relax function of a module as CallTIRRewrite leaves it.

    Raises PlanRefusedError where a plan cannot be proved.
    """
    prover = prover or Prover()
    program = extract(module, name="module", stage="CallTIRRewrite")
    plans: dict[str, Plan] = {}
    planned = module.clone()
    for variable, function in module.functions_items():
        seen = program.functions.get(variable.name_hint)
        if seen is None or not isinstance(function, relax.Function):
            continue
        variables = entry_symbols(function, seen)
        plan = plan_function(_only(seen, variables), program, prover)
        plans[plan.function] = plan
        planned.update_func(variable, emit_function(function, seen, plan, variables))
    return PlannedModule(module=planned, plans=plans)


def entry_symbols(function: relax.Function, seen: Function) -> Mapping[str, Any]:
    """The symbolic variables that the parameters of `function` define, by the names that `seen` gives them.

    Variables may share a name in TVM, so they are paired by where they stand in the parameters' types.
    """
    found: dict[str, Any] = {}
    for param, var in zip(function.params, seen.params, strict=True):
        found.update(_paired(param.ty, var.type))
    return found


def _paired(theirs: Any, ours: Type) -> Iterator[tuple[str, Any]]:
    match ours:
        case TupleType(fields=fields):
            for one, other in zip(theirs.fields, fields, strict=True):
                yield from _paired(one, other)
        case TensorType(shape=extents) if extents is not None:
            yield from _paired_extents(theirs.shape.values, extents)
        case ShapeType(values=extents) if extents is not None:
            yield from _paired_extents(theirs.values, extents)


def _paired_extents(theirs: Any, ours: tuple[Expr, ...]) -> Iterator[tuple[str, Any]]:
    for one, other in zip(theirs, ours, strict=True):
        name = other.as_symbol
        if name is not None and isinstance(one, relax.Var):
            yield name, one


def _only(seen: Function, names: Container[str]) -> Function:
    """`seen` with every dimension that is not among `names` counted as undefined: nothing is sized by it."""
    origins = {
        name: Origin.UNDEFINED if origin is Origin.DIMENSION and name not in names else origin
        for name, origin in seen.symbols.items()
    }
    return replace(seen, symbols=origins)


@tvm.transform.module_pass(opt_level=0, name="PlanMemory")
class PlanMemory:
    """Plans memory: one proved arena per function, device and scope.

    Stands in a pipeline in place of StaticPlanBlockMemory, behind CallTIRRewrite.  Raises
    PlanRefusedError where a plan cannot be proved; nothing unproved is emitted.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its plans written into it."""
        return plan_lowered(module).module
