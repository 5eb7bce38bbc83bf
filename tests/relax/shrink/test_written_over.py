"""Outputs in the memory of what their calls read last: found by hand, on random programs, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.analysis.conflicts import ReuseConflicts
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner import plan_functions
from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.check.validate import PlanFault
from symalloc.planner.interference import peaks_beside
from symalloc.planner.memory_plan import Plan, PlanOptions
from symalloc.planner.memory_report.non_arena import PAGE
from symalloc.planner.planned_program import planned_program
from symalloc.program.ir import Operand, Program, TupleValue, Var
from symalloc.program.types import TupleType
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import Overlay
from symalloc.relax.extract import extract
from symalloc.relax.files.plan_file import plan_module
from symalloc.relax.passes import plan_pass
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.shrink.written_over import OverwriteSearch, WrittenOver, is_in_step, write_over
from symalloc.size.condition import ge
from symalloc.size.expr import symbol
from tests.models.planned import imported_case
from tests.planner.random_programs import Maker, logs
from tests.program.build import Body, param
from tests.relax.built import bits, errors, graph, machine, rows
from tests.relax.donation.steps import Steps, in_one_memory, program_of_maker

OP = relax.op

_FIRST = """with T.init():
                    {}
                """


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("out[vi] = a[vi]", "more[vi] = out[vi]", True),
        ("out[vi] = a[vi]", "more[vi] = a[vi]", False),
        ("out[vi] = a[7 - vi]", "more[vi] = out[vi]", False),
        ("out[vi] = a[vi]", _FIRST.format("more[vi] = a[vi]") + "more[vi] = more[vi] + out[vi]", False),
        (_FIRST.format("out[vi] = T.float32(5)") + "out[vi] = a[vi]", "more[vi] = out[vi]", False),
    ],
)
def test_kernels_in_step(first: str, second: str, expected: bool) -> None:
    buffers = ", ".join(f'{one}: T.Buffer((8,), "float32")' for one in ("a", "out", "more"))
    stages = "".join(
        f"""
        for i in range(8):
            with T.sblock("{block}"):
                vi = T.axis.spatial(8, i)
                {stores}"""
        for block, stores in (("first", first), ("second", second))
    )
    kernel = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def kernel({buffers}):
    with T.sblock("root"):{stages}
""")
    assert is_in_step(kernel, Overlay(inputs=frozenset({0}), output=1)) is expected


def found(program: Program, *, results: bool = False) -> Sequence[WrittenOver]:
    """What can be written over what, where every kernel can."""
    analysis = analyse(program)["main"]
    search = OverwriteSearch(analysis=analysis, prover=Prover(), in_place=lambda *_: True, results=results)
    return tuple(search.pairs())


@pytest.mark.parametrize(
    ("steps", "over"),
    [
        ("a = made x; b = made a; c = made b; r = made c", "b=a c=b r=c"),  # a chain, one memory
        ("a = made x; b = made x; c = made a b; r = made c", "c=a r=c"),  # of two the one that is there first
        ("a = made x; b = made a; read a; r = made b", "r=b"),
        ("a = made x; l = alias a; b = made a; read l; r = made b", "r=b"),
        ("a = made x; l = reshape a n 1; b = made a; read l; r = made b", "r=b"),
        ("a = made x; l = view a 1; b = made a; read l; r = made b", "r=b"),
        ("a = made x; l = cast a n; b = made a; read l; r = made b", "r=b"),
        ("a = made x; l = argument a; b = made a; read l; r = made b", "r=b"),
        ("a = made x; p = tuple a x; b = made a; l = take p 0; read l; r = made b", "r=b"),
        ("a = made x; p = packed unknown a; b = made a; r = made b", "r=b"),  # it may keep it
        ("a = made x; b = made a; update a; r = made b", "r=b"),
        ("a = made x; b = made a; c = made a; r = made b c", "c=a r=b"),
        ("a = made x; b = longer a; r = made b", ""),
        ("a = made x; b = floats a; r = made b", ""),
        ("a = made x; b = turned a; r = made b", ""),
        ("a = made x; b = made a; fill b; c = made b; r = made c", "b=a c=b r=c"),
        ("a = made x; r = made a", "r=a"),
        ("a = made x; r = made a; read a", ""),
        ("a = made x; b = made a; r = tuple a b", ""),  # both are results
        ("a = made x; b = made a; c = made b; r = tuple b c", "b=a"),
        ("r = made x", ""),  # an argument, and a result
    ],
)
def test_what_is_written_over_what(steps: str, over: str) -> None:
    body = Steps(param("x", "n"))
    known = body.follow(steps, x=body.params[0])
    names = {var: name for name, var in known.items() if isinstance(var, Var)}
    program = body.program(known["r"])
    with_results, without = (found(program, results=results) for results in (True, False))
    assert " ".join(f"{names[one.output]}={names[one.source]}" for one in with_results) == over
    _, _, verb, *fields = next(step for step in steps.split("; ") if step.startswith("r = ")).split()
    returned = {known[name] for name in (fields if verb == "tuple" else "r")}
    assert [*without] == [one for one in with_results if one.output not in returned]


