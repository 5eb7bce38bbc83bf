"""The ways through a function: for each outcome of its conditions, what is executed, without an If."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from symalloc.program.model import Alias, Block, Function, If, Instruction


def ways_through(function: Function, *, most: int) -> list[Function] | None:
    """`function` once for each way through it, an If standing as an alias of what its branch yields; None
    where there are more than `most`.
    """
    found = list(islice(_ways(function.body), most + 1))
    if len(found) > most:
        return None
    result = function.body.result
    return [replace(function, body=Block(instructions=way, result=result)) for way in found]


def _ways(block: Block) -> Iterator[tuple[Instruction, ...]]:
    """The sequences of instructions that may be executed for `block`."""
    branches = ((i, one) for i, one in enumerate(block.instructions) if isinstance(one, If))
    at, branch = next(branches, (0, None))
    if branch is None:
        yield block.instructions
        return
    before = block.instructions[:at]
    behind = replace(block, instructions=block.instructions[at + 1 :])
    for side in (branch.then, branch.otherwise):
        for inner in _ways(side):
            joined = Alias(var=branch.var, source=side.result, span=branch.span)
            for rest in _ways(behind):
                yield (*before, *inner, joined, *rest)
