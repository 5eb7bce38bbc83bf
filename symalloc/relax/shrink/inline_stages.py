"""Stages of a kernel written into those that read what they compute, where that changes no bit.

A compiler may contract a product and the sum that it goes into to one operation, which rounds once: so no
product is moved into a sum, whatever the target.  Numbers narrower than 32 bits are rounded where they are
stored, and often nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim

from symalloc.relax.ir_types import Node, VarNode, elements, same_extent
from symalloc.relax.shrink.kernel_stages import Stage, alike, stages_of

_CHOICES = frozenset({"prim.if_then_else", "prim.likely"})
_ROUNDED = frozenset({f"tirx.{n}" for n in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf")})
"""Functions that neither begin with a sum of their argument nor end in a product."""


def inline_stages(kernel: tirx.PrimFunc, *, into_sums: bool) -> tirx.PrimFunc:
    """`kernel` with stages in those that read what they store.

    Each element is then computed no more often than before, and loops of reductions read no more than they
    did; with `into_sums` these read through copies and paddings, too.
    """
    schedule, now = s_tir.Schedule(kernel, error_render_level="none"), kernel
    stages = stages_of(kernel) or ()
    for name in [stage.name for stage in stages]:
        at = next((number for number, one in enumerate(stages) if one.name == name), len(stages))
        own = elements(now.body.block.alloc_buffers)
        moves = any(stage.target.same_as(buffer) for stage in stages[at : at + 1] for buffer in own)
        if moves and _can_go(stages[at], stages[at + 1 :], into_sums=into_sums):
            with suppress(Exception):  # TVM asks for more than is told here
                schedule.compute_inline(schedule.get_sblock(name))
                now = schedule.mod["main"]
                stages = stages_of(now) or ()
    return schedule.mod["main"].with_attrs(dict(kernel.attrs or {}))


def _can_go(stage: Stage, later: Sequence[Stage], *, into_sums: bool) -> bool:
    """Return whether a stage can stand in those behind it that read what it stores."""
    buffer = stage.target
    readers = [one for one in later if one.loads(buffer)]
    if stage.reduces or not readers:
        return False
    if any(load.source.same_as(one.target) for load in stage.loads() for one in later):
        return False  # it would read what was overwritten
    plain = type(stage.value) is ir.TensorLoad
    dtype = buffer.ty.dtype.dtype
    rounded = str(dtype).startswith(("float", "bfloat")) and (dtype.bits < 32 or not stage.loads())
    if not plain and (len(readers) > 1 or rounded):
        return False
    if _is_product(stage.value) and any(_adds(one.value, buffer) for one in readers):
        return False
    return all(_repeats_nothing(stage, one, plain=plain, into_sums=into_sums) for one in readers)


def _repeats_nothing(stage: Stage, reader: Stage, *, plain: bool, into_sums: bool) -> bool:
    """Return whether `reader` costs no more with the stage in it."""
    if reader.reduces:
        return _is_renaming(stage) or (into_sums and _is_copy(stage.value))
    if plain:
        return True
    places = [elements(load.indices) for load in reader.loads(stage.target)]
    axes = [_axis(index, reader.axes) for index in places[0]]
    at_one_place = all(all(map(same_extent, places[0], other)) for other in places[1:])
    return at_one_place and None not in axes and len({*axes}) == len(reader.axes)


def _axis(index: Node, axes: Sequence[VarNode]) -> int | None:
    """The one axis that an index moves with, step by step, by its address."""
    while type(index) in (prim.Add, prim.Sub) and type(index.b) is prim.IntImm:
        index = index.a
    return index.__chandle__() if any(index.same_as(axis) for axis in axes) else None


def _is_renaming(stage: Stage) -> bool:
    """Return whether a stage copies a buffer as it is."""
    value = stage.value
    as_it_is = type(value) is ir.TensorLoad and alike(value.source, stage.target)
    return as_it_is and all(map(same_extent, elements(value.indices), stage.place))


def _is_copy(value: Node) -> bool:
    """Return whether a value is computed by nothing but choices."""
    if type(value) is ir.Call:
        return getattr(value.op, "name", None) in _CHOICES and all(map(_is_copy, elements(value.args)[1:]))
    return type(value) in (ir.TensorLoad, prim.FloatImm, prim.IntImm)


def _passed_on(value: Node) -> tuple[Node, ...]:
    """The operands of which one is the value, as it is, converted, or times what may be 1."""
    match value:
        case prim.Cast():
            return (value.value,)
        case prim.Select():
            return value.condition, value.true_value, value.false_value
        case prim.Max() | prim.Min() | prim.Mul() | prim.Div():
            return value.a, value.b
        case ir.Call() if getattr(value.op, "name", None) in _CHOICES:
            return elements(value.args)
    return ()


def _is_product(value: Node) -> bool:
    """Return whether a value may be what a multiplication gives, not yet rounded."""
    passed = _passed_on(value)
    if not passed and type(value) is ir.Call:
        return getattr(value.op, "name", None) not in _ROUNDED
    return type(value) in (prim.Mul, prim.Div) or any(map(_is_product, passed))


def _adds(value: Node, buffer: VarNode, *, summed: bool = False) -> bool:
    """Return whether what is loaded of a buffer may be a term of a sum in `value`, or of one that it is
    `summed` in.
    """
    if type(value) is ir.TensorLoad:
        return summed and bool(value.source.same_as(buffer))
    operands = _passed_on(value)
    if not operands:
        called = type(value) is ir.Call
        summed = type(value) in (prim.Add, prim.Sub)
        summed = summed or (called and getattr(value.op, "name", None) not in _ROUNDED)
        operands = elements(value.args) if called else (getattr(value, "a", None), getattr(value, "b", None))
    return any(_adds(one, buffer, summed=summed) for one in operands if one is not None)
