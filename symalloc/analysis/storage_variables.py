"""The variables of a function that hold storages which it does not reserve itself."""

from __future__ import annotations

from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph


def storage_variables(cfg: ControlFlowGraph) -> frozenset[ir.Var]:
    """The parameters and results of calls on which the function places tensors, under whatever name."""
    reserved: set[ir.Operand] = set()
    pending: list[ir.Operand] = []
    for _, made in cfg.instructions:
        if type(made) is ir.AllocStorage:
            reserved.add(made.var)
        elif type(made) is ir.AllocTensor and type(made.storage) is ir.Var and made.storage not in reserved:
            pending.append(made.storage)
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
