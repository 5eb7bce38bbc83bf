"""Smaller kernels in plans: what is saved, what stays as it is, and what the linter says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.script import from_source

import symalloc
from symalloc.planner.memory_plan import ShrinkChoice
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.rewrite import with_functions
from symalloc.relax.shrink.kernel_stages import stages_of
from symalloc.relax.shrink.shrink_kernels import NOT_APART, shrink_kernels
from tests.relax.built import graph
from tests.relax.shrink.compared import shrunk

OP = relax.op


def _attention(emit: Any, x: relax.Var, w: relax.Var) -> relax.Expr:
    weights = emit(OP.nn.softmax(emit(OP.add(emit(OP.matmul(x, w)), x))))
    return OP.nn.gelu(weights)


ATTENTION = graph(_attention, x=("n", "n"), w=("n", "n"))


def _stage(
    name: str, store: str, loops: str = "i in range(8)", axes: str = "vi = T.axis.spatial(8, i)"
) -> str:
    return f"""
        for {loops}:
            with T.sblock("{name}"):
                {axes}
                {store}"""


def _summed(passes: str) -> tuple[str, str]:
    return f"i, k in T.grid(8, {passes})", 'vi, vk = T.axis.remap("SR", [i, k])'


_GRID = "i, j in T.grid(8, 8)", 'vi, vj = T.axis.remap("SS", [i, j])'
_TWICE = ("k, i in T.grid(2, 8)",)
_PARALLEL = """
        for i in T.parallel(8):
            for j in range(8):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj] + T.float32(1)"""
_SQUARED = "C[vi] = A[vi] * A[vi]"
_ANOTHER_SET = """vi = T.axis.spatial(8, i)
                with T.init():
                    B[vi] = T.float32(5)"""
_OLD_KEPT = """vi = T.axis.spatial(8, i)
                with T.init():
                    B[vi] = B[vi] * T.float32(2)"""
_ADDED = "C[vi] = A[vi] + A[7 - vi]"
_NONE = "with T.init():\n                    B[vi] = T.{}(0)\n                "

# by how many stages are seen, and how many buffers are left: kernels, and their stages, or what they store
STAY: Mapping[tuple[int | None, int], Mapping[str, Sequence[str]]] = {
    (None, 1): {
        "parallel": (_PARALLEL, _stage("B", "B[vi, vj] = C[vi, vj] * T.float32(2)", *_GRID)),
        "by_data": ("C[A[vi]] = vi", "B[vi] = C[vi]"),
        "old_kept": (_SQUARED, _stage("B", "B[vi] = B[vi] + C[7 - vi]", axes=_OLD_KEPT)),
        "old_tells_passes": (
            "C[vi] = A[7 - vi]",
            _stage("B", _NONE.format("int64") + "B[vi] = B[vi] + C[7 - vi] + vk", *_summed("B[7]")),
        ),
        "called": (
            'C[vi] = T.Cast("float32", T.call_extern("int32", "rand")) + A[vi]',
            "B[vi] = C[vi] - C[vi]",
        ),
        "pointed_to": (_SQUARED, 'B[vi] = T.call_pure_extern("float32", "first", T.address_of(C[vi]))'),
        "as_long_as_told": ("C[vi] = A[7 - vi]", _stage("B", "B[vi] = A[vi]", "i in range(C[0])")),
    },
    (2, 1): {
        "read_in_reverse": ("C[vi] = T.exp(A[vi])", "D[vi] = C[7 - vi] + C[vi]", "B[vi] = D[vi] + C[7 - vi]"),
        "set_first": (_SQUARED, _stage("B", "B[vi] = C[vi] + A[vi]", axes=_ANOTHER_SET)),
        "cancels": (_ADDED, "B[7 - vi] = C[vi] - A[vi]"),
        "cancels_number": ("C[vi] = A[vi] + T.float32(1)", "B[7 - vi] = C[vi] - T.float32(1)"),
        "never_nan": ("C[vi] = A[vi]", 'B[7 - vi] = T.Cast("float32", C[vi] == A[vi])'),
        "never_unordered": ("C[vi] = A[vi] < A[7 - vi]", 'B[7 - vi] = T.Cast("float32", T.Not(C[vi]))'),
        "chosen_terms": (
            "C[vi] = T.Select(A[vi] < A[7 - vi], A[vi], T.float32(0))",
            "B[7 - vi] = C[vi] + T.Select(A[vi] < A[7 - vi], T.float32(0), A[7 - vi])",
        ),
        "wraps": ('C[vi] = T.Cast("int8", T.max(A[vi], 0))', 'B[vi] = T.Cast("int32", C[vi] // T.int8(3))'),
        "widened": ("C[vi] = A[vi] * T.int8(2)", "B[7 - vi] = C[vi] // T.int8(2)"),
        "never_below_zero": ("C[vi] = A[vi] + T.uint8(1)", 'B[7 - vi] = T.Cast("uint8", C[vi] > A[vi])'),
        "chosen_factor": ("C[vi] = T.max(A[vi], T.float32(0))", "B[7 - vi] = C[vi] * T.float32(0.5) + A[vi]"),
        "product_elsewhere": ("C[vi] = T.exp(A[vi] * A[7 - vi])", "B[7 - vi] = C[vi] + A[vi] * A[7 - vi]"),
        "product_of_all_passes": (
            _stage("C", "C[vi, vj] = A[vi]", *_GRID),
            _stage("B", _NONE.format("float32") + "B[vi] = B[vi] + C[vi, vk] * A[vi]", *_summed("8")),
        ),
        "named_product": ("C[vi] = T.Let(t, where={t: A[vi] * A[vi]})", "B[7 - vi] = C[vi] + A[vi]"),
        "named_term": (_SQUARED, "B[7 - vi] = T.Let(t + A[vi], where={t: C[vi]})"),
        "negated_product": ("C[vi] = T.float32(-0.0) - A[vi] * A[vi]", "B[7 - vi] = C[vi] + A[vi]"),
        "rounded": ('C[vi] = T.Cast("bfloat16", A[vi])', 'B[vi] = T.Cast("float32", C[vi])'),
        "rounded_result": (
            'C[vi] = T.Cast("bfloat16", T.Cast("float32", A[vi]) * T.float32(3))',
            "B[vi] = C[vi] + C[vi]",
        ),
        "twice": (
            _stage("C", "C[vi] = T.exp(A[vi])", *_TWICE),
            _stage("B", "B[vi] = C[vi] + T.float32(1)", *_TWICE),
        ),
    },
    (2, 0): {
        "product_in_sum": (_SQUARED, "B[vi] = C[vi] + A[vi]"),
        "times_one": (_SQUARED, "B[vi] = C[vi] * T.float32(1) + A[vi]"),
        "in_condition": (
            _SQUARED,
            "B[vi] = T.Select(C[vi] + A[vi] > T.float32(0), T.float32(1), T.float32(2))",
        ),
    },
    (None, 2): {
        "another_set_first": (
            _SQUARED,
            _stage("D", "D[vi] = C[7 - vi]", axes=_ANOTHER_SET),
            "B[vi] = D[vi] + D[7 - vi]",
        ),
    },
    (1, 0): {
        "cancels_nothing": (_ADDED, "B[7 - vi] = C[vi] - T.exp(A[vi])"),
    },
    (3, 2): {
        "rounded_copy": (
            'C[vi] = T.Cast("float8_e5m2", A[vi])',
            "D[vi] = C[7 - vi]",
            'B[vi] = T.Cast("float32", D[7 - vi])',
        ),
    },
    (3, 1): {
        "no_init": (
            "C[vi] = T.float32(0)",
            _stage("D", "C[vi] = C[vi] + A[vi, vk]", *_summed("4")),
            "B[vi] = C[vi] * T.float32(2)",
        ),
    },
}
KERNELS = {name: stages for kernels in STAY.values() for name, stages in kernels.items()}
SHAPES = {
    "parallel": ("8, 8", "8, 8", "8, 8"),
    "no_init": ("8, 4", "8,", "8,"),
    "product_of_all_passes": ("8,", "8,", "8, 8"),
}
"""Extents of A, B and C, where they are not 8."""
KINDS = {
    **dict.fromkeys(("by_data", "old_tells_passes"), ("int64", "int64")),
    "rounded": ("float32", "bfloat16"),
    "rounded_copy": ("float32", "float8_e5m2"),
    "rounded_result": ("bfloat16", "bfloat16"),
    "wraps": ("int32", "int8"),
    "widened": ("int8", "int8"),
    "never_below_zero": ("uint8", "uint8"),
    "as_long_as_told": ("int32", "int32"),
    "never_unordered": ("float32", "bool"),
}
"""Types of A and B, and of C and D, where they are not float32."""


def kernel_of(name: str, extent: int = 256) -> tvm.IRModule:
    """A module of a kernel from A to B, with buffers C and D of its own; an extent is written as 8."""
    stages = [one if "for " in one else _stage(one[0], one) for one in KERNELS[name]]
    (a, b, c), (kind, own) = SHAPES.get(name, ("8,",) * 3), KINDS.get(name, ("float32",) * 2)
    more = f'\n        D = T.sblock_alloc_buffer((8,), "{own}")' if "D[" in "".join(stages) else ""
    source = f"""
