"""Needs of functions, followed into their callers."""

from __future__ import annotations

from symalloc.program.ir import Program
from symalloc.program.types import TupleType
from symalloc.prover.verdict import Verdict
from tests.linter.engine_run import findings, run
from tests.program.build import Body, param, program_of


def callee() -> Body:
    body = Body(param("x", "n"), name="callee")
    body.call("fill", body.tensor(body.storage(16), "n"))
    return body


def caller(extent: int | str, name: str = "main", *, of: str = "callee") -> Body:
    body = Body(param("z", extent), name=name)
    body.function(of, body.params[0], kind=TupleType(fields=()))
    return body


def test_a_need_of_a_private_function_that_all_calls_meet_is_no_finding() -> None:
    program = program_of(caller(8).finish(), callee().finish(private=True))
    result = run(program, "SYM101", "SYM304")
    assert not result.diagnostics
    assert result.summary.guarded == 1


def test_a_call_that_does_not_meet_a_need_is_reported_and_so_is_the_need() -> None:
    program = program_of(caller(17).finish(), caller(8, "other").finish(), callee().finish(private=True))
    found = {(d.rule, d.function, d.verdict) for d in findings(program, "SYM101", "SYM304")}
    assert found == {
        ("SYM101", "callee", Verdict.RUNTIME_CHECK),
        ("SYM304", "main", Verdict.ALWAYS_INVALID),
    }


def test_needs_travel_up_through_private_callers() -> None:
    def top(extent: int) -> Program:
        middle = caller("m", "middle").finish(private=True)
        return program_of(caller(extent, of="middle").finish(), middle, callee().finish(private=True))

    assert not findings(top(8), "SYM101", "SYM304")
    assert {d.function for d in findings(top(20), "SYM101", "SYM304")} == {"main", "middle", "callee"}


def test_a_public_function_keeps_its_findings() -> None:
    program = program_of(caller(8).finish(), callee().finish())
    assert [d.rule for d in findings(program, "SYM101", "SYM304")] == ["SYM101"]


def test_a_guard_in_front_of_the_call_meets_the_need() -> None:
    body = Body(param("z", "m"))
    body.check("m <= 16")
    body.function("callee", body.params[0], kind=TupleType(fields=()))
    assert not findings(program_of(body.finish(), callee().finish(private=True)), "SYM101", "SYM304")


def test_recursion_ends_and_keeps_the_finding() -> None:
    body = callee()
    body.function("callee", body.params[0], kind=TupleType(fields=()))
    program = program_of(body.finish(private=True), caller(8).finish())
    assert [d.rule for d in findings(program, "SYM101", "SYM304")] == ["SYM101"]
