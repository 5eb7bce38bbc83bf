"""SYM113: results that are views of a parameter, and reads of it afterwards."""

from __future__ import annotations

from symalloc.linter.diagnostic import Severity
from symalloc.program.ir import Operand, Ownership, TupleValue, Var
from tests.linter.engine_run import findings
from tests.program.build import Body, param

RULE = "SYM113"


def told(body: Body, result: Operand) -> list[tuple[Severity, str]]:
    return [(d.severity, d.message) for d in findings(body.program(result), RULE)]


def viewed(*extents: int | str) -> tuple[Body, Var, Var]:
    """A function of x and z, and a view of x."""
    body = Body(param("x", "n"), param("z", "n"))
    return body, body.params[0], body.view(body.params[0], *(extents or ("n",)))


def test_a_read_of_what_is_overwritten() -> None:
    body, x, y = viewed()
    body.call("fill", y)
    body.call("read", body.alias(x, "again"))
    assert told(body, y) == [
        (Severity.ERROR, "`read` reads `x` after `fill` has written the result `v1` over it")
    ]
    (found,) = findings(body.program(y), RULE)
    assert "`x` is reached through `again`" in found.notes


def test_what_is_no_fault() -> None:
    body, x, y = viewed()
    body.call("read", x)
    body.call("fill", y)
    body.call("read", y)
    assert told(body, y) == []
    body.call("read", x)
    assert told(body, body.params[1]) == []  # a part of x that is written, and no result
    body, x, y = viewed()
    body.call("fill", y)
    body.call("fill", x)
    body.call("read", x)
    assert told(body, y) == []  # written anew before it is read


def test_a_kernel_that_may_update_in_place_is_no_error() -> None:
    for kernel in ("update", "scatter"):
        body, x, y = viewed()
        body.call(kernel, y)
        body.call("read", x)
        assert [severity for severity, _ in told(body, y)] == [Severity.WARNING]


def test_both_to_one_kernel() -> None:
    body, x, y = viewed()
    body.call("copy", x, y)
    assert told(body, y) == []
    (found,) = findings(body.program(y), "SYM211")
    assert found.message.startswith("`copy` writes its argument `v1` over its argument `x`")


def test_both_returned() -> None:
    body, x, y = viewed()
    body.call("fill", y)
    assert [severity for severity, _ in told(body, TupleValue((y, x)))] == [Severity.WARNING]


def test_the_surest_of_several() -> None:
    body, x, y = viewed()
    body.call("update", y)
    body.call("read", x)
    body.call("fill", y)
    body.call("update", x)
    ((severity, message),) = told(body, y)
    assert severity is Severity.ERROR and "`update` reads `x` after `fill`" in message


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
    assert [severity for severity, _ in told(body, result)] == [Severity.ERROR]


def test_a_doubtful_alias() -> None:
    body, x, y = viewed()
    maybe = body.packed("unknown", x, ownership=Ownership.UNKNOWN)
    body.call("fill", y)
    body.call("read", maybe)
    assert [severity for severity, _ in told(body, y)] == [Severity.WARNING]
