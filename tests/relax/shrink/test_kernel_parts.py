"""Kernels that take tensors as parts of larger ones: run beside the originals, and with faults planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np
import pytest
from tvm import ir, relax, tirx
from tvm.script import tirx as T  # noqa: N812

from symalloc.relax.ir_types import elements, typed_var, with_parameters, with_variables
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.shrink.kernel_parts import Part, restores, with_parts
from tests.relax.built import graph
from tests.relax.shrink.compared import extents, ran
from tests.relax.shrink.misplaced import faults
from tests.scale import tries


def kernels() -> Mapping[str, tirx.PrimFunc]:
    """Kernels that TVM makes of operators on (2, n, 8) and (8, 5)."""

    def write(emit: Callable[[relax.Expr], relax.Var], x: relax.Var, w: relax.Var) -> relax.Expr:
        made = (
            relax.op.matmul(x, w),
            relax.op.nn.softmax(x, axis=-1),
            relax.op.tanh(x),
            relax.op.sum(x, axis=[2]),
            relax.op.permute_dims(x, [0, 2, 1]),
            relax.op.strided_slice(x, axes=[2], begin=[3], end=[7]),
            relax.op.nn.pad(x, [0, 0, 0, 0, 2, 1]),
        )
        return relax.Tuple([*map(emit, made)])

    lowered = lower(graph(write, x=(2, "n", 8), w=(8, 5)), "llvm")
    return {v.name_hint: f for v, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)}


KERNELS = kernels()
N, CAP = 3, 7


def wholes(kernel: tirx.PrimFunc) -> Iterator[Mapping[int, Part]]:
    """Each parameter in a whole that is longer on one axis, and all of them on their last ones."""
    last = dict[int, Part]()
    for position, param in enumerate(elements(kernel.params)):
        extents = elements(param.ty.shape)
        for axis, extent in enumerate(extents):
            fixed = isinstance(extent, tirx.IntImm)
            offset, whole = (axis + 1, int(extent) + 4) if fixed else (0, typed_var("cap", extent.ty))
            offsets, longer = [0] * len(extents), [None] * len(extents)
            offsets[axis], longer[axis] = offset, whole
            last[position] = Part(tuple(offsets), tuple(longer))
            yield {position: last[position]}
    yield last


CASES = [(name, parts) for name, kernel in KERNELS.items() for parts in wholes(kernel)]


def inside(parts: Mapping[int, Part], position: int, part: Sequence[int]) -> tuple[slice, ...]:
    """Where a part lies in its whole."""
    begins = parts[position].offsets if position in parts else (0,) * len(part)
    return tuple(slice(b, b + e) for b, e in zip(begins, part, strict=True))


@pytest.mark.parametrize(("name", "parts"), CASES[:: tries(3, 1)])
def test_a_kernel_does_with_a_whole_what_it_did_with_the_part(name: str, parts: Mapping[int, Part]) -> None:
    given = KERNELS[name]
    made = with_parts(given, parts)
    assert made is not None and restores(given, made, {at: one.offsets for at, one in parts.items()})
    random, symbols = np.random.default_rng(0), {"n": N, "cap": CAP}
    shapes = [extents(param, symbols) for param in elements(given.params)]
    larger = [extents(param, symbols) for param in elements(made.params)]
    arrays = [random.random(shape, dtype="float32") for shape in larger]
    places = [inside(parts, position, shape) for position, shape in enumerate(shapes)]
    expected = ran(given, [np.ascontiguousarray(a[at]) for a, at in zip(arrays, places, strict=True)])
    found = ran(made, arrays)
    for whole, before, at, part in zip(found, arrays, places, expected, strict=True):
        before[at] = part
        assert whole.tobytes() == before.tobytes()


def test_what_only_a_part_told_is_not_known_any_more() -> None:
    cap = typed_var("cap", ir.PrimType("int64"))
    one = Part((0, 0, 0), (None, cap, None))
    assert with_parts(KERNELS["tir_tanh"], {0: one, 1: one}) is None


@T.prim_func
def address(x: T.Buffer((8,), "float32")) -> None:
    T.evaluate(T.call_extern("int32", "memset", T.address_of(x[0]), 0, 32))


@T.prim_func
def narrow(x: T.Buffer((T.int32(8),), "float32")) -> None:
    for i in T.serial(T.int32(8)):
        x[i] = T.float32(1)


def test_a_kernel_that_hands_on_an_address_takes_no_whole() -> None:
    part = Part((2,), (16,))
    assert with_parts(address, {0: part}) is None


def test_an_index_that_could_overflow_is_not_proved() -> None:
    made = with_parts(narrow, {0: Part((2,), (16,))})
    assert made is None or not restores(narrow, made, {0: (2,)})


# -- faults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parts"), CASES)
def test_planted_faults_are_refused(name: str, parts: Mapping[int, Part]) -> None:
    given, offsets = KERNELS[name], {at: one.offsets for at, one in parts.items()}
    made = with_parts(given, parts)
    assert restores(given, made, offsets)
    planted = [*faults(made)]
    assert len(planted) > 10
    for fault, kernel in planted:
        assert not restores(given, kernel, offsets), f"{fault}\n{kernel.script()}"
    params = elements(made.params)
    for one, other in permutations(params, 2):  # everywhere
        if len(one.ty.shape) != len(other.ty.shape):
            continue
        for renamed in ([(one, other), (other, one)], [(one, other)]):
            kernel = with_parameters(made, params, with_variables(made.body, renamed))
            assert not restores(given, kernel, offsets), f"{one} is {other}"
    for position, begin in offsets.items():
        for axis in range(len(begin)):
            for by in (1, -1):
                told = (*begin[:axis], begin[axis] + by, *begin[axis + 1 :])
                assert not restores(given, made, offsets | {position: told}), "another offset told"
        assert not restores(given, made, {at: one for at, one in offsets.items() if at != position})
    assert not restores(given.without_attr("tirx.noalias"), made, offsets), "a promise made"


def test_one_whole_is_accessed_through_one_parameter() -> None:
    """A kernel that reads one part and writes another; no other part in their place, and no two names."""
    given = KERNELS["tir_tanh"]
    parts = {0: Part((0, 0, 0), (None, None, 16)), 1: Part((0, 0, 8), (None, None, 16))}
    offsets = {at: one.offsets for at, one in parts.items()}
    made = with_parts(given, parts, {0: 1})
    assert restores(given, made, offsets, {0: 1})
    assert not restores(given, made, offsets)
    assert not restores(given, made, offsets, {1: 0})
    assert not restores(given, made, {0: offsets[1], 1: offsets[0]}, {0: 1})
    assert not restores(given, with_parts(given, parts), offsets, {0: 1})
    for fault, kernel in faults(made):
        assert not restores(given, kernel, offsets, {0: 1}), fault


def test_no_parameter_is_given_for_two() -> None:
    given, whole = KERNELS["tir_tanh"], Part((0, 0, 0), (None, None, 16))
    made = with_parts(given, {0: whole, 1: whole})
    one = elements(made.params)[0]
    assert restores(given, made, {0: (0, 0, 0), 1: (0, 0, 0)})
    both = with_parameters(made, [one, one], with_variables(made.body, [(elements(made.params)[1], one)]))
    assert not restores(given, both, {0: (0, 0, 0), 1: (0, 0, 0)})