def random_program(seed: int) -> Program:
    random = Random(seed)
    x, y = param("x", "n"), param("y", "m")
    maker = Maker(random, Body(x, y, Var("nothing", TupleType(fields=()))), {x: "n", y: "m"})
    maker.extents = ["n", "m"]
    maker.grow(random.randint(4, 14))
    result: Operand = maker.pick()[0] if seed % 3 else TupleValue((maker.pick()[0], maker.pick()[0]))
    return program_of_maker(maker, result)


def in_homes(pairs: Sequence[WrittenOver]) -> Plan:
    """The plan that puts each output into the memory of the tensor that it lies in."""
    homes: dict[Var, list[Var]] = {}
    home: dict[Var, Var] = {}
    for one in pairs:
        home[one.output] = home.get(one.source, one.source)
        homes.setdefault(home[one.output], [home[one.output]]).append(one.output)
    return Plan(function="main", arenas=tuple(in_one_memory(each, root) for root, each in homes.items()))


def test_random_programs_compute_the_same_in_the_memory_of_others() -> None:
    shared = 0
    for seed in range(200):
        program = random_program(seed)
        pairs = found(program, results=seed % 2 == 0)
        plans = {"main": in_homes(pairs)}
        shared += len(pairs)
        for path in range(4 if pairs else 0):
            for at in ({"n": 70, "m": 70}, {"n": 200, "m": 64}):
                assert logs(program, plans, at, path).log == logs(program, {}, at, path).log, seed
    assert shared > 60


@pytest.fixture(scope="module")
def lowered() -> tvm.IRModule:
    def write(emit: Any, x: relax.Var, w: relax.Var) -> relax.Expr:
        turned = emit(OP.flip(emit(OP.nn.relu(emit(OP.matmul(x, w)))), 0))
        shares = emit(OP.nn.softmax(emit(OP.exp(turned))))
        twice = emit(OP.multiply(shares, relax.const(2, "float32")))
        return OP.matmul(emit(OP.add(shares, twice)), w)

    return lower(graph(write, x=("n", 16), w=(16, 16)), "llvm")


def test_a_module_is_planned_linted_and_run_in_place(lowered: tvm.IRModule) -> None:
    shared, apart = (plan_lowered(lowered, options=PlanOptions(shrink=how)) for how in ("safe", "none"))
    (pairs,) = shared.over.values()
    assert [one.call for one in pairs] and not apart.over
    assert len(pairs) == 4  # relu, exp, softmax, add; not what turns rows around, nor a product
    assert not errors(shared.module)
    kernels = {v.name_hint for v in shared.module.get_global_vars()}
    assert {"relu_inplace", "tir_exp_inplace", "softmax_inplace", "flip"} <= kernels
    assert kernels.isdisjoint({"relu", "tir_exp", "softmax"})
    given = shared.plans["main"].arenas, apart.plans["main"].arenas
    sizes = [sum(arena.size.evaluate({"n": 512}) for arena in arenas) for arenas in given]
    assert sizes[0] * 3 == sizes[1] * 2 or sizes[0] < sizes[1]
    mine, theirs, w = machine(shared.module), machine(lowered), rows(16, 16)
    assert all(bits(mine, rows(n, 16), w) == bits(theirs, rows(n, 16), w) for n in (0, 1, 5, 64))


