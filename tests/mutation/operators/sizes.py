"""Faults in sizes, shapes, element types and offsets."""

from __future__ import annotations

from random import Random
from typing import Any

import tvm
from tvm import relax
from tvm.script import relax as R  # noqa: N812

from tests.mutation.editable import EditableFunction, Step
from tests.mutation.operators.places import (
    ALLOC_STORAGE,
    ALLOC_TENSOR,
    VIEWS,
    Drawn,
    at_one_of,
    named,
    retype,
    set_argument,
)

__all__ = [
    *("change_dtype", "grow_shape", "grow_storage", "grow_view", "share_offset", "shift_offset"),
    *("shift_shared_offset", "shrink_storage", "swap_symbol"),
]


@at_one_of(ALLOC_STORAGE)
def shrink_storage(storage: Drawn) -> str:
    """Reserve less: a half, a byte less, 64 bytes less, or the bytes of one position only."""
    size = storage.step.value.args[0].values[0]
    return _resized(storage, tvm.tirx.floordiv(size, 2), size - 1, size - 64, tvm.tirx.const(16, "int64"))


@at_one_of(ALLOC_STORAGE)
def grow_storage(storage: Drawn) -> str:
    """Reserve more: harmless."""
    size = storage.step.value.args[0].values[0]
    return _resized(storage, size * 2, size + 64)


def _resized(storage: Drawn, *sizes: Any) -> str:
    step, new = storage.step, storage.random.choice(sizes)
    old = step.value.args[0].values[0]
    set_argument(step, 0, relax.ShapeExpr([new]))
    return f"{step.var.name}: {old} -> {new}"


@at_one_of(test=lambda s: s.operator == ALLOC_TENSOR and len(s.value.args[2].values) > 0, inlined=True)
def grow_shape(tensor: Drawn) -> str:
    """Make one extent of a tensor larger: by one, or twice."""
    return _grown(tensor, 2)


@at_one_of(*VIEWS, inlined=True)
def grow_view(view: Drawn) -> str:
    """Make one extent of a view larger."""
    return _grown(view, 1)


def _grown(tensor: Drawn, argument: int) -> str:
    """The shape is this argument, the element type the next one."""
    step, random = tensor.step, tensor.random
    shape = list(step.value.args[argument].values)
    axis = random.randrange(len(shape))
    shape[axis] = random.choice([shape[axis] + 1, shape[axis] * 2])
    set_argument(step, argument, relax.ShapeExpr(shape))
    retype(tensor.function, step, shape, str(step.value.args[argument + 1].value))
    return f"{step.var.name}: extent {axis} -> {shape[axis]}"


def _symbols(step: Step) -> list[Any]:
    """The symbols in the size of a storage, or the shape of a tensor."""
    if step.operator not in (ALLOC_STORAGE, ALLOC_TENSOR):
        return []
    shape = step.value.args[0 if step.operator == ALLOC_STORAGE else 2]
    if not isinstance(shape, relax.ShapeExpr):
        return []
    return [v for e in shape.values for v in tvm.tirx.analysis.undefined_vars(e)]


@at_one_of(test=lambda s: bool(_symbols(s)), inlined=True)
def swap_symbol(sized: Drawn) -> str:
    """Put another symbol, or a constant, for a symbol in the size of a storage or the shape of a tensor."""
    step, random = sized.step, sized.random
    index = 0 if step.operator == ALLOC_STORAGE else 2
    old = random.choice(_symbols(step))
    params = sized.function.original.params
    known = [v for p in params for v in relax.analysis.tir_vars_in_type(p.ty)]
    new = random.choice([*(v for v in known if not v.same_as(old)), tvm.tirx.const(4, "int64")])
    shape = [_substitute(e, old, new) for e in step.value.args[index].values]
    set_argument(step, index, relax.ShapeExpr(shape))
    if index == 2:
        retype(sized.function, step, shape, str(step.value.args[3].value))
    return f"{step.var.name}: {old} -> {new}"


def _substitute(expression: Any, old: Any, new: Any) -> Any:
    if type(expression).__name__ == "Var":
        return new if expression.same_as(old) else expression
    if hasattr(expression, "a") and hasattr(expression, "b"):
        return type(expression)(_substitute(expression.a, old, new), _substitute(expression.b, old, new))
    return expression


def shift_offset(function: EditableFunction, random: Random) -> str | None:
    """Move a tensor or a view in its storage: up by 64, 32 or 1 bytes, or in front of it."""
    places = function.find(named(ALLOC_TENSOR)) + function.find(named(*VIEWS))
    if not places:
        return None
    step = Drawn(function, random, *random.choice(places)).step
    index = 1 if step.operator == ALLOC_TENSOR else 3
    offset = step.value.args[index]
    by = random.choice([64, 32, 1, -64, -4096])
    base = 0 if type(offset).__name__ == "Tuple" else offset
    set_argument(step, index, relax.prim_value(base + by) if isinstance(base, int) else base + by)
    return f"{step.var.name}: offset {by:+}"


def share_offset(function: EditableFunction, random: Random) -> str | None:
    """Give a tensor, or a view, the offset of another one."""
    index, placed = 1, function.find(named(ALLOC_TENSOR))
    views = function.find(named(*VIEWS))
    if views and random.random() < 0.5:
        index, placed = 3, views
    if not placed:
        return None
    step = Drawn(function, random, *random.choice(placed)).step
    held = {s.var for sequence in function.sequences() for s in sequence.steps}
    donors = [
        donor
        for donor in (s.steps[i] for s, i in placed)
        if str(donor.value.args[index]) != str(step.value.args[index])
        # an offset that a variable of its own holds is not known wherever a tensor may stand
        and not (type(donor.value.args[index]).__name__ == "Var" and donor.value.args[index] in held)
    ]
    if not donors:
        return None
    donor = random.choice(donors)
    set_argument(step, index, donor.value.args[index])
    return f"{step.var.name}: offset of {donor.var.name}"


@at_one_of(test=lambda s: isinstance(s.var.ty, tvm.ir.PrimType))
def shift_shared_offset(offset: Drawn) -> str:
    """Change an offset that several tensors share: by 64, 32 or 1 bytes, or to nothing."""
    step, by = offset.step, offset.random.choice([64, 32, 1, -64, None])
    step.value = relax.prim_value(0 if by is None else step.value + by)
    return f"{step.var.name}: {'0' if by is None else f'{by:+}'}"


@at_one_of(ALLOC_TENSOR, inlined=True)
def change_dtype(tensor: Drawn) -> str:
    """Give a tensor another element type."""
    step = tensor.step
    old = str(step.value.args[3].value)
    new = tensor.random.choice([d for d in ("float16", "float64", "int32", "float32") if d != old])
    set_argument(step, 3, R.dtype(new))
    retype(tensor.function, step, list(step.value.args[2].values), new)
    return f"{step.var.name}: {old} -> {new}"
