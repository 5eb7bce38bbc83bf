"""SYM113: results that are views of a parameter, and reads of it afterwards."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Severity
from symalloc.program.ir import Operand, Ownership, TupleValue, Var
from tests.linter.engine_run import findings
from tests.program.build import Body, param

RULE = "SYM113"


def told(body: Body, result: Operand) -> list[str]:
    return [d.severity for d in findings(body.program(result), RULE)]


def viewed(*steps: str) -> tuple[Body, Var, Var]:
    """A function of x and z, and y, a view of x; `steps` are calls of kernels, such as `copy x y`."""
    body = Body(param("x", "n"), param("z", "n"))
    x, z = body.params
    y = body.view(x, "n")
    for step in steps:
        body.follow(step, x=x, y=y, z=z)
    return body, x, y


def test_a_read_of_what_is_overwritten() -> None:
    body, x, y = viewed("fill y")
    body.call("read", body.alias(x, "again"))
    (found,) = findings(body.program(y), RULE)
    assert found.severity is Severity.ERROR
    assert found.message == "`read` reads `x` after `fill` has written the result `v1` over it"
    assert "`x` is reached through `again`" in found.notes


@pytest.mark.parametrize(
    ("steps", "severities"),
    [
        (["read x", "fill y", "read y"], []),
        (["fill y", "fill x", "read x"], []),  # written anew before it is read
        (["copy x y"], []),  # that is SYM211
        (["update y", "read x"], ["warning"]),
        (["scatter y", "read x"], ["warning"]),
        (["update y", "read x", "fill y", "update x"], ["error"]),  # the surest of several
    ],
)
def test_reads_and_writes(steps: list[str], severities: list[str]) -> None:
    body, _, y = viewed(*steps)
    assert told(body, y) == severities


def test_what_is_returned_counts() -> None:
    body, x, y = viewed("fill y")
    assert told(body, TupleValue((y, x))) == ["warning"]
    body, x, y = viewed("fill y", "read x")
    assert told(body, body.params[1]) == []  # a part of x that is written, and no result


def test_branches() -> None:
    body, x, y = viewed()

    def writes() -> Operand:
        body.call("fill", y)
        return y

    def reads() -> Operand:
        body.call("read", x)
        return y

    result = body.branch(writes, reads)
    assert told(body, result) == []
    body.call("read", x)
    assert told(body, result) == ["error"]


def test_a_doubtful_alias() -> None:
    body, x, y = viewed()
    maybe = body.packed("unknown", x, ownership=Ownership.UNKNOWN)
    body.call("fill", y)
    body.call("read", maybe)
    assert told(body, y) == ["warning"]
