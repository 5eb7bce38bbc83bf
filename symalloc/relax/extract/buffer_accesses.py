"""Counts of what the body of a PrimFunc does to its buffers, wherever it does so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from tvm import ir, s_tir, tirx

from symalloc.relax.extract.kernel_exits import LEAVING_CALLS
from symalloc.relax.ir_types import Node, elements, visit


@dataclass(slots=True)
class BufferAccesses:
    """Counts of the loads, stores, declarations and mentions of each buffer variable, by address.

    `exposed` are those whose element's address is taken; `leaves_early`: a loop may be left early.
    """

    loads: Counter[int] = field(default_factory=Counter)
    stores: Counter[int] = field(default_factory=Counter)
    declared: Counter[int] = field(default_factory=Counter)
    mentions: Counter[int] = field(default_factory=Counter)
    exposed: set[int] = field(default_factory=set)
    leaves_early: bool = False

    def of(self, param: Node) -> tuple[bool, bool]:
        """(reads, writes).  A mention that is no load, store or declaration may do both."""
        key = param.__chandle__()
        plain = self.loads[key] + self.stores[key] + self.declared[key]
        if key in self.exposed or self.mentions[key] > plain:
            return True, True
        return self.loads[key] > 0, self.stores[key] > 0

    def only_accessed(self, key: int) -> bool:
        """Return whether the body only loads and stores the buffer, and hands its pointer to nobody."""
        plain = self.loads[key] + self.stores[key] + self.declared[key]
        return key not in self.exposed and self.mentions[key] == plain

    # callbacks of the walk

    def load(self, node: Node) -> None:
        self.loads[node.source.__chandle__()] += 1

    def store(self, node: Node) -> None:
        self.stores[node.buffer.__chandle__()] += 1

    def mention(self, node: Node) -> None:
        self.mentions[node.__chandle__()] += 1

    def block(self, node: Node) -> None:
        """The regions that a block declares are no accesses; its body holds those."""
        for region in (*elements(node.reads), *elements(node.writes)):
            self.declared[region.source.__chandle__()] += 1
        for buffer in elements(node.alloc_buffers):
            self.declared[buffer.__chandle__()] += 1

    def allocate(self, node: Node) -> None:
        self.declared[node.buffer.__chandle__()] += 1

    def call(self, node: Node) -> None:
        """The address of an element lets the callee do anything to the buffer."""
        name = getattr(node.op, "name", None)
        if name in LEAVING_CALLS:
            self.leaves_early = True
        elif name == "tirx.address_of":
            for argument in node.args:
                if type(argument) is ir.TensorLoad:
                    self.exposed.add(argument.source.__chandle__())

    def leave(self, node: Node) -> None:
        """A return, a break, a loop that goes on as long as it likes."""
        self.leaves_early = True


@lru_cache(maxsize=1024)
def buffer_accesses(body: Node) -> BufferAccesses:
    """The accesses in the body of a PrimFunc; kept, for extraction and emission both ask for them."""
    found = BufferAccesses()
    visit(
        body,
        (ir.TensorLoad, found.load),
        (tirx.BufferStore, found.store),
        (s_tir.SBlock, found.block),
        (tirx.AllocBuffer, found.allocate),
        (ir.Call, found.call),
        (ir.Var, found.mention),
        *((statement, found.leave) for statement in (tirx.Return, tirx.Break, tirx.Continue, tirx.While)),
    )
    return found
