"""Faults in what is read behind a call that works in place, in a module whose calls still say so."""

from __future__ import annotations

from random import Random
from typing import Any

from tvm import relax

from tests.mutation.editable import EditableFunction, Sequence, Step
from tests.mutation.operators.places import named, set_argument

__all__ = ["read_operand_later"]


def read_operand_later(function: EditableFunction, random: Random) -> str | None:
    """Let a call behind one in place read the operand; the reference reads a copy from before."""
    places = [
        (sequence, index, later, position, operand)
        for sequence, index in function.find(named("relax.call_tir_inplace"))
        for operand in _operands(sequence.steps[index].value)
        for later in range(index + 1, len(sequence.steps))
        for position, argument in enumerate(_arguments(sequence.steps[later]))
        if type(argument).__name__ == "Var" and not argument.same_as(operand) and _alike(argument, operand)
    ]
    if not places:
        return None
    sequence, index, later, position, operand = random.choice(places)
    before = list(sequence.steps)
    step = sequence.steps[later]
    changed = Step(step.var, step.value)
    sequence.steps[later] = changed
    set_argument(changed, position, operand)
    copy = relax.Var(f"{operand.name}_before", operand.ty)
    saving = relax.BlockBuilder().normalize(relax.op.multiply(operand, _one(operand)))
    right = Step(step.var, step.value)
    set_argument(right, position, copy)
    reference = [*before[:index], Step(copy, saving), *before[index:later], right, *before[later + 1 :]]
    function.reference = Sequence(reference, function.body.result)
    return f"{step.operator} reads {operand.name} behind call {index}"


def _operands(call: Any) -> list[Any]:
    arguments = call.args[1].fields
    return [arguments[int(i)] for i in call.attrs.inplace_indices if int(i) >= 0]


def _arguments(step: Step) -> list[Any]:
    elementwise = step.operator in ("relax.add", "relax.multiply", "relax.exp")
    return list(step.value.args) if elementwise else []


def _alike(one: Any, two: Any) -> bool:
    return str(one.ty) == str(two.ty)


def _one(operand: Any) -> Any:
    return relax.const(1, str(operand.ty.dtype.dtype))
