"""Kernels that compute what is large in pieces: which do, how many pieces, the memory, and the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from random import Random
from typing import get_args

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

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
from symalloc.relax.run.machine import call, machines
from symalloc.relax.shrink.chunks import are_ends, ends_of
from symalloc.size.expr import Expr, ceildiv, constant, symbol
from tests.models.execution import random_inputs
from tests.models.zoo import encoder, llama
from tests.relax.built import EFFECTS, errors
from tests.relax.shrink import modules_to_cut
from tests.relax.shrink.compared import outputs
from tests.scale import tries

N, PROVER = symbol("n"), Prover()


def proved(ends: Sequence[Expr], count: int) -> bool:
    return are_ends(ends, ceildiv(N, count), N, PROVER, Domain())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 16])
def test_each_row_is_in_one_piece(count: int) -> None:
    ends = ends_of(N, count)
    assert len(ends) == count + 1 and proved(ends, count)
    for n in range(3 * count + 2):
        pieces = [*pairwise(end.evaluate({"n": n}) for end in ends)]
        assert [row for piece in pieces for row in range(*piece)] == [*range(n)]
        assert max(end - begin for begin, end in pieces) == -(-n // count)


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


def rows_of(*extents: int | tirx.Var) -> relax.TensorType:
    return relax.TensorType(extents, "float32")


def heads(builder: relax.BlockBuilder, n: tirx.Var, one: relax.Expr) -> relax.Expr:
    """Attention in two heads, with what an importer of models writes between its operators."""
    op, emit = relax.op, builder.emit
    each = emit(op.permute_dims(op.reshape(one, (n, 2, 4)), [1, 0, 2]))
    scores = emit(op.reshape(emit(op.matmul(each, op.permute_dims(each, [0, 2, 1]))), (1, 2, n, n)))
    shares = emit(op.reshape(emit(op.nn.softmax(scores)), (2, n, n)))
    return op.reshape(op.permute_dims(emit(op.matmul(shares, each)), [1, 0, 2]), (n, 8))


def network(seed: int) -> tvm.IRModule:
    """A random graph of operators on rows of `n`, and of some that need all of them."""
    random, builder = Random(seed), relax.BlockBuilder()
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    weight = relax.const(np.random.default_rng(seed).standard_normal((8, 8)).astype("float32"))
    op = relax.op
    steps: Sequence[Callable[[relax.Var], relax.Expr]] = (
        lambda one: op.matmul(op.nn.softmax(op.matmul(one, op.permute_dims(one))), one),
        lambda one: op.matmul(op.nn.softmax(op.matmul(one, op.permute_dims(x)), axis=0), x),
        lambda one: op.matmul(op.exp(op.negative(op.abs(op.matmul(one, op.permute_dims(x))))), one),
        lambda one: heads(builder, n, one),
        lambda one: op.add(op.matmul(one, weight), x),
        lambda one: op.subtract(one, op.mean(one, axis=0, keepdims=True)),
        lambda one: op.subtract(one, op.mean(one, axis=1, keepdims=True)),
        lambda one: op.multiply(one, op.reshape(op.sum(op.matmul(x, op.permute_dims(one)), axis=1), (n, 1))),
    )
    made: list[relax.Var] = [x]
    with builder.function("main", [x]):
        with builder.dataflow():
            for _ in range(random.randint(2, 5)):
                made.append(builder.emit(op.tanh(random.choice(steps)(random.choice(made[-2:])))))
            result = builder.emit_output(made[-1])
        builder.emit_func_output(result)
    return builder.finalize()


def attention() -> tvm.IRModule:
    """What is behind the scores of `n` rows, lowered."""
    builder, n, op = relax.BlockBuilder(), tirx.Var("n", "int64"), relax.op
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            scores = builder.emit(op.matmul(x, builder.emit(op.permute_dims(x))))
            mixed = builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), x))
            result = builder.emit_output(op.add(mixed, x))
        builder.emit_func_output(result)
    return lower_or_refuse(builder.finalize(), "llvm", "default")


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


@pytest.mark.parametrize("seed", range(tries(3, 150)))
def test_random_graphs_give_the_same_in_pieces(seed: int) -> None:
    given = lower_or_refuse(network(seed), "llvm", "default")
    found, module = cut(given, "main", {"n": 64}, 0.6, chunks=4)
    for n in (0, 1, 3, 4, 5, 7, 64) if found.pieces else ():
        x = np.random.default_rng(n).standard_normal((n, 8)).astype("float32")
        assert outputs(module, "main", [x]) == outputs(given, "main", [x]), n


@pytest.mark.parametrize(("share", "pieces"), [(0.3, 6), (0.21, 13), (0.19, 16), (0.16, 32)])
def test_pieces_are_as_few_as_the_limit_takes(share: float, pieces: int) -> None:
    found, _ = cut(attention(), "main", {"n": 64}, share, chunks=40)
    assert found.pieces.startswith(f"1 group of kernels, {pieces} each: ")  # nine have as many rows as eight


@pytest.mark.parametrize("form", ["json", "script"])
def test_pieces_of_constant_extents_are_written(form: Form) -> None:
    builder, op = relax.BlockBuilder(), relax.op
    x = relax.Var("x", relax.TensorType((64, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            scores = builder.emit(op.matmul(x, op.permute_dims(x)))
            result = builder.emit_output(op.matmul(builder.emit(op.nn.softmax(scores)), x))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    found, module = cut(given, "main", {}, 0.5)
    text = written(relax.transform.LowerAllocTensor()(module), form)
    again = read_one(Path(f"planned.{'py' if form == 'script' else 'json'}"), data=text.encode())
    array = np.random.default_rng(0).standard_normal((64, 8)).astype("float32")
    assert found.pieces and outputs(again, "main", [array]) == outputs(given, "main", [array])


@pytest.mark.parametrize("pipeline", get_args(PipelineName))
def test_a_prefill_takes_a_quarter_of_its_arena(pipeline: PipelineName) -> None:
    shape = llama.Shape(layers=2, hidden=16, heads=2, kv_heads=2, inner=32, vocabulary=16)
    given = lower_or_refuse(llama.decoder(shape), "llvm", pipeline)
    found, module = cut(given, "forward", {"b": 1, "n": 512}, 0.25)
    assert found.pieces.startswith("2 groups of kernels, 6 each: ")
    for n in (1, 5, 6, 7, 100):
        tokens = random_inputs(given["forward"], {"b": 2, "n": n})
        right = outputs(given, "forward", [one.numpy() for one in tokens])
        assert outputs(module, "forward", [one.numpy() for one in tokens]) == right


def test_pieces_lie_in_larger_tensors_and_over_inputs() -> None:
    builder, n, op = relax.BlockBuilder(), tirx.Var("n", "int64"), relax.op
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    weights = np.random.default_rng(0).standard_normal((8, 8, 32)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = [builder.emit(op.matmul(x, relax.const(one))) for one in weights]
            others = [builder.emit(op.tanh(one)) for one in wide[1:]]
            scores = builder.emit(op.matmul(others[-1], op.permute_dims(others[-1])))
            mixed = builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), wide[0]))
            both = builder.emit(op.concat([mixed, *others], axis=1))
            result = builder.emit_output(op.sum(both))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "target")
    _, module = cut(given, "main", {"n": 512}, 0.8)
    names = {one.name_hint for one in module.get_global_vars()}
    assert any("_rows_in_parts" in one for one in names), "a piece makes some of a concatenation"
    assert any("_rows_inplace" in one for one in names), "a piece is written over another"
    for rows in (1, 4, 7, 100, 512):
        given_x = np.random.default_rng(rows).standard_normal((rows, 8)).astype("float32")
        assert outputs(module, "main", [given_x]) == outputs(given, "main", [given_x]), rows


@pytest.mark.parametrize(("pipeline", "share"), [("default", 0.5), ("target", 0.4)])
def test_that_an_empty_call_takes_more_keeps_nothing_whole(pipeline: PipelineName, share: float) -> None:
    given = lower_or_refuse(encoder.masked_bert(width=64), "llvm", pipeline)
    found, module = cut(given, "forward", {"b": 1, "n": 512}, share)
    assert found.pieces, "outputs are written over inputs, although a call without rows takes more then"
    for n in (1, 5, 64):
        arguments = [one.numpy() for one in random_inputs(given["forward"], {"b": 2, "n": n})]
        assert outputs(module, "forward", arguments) == outputs(given, "forward", arguments), n


def test_a_view_of_the_same_extents_is_cut_with_its_tensor() -> None:
    builder, n, op = relax.BlockBuilder(), tirx.Var("n", "int64"), relax.op
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            scores = builder.emit(op.matmul(x, op.permute_dims(x)))
            again = builder.emit(op.reshape(scores, (n, n)))
            mixed = builder.emit(op.matmul(builder.emit(op.nn.softmax(again)), x))
            result = builder.emit_output(op.tanh(mixed))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    found, module = cut(given, "main", {"n": 64}, 0.6)
    assert found.pieces
    for rows in (1, 7, 64):
        given_x = np.random.default_rng(rows).standard_normal((rows, 8)).astype("float32")
        assert outputs(module, "main", [given_x]) == outputs(given, "main", [given_x]), rows


@pytest.mark.parametrize("chunks", [1, 4])
def test_what_lies_in_the_callers_arena_one_behind_the_other_lints_clean(chunks: int) -> None:
    builder, n, op = relax.BlockBuilder(), tirx.Var("n", "int64"), relax.op
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    weights = np.random.default_rng(0).standard_normal((2, 8, 32)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = [builder.emit(op.tanh(builder.emit(op.matmul(x, relax.const(one))))) for one in weights]
            sums = [builder.emit(op.sum(one, axis=1, keepdims=True)) for one in wide]
            result = builder.emit_output(op.subtract(*sums))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    options = PlanOptions(shrink="safe", max_arena=6000, chunks=chunks, sizes={"n": 64}, arena="caller")
    planned = plan_or_refuse(given, "llvm", options)
    assert any("_inplace" in one.name_hint for one in planned.module.get_global_vars())
    summary = symalloc.lint(planned.module).summary
    assert planned.plans["main"].pieces and summary.always_invalid == summary.unknown == 0


def test_what_is_made_in_pieces_is_written_anew_where_something_else_was() -> None:
    builder, n, op = relax.BlockBuilder(), tirx.Var("n", "int64"), relax.op
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(op.tanh(op.subtract(x, op.mean(x, axis=1, keepdims=True))))
            half = builder.emit(op.split(op.concat([x, x], axis=1), 2, axis=1))[0]
            result = builder.emit_output(op.tanh(heads(builder, n, op.tanh(op.nn.relu(half)))))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    options = PlanOptions(shrink="safe", max_arena=24000, chunks=5, sizes={"n": 64}, arena="caller")
    planned = plan_or_refuse(given, "llvm", options)
    found = [one.message for one in symalloc.lint(planned.module).diagnostics if one.severity != "note"]
    assert planned.plans["main"].pieces and not any("result `alloc2` over it" in one for one in found)


def test_a_piece_that_is_read_in_strides_is_written_anew_as_far_as_that() -> None:
    builder, n, op = relax.BlockBuilder(), tirx.Var("n", "int64"), relax.op
    x, w = (relax.Var(*one) for one in (("x", rows_of(n, 16)), ("w", rows_of(16, 16))))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            one = builder.emit(op.matmul(x, w))
            shares = builder.emit(op.nn.softmax(op.matmul(one, op.permute_dims(x))))
            some = builder.emit(op.strided_slice(op.matmul(shares, one), [1], [1], [15], [3]))
            result = builder.emit_output(op.matmul(some, op.permute_dims(some)))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    options = PlanOptions(
        shrink="safe", max_arena=20000, chunks=16, sizes={"n": 64}, arena="caller", results="caller"
    )
    planned = plan_or_refuse(given, "llvm", options)
    assert planned.plans["main"].pieces and errors(planned.module) == []
    text = planned.module.script()
    call = [line for line in text.splitlines() if "cls.matmul2_rows(" in line][-1]
    wrong = tvm.script.from_source(text.replace(call, f"{call[:-1]} - 1)"))  # a row of the last piece is left
    assert [found[:6] for found in errors(wrong)] == ["SYM113"]


@pytest.mark.parametrize("module", [EFFECTS.Prints, EFFECTS.Cache, EFFECTS.GivenCache])
def test_what_has_effects_stays_whole(module: tvm.IRModule) -> None:
    given = lower_or_refuse(module, "llvm", "default")
    options = PlanOptions(shrink="safe", max_arena=0, chunks=3, sizes={"n": 64})
    assert not any(plan.pieces for plan in plan_or_refuse(given, "llvm", options).plans.values())


@pytest.mark.parametrize(("name", "given"), [("Scores", {"n": 64, "k": 64}), ("Joined", {"k": 4})])
def test_what_a_kernel_refuses_is_refused_in_pieces_and_parts(name: str, given: Mapping[str, int]) -> None:
    lowered = lower_or_refuse(getattr(modules_to_cut, name), "llvm", "default")
    options = PlanOptions(shrink="safe", max_arena=9216, chunks=8, sizes=given)
    machine = machines(
        plan_or_refuse(lowered, "llvm", options).module, "naive", target="llvm", pipeline="default"
    )[0]
    x, y = (np.ones(extents, "float32") for extents in ((given.get("n", 4), 8), (7,)))
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
    given = lower_or_refuse(modules_to_cut.Shifted, "llvm", "default")
    options = PlanOptions(shrink="safe", max_arena=9216, chunks=8, sizes={"n": 64})
    module = plan_or_refuse(given, "llvm", options).module
    x = np.random.default_rng(0).standard_normal((64, 8)).astype("float32")
    assert outputs(module, "main", [x]) == outputs(given, "main", [x])


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


@pytest.mark.parametrize("share", [0.7, 0.5])
def test_scores_of_heads_are_cut_as_they_are_reshaped(share: float) -> None:
    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.tanh(heads(builder, n, x)))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    found, module = cut(given, "main", {"n": 64}, share)
    assert found.pieces.startswith("1 group of kernels")
    for rows in (1, 2, 5, 13, 64):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype("float32")
        assert outputs(module, "main", [x]) == outputs(given, "main", [x]), rows


def test_a_tensor_that_is_reshaped_to_other_rows_stays_whole() -> None:
    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    weight = relax.const(np.eye(8, 64, dtype="float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.exp(builder.emit(relax.op.matmul(x, weight))))
            turned = builder.emit(relax.op.reshape(wide, (8 * n, 8)))
            result = builder.emit_output(relax.op.sum(builder.emit(relax.op.exp(turned)), axis=1))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
    _, module = cut(given, "main", {"n": 64}, 0.5)
    for rows in (1, 7, 64):
        x = np.random.default_rng(0).standard_normal((rows, 8)).astype("float32")
        assert outputs(module, "main", [x]) == outputs(given, "main", [x])