@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def {name}(A: T.Buffer(({a}), "{kind}"), B: T.Buffer(({b}), "{kind}")):
        T.func_attr({{"tirx.noalias": True}})
        t = T.float32()
        C = T.sblock_alloc_buffer(({c}), "{own}"){more}{"".join(stages)}
"""
    for written, meant in ((r"\b8\b", extent), (r"\b7\b", extent - 1)):
        source = re.sub(written, str(meant), source)
    return from_source(source)


@pytest.mark.parametrize("level", ["safe", "full"])
def test_what_is_saved_is_what_kernels_take_less(level: str) -> None:
    plain, small = (symalloc.plan(ATTENTION, shrink=one, pipeline="target") for one in ("none", level))
    (report,) = small.report.reports
    (before,) = plain.report.reports
    assert not before.outside.shrunk
    assert {kernel.name for kernel in report.outside.shrunk} == {one.name for one in before.outside.kernels}
    taken = {use.name: use.nbytes for use in before.outside.kernels}
    assert all(kernel.before == taken[kernel.name] for kernel in report.outside.shrunk)
    now = {use.name: use.nbytes for use in report.outside.kernels}
    assert all(size.evaluate({"n": 64}) < taken[name].evaluate({"n": 64}) for name, size in now.items())
    assert small.at(n=64).workspace < plain.at(n=64).workspace
    assert "kernels shrunk:" in str(small)
    found = symalloc.lint(small.module, stage="as-is")
    assert [d for d in found if d.severity != "note"] == []


@pytest.mark.parametrize(
    ("stages", "left", "name"), [(*seen, name) for seen, kernels in STAY.items() for name in kernels]
)
def test_what_stays(stages: int | None, left: int, name: str) -> None:
    kernel = shrunk(kernel_of(name), "full")[0][name]
    found = stages_of(kernel)
    assert (None if found is None else len(found)) == stages
    assert len(kernel.body.block.alloc_buffers) == left


def buffers_left(level: ShrinkChoice, *tensors: te.Tensor) -> list[str]:
    """The buffers of its own that a kernel of these tensors has when it is shrunk."""
    kernel = te.create_prim_func([*tensors], index_dtype_override="int64").with_attr("tirx.noalias", True)
    module = tvm.IRModule({"kernel": kernel.without_attr("global_symbol")})
    return [one.name for one in shrunk(module, level)[0]["kernel"].body.block.alloc_buffers]


def test_a_stage_that_divides_by_zero_elsewhere_stays() -> None:
    """Both sides of a select are computed where nothing is loaded, and the machine stops."""
    n, zero = te.var("n", "int64"), tirx.const(0, "int64")
    parts = te.compute((n,), lambda i: tirx.const(1000, "int64") // (n - i), name="S")
    whole = te.compute((n + 4,), lambda i: tirx.Select(i < n, parts[i], zero))
    assert buffers_left("full", whole) == ["S"]


@pytest.mark.parametrize(("name", "left"), [("product_in_sum", 1), ("read_in_reverse", 2)])
def test_buffers_on_the_stack_stay(name: str, left: int) -> None:
    """Compilers keep what is in them in registers, and contract it with what reads it."""
    for extent, kept in ((255, left), (256, left - 1)):
        kernel = shrunk(kernel_of(name, extent), "safe")[0][name]
        assert len(kernel.body.block.alloc_buffers) == kept


def test_kernels_whose_arguments_may_overlap_stay() -> None:
    module = kernel_of("product_in_sum")
    (variable,) = module.get_global_vars()
    bare = with_functions(module, {variable: module[variable].without_attr("tirx.noalias")})
    assert shrunk(module, "safe")[1]
    found = shrink_kernels(bare, "safe")
    assert found.module[variable].same_as(bare[variable])
    assert [*found.kernels["product_in_sum"].left.values()] == [NOT_APART]


@pytest.mark.parametrize(
    ("terms", "combined", "left"), [(9, te.sum, 1), (9, te.max, 1), (128, te.sum, 1), (129, te.sum, 0)]
)
def test_paddings_go_into_reductions_that_do_not_run_on_vectors(terms: int, combined: Any, left: int) -> None:
    given, k = te.placeholder((256,)), te.reduce_axis((0, terms))
    padded = te.compute((256 + terms,), lambda i: tirx.if_then_else(i < 256, given[i], tirx.const(0.0)))
    result = te.compute((256,), lambda i: combined(padded[i + k], axis=k))
    assert len(buffers_left("full", given, result)) == left
    assert len(buffers_left("safe", given, result)) == 1


def test_the_pass_and_the_option_do_the_same() -> None:
    lowered = lower(ATTENTION, "llvm", pipeline="target")
    passed = symalloc.ShrinkKernels("safe")(lowered)
    kernels = [f for f in passed.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert kernels
    assert tvm_ffi.structural_equal(passed, shrunk(lowered, "safe")[0])
