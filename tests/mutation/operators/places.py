"""What the operators share: finding steps, drawing one, changing it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tvm import relax

from tests.mutation.editable import EditableFunction, Sequence, Step, with_arguments

__all__ = [
    "ALLOC_STORAGE",
    "ALLOC_TENSOR",
    "KILLS",
    "VIEWS",
    "Place",
    "allocate_first",
    "draw",
    "drop_storage_kills",
    "named",
    "retype",
    "set_argument",
]

Place = tuple[Sequence, int]

ALLOC_STORAGE = "relax.memory.alloc_storage"
ALLOC_TENSOR = "relax.memory.alloc_tensor"
# the operator, and the function of the runtime that it becomes: same arguments
VIEWS = ("relax.memory.view", "runtime.TVMTensorCreateView")
KILLS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


def named(*names: str) -> Callable[[Step], bool]:
    """The test for steps that apply one of the operators."""
    return lambda step: step.operator in names


def draw(places: list[Place], random: Random) -> tuple[Sequence, int, Step] | None:
    """One of the places with the step that stands there; None of none."""
    if not places:
        return None
    sequence, index = random.choice(places)
    return sequence, index, sequence.steps[index]


def set_argument(step: Step, index: int, argument: Any) -> None:
    """Exchange one argument of the step's call."""
    arguments = list(step.value.args)
    arguments[index] = argument
    step.value = with_arguments(step.value, arguments)


def retype(function: EditableFunction, step: Step, shape: list[Any], dtype: str) -> None:
    """Give the step's variable the type that its changed value has."""
    ty = relax.TensorType(relax.ShapeExpr(shape), dtype)
    function.renamed[step.var] = relax.Var(step.var.name, ty)
    for sequence, index in function.find(named("relax.memory.ensure_zero_offset")):
        follower = sequence.steps[index]
        if follower.value.args[0].same_as(step.var):
            function.renamed[follower.var] = relax.Var(follower.var.name, ty)


def drop_storage_kills(function: EditableFunction) -> None:
    """Leave the handles of all storages in their registers."""
    for sequence in function.sequences():
        sequence.steps[:] = [s for s in sequence.steps if s.operator != "relax.memory.kill_storage"]


def allocate_first(sequence: Sequence) -> None:
    """Move the allocations of a sequence to its front: nothing is written earlier or later by that."""
    front = [s for s in sequence.steps if s.operator in (ALLOC_STORAGE, ALLOC_TENSOR)]
    rest = [s for s in sequence.steps if s.operator not in (ALLOC_STORAGE, ALLOC_TENSOR)]
    sequence.steps[:] = front + rest
