"""Faults in how a tensor at an offset reaches its users."""

from __future__ import annotations

from random import Random

from tests.mutation.editable import EditableFunction, Step
from tests.mutation.kernels import takes_offset, with_offset_factor
from tests.mutation.operators.places import Drawn, at_one_of

__all__ = ["coarsen_offset", "forget_to_settle", "refuse_offset"]


@at_one_of("relax.memory.ensure_zero_offset")
def forget_to_settle(settled: Drawn) -> str:
    """Leave out an ensure_zero_offset: whoever comes behind it gets the offset."""
    settled.step.value = settled.step.value.args[0]
    return f"{settled.step.var.name} not settled"


def refuse_offset(function: EditableFunction, random: Random) -> str | None:
    """Compile a kernel for tensors that begin at byte 0."""
    return _recompile(function, random, None)


def coarsen_offset(function: EditableFunction, random: Random) -> str | None:
    """Compile a kernel for offsets at twice or four times the distance."""
    return _recompile(function, random, random.choice([2, 4]))


def _recompile(function: EditableFunction, random: Random, times: int | None) -> str | None:
    """Declare one of the buffers that take an offset anew, in a kernel that the function calls."""
    called = {s.steps[i].operator for s, i in function.find(Step.calls_global)}
    choices = [
        (name, position)
        for name, kernel in sorted(function.kernels.items())
        for position, param in enumerate(kernel.params)
        if name in called and takes_offset(param)
    ]
    if not choices:
        return None
    name, position = random.choice(choices)
    kernel = function.kernels[name]
    function.changed[name] = with_offset_factor(kernel, position, times)
    wanted = "no offset" if times is None else f"{times} times the offset"
    return f"{name}: {kernel.params[position].name} takes {wanted}"
