"""Tensors on a pool's storages: exact bounds, and their names where these are known."""

from __future__ import annotations

import os
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


def _placed(offset: Any, shape: list[Any], symbols: list[Any], nbytes: int = 16) -> relax.VirtualMachine:
    """A program that takes the values of `symbols`, and returns a tensor of bytes on a storage."""
    builder = relax.BlockBuilder()
    given = relax.Var("given", relax.ShapeType(symbols))
    with builder.function("main", [given]):
        storage = builder.emit(relax.op.memory.alloc_storage(relax.ShapeExpr([nbytes]), 0, "global", "uint8"))
        tensor = relax.op.memory.alloc_tensor(storage, offset, relax.ShapeExpr(shape), "uint8")
        builder.emit_func_output(builder.emit(tensor))
    return machine_on(relax.build(builder.get(), "llvm"), InstrumentedPool())


def _shape(*values: int) -> Any:
    return tvm.runtime.ShapeTuple(values)


def test_the_first_byte_behind_a_storage_is_refused() -> None:
    at, n = tvm.tirx.Var("at", "int64"), tvm.tirx.Var("n", "int64")
    machine = _placed(at, [n], [at, n])
    for good in ((0, 16), (16, 0), (15, 1), (1, 15)):
        assert machine["main"](_shape(*good)).shape == (good[1],)
    for bad in ((0, 17), (17, 0), (16, 1), (2**63 - 1, 16)):
        with pytest.raises(BoundsError, match="on a storage of 16 bytes"):
            machine["main"](_shape(*bad))


@pytest.mark.parametrize("at", (-1, -16, -(2**63)))
def test_an_offset_in_front_of_the_storage_is_refused(at: int) -> None:
    offset = tvm.tirx.Var("at", "int64")
    with pytest.raises(BoundsError, match=f"is placed at offset {at} .*in front of it"):
        _placed(offset, [16], [offset])["main"](_shape(at))


@pytest.mark.parametrize("extents", ((2**22, 2**22, 2**20), (2**62, 2, 2), (-1, 1, 1), (-4, -4, 1)))
def test_byte_counts_that_wrap_are_refused(extents: tuple[int, int, int]) -> None:
    symbols = [tvm.tirx.Var(name, "int64") for name in "abc"]
    with pytest.raises(BoundsError, match="negative extent, or more bytes than 64 bits can count"):
        _placed(0, symbols, symbols)["main"](_shape(*extents))


def test_other_allocators_are_left_to_tvm() -> None:
    memory_cfg(InstrumentedPool())
    program = relax.build(load_one(ISSUE), target="llvm")
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg="pooled")
    assert len(machine["main"](tvm.runtime.tensor(np.zeros(1024, "float32"))).numpy()) == 1024
    with pytest.raises(tvm.error.InternalError, match="region that is 4096"):
        machine["main"](tvm.runtime.tensor(np.zeros(1025, "float32")))
