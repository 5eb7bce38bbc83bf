"""Faults in what is called with what, and in which order."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tvm import relax

from tests.mutation.editable import EditableFunction, Sequence, Step, inline_sizes
from tests.mutation.operators.places import Drawn, allocate_first, at_one_of, drop_storage_kills, set_argument

SIZES = "vm.builtin.alloc_shape_heap"  # the machine's table of sizes, no tensor of the program

__all__ = ["reorder_calls", "replace_argument"]


@at_one_of(test=Step.calls_global)
def replace_argument(call: Drawn) -> str | None:
    """Hand a call another tensor that is in scope."""
    step = call.step
    tensors = [
        s.var
        for s in call.sequence.steps[: call.index]
        if isinstance(s.var.ty, relax.TensorType) and SIZES not in str(s.value)
    ]
    arguments = [i for i, a in enumerate(step.value.args) if isinstance(a.ty, relax.TensorType)]
    if not tensors or not arguments:
        return None
    position, other = call.random.choice(arguments), call.random.choice(tensors)
    old = step.value.args[position]
    if other.same_as(old):
        return None
    set_argument(step, position, other)
    return f"{step.operator}: argument {position}, {getattr(old, 'name', 'a constant')} -> {other.name}"


def reorder_calls(function: EditableFunction, random: Random) -> str | None:
    """Exchange two calls that both have their arguments before the first."""
    inline_sizes(function.body)
    drop_storage_kills(function)
    places = []
    for sequence in function.sequences():
        allocate_first(sequence)
        calls = [i for i, s in enumerate(sequence.steps) if s.calls_global()]
        places += [(sequence, one, two) for one, two in pairwise(calls) if _free(sequence, one, two)]
    if not places:
        return None
    sequence, one, two = random.choice(places)
    steps = sequence.steps
    steps[one], steps[two] = steps[two], steps[one]
    return f"{steps[two].operator} <-> {steps[one].operator}"


def _free(sequence: Sequence, one: int, two: int) -> bool:
    """Whether nothing that the steps from `one` on define is an argument of step `two`."""
    defined = {s.var for s in sequence.steps[one:two]}
    return not any(type(a).__name__ == "Var" and a in defined for a in sequence.steps[two].value.args)
