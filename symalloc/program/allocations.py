"""The allocations of a function in the order of the text."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.program.model import AllocFresh, Block, If

__all__ = ["allocations"]


def allocations(block: Block) -> Iterator[AllocFresh]:
    """The tensors that `block` allocates, nested blocks included."""
    for instruction in block.instructions:
        match instruction:
            case AllocFresh():
                yield instruction
            case If(then=then, otherwise=otherwise):
                yield from allocations(then)
                yield from allocations(otherwise)
