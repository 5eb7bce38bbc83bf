"""Blocks that are written natively: what is written one by one."""

from __future__ import annotations

import pytest
import tvm_ffi

from symalloc.relax.emit import block_writer
from symalloc.relax.emit.block_writer import BlockWriter
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.planned import CASES
from tests.pool.library import need_native

NAMES = ("nested_branches", "callee", "tuples", "inplace", "nonzero", "two_devices", "cross_attention")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_native()
    module = lower(CASES[name].build(), "llvm")
    monkeypatch.setattr(block_writer, "FEW", 1 << 30)
    one_by_one = plan_lowered(module).module
    placed: list[int] = []
    placing = BlockWriter.place

    def counted(self: BlockWriter, index: int, storage: int, offset: int) -> None:
        placed.append(index)
        placing(self, index, storage, offset)

    monkeypatch.setattr(BlockWriter, "place", counted)
    monkeypatch.setattr(block_writer, "FEW", 1)
    at_once = plan_lowered(module).module
    assert placed
    assert at_once.script() == one_by_one.script()
    assert tvm_ffi.structural_equal(at_once, one_by_one)


def test_what_nothing_allocates_is_not_placed() -> None:
    need_native()
    body = lower(CASES["mlp"].build(), "llvm")["forward"].body
    writer = BlockWriter(body.blocks[0].bindings)
    writer.place(len(writer.old) - 1, 0, writer.number(body.body))
    with pytest.raises(ValueError, match="a tensor is placed that nothing allocates"):
        writer.written([body.body])


def test_steps_keep_the_order() -> None:
    need_native()
    old = lower(CASES["mlp"].build(), "llvm")["forward"].body.blocks[0].bindings
    writer = BlockWriter(old)
    writer.add([old[5]], 0, 0)
    writer.add([old[7], old[6]], 2, 3)
    writer.add([], 3, 4)
    expected = [old[5], old[0], old[1], old[7], old[6], *list(old)[4:]]
    found = list(writer.written([]))
    assert len(found) == len(expected)
    assert all(one.same_as(other) for one, other in zip(found, expected, strict=True))
