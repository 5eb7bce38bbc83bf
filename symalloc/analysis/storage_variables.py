"""The variables of a function that hold storages which it does not reserve itself."""

from __future__ import annotations

from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph


def storage_variables(cfg: ControlFlowGraph) -> frozenset[ir.Var]:
    """The parameters and results of calls on which the function places tensors, under whatever name."""
    tensors = cfg.of_type(ir.AllocTensor)
    if not tensors:
        return frozenset()
    reserved = {made.var for _, made in cfg.of_type(ir.AllocStorage)}
    placed = dict.fromkeys(made.storage for _, made in tensors)
    pending: list[ir.Operand] = [s for s in placed if isinstance(s, ir.Var) and s not in reserved]
    seen: set[ir.Var] = set()
    while pending:
        operand = pending.pop()
        if isinstance(operand, ir.TupleValue):
            pending.extend(operand.items)
        elif isinstance(operand, ir.Var) and operand not in seen:
            seen.add(operand)
            pending.extend(_sources(cfg.definitions.get(operand)))
    return frozenset(seen)


def _sources(made: ir.Instruction | None) -> tuple[ir.Operand, ...]:
    """The operands that the value of an instruction may be."""
    match made:
        case ir.Alias(source=source) | ir.MatchCast(source=source) | ir.TakeField(source=source):
            return (source,)
        case ir.MakeTuple(fields=fields):
            return fields
        case ir.If(then=then, otherwise=otherwise):
            return then.result, otherwise.result
    return ()
