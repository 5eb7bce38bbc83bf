"""Faults in what is killed, and when."""

from __future__ import annotations

from random import Random

import tvm
from tvm import relax

from tests.mutation.editable import EditableFunction, Step
from tests.mutation.operators.places import KILLS, draw, named

__all__ = ["drop_kill", "duplicate_kill", "kill_earlier", "kill_later", "use_after_kill"]


def kill_earlier(function: EditableFunction, random: Random) -> str | None:
    """Move a kill up by one to eight steps, not above what it kills."""
    found = draw(function.find(named(*KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    target = step.value.args[0]
    first = next((i + 1 for i, s in enumerate(sequence.steps) if s.var.same_as(target)), 0)
    to = max(first, index - random.randint(1, 8))
    if to == index:
        return None
    sequence.steps.insert(to, sequence.steps.pop(index))
    return f"kill of {target.name} up by {index - to}"


def kill_later(function: EditableFunction, random: Random) -> str | None:
    """Move a kill down: harmless, for memory goes with the last alias."""
    found = draw(function.find(named(*KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    to = min(len(sequence.steps) - 1, index + random.randint(1, 8))
    if to == index:
        return None
    sequence.steps.insert(to, sequence.steps.pop(index))
    return f"kill of {step.value.args[0].name} down by {to - index}"


def duplicate_kill(function: EditableFunction, random: Random) -> str | None:
    """Kill something twice."""
    found = draw(function.find(named(*KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    again = Step(relax.Var(f"{step.var.name}_again", relax.TupleType([])), step.value)
    sequence.steps.insert(random.randint(index + 1, len(sequence.steps)), again)
    return f"{step.value.args[0].name} killed twice"


def drop_kill(function: EditableFunction, random: Random) -> str | None:
    """Leave a kill out."""
    found = draw(function.find(named(*KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    del sequence.steps[index]
    return f"{step.value.args[0].name} not killed"


def use_after_kill(function: EditableFunction, random: Random) -> str | None:
    """Kill an argument right before a call that uses it."""
    calls = function.find(Step.calls_global)
    found = draw(calls, random)
    if found is None:
        return None
    sequence, index, step = found
    defined = {s.var for s in sequence.steps[:index]}
    arguments = [a for a in step.value.args if type(a).__name__ == "Var" and a in defined]
    if not arguments:
        return None
    victim = random.choice(arguments)
    kill = relax.Call(tvm.ir.Op.get("relax.memory.kill_tensor"), [victim])
    sequence.steps.insert(index, Step(relax.Var("killed", relax.TupleType([])), kill))
    return f"{victim.name} killed before {step.operator}"
