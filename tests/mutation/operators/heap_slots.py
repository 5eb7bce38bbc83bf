"""Faults in what VMShapeLower makes of sizes: another slot of the shape heap, a number for a slot."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tests.mutation.operators.places import Drawn, at_one_of, set_argument

__all__ = ["wrong_slot"]

# a builtin -> its first pair of a code and a number or slot, how many arguments follow the pairs, and the
# codes that it may get: a match that compares what it did not checks what the caller gives, and is no fault
_PAIRS = {
    "vm.builtin.match_shape": (3, 1, (1, 2)),
    "vm.builtin.make_shape": (2, 0, (0, 1)),
    "vm.builtin.make_prim_value": (1, 0, (0, 1)),
}


@at_one_of(*_PAIRS)
def wrong_slot(call: Drawn) -> str | None:
    """Change a code or a slot in a call that puts an extent into the shape heap, or makes one of it."""
    step, random = call.step, call.random
    first, behind, codes = _PAIRS[step.operator]
    arguments: list[Any] = list(step.value.args)
    pairs = [at for at in range(first, len(arguments) - behind, 2) if int(arguments[at].value) in codes]
    if not pairs:
        return None
    at, kind = random.choice(pairs), random.choice(("code", "slot"))
    code, slot = (int(arguments[i].value) for i in (at, at + 1))
    if kind == "code":
        set_argument(step, at, relax.prim_value(sum(codes) - code))
    else:
        set_argument(step, at + 1, relax.prim_value(slot + random.choice((-1, 1, 2) if slot else (1, 2))))
    return f"{step.var.name}: {kind} of pair {(at - first) // 2} changed"
