"""Kernels that compute what is large in pieces: which do, how many pieces, the memory, and the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import symalloc
from symalloc import RunError
from symalloc.analysis.conflicts import ReuseConflict, ReuseConflicts
from symalloc.planner.memory_plan import Plan, PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.program.types import row_dim
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse, read_one
from symalloc.relax.files.plan_file import Form, written
from symalloc.relax.passes.plan_pass import PlannedModule
from symalloc.relax.run.machine import call, machines
from symalloc.relax.shrink.chunks import are_ends, ends_of
from symalloc.size.expr import Expr, ceildiv, constant, symbol
from tests.models.execution import random_inputs
from tests.models.zoo import encoder, llama
from tests.relax.built import EFFECTS, errors, graph, rows
from tests.relax.shrink.compared import outputs
from tests.scale import tries

N, PROVER = symbol("n"), Prover()


def proved(ends: Sequence[Expr], count: int) -> bool:
    return are_ends(ends, ceildiv(N, count), N, PROVER, Domain())


@pytest.mark.parametrize("count", [2, 3, 5])
def test_other_pieces_are_refused(count: int) -> None:
    right = ends_of(N, count)
    for at, end in enumerate(right):
        for wrong in (end + 1, end - 1):
            assert not proved([*right[:at], wrong, *right[at + 1 :]], count), "other rows"
        assert not proved([*right[:at], *right[at + 1 :]], count), "a piece left out"
    assert not proved([*reversed(right)], count)
    assert not proved(right, count + 1), "more rows than there is room for"


# -- modules -------------------------------------------------------------------------------------------------

OP = relax.op
CHUNKED = PlanOptions(shrink="safe", sizes={"n": 64})
Emit: TypeAlias = Callable[[relax.Expr], relax.Var]


def heads(emit: Emit, one: relax.Expr) -> relax.Expr:
    """Attention in two heads, with what an importer of models writes between its operators."""
    one = emit(one)
    n = one.ty.shape[0]
    each = emit(OP.permute_dims(OP.reshape(one, (n, 2, 4)), [1, 0, 2]))
    scores = emit(OP.reshape(emit(OP.matmul(each, OP.permute_dims(each, [0, 2, 1]))), (1, 2, n, n)))
    shares = emit(OP.reshape(emit(OP.nn.softmax(scores)), (2, n, n)))
    return OP.reshape(OP.permute_dims(emit(OP.matmul(shares, each)), [1, 0, 2]), (n, 8))


def network(seed: int) -> tvm.IRModule:
    """A random graph of operators on rows of `n`, and of some that need all of them."""
    random = Random(seed)
    weight = relax.const(rows(8, 8))

    def write(emit: Emit, x: relax.Var) -> relax.Var:
        column = (x.ty.shape[0], 1)
        steps: Sequence[Callable[[relax.Var], relax.Expr]] = (
            lambda one: OP.matmul(OP.nn.softmax(OP.matmul(one, OP.permute_dims(one))), one),
            lambda one: OP.matmul(OP.nn.softmax(OP.matmul(one, OP.permute_dims(x)), axis=0), x),
            lambda one: OP.matmul(OP.exp(OP.negative(OP.abs(OP.matmul(one, OP.permute_dims(x))))), one),
            lambda one: heads(emit, one),
            lambda one: OP.add(OP.matmul(one, weight), x),
            lambda one: OP.subtract(one, OP.mean(one, axis=0, keepdims=True)),
            lambda one: OP.subtract(one, OP.mean(one, axis=1, keepdims=True)),
            lambda one: OP.multiply(
                one, OP.reshape(OP.sum(OP.matmul(x, OP.permute_dims(one)), axis=1), column)
            ),
        )
        made = [x]
        for _ in range(random.randint(2, 5)):
            made.append(emit(OP.tanh(random.choice(steps)(random.choice(made[-2:])))))
        return made[-1]

    return graph(write, x=("n", 8))


def arenas(plan: Plan, binding: Mapping[str, int]) -> int:
    return sum(arena.size.evaluate(binding) for arena in plan.arenas)


def cut(
    given: tvm.IRModule, name: str, largest: Mapping[str, int], share: float, chunks: int = 8
) -> tuple[Plan, tvm.IRModule]:
    """The plan of a function whose arenas may take a share of what they took, and the module with it."""
    whole = plan_or_refuse(given, "llvm", PlanOptions(shrink="safe")).plans[name]
    limit = int(share * arenas(whole, largest))
    options = PlanOptions(shrink="safe", max_arena=limit, chunks=chunks, sizes=largest)
    planned = plan_or_refuse(given, "llvm", options)
    found = planned.plans[name]
    assert (found.pieces != "") == (arenas(found, largest) <= limit)
    report = symalloc.lint(planned.module)
    assert report.summary.always_invalid == report.summary.unknown == 0
    return found, planned.module


def same_bits(
    module: tvm.IRModule, given: tvm.IRModule, extents: Sequence[int], function: str = "main"
) -> None:
    for n in extents:
        arguments = [one.numpy() for one in random_inputs(given[function], {"b": 2, "n": n})]
        assert outputs(module, function, arguments) == outputs(given, function, arguments), n


@pytest.mark.parametrize("seed", range(tries(3, 150)))
def test_random_graphs_give_the_same_in_pieces(seed: int) -> None:
    given = lower_or_refuse(network(seed), "llvm", "default")
    found, module = cut(given, "main", {"n": 64}, 0.6, chunks=4)
    same_bits(module, given, (0, 1, 3, 4, 5, 7, 64) if found.pieces else ())


def attention(emit: Emit, x: relax.Var, scored: Callable[[relax.Expr], relax.Expr] = OP.nn.softmax) -> Any:
    """What is behind the scores of `n` rows."""
    scores = emit(OP.matmul(x, emit(OP.permute_dims(x))))
    return OP.add(emit(OP.matmul(emit(scored(scores)), x)), x)


@pytest.mark.parametrize(("share", "pieces"), [(0.3, 6), (0.19, 16)])
def test_pieces_are_as_few_as_the_limit_takes(share: float, pieces: int) -> None:
    given = lower_or_refuse(graph(attention, x=("n", 8)), "llvm", "default")
    found, _ = cut(given, "main", {"n": 64}, share, chunks=40)
    assert found.pieces.startswith(f"1 group of kernels, {pieces} each: ")  # nine have as many rows as eight


@pytest.mark.parametrize("form", ["json", "script"])
def test_pieces_of_constant_extents_are_written(form: Form) -> None:
    given = lower_or_refuse(graph(attention, x=(64, 8)), "llvm", "default")
    found, module = cut(given, "main", {}, 0.5)
    text = written(relax.transform.LowerAllocTensor()(module), form)
    again = read_one(Path(f"planned.{'py' if form == 'script' else 'json'}"), data=text.encode())
    assert found.pieces
    same_bits(again, given, (64,))


def reshaped(emit: Emit, x: relax.Var) -> relax.Expr:
    """The scores go through a view of the same extents."""
    n = x.ty.shape[0]
    return attention(emit, x, lambda scores: OP.nn.softmax(emit(OP.reshape(scores, (n, n)))))


def other_rows(emit: Emit, x: relax.Var) -> relax.Expr:
    """A tensor that is reshaped to other rows."""
    wide = emit(OP.exp(emit(OP.matmul(x, relax.const(np.eye(8, 64, dtype="float32"))))))
    return OP.sum(emit(OP.exp(emit(OP.reshape(wide, (8 * x.ty.shape[0], 8))))), axis=1)


@pytest.mark.parametrize(
    ("write", "share", "pieces"),
    [
        (reshaped, 0.6, "1 group of kernels"),
        (lambda emit, x: OP.tanh(heads(emit, x)), 0.7, "1 group of kernels"),
        (lambda emit, x: OP.tanh(heads(emit, x)), 0.5, "1 group of kernels"),
        (other_rows, 0.5, ""),
    ],
)
def test_what_is_reshaped_is_cut_where_it_keeps_its_rows(write: Any, share: float, pieces: str) -> None:
    given = lower_or_refuse(graph(write, x=("n", 8)), "llvm", "default")
    found, module = cut(given, "main", {"n": 64}, share)
    assert found.pieces.startswith(pieces)
    same_bits(module, given, (1, 2, 5, 13, 64))


def test_a_prefill_takes_a_quarter_of_its_arena() -> None:
    shape = llama.Shape(layers=2, hidden=16, heads=2, kv_heads=2, inner=32, vocabulary=16)
    given = lower_or_refuse(llama.decoder(shape), "llvm", "target")
    found, module = cut(given, "forward", {"b": 1, "n": 512}, 0.25)
    assert found.pieces.startswith("2 groups of kernels, 6 each: ")
    same_bits(module, given, (1, 5, 6, 7, 100), "forward")


def test_pieces_lie_in_larger_tensors_and_over_inputs() -> None:
    def write(emit: Emit, x: relax.Var) -> relax.Expr:
        wide = [emit(OP.matmul(x, relax.const(one))) for one in rows(8, 8, 32)]
        others = [emit(OP.tanh(one)) for one in wide[1:]]
        scores = emit(OP.matmul(others[-1], OP.permute_dims(others[-1])))
        mixed = emit(OP.matmul(emit(OP.nn.softmax(scores)), wide[0]))
        return OP.sum(emit(OP.concat([mixed, *others], axis=1)))

    given = lower_or_refuse(graph(write, x=("n", 8)), "llvm", "target")
    _, module = cut(given, "main", {"n": 512}, 0.8)
    names = {one.name_hint for one in module.get_global_vars()}
    assert any("_rows_in_parts" in one for one in names), "a piece makes some of a concatenation"
    assert any("_rows_inplace" in one for one in names), "a piece is written over another"
    same_bits(module, given, (1, 4, 7, 100, 512))


@pytest.mark.parametrize(("pipeline", "share"), [("default", 0.5), ("target", 0.4)])
def test_that_an_empty_call_takes_more_keeps_nothing_whole(pipeline: PipelineName, share: float) -> None:
    given = lower_or_refuse(encoder.masked_bert(width=64), "llvm", pipeline)
    found, module = cut(given, "forward", {"b": 1, "n": 512}, share)
    assert found.pieces, "outputs are written over inputs, although a call without rows takes more then"
    same_bits(module, given, (1, 5, 64), "forward")


def for_caller(write: Any, most: int, chunks: int, **more: Any) -> PlannedModule:
    """What is planned in pieces in an arena of the caller."""
    given = lower_or_refuse(graph(write, **more.pop("shapes", {"x": ("n", 8)})), "llvm", "default")
    options = replace(CHUNKED, max_arena=most, chunks=chunks, arena="caller", **more)
    planned = plan_or_refuse(given, "llvm", options)
    assert planned.plans["main"].pieces
    return planned


@pytest.mark.parametrize("chunks", [1, 4])
def test_what_lies_in_the_callers_arena_one_behind_the_other_lints_clean(chunks: int) -> None:
    def write(emit: Emit, x: relax.Var) -> relax.Expr:
        wide = [emit(OP.tanh(emit(OP.matmul(x, relax.const(one))))) for one in rows(2, 8, 32)]
        return OP.subtract(*(emit(OP.sum(one, axis=1, keepdims=True)) for one in wide))

    planned = for_caller(write, 6000, chunks)
    assert any("_inplace" in one.name_hint for one in planned.module.get_global_vars())
    summary = symalloc.lint(planned.module).summary
    assert summary.always_invalid == summary.unknown == 0


def test_what_is_made_in_pieces_is_written_anew_where_something_else_was() -> None:
    def write(emit: Emit, x: relax.Var) -> relax.Expr:
        emit(OP.tanh(OP.subtract(x, OP.mean(x, axis=1, keepdims=True))))
        half = emit(OP.split(OP.concat([x, x], axis=1), 2, axis=1))[0]
        return OP.tanh(heads(emit, OP.tanh(OP.nn.relu(half))))

    planned = for_caller(write, 24000, 5)
    found = [one.message for one in symalloc.lint(planned.module).diagnostics if one.severity != "note"]
    assert not any("result `alloc2` over it" in one for one in found)


def test_a_piece_that_is_read_in_strides_is_written_anew_as_far_as_that() -> None:
    def write(emit: Emit, x: relax.Var, w: relax.Var) -> relax.Expr:
        one = emit(OP.matmul(x, w))
        shares = emit(OP.nn.softmax(OP.matmul(one, OP.permute_dims(x))))
        some = emit(OP.strided_slice(OP.matmul(shares, one), [1], [1], [15], [3]))
        return OP.matmul(some, OP.permute_dims(some))

    planned = for_caller(write, 20000, 16, results="caller", shapes={"x": ("n", 16), "w": (16, 16)})
    assert errors(planned.module) == []
    text = planned.module.script()
    call = [line for line in text.splitlines() if "cls.matmul2_rows(" in line][-1]
    wrong = tvm.script.from_source(text.replace(call, f"{call[:-1]} - 1)"))  # a row of the last piece is left
    assert [found[:6] for found in errors(wrong)] == ["SYM113"]


@pytest.mark.parametrize("module", [EFFECTS.Prints, EFFECTS.Cache, EFFECTS.GivenCache])
def test_what_has_effects_stays_whole(module: tvm.IRModule) -> None:
    given = lower_or_refuse(module, "llvm", "default")
    options = replace(CHUNKED, max_arena=0, chunks=3)
    assert not any(plan.pieces for plan in plan_or_refuse(given, "llvm", options).plans.values())


def kernel(emit: Emit, name: str, *tensors: te.Tensor) -> tvm.ir.GlobalVar:
    """A kernel in the module that is under way."""
    made = te.create_prim_func([*tensors], index_dtype_override="int64").without_attr("global_symbol")
    return emit.__self__.add_func(made, name)  # type: ignore[attr-defined]


def biased(emit: Emit, x: relax.Var, y: relax.Var) -> relax.Expr:
    n, rows, m = x.ty.shape[0], te.var("rows", "int64"), te.var("m", "int64")
    a, b = te.placeholder((rows, m)), te.placeholder((rows,))
    add = kernel(emit, "biased", a, b, te.compute((rows, m), lambda i, j: a[i, j] + b[i]))
    scores = emit(OP.matmul(x, OP.permute_dims(x)))
    given = emit(OP.call_tir(add, [scores, y], relax.TensorType([n, n], "float32")))
    return OP.matmul(emit(OP.nn.softmax(given)), x)


def weighed(emit: Emit, x: relax.Var, y: relax.Var) -> relax.Expr:
    rows = te.var("rows", "int64")
    over = te.reduce_axis((0, rows))
    a, b = te.placeholder((rows, 8)), te.placeholder((rows,))
    total = kernel(emit, "weighed", a, b, te.compute((8,), lambda j: te.sum(a[over, j] * b[over], axis=over)))
    first, second = emit(OP.tanh(x)), emit(OP.exp(x))
    made = emit(OP.call_tir(total, [first, y], relax.TensorType([8], "float32")))
    return relax.Tuple([made, emit(OP.concat([first, second], axis=0))])


@pytest.mark.parametrize(("write", "rows"), [(biased, "n"), (weighed, 4)])
def test_what_a_kernel_refuses_is_refused_in_pieces_and_parts(write: Any, rows: int | str) -> None:
    """The kernel takes as many numbers as rows, and the function any number of them."""
    lowered = lower_or_refuse(graph(write, x=(rows, 8), y=("k",)), "llvm", "default")
    count = 64 if rows == "n" else 4
    options = PlanOptions(shrink="safe", max_arena=9216, chunks=8, sizes={"n": count, "k": count})
    planned = plan_or_refuse(lowered, "llvm", options).module
    machine = machines(planned, "naive", target="llvm", pipeline="default")[0]
    x, y = (np.ones(extents, "float32") for extents in ((count, 8), (7,)))
    with pytest.raises(RunError, match="Mismatched"):
        call(machine, "main", [x, y])


def test_what_pieces_meet_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, takeover = Counter[object](), ReuseConflicts.takeover

    def counted(self: ReuseConflicts, *roots: int) -> Iterator[ReuseConflict]:
        asked[self, roots] += 1
        return takeover(self, *roots)

    monkeypatch.setattr(ReuseConflicts, "takeover", counted)
    example = read_one(Path(__file__).parents[3] / "examples" / "attention.py")
    found, _ = cut(lower_or_refuse(example, "llvm", "default"), "main", {"n": 512}, 0.35)
    assert found.pieces and {*asked.values()} == {1}, "each piece that makes rows of a result"


def test_a_kernel_that_goes_on_in_the_next_row_is_not_cut() -> None:
    def following(scores: te.Tensor) -> te.Tensor:
        n = scores.shape[0]
        return te.compute(
            (n, n), lambda v, w: tirx.if_then_else(v * n + w + 1 < n * n, scores[v, w + 1], tirx.const(0.0))
        )

    def write(emit: Emit, x: relax.Var) -> relax.Expr:
        scores = emit(OP.matmul(x, emit(OP.permute_dims(x))))
        return OP.matmul(emit.__self__.emit_te(following, scores), x)  # type: ignore[attr-defined]

    given = lower_or_refuse(graph(write, x=("n", 8)), "llvm", "default")
    options = replace(CHUNKED, max_arena=9216, chunks=8)
    same_bits(plan_or_refuse(given, "llvm", options).module, given, (64,))


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_what_is_reshaped(seed: int) -> None:
    random, found = Random(seed), 0
    for _ in range(50):
        factors = [random.choice((1, 2, 2, 3)) for _ in range(4)]
        shape, other = ([*map(prod, joined(random, factors))] for _ in "ab")
        reshaped = [one.reshape(other) for one in np.indices(shape)]
        for dim in range(len(shape)):
            at = row_dim(dim, [*map(constant, shape)], [*map(constant, other)])
            alike = [d for d, one in enumerate(np.indices(other)) if (one == reshaped[dim]).all()]
            alike = [d for d in alike if other[d] == shape[dim]]
            assert at in alike or (at == -1 and (not alike or shape[dim] == 1))
            found += at >= 0
    assert found > 20


def joined(random: Random, factors: Sequence[int]) -> Sequence[Sequence[int]]:
    """Some numbers in groups, in their order."""
    cuts = [0, *sorted(random.sample(range(1, len(factors)), random.randint(0, 3))), len(factors)]
    return [factors[a:b] for a, b in pairwise(cuts)]