def test_a_result_in_the_memory_of_another_tensor_is_the_callers_own() -> None:
    def write(emit: Any, x: relax.Var, w: relax.Var) -> relax.Expr:
        b = emit(OP.nn.relu(emit(OP.matmul(x, w))))
        return relax.Tuple([b, emit(OP.exp(emit(OP.matmul(b, w))))])

    given = lower(graph(write, x=("n", 16), w=(16, 16)), "llvm")
    plan = plan_lowered(given, options=PlanOptions(shrink="safe"))
    assert len(plan.over["main"]) == 2
    assert not errors(plan.module)
    built, w = machine(plan.module), tvm.runtime.tensor(rows(16, 16))
    kept = [(n, list(built["main"](tvm.runtime.tensor(rows(n, 16)), w))) for n in (5, 5, 1, 64)]
    theirs = machine(given)
    for n, mine in kept:
        assert [one.numpy().tobytes() for one in mine] == bits(theirs, rows(n, 16), w)


BY_ROWS = """
@I.ir_module
class ByRows:
    @T.prim_func(private=True, s_tir=True)
    def turned(a: T.handle, out: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 512), "float32")
        B = T.match_buffer(out, (n, 512), "float32")
        row = T.sblock_alloc_buffer((n, 512), "float32")
        for i in range(n):
            for j in range(512):
                row[i, j] = A[i, j]
            for j in range(512):
                B[i, j] = row[i, 511 - j]

    @R.function
    def main(x: R.Tensor(("n", 512), "float32"), w: R.Tensor((512, 512), "float32")):
        n = T.int64()
        a = R.matmul(x, w)
        b = R.call_tir(ByRows.turned, (a,), R.Tensor((n, 512), "float32"))
        return R.matmul(b, w)
"""


def test_what_kernels_in_place_take_for_themselves_is_told() -> None:
    module = tvm.script.from_source(BY_ROWS)
    plans = [plan_module(module, options=PlanOptions(shrink=how)) for how in ("safe", "none")]
    taken = [[use.nbytes for use in one.report.of("main").outside.kernels] for one in plans]
    assert [len(one.over) for one in plans] == [1, 0]
    assert taken[0] == taken[1] != []


