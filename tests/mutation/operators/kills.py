"""Faults in what is killed, and when."""

from __future__ import annotations

import tvm
from tvm import relax

from tests.mutation.editable import Step
from tests.mutation.operators.places import KILLS, Drawn, at_one_of

__all__ = ["drop_kill", "duplicate_kill", "kill_earlier", "kill_later", "use_after_kill"]


def _moved(kill: Drawn, to: int, way: str) -> str | None:
    if to == kill.index:
        return None
    target = kill.step.value.args[0]
    kill.sequence.steps.insert(to, kill.sequence.steps.pop(kill.index))
    return f"kill of {target.name} {way} by {abs(to - kill.index)}"


@at_one_of(*KILLS)
def kill_earlier(kill: Drawn) -> str | None:
    """Move a kill up by one to eight steps, not above what it kills."""
    target = kill.step.value.args[0]
    first = next((i + 1 for i, s in enumerate(kill.sequence.steps) if s.var.same_as(target)), 0)
    return _moved(kill, max(first, kill.index - kill.random.randint(1, 8)), "up")


@at_one_of(*KILLS)
def kill_later(kill: Drawn) -> str | None:
    """Move a kill down: harmless, for memory goes with the last alias."""
    last = len(kill.sequence.steps) - 1
    return _moved(kill, min(last, kill.index + kill.random.randint(1, 8)), "down")


@at_one_of(*KILLS)
def duplicate_kill(kill: Drawn) -> str:
    """Kill something twice."""
    step, to = kill.step, kill.random.randint(kill.index + 1, len(kill.sequence.steps))
    kill.insert(to, f"{step.var.name}_again", step.value)
    return f"{step.value.args[0].name} killed twice"


@at_one_of(*KILLS)
def drop_kill(kill: Drawn) -> str:
    """Leave a kill out."""
    return f"{kill.sequence.steps.pop(kill.index).value.args[0].name} not killed"


@at_one_of(test=Step.calls_global)
def use_after_kill(call: Drawn) -> str | None:
    """Kill an argument right before a call that uses it."""
    step, defined = call.step, {s.var for s in call.sequence.steps[: call.index]}
    arguments = [a for a in step.value.args if type(a).__name__ == "Var" and a in defined]
    if not arguments:
        return None
    victim = call.random.choice(arguments)
    call.insert(call.index, "killed", relax.Call(tvm.ir.Op.get("relax.memory.kill_tensor"), [victim]))
    return f"{victim.name} killed before {step.operator}"
