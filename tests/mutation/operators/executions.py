"""Faults in which kernels run, when, and what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import product
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
    Drawn,
    Operator,
    allocate_first,
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


Place = tuple[Sequence, int]


def _at_a_call(change: Callable[[Drawn], str]) -> Operator:
    """An operator that changes one of the calls of kernels."""

    @wraps(change)
    def apply(function: EditableFunction, random: Random) -> str | None:
        places = _kernel_calls(function)
        return change(Drawn(function, random, *random.choice(places))) if places else None

    return apply


@_at_a_call
def drop_call(call: Drawn) -> str:
    """Leave a kernel call out."""
    return f"{call.sequence.steps.pop(call.index).operator} (call {call.index}) dropped"


def move_behind_reader(function: EditableFunction, random: Random) -> str | None:
    """Run a kernel only behind the first that reads what it writes."""
    readers = [(s, i, _reader(function, s, i)) for s, i in _kernel_calls(function)]
    places = [(sequence, index, reader) for sequence, index, reader in readers if reader is not None]
    if not places:
        return None
    sequence, index, reader = random.choice(places)
    step, *between = sequence.steps[index : reader + 1]
    kills = [s for s in between if _kills(s, step)]
    rest = [s for s in between if s not in kills]
    sequence.steps[index : reader + 1] = [*rest, step, *kills]
    return f"{step.operator} (call {index}) moved behind {rest[-1].operator}"


@_at_a_call
def double_call(call: Drawn) -> str:
    """Run a kernel once more, at once or later."""
    step, steps = call.step, call.sequence.steps
    last = next((i for i in range(call.index + 1, len(steps)) if _kills(steps[i], step)), len(steps))
    to = call.random.randint(call.index + 1, last)
    call.insert(to, f"{step.var.name}_again", step.value, step.var.ty)
    return f"{step.operator} (call {call.index}) again {to - call.index} steps later"


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
        (s, s.steps[i], i, position, s.steps[i].value.args[position])
        for s, i in _kernel_calls(function)
        for position in _outputs(function, s.steps[i])
    ]
    pairs = [
        ((one, i, p, first), (two, j, q, second))
        for (here, one, i, p, first), (there, two, j, q, second) in product(writes, writes)
        if here is there and i < j and _same_type(first, second) and not first.same_as(second)
    ]
    if not pairs:
        return None
    (one, i, p, first), (two, j, q, second) = random.choice(pairs)
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
    to = random.choice([index, index + 1])
    Drawn(function, random, sequence, index).insert(to, "filled", relax.Call(name, [constant]))
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


def _kills(step: Step, call: Step) -> bool:
    """Whether a step kills an argument of a call."""
    return step.operator in KILLS and any(step.value.args[0].same_as(a) for a in call.value.args)


def _name(expression: Any) -> str:
    return str(getattr(expression, "name", "a constant"))
