"""Kernels that compute some rows: run piece by piece beside the originals, and with faults planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest
import tvm_ffi
from tvm import ir, relax, te, tirx

from symalloc.relax.ir_types import Node, elements, visit, with_parameters, with_variables
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.shrink.chunks import Rows, cut_kernel, row_loops, rows_of
from symalloc.relax.shrink.kernel_stages import stages_of
from symalloc.relax.shrink.shrink_kernels import plan_workspaces, shrink_kernels
from tests.relax.built import graph
from tests.relax.shrink.compared import extents, ran
from tests.relax.shrink.misplaced import faults
from tests.scale import tries

N, CHANNELS = 7, 8


def kernel(value: Callable[[relax.Var, relax.Var, relax.Var], relax.Expr]) -> tirx.PrimFunc:
    """The kernel that TVM makes of an operator on (2, n, 8), (8, 5) and (2, 8, n)."""
    module = graph(
        lambda _, *given: value(*given), x=(2, "n", CHANNELS), w=(CHANNELS, 5), y=(2, CHANNELS, "n")
    )
    lowered = plan_workspaces(shrink_kernels(lower(module, "llvm"), "safe")).module
    (found,) = (one for one in lowered.functions.values() if isinstance(one, tirx.PrimFunc))
    return found


OP = relax.op
KERNELS = {
    "matmul": kernel(lambda x, w, _: OP.matmul(x, w)),
    "scores": kernel(lambda x, _, y: OP.matmul(x, y)),
    "product": kernel(lambda x, _, y: OP.matmul(y, x)),
    "softmax": kernel(lambda x, _, __: OP.nn.softmax(x, axis=-1)),
    "softmax of columns": kernel(lambda x, _, __: OP.nn.softmax(x, axis=1)),
    "gelu": kernel(lambda x, _, __: OP.nn.gelu(x)),
    "turned": kernel(lambda x, _, __: OP.permute_dims(x, [0, 2, 1])),
    "sum": kernel(lambda x, _, __: OP.sum(x, axis=[2])),
    "sum of columns": kernel(lambda x, _, __: OP.sum(x, axis=[1])),
    "square": kernel(lambda x, _, __: OP.multiply(x, x)),
    "concat": kernel(lambda x, _, __: OP.concat([x, x], axis=1)),
    "flip": kernel(lambda x, _, __: OP.flip(x, axis=1)),
    "slice": kernel(lambda x, _, __: OP.strided_slice(x, axes=[2], begin=[3], end=[7])),
}


def cuts(name: str) -> Iterator[tuple[dict[int, int], tirx.PrimFunc, Rows]]:
    """A kernel cut along each dimension of each parameter, this one a part, and all that have rows."""
    kernel = KERNELS[name]
    for position, param in enumerate(elements(kernel.params)):
        for dim in range(len(elements(param.ty.shape))):
            loops = row_loops(kernel, position, dim)
            made = cut_kernel(kernel, loops, {position: dim})
            rows = rows_of(kernel, made)
            if rows is not None:
                yield {position: dim}, made, rows
                every = cut_kernel(kernel, loops, rows)
                if name != "concat":  # reads rows of what has half as many
                    assert rows_of(kernel, every) == rows
                    yield rows, every, rows


CASES = [(name, *one) for name in KERNELS for one in cuts(name)]


def stores(kernel: tirx.PrimFunc) -> set[int]:
    """The positions of the parameters that a kernel stores to."""
    targets = [stage.target for stage in stages_of(kernel) or ()]
    return {at for at, one in enumerate(elements(kernel.params)) if any(map(one.same_as, targets))}


def test_kernels_are_cut_where_rows_follow_from_rows() -> None:
    found = {name: {tuple(sorted(rows.items())) for _, _, rows in cuts(name)} for name in KERNELS}
    assert found["matmul"] == {((0, 0), (2, 0)), ((0, 1), (2, 1)), ((1, 1), (2, 2))}
    assert {dict(one)[1] for one in found["softmax"]} == {0, 1}  # not along the axis that it sums over
    assert {dict(one)[1] for one in found["softmax of columns"]} == {0, 2}
    assert {dict(one)[0] for one in found["sum"]} == {0, 1}
    assert {dict(one)[0] for one in found["sum of columns"]} == {0, 2}
    assert {dict(one)[1] for one in found["flip"]} == {0, 1, 2}
    assert ((1, 1),) in found["flip"]  # rows of what it makes follow from others of what it takes


@pytest.mark.parametrize(("name", "parts", "made", "rows"), CASES[:: tries(4, 1)])
def test_the_pieces_make_what_the_kernel_makes(
    name: str, parts: Mapping[int, int], made: tirx.PrimFunc, rows: Rows
) -> None:
    kernel, random, source = KERNELS[name], Random(0), np.random.default_rng(0)
    arrays = [source.random(extents(p, {"n": N}), dtype="float32") for p in elements(kernel.params)]
    expected = ran(kernel, arrays)
    stored = stores(kernel)
    total = arrays[min(stored)].shape[rows[min(stored)]]
    ends = sorted({0, total, *(random.randint(0, total) for _ in range(2))})
    for start, end in pairwise(ends):
        room = end - start + random.randint(0, 2)  # a part may be longer than what is done
        given = [*arrays]
        for at, dim in parts.items():
            shape = [room if i == dim else e for i, e in enumerate(arrays[at].shape)]
            given[at] = np.full(shape, 9, "float32")
            along(given[at], dim)[: end - start] = along(arrays[at], dim)[start:end]
        after = ran(made, [*given, start, end - start])
        for at, (one, right) in enumerate(zip(after, expected, strict=True)):
            before = given[at].copy()
            if at in stored:
                first = 0 if at in parts else start
                along(before, rows[at])[first : first + end - start] = along(right, rows[at])[start:end]
            assert one.tobytes() == before.tobytes()


def along(array: np.ndarray, dim: int) -> np.ndarray:
    """The array with its rows along a dimension in front."""
    return np.moveaxis(array, dim, 0)


# -- faults --------------------------------------------------------------------------------------------------


def wrong_loops(made: tirx.PrimFunc) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """Other ends of each loop over rows, of each axis, and of all of them."""
    params = elements(made.params)
    start, rows = params[-2:]
    wrong = {
        "a row later": (start + 1, rows),
        "a row more": (start, rows + 1),
        "a row dropped": (start, rows - 1),
        "from the first row on": (tirx.IntImm("int64", 0), rows),
        "up to that row": (tirx.IntImm("int64", 0), start),
    }
    found: list[Node] = []
    visit(made.body, (tirx.For, found.append), (tirx.IterVar, found.append))
    over = [one for one in found if (one.min if isinstance(one, tirx.For) else one.dom.min).same_as(start)]
    for one in (one for one in found if not any(map(one.same_as, over))):
        ends = (start, rows)
        yield "rows of another loop", with_parameters(made, params, other_ends(made.body, [one], *ends))
    for fault, ends in wrong.items():
        for chosen in (*([one] for one in over), over):
            yield fault, with_parameters(made, params, other_ends(made.body, chosen, *ends))


def other_ends(body: Node, chosen: Sequence[Node], first: Node, count: Node) -> Node:
    def is_chosen(var: Node) -> bool:
        return any(var.same_as(one.loop_var if isinstance(one, tirx.For) else one.var) for one in chosen)

    def loop(one: Node) -> Node:
        return tirx.For(one.loop_var, first, count, one.kind, one.body) if is_chosen(one.loop_var) else one

    def axis(one: Node) -> Node:
        whole = ir.Range.from_min_extent(first, count)
        return tirx.IterVar(whole, one.var, one.iter_type) if is_chosen(one.var) else one

    return tvm_ffi.structural_map(body, ((tirx.For, loop), (tirx.IterVar, axis)))


@pytest.mark.parametrize(("name", "parts", "made", "rows"), CASES[:: tries(2, 1)])
def test_planted_faults_are_refused(
    name: str, parts: Mapping[int, int], made: tirx.PrimFunc, rows: Rows
) -> None:
    given = KERNELS[name]
    planted = [*faults(made), *wrong_loops(made)]
    assert len(planted) > 10
    for fault, kernel in planted:
        assert rows_of(given, kernel) is None, f"{fault}\n{kernel.script()}"
    buffers = elements(made.params)[:-2]
    alike = ((a, b) for a, b in combinations(buffers, 2) if len(a.ty.shape) == len(b.ty.shape))
    for one, other in alike:
        both = with_variables(made.body, [(one, other), (other, one)])
        assert rows_of(given, with_parameters(made, elements(made.params), both)) is None
    exchanged = [*elements(made.params)[:-2], *reversed(elements(made.params)[-2:])]
    assert rows_of(given, with_parameters(made, exchanged, made.body)) is None
    assert rows_of(given, with_parameters(made, elements(made.params)[:-1], made.body)) is None
    assert rows_of(given.without_attr("tirx.noalias"), made) is None, "a promise made"
    for at, dim in parts.items():
        for other in range(len(elements(elements(given.params)[at].ty.shape))):
            if other != dim:
                assert rows_of(given, cut_kernel(given, row_loops(given, at, dim), {at: other})) is None


X, SQUARE, K = te.placeholder((8,), name="x"), te.placeholder((8, 8), name="x"), te.reduce_axis((0, 8))
COPY = te.compute((8,), lambda i: X[i])
TOTAL = te.compute((1,), lambda _: te.sum(X[K], axis=K))
OTHER_ROWS = {
    "of what the kernel stores to as well": (X, COPY, te.compute((8,), lambda i: COPY[7 - i])),
    "all of them, of which the kernel keeps the sum": (X, TOTAL, te.compute((8,), lambda i: X[i] / TOTAL[0])),
    "by two loops over what must be one row": (
        SQUARE,
        te.compute((8, 8), lambda i, j: SQUARE[j, i] + SQUARE[i, i]),
    ),
}


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_what_needs_other_rows_is_not_cut(name: str) -> None:
    kernel = te.create_prim_func([*OTHER_ROWS[name]], index_dtype_override="int64")
    kernel = kernel.with_attr("tirx.noalias", True)
    for position, param in enumerate(elements(kernel.params)):
        for dim in range(len(elements(param.ty.shape))):
            made = cut_kernel(kernel, row_loops(kernel, position, dim), {position: dim})
            found = rows_of(kernel, made)
            assert found is None or (name.startswith("by two loops") and position == 1)
