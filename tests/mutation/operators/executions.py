"""Faults in which kernels run, when, and what they write."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te

from tests.mutation.editable import EditableFunction, Sequence, Step, inline_sizes
from tests.mutation.kernels import written_parameters
from tests.mutation.operators.places import (
    ALLOC_TENSOR,
    KILLS,
    Place,
    allocate_first,
    draw,
    set_argument,
)

__all__ = [
    "double_call",
    "drop_call",
    "move_behind_reader",
    "swap_outputs",
    "write_constant",
    "write_elsewhere",
]


def drop_call(function: EditableFunction, random: Random) -> str | None:
    """Leave a kernel call out."""
    found = draw(_kernel_calls(function), random)
    if found is None:
        return None
    sequence, index, step = found
    del sequence.steps[index]
    return f"{step.operator} (call {index}) dropped"


def move_behind_reader(function: EditableFunction, random: Random) -> str | None:
    """Run a kernel only behind the first that reads what it writes."""
    places = []
    for sequence, index in _kernel_calls(function):
        reader = _reader(function, sequence, index)
        if reader is not None:
            places.append((sequence, index, reader))
    if not places:
        return None
    sequence, index, reader = random.choice(places)
    step = sequence.steps[index]
    between = sequence.steps[index + 1 : reader + 1]
    kills = [s for s in between if s.operator in KILLS and _has(s.value.args[0], step.value.args)]
    rest = [s for s in between if s not in kills]
    sequence.steps[index : reader + 1] = [*rest, step, *kills]
    return f"{step.operator} (call {index}) moved behind {rest[-1].operator}"


def double_call(function: EditableFunction, random: Random) -> str | None:
    """Run a kernel once more, at once or later."""
    found = draw(_kernel_calls(function), random)
    if found is None:
        return None
    sequence, index, step = found
    last = next(
        (
            i
            for i, s in enumerate(sequence.steps)
            if i > index and s.operator in KILLS and _has(s.value.args[0], step.value.args)
        ),
        len(sequence.steps),
    )
    to = random.randint(index + 1, last)
    again = Step(relax.Var(f"{step.var.name}_again", step.var.ty), step.value)
    sequence.steps.insert(to, again)
    return f"{step.operator} (call {index}) again {to - index} steps later"


def write_elsewhere(function: EditableFunction, random: Random) -> str | None:
    """Let a kernel write another tensor of the same type."""
    places = []
    for sequence, index in _kernel_calls(function):
        step = sequence.steps[index]
        for position in _outputs(function, step):
            places += [(step, index, position, t) for t in _alike(sequence, index, step.value.args[position])]
    if not places:
        return None
    step, index, position, other = random.choice(places)
    old = step.value.args[position]
    set_argument(step, position, other)
    return f"{step.operator} (call {index}) writes {other.name}, not {_name(old)}"


def swap_outputs(function: EditableFunction, random: Random) -> str | None:
    """Exchange what two kernels write."""
    inline_sizes(function.body)
    for sequence in function.sequences():
        allocate_first(sequence)
        sequence.steps[:] = [s for s in sequence.steps if s.operator not in KILLS]
    writes = [
        (s.steps[i], i, position, s)
        for s, i in _kernel_calls(function)
        for position in _outputs(function, s.steps[i])
    ]
    pairs = [
        (a, b)
        for a in writes
        for b in writes
        if a[3] is b[3]
        and a[1] < b[1]
        and _same_type(a[0].value.args[a[2]], b[0].value.args[b[2]])
        and not a[0].value.args[a[2]].same_as(b[0].value.args[b[2]])
    ]
    if not pairs:
        return None
    (one, i, p, _), (two, j, q, _) = random.choice(pairs)
    first, second = one.value.args[p], two.value.args[q]
    set_argument(one, p, second)
    set_argument(two, q, first)
    return f"{one.operator} (call {i}) and {two.operator} (call {j}) exchange outputs"


def write_constant(function: EditableFunction, random: Random) -> str | None:
    """Run a kernel that fills a constant of the program with a number."""
    constants = [
        (s, i, a)
        for s, i in function.find(lambda _: True)
        for a in getattr(s.steps[i].value, "args", ())
        if type(a).__name__ == "GenericConst" and isinstance(a.ty, relax.TensorType)
    ]
    if not constants:
        return None
    sequence, index, constant = random.choice(constants)
    shape = [int(e) for e in constant.ty.shape.values]
    dtype = str(constant.ty.dtype.dtype)
    filled = te.compute(shape, lambda *_: tvm.tirx.const(1, dtype), name="filled")
    kernel = te.create_prim_func([filled]).with_attr("global_symbol", "fill_constant")
    name = relax.BlockBuilder().add_func(kernel, "fill_constant")
    function.added[name] = kernel
    void = relax.TupleType([])
    call = relax.Call(name, [constant])
    to = random.choice([index, index + 1])
    sequence.steps.insert(to, Step(relax.Var("filled", void), call))
    return f"a constant of {shape} filled at step {to}"


def _kernel_calls(function: EditableFunction) -> list[Place]:
    return function.find(lambda s: s.calls_global() and s.operator in function.kernels)


def _outputs(function: EditableFunction, step: Step) -> Iterator[int]:
    """The positions of the arguments that a kernel writes."""
    for position in written_parameters(function.kernels[step.operator]):
        if type(step.value.args[position]).__name__ == "Var":
            yield position


def _reader(function: EditableFunction, sequence: Sequence, index: int) -> int | None:
    step = sequence.steps[index]
    written = [step.value.args[p] for p in _outputs(function, step)]
    names = {a for a in written if type(a).__name__ == "Var"}
    for later in range(index + 1, len(sequence.steps)):
        s = sequence.steps[later]
        if type(s.value).__name__ == "Var" and s.value in names:
            names.add(s.var)
        elif s.calls_global() and any(type(a).__name__ == "Var" and a in names for a in s.value.args):
            return later
    return None


def _alike(sequence: Sequence, index: int, tensor: Any) -> list[Any]:
    return [
        s.var
        for s in sequence.steps[:index]
        if s.operator == ALLOC_TENSOR and not s.var.same_as(tensor) and _same_type(s.var, tensor)
    ]


def _same_type(one: Any, two: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one.ty, two.ty))


def _has(target: Any, among: Any) -> bool:
    return any(target.same_as(a) for a in among)


def _name(expression: Any) -> str:
    return str(getattr(expression, "name", "a constant"))
