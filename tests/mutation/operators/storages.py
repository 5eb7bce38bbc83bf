"""Faults in who lies where."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tvm import relax

from tests.mutation.editable import EditableFunction, inline_sizes
from tests.mutation.operators.places import (
    ALLOC_STORAGE,
    ALLOC_TENSOR,
    Drawn,
    allocate_first,
    at_one_of,
    drop_storage_kills,
    named,
    set_argument,
    storages_first,
)

__all__ = ["alloc_in_other_branch", "merge_storages", "retarget_tensor", "retarget_to_live", "swap_storages"]


@at_one_of(ALLOC_TENSOR)
def retarget_tensor(tensor: Drawn) -> str | None:
    """Put a tensor on another storage that was reserved before it, killed or not."""
    step, old = tensor.step, tensor.step.value.args[0]
    before = (s for s in tensor.sequence.steps[: tensor.index] if s.operator == ALLOC_STORAGE)
    storages = [s.var for s in before if not s.var.same_as(old)]
    if not storages:
        return None
    other = tensor.random.choice(storages)
    set_argument(step, 0, other)
    return f"{step.var.name}: {old.name} -> {other.name}"


def retarget_to_live(function: EditableFunction, random: Random) -> str | None:
    """Put a tensor on another storage whose handle is kept for it."""
    change = retarget_tensor(function, random)
    if change is not None:
        drop_storage_kills(function)
    return change


def swap_storages(function: EditableFunction, random: Random) -> str | None:
    """Two storages change places in all that is placed on them."""
    inline_sizes(function.body)
    drop_storage_kills(function)
    allocate_first(function.body)
    storages = [s.var for s in function.body.steps if s.operator == ALLOC_STORAGE]
    if len(storages) < 2:
        return None
    one, two = random.sample(storages, 2)
    swap: Mapping[Any, Any] = {one: two, two: one}
    for sequence, index in function.find(named(ALLOC_TENSOR)):
        step = sequence.steps[index]
        set_argument(step, 0, swap.get(step.value.args[0], step.value.args[0]))
    storages_first(function.body)
    return f"{one.name} <-> {two.name}"


def merge_storages(function: EditableFunction, random: Random) -> str | None:
    """All on one storage goes to another, made as large as both: only lifetimes are at stake."""
    drop_storage_kills(function)
    storages = [s for s in function.body.steps if s.operator == ALLOC_STORAGE]
    if len(storages) < 2:
        return None
    one, two = random.sample(storages, 2)
    size = one.value.args[0].values[0] + two.value.args[0].values[0]
    set_argument(one, 0, relax.ShapeExpr([size]))
    for sequence, index in function.find(named(ALLOC_TENSOR)):
        step = sequence.steps[index]
        if step.value.args[0].same_as(two.var):
            set_argument(step, 0, one.var)
    storages_first(function.body)
    return f"{two.var.name} into {one.var.name}"


def alloc_in_other_branch(function: EditableFunction, random: Random) -> str | None:
    """Move an allocation from one side of an If to the other."""
    inline_sizes(function.body)
    sides = [step.branches for s in function.sequences() for step in s.steps if step.branches]
    moves = [
        (a, b, i)
        for pair in sides
        for a, b in (pair, pair[::-1])
        for i, step in enumerate(a.steps)
        if step.operator in (ALLOC_STORAGE, ALLOC_TENSOR)
    ]
    if not moves:
        return None
    source, target, index = random.choice(moves)
    step = source.steps.pop(index)
    target.steps.insert(0, step)
    return f"{step.var.name} moved to the other branch"
