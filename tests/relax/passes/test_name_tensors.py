"""Tensors on a pool's storages: exact bounds, and their names where these are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BoundsError
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.canonical_kernels import NameTensors
from symalloc.relax.run.machine import memory_cfg
from tests.relax.built import machine_on

ISSUE = Path(__file__).parents[3] / "examples" / "issue_17322.py"


def test_a_tensor_that_outgrows_its_storage_is_refused_by_name() -> None:
    machine = machine_on(relax.build(NameTensors()(load_one(ISSUE)), "llvm"), InstrumentedPool())
    for m in (0, 1, 4):
        assert len(machine["main"](tvm.runtime.tensor(np.zeros(m, "float32"))).numpy()) == m
    with pytest.raises(BoundsError) as refused:
        machine["main"](tvm.runtime.tensor(np.zeros(5, "float32")))
    place = f"{os.path.relpath(ISSUE)}:18"
    assert str(refused.value) == (
        f"tensor `main.alloc (fill, {place})`, float32[5], needs 20 bytes at offset 0 on a storage of 16 "
        "bytes: it would end 4 bytes behind it"
    )


@pytest.fixture(scope="module")
def placed() -> Callable[..., tuple[int, ...]]:
    """The shape of a tensor of bytes that lies at an offset on a storage of 16."""
    builder = relax.BlockBuilder()
    at, *shape = (tvm.tirx.Var(name, "int64") for name in ("at", "a", "b", "c"))
    with builder.function("main", [relax.Var("given", relax.ShapeType([at, *shape]))]):
        storage = builder.emit(relax.op.memory.alloc_storage(relax.ShapeExpr([16]), 0, "global", "uint8"))
        tensor = relax.op.memory.alloc_tensor(storage, at, relax.ShapeExpr(shape), "uint8")
        builder.emit_func_output(builder.emit(tensor))
    machine = machine_on(relax.build(builder.get(), "llvm"), InstrumentedPool())
    return lambda at, *shape: tuple(machine["main"](tvm.runtime.ShapeTuple((at, *shape))).shape)


@pytest.mark.parametrize(("at", "count"), [(0, 16), (16, 0), (15, 1), (1, 15)])
def test_what_ends_in_its_storage_is_placed(at: int, count: int, placed: Callable[..., Any]) -> None:
    assert placed(at, count, 1, 1) == (count, 1, 1)


@pytest.mark.parametrize(
    ("said", "bad"),
    [
        ("on a storage of 16 bytes", [(0, 17, 1, 1), (17, 0, 1, 1), (16, 1, 1, 1), (2**63 - 1, 16, 1, 1)]),
        ("is placed at offset -.*in front of it", [(at, 16, 1, 1) for at in (-1, -16, -(2**63))]),
        (
            "negative extent, or more bytes than 64 bits can count",
            [(0, 2**22, 2**22, 2**20), (0, 2**62, 2, 2), (0, -1, 1, 1), (0, -4, -4, 1)],
        ),
    ],
)
def test_what_leaves_its_storage_is_refused(
    said: str, bad: Sequence[tuple[int, ...]], placed: Callable[..., Any]
) -> None:
    for one in bad:
        with pytest.raises(BoundsError, match=said):
            placed(*one)


def test_other_allocators_are_left_to_tvm() -> None:
    memory_cfg(InstrumentedPool())
    program = relax.build(load_one(ISSUE), target="llvm")
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg="pooled")
    assert len(machine["main"](tvm.runtime.tensor(np.zeros(1024, "float32"))).numpy()) == 1024
    with pytest.raises(tvm.error.InternalError, match="region that is 4096"):
        machine["main"](tvm.runtime.tensor(np.zeros(1025, "float32")))
