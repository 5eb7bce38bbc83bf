"""A function behind VMShapeLower, read once for all that is asked: its bindings line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeAlias

from tvm import relax
from tvm.ir import Call, Op

from symalloc.relax.emit.guard_calls import ASSERT
from symalloc.relax.ir_types import BindingNode, Node, elements

ALLOC_STORAGE = "relax.vm.alloc_storage"
ALLOC_TENSOR = "relax.vm.alloc_tensor"
KILL = "relax.vm.kill_object"
MATCH = "vm.builtin.match_prim_value"  # (value, heap, what to do, cell, message)
MAKE = "vm.builtin.make_prim_value"
READS = frozenset({"vm.builtin.make_shape", MAKE})
RESHAPE = "vm.builtin.reshape"
WITH_MACHINE = "relax.call_builtin_with_ctx"
_ALLOCATE_NOTHING = READS | {
    ASSERT,
    ALLOC_TENSOR,
    KILL,
    "vm.builtin.check_shape_info",
    "vm.builtin.check_tensor_info",
    MATCH,
    "vm.builtin.match_shape",
    RESHAPE,
}


class Line(NamedTuple):
    """A binding, its place in the text, its value, and the name of the operator or external function that it
    calls, "" for anything else; `sides` are the blocks of the two branches of an If.
    """

    place: int
    binding: BindingNode
    value: Node
    name: str
    sides: tuple[Blocks, ...] = ()


Blocks: TypeAlias = list[list[Line]]


def read_lines(seq: relax.SeqExpr) -> Blocks:
    """The lines of a body, block by block."""
    return _Reader().blocks(seq)


def flat(blocks: Blocks) -> Iterator[Line]:
    """The lines in the order of the text, those of branches in front of their If."""
    for block in blocks:
        for line in block:
            for side in line.sides:
                yield from flat(side)
            yield line


def allocates(line: Line) -> bool:
    """Whether a line by itself may take memory; a kernel may, for its scratch."""
    return line.name not in _ALLOCATE_NOTHING and type(line.value) is Call


@dataclass(slots=True)
class _Reader:
    """Reads the bindings of a function.  `names` holds what was asked before, by the address of the node that
    is called: many calls share one.
    """

    names: dict[int, str] = field(default_factory=dict)
    places: Iterator[int] = field(default_factory=count)

    def blocks(self, seq: relax.SeqExpr) -> Blocks:
        return [[self.line(b) for b in elements(block.bindings)] for block in elements(seq.blocks)]

    def line(self, binding: BindingNode) -> Line:
        value = binding.value
        if type(value) is Call:
            return Line(next(self.places), binding, value, self.name(value.op))
        sides = (value.true_branch, value.false_branch) if type(value) is relax.If else ()
        return Line(next(self.places), binding, value, "", tuple(map(self.blocks, sides)))

    def name(self, op: Node) -> str:
        handle = op.__chandle__()
        found = self.names.get(handle)
        if found is None:
            found = self.names[handle] = _name(op)
        return found


def _name(op: Node) -> str:
    if isinstance(op, relax.ExternFunc):
        return str(op.global_symbol)
    return str(op.name) if isinstance(op, Op) else ""
