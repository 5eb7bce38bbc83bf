"""Faults between functions, and at what leaves them."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tests.mutation.editable import EditableFunction, Sequence, Step
from tests.mutation.operators.places import (
    ALLOC_STORAGE,
    ALLOC_TENSOR,
    Drawn,
    at_one_of,
    drop_storage_kills,
    set_argument,
    storages_first,
)

__all__ = ["drop_check", "kill_parameter", "share_results", "shrink_argument", "swap_arguments"]


def swap_arguments(function: EditableFunction, random: Random) -> str | None:
    """Exchange two arguments of the same type in a call of a Relax function."""
    calls = function.find(lambda s: s.calls_global() and s.operator not in function.kernels)
    pairs = [
        (step, a, b, one, two)
        for step in (s.steps[i] for s, i in calls)
        for (a, one), (b, two) in combinations(enumerate(step.value.args), 2)
        if tvm_ffi.structural_equal(one.ty, two.ty) and not one.same_as(two)
    ]
    if not pairs:
        return None
    step, a, b, one, two = random.choice(pairs)
    set_argument(step, a, two)
    set_argument(step, b, one)
    return f"{step.operator}: arguments {a} and {b} exchanged"


def kill_parameter(function: EditableFunction, random: Random) -> str | None:
    """Kill a parameter of the function somewhere."""
    params = [p for p in function.original.params if isinstance(p.ty, relax.TensorType)]
    if not params or not function.body.steps:
        return None
    param, to = random.choice(params), random.randint(0, len(function.body.steps))
    kill = relax.Call(tvm.ir.Op.get("relax.memory.kill_tensor"), [param])
    function.body.steps.insert(to, Step(relax.Var("killed", relax.TupleType([])), kill))
    return f"parameter {param.name} killed at step {to}"


def share_results(function: EditableFunction, random: Random) -> str | None:
    """Put two results on one storage that is large enough for both, at one offset."""
    placed = {s.var: s for s in function.body.steps if s.operator == ALLOC_TENSOR}
    storages = {s.var: s for s in function.body.steps if s.operator == ALLOC_STORAGE}
    results = [placed[v] for v in _results(function.body) if v in placed]
    results = [s for s in results if s.value.args[0] in storages]
    pairs = [(a, b) for a, b in combinations(results, 2) if not a.value.args[0].same_as(b.value.args[0])]
    if not pairs:
        return None
    drop_storage_kills(function)
    one, two = random.choice(pairs)
    storage, other = storages[one.value.args[0]], storages[two.value.args[0]]
    size = storage.value.args[0].values[0] + other.value.args[0].values[0]
    set_argument(storage, 0, relax.ShapeExpr([size]))
    set_argument(two, 0, storage.var)
    set_argument(two, 1, one.value.args[1])
    storages_first(function.body)
    return f"{two.var.name} on the storage of {one.var.name}"


def _results(body: Sequence) -> list[Any]:
    """The variables behind the result, through tuples and second names."""
    named = {s.var: s.value for s in body.steps}
    pending, found = [body.result], []
    while pending:
        value = pending.pop()
        if type(value).__name__ == "Tuple":
            pending += list(value.fields)
        elif type(value).__name__ == "Var":
            behind = named.get(value)
            if type(behind).__name__ in ("Var", "Tuple"):
                pending.append(behind)
            else:
                found.append(value)
    return found


def shrink_argument(function: EditableFunction, random: Random) -> str | None:
    """Hand a callee a storage of half the size."""
    handed = {
        a
        for s, i in function.find(lambda s: s.calls_global() and s.operator not in function.kernels)
        for a in s.steps[i].value.args
        if type(a).__name__ == "Var"
    }
    places = function.find(lambda s: s.operator == ALLOC_STORAGE and s.var in handed)
    if not places:
        return None
    step = Drawn(function, random, *random.choice(places)).step
    size = step.value.args[0].values[0]
    smaller = random.choice([tvm.tirx.floordiv(size, 2), size - 4])
    set_argument(step, 0, relax.ShapeExpr([smaller]))
    return f"{step.var.name}, handed on: {size} -> {smaller}"


@at_one_of(test=lambda s: s.cast is not None or "assert" in s.operator)
def drop_check(check: Drawn) -> str | None:
    """Leave out an assertion, or what a match_cast checks."""
    step = check.step
    if step.cast is None:
        del check.sequence.steps[check.index]
        return f"{step.operator} at step {check.index} dropped"
    if not isinstance(step.value.ty, type(step.cast)):
        return None
    step.cast = None
    return f"match_cast to {step.var.name} dropped"
