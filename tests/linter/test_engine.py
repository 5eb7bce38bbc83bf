"""The engine's verdicts: domains, facts, declared bounds, what is counted."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Report, Severity
from symalloc.program import ir
from symalloc.program.types import OpaqueType, StorageType
from symalloc.prover.domain import Verdict
from symalloc.size.parse import parse_condition
from tests.linter.engine_run import findings, run, verdicts
from tests.program.build import F32, KERNELS, Body, buffer, param, program_of


def placed(nbytes: int | str, *extents: int | str, check_first: str | None = None) -> ir.Program:
    """One tensor on one storage, behind an assert."""
    body = Body(param("x", "n"))
    storage = body.storage(nbytes)
    if check_first:
        body.check(check_first)
    body.call("fill", body.tensor(storage, *extents, dtype=F32))
    return body.program()


@pytest.mark.parametrize("known", ["n % 4 == 3", "n >= 70", "n <= 0"])
def test_what_is_wrong_at_every_shape_comes_with_a_shape_that_gets_there(known: str) -> None:
    (found,) = findings(placed(15, 4, check_first=known), "SYM101")
    assert found.verdict is Verdict.ALWAYS_INVALID
    assert found.counterexample is not None
    assert found.counterexample.keys() == {"m", "n"}
    assert parse_condition(known).evaluate(found.counterexample)


def test_empty_tensors_count_where_only_they_break_a_rule() -> None:
    """4*n + 4 bytes for n floats fit always, 8*n for n + 1 of them everywhere but where n is 0."""
    assert not findings(placed("4*n + 4", "n"), "SYM101")
    (found,) = findings(placed("8*n", "n + 1"), "SYM101")
    assert found.counterexample == {"n": 0}


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ("s = storage 4; a = tensor s n; _ = check n<=4", "runtime-check"),
        ("c = cast x 4; s = storage 4; a = tensor s n", None),
        ("s = storage 4; a = tensor s n; c = cast x 4", "runtime-check"),
        ("s = storage n; o = storage m; b = tensor o m; add x y b; a = tensor s m", None),
        ("s = storage n; o = storage m; b = tensor o m; a = tensor s m", "runtime-check"),
        # no tensor has 8 and 9 elements: behind both calls everything would hold, were they believed
        ("take8 x; take9 x; s = storage n; a = tensor s n+1", "always-invalid"),
    ],
)
def test_asserts_casts_and_calls_prove_what_stands_behind_them(steps: str, verdict: str | None) -> None:
    taking = [ir.Kernel(name=f"take{k}", parameters=(buffer("a", k, writes=False),)) for k in (8, 9)]
    body = Body(param("x", "n"), param("y", "m"))
    body.follow(steps)
    program = program_of(body.finish(), kernels={**KERNELS, **{kernel.name: kernel for kernel in taking}})
    assert verdicts(program, "SYM101") == ([] if verdict is None else [verdict])


def test_a_cast_that_may_fail_is_guarded() -> None:
    body = Body(param("x", "n"))
    body.cast(body.params[0], 4)
    result = run(body.program(), "SYM301")
    assert not result.diagnostics
    assert (result.summary.runtime_check, result.summary.guarded) == (1, 1)


@pytest.mark.parametrize(
    ("condition", "behind", "verdict"),
    [
        ("n <= 4", False, [Verdict.ALWAYS_INVALID]),  # in the else-branch n >= 5
        ("n < 0", False, [Verdict.RUNTIME_CHECK]),  # nothing reaches the other
        ("n <= 4", True, [Verdict.RUNTIME_CHECK]),
    ],
)
def test_a_test_holds_on_its_branch_and_its_negation_on_the_other(
    condition: str, behind: bool, verdict: list[Verdict]
) -> None:
    body = Body(param("x", "n"))
    storage = body.storage(4)

    def place() -> ir.Operand:
        return body.params[0] if behind else body.tensor(storage, "n")

    body.branch(place, place, condition=condition)
    if behind:
        body.tensor(storage, "n")
    assert verdicts(body.program(), "SYM101") == verdict


def test_two_extents_that_bind_one_symbol_are_compared() -> None:
    body = Body(param("x", "n", "m"))
    body.cast(body.params[0], "k", "k", defines=["k"])
    symbols = {"n": ir.Origin.DIMENSION, "m": ir.Origin.DIMENSION, "k": ir.Origin.CAST}
    result = run(body.program(symbols=symbols), "SYM301")
    assert (result.summary.constraints, result.summary.runtime_check) == (1, 1)
    assert not findings(body.program(symbols=symbols), "SYM310")  # TVM compares what one cast binds twice


def test_a_kernel_that_compared_shapes_proves_what_follows() -> None:
    def program(*, call: bool) -> ir.Program:
        body = Body(param("x", "n"), param("y", "m"))
        storage, other = body.storage("n"), body.storage("m")
        out = body.tensor(other, "m")
        if call:
            body.call("add", *body.params, out)
        body.tensor(storage, "m")
        return body.program()

    assert not findings(program(call=True), "SYM101")
    assert findings(program(call=False), "SYM101")


def test_calls_that_contradict_each_other_do_not_silence_what_follows() -> None:
    """No tensor has 8 and 9 elements: behind both calls everything would hold, were they believed."""
    wanted = (ir.Kernel(name=f"take{k}", parameters=(buffer("a", k, writes=False),)) for k in (8, 9))
    kernels = {kernel.name: kernel for kernel in wanted}
    body = Body(param("x", "n"))
    body.call("take8", body.params[0])
    body.call("take9", body.params[0])
    body.tensor(body.storage("n"), "n + 1")
    found = findings(program_of(body.finish(), kernels=kernels), "SYM101")
    assert [d.verdict for d in found] == [Verdict.ALWAYS_INVALID]


def bounded() -> ir.Program:
    body = Body(param("x", "n"))
    body.follow(
        "s = storage 4*4; a = tensor s n dtype=F32; fill a; b = tensor s n dtype=F32; fill b", F32=F32
    )
    return body.program(declared_upper={"n": 4})


def test_a_declared_bound_replaces_the_findings_that_need_it_and_lists_their_places() -> None:
    (found,) = findings(bounded(), "SYM1", "SYM4")
    assert found.rule == "SYM401"
    assert found.counterexample == {"n": 5}
    assert "`a` and `b`" in found.message
    assert [(one.rule, one.constraint) for one in found.dependents] == [("SYM101", "n <= 4")] * 2


def test_an_assumption_stands_in_for_a_declared_bound() -> None:
    assert not [d for d in run(bounded(), assume=("n <= 3",)) if d.rule in ("SYM101", "SYM401")]
    found = [d.rule for d in run(bounded(), assume=("n <= 9",)) if d.rule in ("SYM101", "SYM401")]
    assert found == ["SYM401"]


def test_a_counterexample_keeps_to_declared_bounds_where_one_does() -> None:
    body = Body(param("x", "n"))
    body.tensor(body.storage(16), "n", dtype=F32)
    (found,) = findings(body.program(declared_upper={"n": 64}, declared_lower={"n": 12}), "SYM101")
    assert found.counterexample == {"n": 12} and not found.smallest
    assert "the counterexample keeps to the declared bounds" in found.notes


@pytest.mark.parametrize(("upper", "lower"), [({"n": 5}, {}), ({"n": 4}, {"n": 8})])
def test_bounds_that_do_not_suffice_or_contradict_each_other_excuse_nothing(
    upper: dict[str, int], lower: dict[str, int]
) -> None:
    body = Body(param("x", "n"))
    body.tensor(body.storage(16), "n", dtype=F32)
    program = body.program(declared_upper=upper, declared_lower=lower)
    assert [d.rule for d in findings(program, "SYM101", "SYM401")] == ["SYM101"]


@pytest.mark.parametrize(
    ("given", "extents", "assume", "faulty"),
    [
        (("n",), ("n", 64), [], False),
        (("n",), ("n", "n", 32), [], False),
        (("n",), ("n", "n", "n"), [], True),
        (("n",), (2**42, "n"), [], True),
        (("n", "c", "h", "w"), ("n", 32, "h", "w"), [], False),  # without channels of any other size
        ((), ("n", 2**40), [], True),
        ((), ("n", 2**40), ["n <= 1000"], False),
        ((), ("n", 2**40), ["n >= 8388608"], True),  # only large inputs are left
    ],
)
def test_overflow_is_a_finding_where_ordinary_inputs_can_cause_it(
    given: tuple[str, ...], extents: tuple[int | str, ...], assume: list[str], faulty: bool
) -> None:
    body = Body(*([param("x", *given, dtype=F32)] if given else []))
    body.tensor(body.storage(64), *extents, dtype=F32)
    assert bool(findings(body.program(), "SYM105", assume=assume)) is faulty


def test_results_on_storages_that_outlive_the_call() -> None:
    given = ir.Var("arena", StorageType())
    body = Body(given)
    tensor = body.tensor(given, 8)
    [found] = findings(body.program(tensor), "SYM207")
    assert (found.severity, found.reason) == (Severity.NOTE, "the next call may be given another `arena`")
    assert not findings(body.program(tensor, private=True), "SYM207")


def test_reports_are_joined() -> None:
    one, two = run(placed(16, "n"), "SYM101"), run(placed("4*n", "n"), "SYM101")
    both = Report.joined([one, two])
    assert len(both.diagnostics) == 1
    assert (both.summary.constraints, both.summary.functions) == (2, 2)
    assert (both.summary.always_valid, both.summary.runtime_check) == (1, 1)


def test_long_and_deep_functions() -> None:
    body = Body(param("x", "n"))
    storage = body.storage("n")
    last: ir.Operand = body.params[0]
    for _ in range(1200):  # more than Python calls within calls
        last = body.alias(last)
        body.call("copy", last, body.tensor(storage, "n"))

    def nest(depth: int) -> ir.Operand:
        if depth == 0:
            return body.tensor(storage, "n + 1")
        return body.branch(lambda: nest(depth - 1), lambda: body.params[0])

    nest(200)
    found = findings(body.program(), "SYM101", "SYM203")
    assert [d.rule for d in found] == ["SYM101"]


def test_choices_among_choices_do_not_explode() -> None:
    body = Body(param("x", "n"))
    tensor = body.tensor(body.storage("n"), "n")
    body.call("fill", tensor)
    for _ in range(60):
        tensor = _either_view_or_argument(body, tensor)
    body.call("read", tensor)
    assert not findings(body.program(ir.TupleValue((tensor,))), "SYM203")


def _either_view_or_argument(body: Body, tensor: ir.Var) -> ir.Var:
    def other() -> ir.Operand:
        return body.packed("f", tensor, body.params[0], ownership=ir.Ownership.ARGUMENT)

    return body.branch(lambda: body.view(tensor, "n"), other)


def test_a_tensor_is_no_storage_that_others_are_placed_on() -> None:
    """What the packed function returns may be its argument, as far as ownership goes."""
    body = Body(param("x", "n"))
    storage = body.packed("make", body.params[0], kind=OpaqueType())
    first = body.tensor(storage, "n", name="first")
    body.call("fill", first)
    body.call("read", body.params[0])
    assert {d.rule for d in findings(body.program(), "SYM101", "SYM203")} <= {"SYM101"}
    assert len(findings(body.program(), "SYM101")) == 1
