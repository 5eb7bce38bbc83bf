"""The native core decides as the reference does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BoundsError, OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.trace import Alloc, Free
from tests.pool.reference.reference_pool import ReferencePool
from tests.pool.steps import STEPS, Step
from tests.pool.test_reference_pool import OPTIONS
from tests.pool.workloads import WORKLOADS, make_trace
from tests.scale import tries

pytestmark = pytest.mark.usefixtures("native")

KIB, MIB, PAGE = 2**10, 2**20, 4096


def _same(reference: ReferencePool, native: InstrumentedPool) -> None:
    assert replace(native.statistics(), threads=1) == reference.statistics()


@settings(max_examples=tries(75, 1500))
@given(options=OPTIONS, steps=STEPS, trims=st.booleans())
def test_decisions_are_those_of_the_reference(options: PoolOptions, steps: list[Step], trims: bool) -> None:
    native = InstrumentedPool(options)
    reference = ReferencePool(native.options)
    live: list[tuple[int, int]] = []
    for step in steps:
        try:
            address = reference.alloc(step.nbytes, align=step.align, escapes=step.escapes)
        except OutOfMemoryError as error:
            with pytest.raises(OutOfMemoryError) as refused:
                native.alloc(step.nbytes, align=step.align, escapes=step.escapes)
            assert str(refused.value) == str(error)
        else:
            handle = native.alloc(step.nbytes, align=step.align, escapes=step.escapes)
            assert native.address(handle) == address
            live.append((address, handle))
        for _ in range(min(step.frees, len(live))):
            address, handle = live.pop(step.pick % len(live))
            reference.free(address)
            native.free(handle)
        _same(reference, native)
        if trims and step.pick < 50:
            assert native.trim() == reference.trim()


@pytest.mark.parametrize("nbytes", (-1, True, 1.5, "x", None, 2**63, -(2**70)))
def test_sizes_that_make_no_sense(nbytes: Any) -> None:
    texts = []
    for pool in (ReferencePool(), InstrumentedPool()):
        with pytest.raises(PoolUsageError) as error:
            pool.alloc(nbytes)
        texts.append(str(error.value))
        assert pool.statistics().allocs == 0
    if isinstance(nbytes, int) and nbytes >= -(2**63):
        assert texts[0] == texts[1]


@pytest.mark.parametrize("align", (0, -64, 3, True, 1.0, 2**31, 2**64))
def test_alignments_that_make_no_sense(align: Any) -> None:
    texts = []
    for pool in (ReferencePool(), InstrumentedPool()):
        with pytest.raises(PoolUsageError, match="the alignment ") as error:
            pool.alloc(1, align=align)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "says"),
    (
        ((-1,), "float32", BoundsError, "negative extent"),
        ((2**62,), "float32", BoundsError, "more bytes than 64 bits"),
        ((2**64,), "float32", PoolUsageError, "an extent is an integer within 64 bits"),
        ((True,), "float32", PoolUsageError, "an extent is an integer, not bool"),
        ((1.5,), "float32", PoolUsageError, "an extent is an integer, not float"),
        (("n", 2), "float32", PoolUsageError, "an extent is an integer, not str"),
        ((2, "n"), "float32", PoolUsageError, "an extent is an integer, and "),
        (("a tag, it seems",), "float32", PoolUsageError, "an extent is an integer, and "),
        ((3,), "floot", PoolUsageError, "'floot' is no dtype"),
        ((3,), None, PoolUsageError, "None is no dtype"),
    ),
)
def test_tensors_that_make_no_sense(shape: Any, dtype: Any, error: type[Exception], says: str) -> None:
    pool = InstrumentedPool()
    with pytest.raises(error, match=says):
        pool.empty(shape, dtype)
    assert pool.statistics().allocs == 0


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("limited", (False, True))
@pytest.mark.parametrize("separate_escaping", (False, True))
def test_whole_traces_are_placed_alike(workload: str, separate_escaping: bool, limited: bool) -> None:
    """Under a limit some allocations are refused, by both; and both are trimmed now and then."""
    trace = make_trace(workload, 4)
    limit = trace.peak_live * 9 // 10 if limited else None
    options = PoolOptions(separate_escaping=separate_escaping, soft_limit=Fraction(21, 20), limit=limit)
    native = InstrumentedPool(options)
    reference = ReferencePool(native.options)
    blocks: dict[int, tuple[int, int]] = {}
    refused = 0
    for index, event in enumerate(trace.events):
        match event:
            case Alloc(block=block, nbytes=nbytes):
                escapes = block in trace.escape
                try:
                    address = reference.alloc(nbytes, escapes=escapes)
                except OutOfMemoryError:
                    refused += 1
                    with pytest.raises(OutOfMemoryError):
                        native.alloc(nbytes, escapes=escapes)
                    continue
                handle = native.alloc(nbytes, escapes=escapes)
                assert native.address(handle) == address
                blocks[block] = address, handle
            case Free(block=block) if block in blocks:
                address, handle = blocks.pop(block)
                reference.free(address)
                native.free(handle)
        if limited and index % 500 == 499:
            assert native.trim() == reference.trim()
    _same(reference, native)
    assert (refused > 0) == limited


def _ranges(source: Random) -> list[tuple[int, int]]:
    """Where sizes are drawn from: most that a thread keeps, few, one, small ones, or larger ones too."""
    few = [(size, size) for size in source.choices(range(16 * KIB, 256 * KIB), k=5)]
    kinds = [[(KIB, 256 * KIB)], few, few[:1], [(1, 40 * KIB)], [(1, 300 * KIB), *few, (MIB, MIB)]]
    return source.choice(kinds)


@pytest.mark.parametrize("seed", range(tries(10, 400)))
def test_replaced_blocks_are_placed_alike(seed: int) -> None:
    """Hundreds of blocks, so that what a thread keeps for blocks of nearly their size is full at times."""
    source = Random(seed)
    ranges, count = _ranges(source), source.choice((300, 600))
    options = PoolOptions(
        bin_capacity=source.choice((64 * KIB, 2 * MIB, 8 * MIB)),
        limit=source.choice((None, count * 150 * KIB)),
        separate_escaping=source.random() < 0.3,
    )
    native = InstrumentedPool(options)
    reference = ReferencePool(native.options)
    live: list[tuple[int, int]] = []
    nearest = source.choice((0, 0, 50))  # so many are looked at for the lowest
    for step in range(5 * count):
        nbytes, escapes = source.randint(*source.choice(ranges)), source.random() < 0.1
        if len(live) > count or (live and step % 1500 > 1200):
            pick = min(
                range(min(nearest, len(live))), default=source.randrange(len(live)), key=live.__getitem__
            )
            address, handle = live.pop(pick)
            reference.free(address)
            native.free(handle)
        try:
            address = reference.alloc(nbytes, escapes=escapes)
        except OutOfMemoryError as error:
            with pytest.raises(OutOfMemoryError) as refused:
                native.alloc(nbytes, escapes=escapes)
            assert str(refused.value) == str(error)
        else:
            live.append((address, native.alloc(nbytes, escapes=escapes)))
            assert native.address(live[-1][1]) == address
    _same(reference, native)