def test_what_is_compared_without_proof_is_planned_again_where_it_has_none(
    lowered: tvm.IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = PlanFault(problem="is open", buffers=("t0",), constraint=ge(symbol("n"), 1), binding=None)
    judged = list[bool]()

    def judge(plan: Plan, *_: object) -> tuple[PlanFault, ...]:
        judged.append(any(one.kind == "storages" for one in plan.fallbacks))
        return () if judged[-1] else (fault,)

    monkeypatch.setattr(plan_functions, "validate", judge)
    planned = plan_lowered(lowered, options=PlanOptions(shrink="safe"))
    assert not judged[0]
    assert all([one.kind for one in plan.fallbacks] == ["storages"] for plan in planned.plans.values())


@pytest.mark.parametrize(("model", "saves"), [("torch_cross_attention", True), ("torch_unet", False)])
def test_a_plan_in_place_takes_a_page_more_only_where_it_saves_more_elsewhere(
    monkeypatch: pytest.MonkeyPatch, model: str, saves: bool
) -> None:
    lowered = lower(imported_case(model).build(), "llvm")

    def planned(function: str, stand_in: Callable[..., object]) -> PlannedModule:
        with monkeypatch.context() as patch:
            patch.setattr(plan_pass, function, stand_in)
            return plan_lowered(lowered, options=PlanOptions(shrink="safe"))

    def changes(one: PlannedModule, other: PlannedModule) -> list[int]:
        domain = known_symbols(one.analyses["main"].cfg).domain
        written = (planned_program(each.program, each.plans).program for each in (one, other))
        peaks = peaks_beside(*(Timeline.of(program, "main") for program in written), domain)
        return [mine - theirs for mine, theirs in peaks]

    apart = planned("write_over", lambda module, *_: (module, {}))
    anyhow = planned("_takes_more", lambda _: False)
    assert max(changes(anyhow, apart)) > 0
    found = changes(plan_lowered(lowered, options=PlanOptions(shrink="safe")), apart)
    assert max(found) <= PAGE and (-min(found) > max(found) > 0) is saves


def test_a_tensor_in_place_of_a_smaller_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(emit: Any, x: relax.Var, w: relax.Var) -> relax.Expr:
        return OP.matmul(emit(OP.nn.pad(emit(OP.matmul(x, w)), [0, 1, 0, 0])), w)

    lowered = lower(graph(write, x=("n", 16), w=(16, 16)), "llvm")
    assert not plan_lowered(lowered, options=PlanOptions(shrink="safe")).over
    monkeypatch.setattr(OverwriteSearch, "alike", lambda search, a, b: (a != b) and b not in search.groups)
    program = extract(lowered, name="module", stage="CallTIRRewrite", handles=True)
    wrong, over = write_over(lowered, program, analyse(program))
    assert [(one.source.name, one.output.name) for one in over["main"]] != []
    assert errors(wrong)


def _views(emit: Any, x: relax.Var, w: relax.Var, a: relax.Var, b: relax.Var) -> relax.Expr:
    again = emit(OP.reshape(a, relax.ShapeExpr([x.ty.shape[0] * 16 // 16, 16])))
    return OP.matmul(again, emit(OP.matmul(emit(OP.permute_dims(b)), x)))


# what is read of `a` behind `b`, the relu of it
LATER: Sequence[Callable[..., relax.Expr]] = (
    lambda emit, x, w, a, b: OP.matmul(emit(OP.add(a, b)), w),
    _views,
    lambda emit, x, w, a, b: OP.multiply(emit(OP.matmul(b, w)), emit(OP.sum(a))),
)


@pytest.mark.parametrize("last", LATER)
def test_the_linter_finds_what_is_read_after_it_was_written_over(
    last: Callable[..., relax.Expr], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the search: nothing is taken to be needed later."""

    def write(emit: Any, x: relax.Var, w: relax.Var) -> relax.Expr:
        a = emit(OP.matmul(x, w))
        return last(emit, x, w, a, emit(OP.nn.relu(a)))

    module = lower(graph(write, x=("n", 16), w=(16, 16)), "llvm")
    right = plan_lowered(module, options=PlanOptions(shrink="safe"))
    assert not errors(right.module)
    monkeypatch.setattr(ReuseConflicts, "takeover", lambda *_: iter(()))
    wrong = plan_lowered(module, options=PlanOptions(shrink="safe"))
    assert wrong.over != right.over
    assert any(one.startswith("SYM113") for one in errors(wrong.module))


def _difference(emit: Any, x: relax.Var) -> relax.Expr:
    """The kernel takes a tensor twice: in one buffer with the result, TVM would make 0 of the difference."""
    flipped = emit(OP.flip(x, 0))
    return OP.flip(emit(OP.subtract(flipped, flipped)), 0)


def _joined(emit: Any, x: relax.Var) -> relax.Expr:
    """The kernel reads one part of a tensor twice, and stores to another."""
    flipped = emit(OP.flip(x, 0))
    zero = emit(OP.subtract(flipped, flipped))
    return OP.sqrt(emit(OP.concat([flipped, zero], axis=1)))


@pytest.mark.parametrize(
    ("write", "columns", "expected"),
    [(_difference, 1, [[np.nan], [0]]), (_joined, 64, [[1] * 64 + [0] * 64, [np.inf] * 64 + [np.nan] * 64])],
)
def test_a_tensor_less_itself_is_nan_where_it_is_infinite(
    write: Callable[..., relax.Expr], columns: int, expected: list[list[float]]
) -> None:
    planned = plan_lowered(lower(graph(write, x=("n", columns)), "llvm"), options=PlanOptions(shrink="safe"))
    x = np.ones((2, columns), "float32")
    x[0] = np.inf
    got = machine(planned.module)["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, np.array(expected, "float32"))
