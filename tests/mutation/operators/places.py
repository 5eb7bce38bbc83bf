"""What the operators share: finding steps, drawing one, changing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from random import Random
from typing import Any, TypeAlias

from tvm import relax

from tests.mutation.editable import EditableFunction, Sequence, Step, inline_sizes, with_arguments

__all__ = [
    *("ALLOC_STORAGE", "ALLOC_TENSOR", "KILLS", "VIEWS", "Drawn", "Operator"),
    *(
        "allocate_first",
        "at_one_of",
        "drop_storage_kills",
        "named",
        "retype",
        "set_argument",
        "storages_first",
    ),
]

Operator: TypeAlias = Callable[[EditableFunction, Random], str | None]
"""Changes the function, and says what it changed; None where there is nothing of the kind."""

ALLOC_STORAGE = "relax.memory.alloc_storage"
ALLOC_TENSOR = "relax.memory.alloc_tensor"
# the operator, and the function of the runtime that it becomes: same arguments
VIEWS = ("relax.memory.view", "runtime.TVMTensorCreateView")
KILLS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


@dataclass(frozen=True, slots=True)
class Drawn:
    """The step that an operator is to change, and where it stands."""

    function: EditableFunction
    random: Random
    sequence: Sequence
    index: int

    @property
    def step(self) -> Step:
        """The step."""
        return self.sequence.steps[self.index]

    def insert(self, at: int, name: str, value: Any, ty: Any = None) -> None:
        """Put another step into the same sequence."""
        self.sequence.steps.insert(at, Step(relax.Var(name, ty or relax.TupleType([])), value))


def at_one_of(
    *names: str, test: Callable[[Step], bool] | None = None, inlined: bool = False
) -> Callable[[Callable[[Drawn], str | None]], Operator]:
    """An operator that changes one of the steps that apply one of `names`, or satisfy `test`.

    `inlined`: sizes and offsets are written out first.
    """

    def operator(change: Callable[[Drawn], str | None]) -> Operator:
        @wraps(change)
        def apply(function: EditableFunction, random: Random) -> str | None:
            if inlined:
                inline_sizes(function.body)
            places = function.find(test or named(*names))
            return change(Drawn(function, random, *random.choice(places))) if places else None

        return apply

    return operator


def named(*names: str) -> Callable[[Step], bool]:
    """The test for steps that apply one of the operators."""
    return lambda step: step.operator in names


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


def storages_first(sequence: Sequence) -> None:
    """Move the storages of a sequence to its front."""
    sequence.steps.sort(key=lambda s: s.operator != ALLOC_STORAGE)


def allocate_first(sequence: Sequence) -> None:
    """Move the allocations of a sequence to its front: nothing is written earlier or later by that."""
    sequence.steps.sort(key=lambda s: s.operator not in (ALLOC_STORAGE, ALLOC_TENSOR))
