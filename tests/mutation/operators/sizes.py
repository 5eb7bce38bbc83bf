"""Faults in sizes, shapes, element types and offsets."""

from __future__ import annotations

from random import Random
from typing import Any

import tvm
from tvm import relax
from tvm.script import relax as R  # noqa: N812

from tests.mutation.editable import EditableFunction, Step, inline_sizes
from tests.mutation.operators.places import (
    ALLOC_STORAGE,
    ALLOC_TENSOR,
    VIEWS,
    draw,
    named,
    retype,
    set_argument,
)

__all__ = [
    "change_dtype",
    "grow_shape",
    "grow_storage",
    "grow_view",
    "share_offset",
    "shift_offset",
    "shift_shared_offset",
    "shrink_storage",
    "swap_symbol",
]


def shrink_storage(function: EditableFunction, random: Random) -> str | None:
    """Reserve less: a half, a byte less, 64 bytes less, or the bytes of one position only."""
    found = draw(function.find(named(ALLOC_STORAGE)), random)
    if found is None:
        return None
    step = found[2]
    size = step.value.args[0].values[0]
    smaller = random.choice([tvm.tirx.floordiv(size, 2), size - 1, size - 64, tvm.tirx.const(16, "int64")])
    set_argument(step, 0, relax.ShapeExpr([smaller]))
    return f"{step.var.name}: {size} -> {smaller}"


def grow_storage(function: EditableFunction, random: Random) -> str | None:
    """Reserve more: harmless."""
    found = draw(function.find(named(ALLOC_STORAGE)), random)
    if found is None:
        return None
    step = found[2]
    size = step.value.args[0].values[0]
    larger = random.choice([size * 2, size + 64])
    set_argument(step, 0, relax.ShapeExpr([larger]))
    return f"{step.var.name}: {size} -> {larger}"


def grow_shape(function: EditableFunction, random: Random) -> str | None:
    """Make one extent of a tensor larger: by one, or twice."""
    inline_sizes(function.body)
    found = draw(
        function.find(lambda s: s.operator == ALLOC_TENSOR and len(s.value.args[2].values) > 0), random
    )
    if found is None:
        return None
    step = found[2]
    shape = list(step.value.args[2].values)
    axis = random.randrange(len(shape))
    shape[axis] = random.choice([shape[axis] + 1, shape[axis] * 2])
    set_argument(step, 2, relax.ShapeExpr(shape))
    retype(function, step, shape, str(step.value.args[3].value))
    return f"{step.var.name}: extent {axis} -> {shape[axis]}"


def swap_symbol(function: EditableFunction, random: Random) -> str | None:
    """Put another symbol, or a constant, for a symbol in the size of a storage or the shape of a tensor."""
    inline_sizes(function.body)
    found = draw(function.find(lambda s: s.operator in (ALLOC_STORAGE, ALLOC_TENSOR) and _symbols(s)), random)
    if found is None:
        return None
    step = found[2]
    index = 0 if step.operator == ALLOC_STORAGE else 2
    old = random.choice(_symbols(step))
    params = function.original.params
    known = [v for p in params for v in relax.analysis.tir_vars_in_type(p.ty)]
    others = [v for v in known if not v.same_as(old)]
    new = random.choice([*others, tvm.tirx.const(4, "int64")])
    shape = [_substitute(e, old, new) for e in step.value.args[index].values]
    set_argument(step, index, relax.ShapeExpr(shape))
    if index == 2:
        retype(function, step, shape, str(step.value.args[3].value))
    return f"{step.var.name}: {old} -> {new}"


def _symbols(step: Step) -> list[Any]:
    shape = step.value.args[0 if step.operator == ALLOC_STORAGE else 2]
    if not isinstance(shape, relax.ShapeExpr):
        return []
    return [v for e in shape.values for v in tvm.tirx.analysis.undefined_vars(e)]


def _substitute(expression: Any, old: Any, new: Any) -> Any:
    if type(expression).__name__ == "Var":
        return new if expression.same_as(old) else expression
    if hasattr(expression, "a") and hasattr(expression, "b"):
        return type(expression)(_substitute(expression.a, old, new), _substitute(expression.b, old, new))
    return expression


def shift_offset(function: EditableFunction, random: Random) -> str | None:
    """Move a tensor or a view in its storage: up by 64, 32 or 1 bytes, or in front of it."""
    places = function.find(named(ALLOC_TENSOR)) + function.find(named(*VIEWS))
    found = draw(places, random)
    if found is None:
        return None
    step = found[2]
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
    found = draw(placed, random)
    if found is None:
        return None
    step = found[2]
    others = [s.steps[i] for s, i in placed]
    donors = [d for d in others if str(d.value.args[index]) != str(step.value.args[index])]
    donors = [d for d in donors if _is_outermost(function, d.value.args[index])]
    if not donors:
        return None
    donor = random.choice(donors)
    set_argument(step, index, donor.value.args[index])
    return f"{step.var.name}: offset of {donor.var.name}"


def _is_outermost(function: EditableFunction, offset: Any) -> bool:
    """Whether an offset is known wherever a tensor may stand: no variable of its own holds it."""
    held = {s.var for sequence in function.sequences() for s in sequence.steps}
    return type(offset).__name__ != "Var" or offset not in held


def shift_shared_offset(function: EditableFunction, random: Random) -> str | None:
    """Change an offset that several tensors share: by 64, 32 or 1 bytes, or to nothing."""
    found = draw(function.find(lambda s: isinstance(s.var.ty, tvm.ir.PrimType)), random)
    if found is None:
        return None
    step = found[2]
    by = random.choice([64, 32, 1, -64, None])
    step.value = relax.prim_value(0 if by is None else step.value + by)
    return f"{step.var.name}: {'0' if by is None else f'{by:+}'}"


def grow_view(function: EditableFunction, random: Random) -> str | None:
    """Make one extent of a view larger."""
    inline_sizes(function.body)
    found = draw(function.find(named(*VIEWS)), random)
    if found is None:
        return None
    step = found[2]
    shape = list(step.value.args[1].values)
    axis = random.randrange(len(shape))
    shape[axis] = random.choice([shape[axis] + 1, shape[axis] * 2])
    set_argument(step, 1, relax.ShapeExpr(shape))
    retype(function, step, shape, str(step.value.args[2].value))
    return f"{step.var.name}: extent {axis} -> {shape[axis]}"


def change_dtype(function: EditableFunction, random: Random) -> str | None:
    """Give a tensor another element type."""
    inline_sizes(function.body)
    found = draw(function.find(named(ALLOC_TENSOR)), random)
    if found is None:
        return None
    step = found[2]
    old = str(step.value.args[3].value)
    new = random.choice([d for d in ("float16", "float64", "int32", "float32") if d != old])
    set_argument(step, 3, R.dtype(new))
    retype(function, step, list(step.value.args[2].values), new)
    return f"{step.var.name}: {old} -> {new}"
