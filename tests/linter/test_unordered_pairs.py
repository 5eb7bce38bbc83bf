"""SYM212 is told where, and as surely as, some order of calls loses a tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import check
from symalloc.program.ir import Ownership, TupleValue, Var
from symalloc.prover.domain import Verdict
from tests.linter.engine_run import BOOK, PROVER
from tests.program.build import Body, param

RULES = BOOK.select(("SYM203", "SYM212"))
DAG = LintOptions(order="dag")


class Calls(Body):
    """A function that copies its inputs x and y to tensors, and these to results, each by itself."""

    def __init__(self) -> None:
        super().__init__(param("x", "n"), param("y", "n"))
        self.s, self.other = self.storage("2*n", "s"), self.storage("2*n", "other")
        self.results: list[Var] = []

    def through(self, *tensors: Var) -> None:
        """Copy an input to each of the tensors, and what it holds to a result."""
        for number, tensor in enumerate(tensors):
            self.call("copy", self.params[number % 2], tensor)
            self.read(tensor)

    def read(self, tensor: Var) -> None:
        out = self.tensor(self.storage("n"), "n", name=f"out{len(self.results)}")
        self.call("copy", tensor, out)
        self.results.append(out)

    def findings(self) -> list[Diagnostic]:
        found = check(self.program(TupleValue(tuple(self.results))), RULES, PROVER, options=DAG)
        assert not [one for one in found.diagnostics if one.rule != "SYM212"]
        return list(found.diagnostics)


def chosen(calls: Calls, then: Var, otherwise: Var, condition: str | None = None) -> Var:
    return calls.branch(lambda: then, lambda: otherwise, condition=condition)


def one_storage(calls: Calls) -> None:
    calls.through(calls.tensor(calls.s, "n", name="a"), calls.tensor(calls.s, "n", name="b"))


def a_storage_of_an_if(calls: Calls) -> None:
    storage = chosen(calls, calls.s, calls.other)
    calls.through(calls.tensor(storage, "n", name="a"), calls.tensor(calls.s, "n", name="b"))


def a_storage_of_the_other_side(calls: Calls) -> None:
    storage = chosen(calls, calls.other, calls.s)
    calls.through(calls.tensor(calls.s, "n", name="a"), calls.tensor(storage, "n", name="b"))


def two_storages_of_ifs(calls: Calls) -> None:
    one, two = chosen(calls, calls.s, calls.other), chosen(calls, calls.s, calls.storage("n"))
    calls.through(calls.tensor(one, "n", name="a"), calls.tensor(two, "n", name="b"))


def a_tensor_of_an_if(calls: Calls) -> None:
    a, late = (calls.tensor(calls.s, "n", offset=at, name=f"a{at}") for at in (0, "n"))
    for one in (a, late):
        calls.call("copy", calls.params[0], one)
    calls.read(chosen(calls, a, late))
    b = calls.tensor(calls.s, "n", offset="n", name="b")
    calls.call("fill", b)  # nobody reads it: it may only do harm


def a_kernel_in_an_if(calls: Calls) -> None:
    a, b = calls.tensor(calls.s, "n", name="a"), calls.tensor(calls.s, "n", name="b")

    def fill() -> Var:
        calls.call("fill", b)
        return calls.params[0]

    calls.through(a)
    calls.read(calls.branch(fill, lambda: calls.params[0]))


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (one_storage, ""),
        (a_storage_of_an_if, "a condition is true"),
        (a_storage_of_the_other_side, "a condition is false"),
        (two_storages_of_ifs, "a condition is true"),
        (a_tensor_of_an_if, "a condition is false"),
        (a_kernel_in_an_if, "a condition is true"),
    ],
)
def test_a_finding_names_the_branches_that_it_takes(build: Callable[[Calls], None], path: str) -> None:
    calls = Calls()
    build(calls)
    (found,) = calls.findings()
    assert found.path == path


def exchanged(calls: Calls) -> None:
    """Two tensors that are never in the same of two storages."""
    both = calls.branch(
        lambda: TupleValue((calls.s, calls.other)), lambda: TupleValue((calls.other, calls.s))
    )
    calls.through(*(calls.tensor(calls.take(both, n), "n", name=f"t{n}") for n in (0, 1)))


def opposite_sides(calls: Calls) -> None:
    """Two storages of Ifs on one condition."""
    one = chosen(calls, calls.s, calls.storage("n"), "n <= 4")
    two = chosen(calls, calls.storage("n"), calls.s, "n <= 4")
    calls.through(calls.tensor(one, "n", name="a"), calls.tensor(two, "n", name="b"))


def sizes_of_another_branch(calls: Calls) -> None:
    """They would meet beyond 4 only, where the one lies elsewhere."""
    one = chosen(calls, calls.s, calls.other, "n <= 4")
    calls.through(calls.tensor(one, "n", name="a"), calls.tensor(calls.s, "n", offset=4, name="b"))


def another_part(calls: Calls) -> None:
    """Of the larger tensor only the other half is ever touched."""
    a, b = calls.tensor(calls.s, "2*n", name="a"), calls.tensor(calls.s, "n", name="b")
    calls.through(calls.view(a, "n", offset="n"), b)


def written_anew(calls: Calls) -> None:
    """The half that `b` overwrites is written behind `b`, whenever the other half is."""
    a, b = calls.tensor(calls.s, "2*n", name="a"), calls.tensor(calls.s, "n", offset="n", name="b")
    calls.through(b)
    calls.call("fill", calls.view(a, "n"))
    calls.call("copy", calls.results[0], calls.view(a, "n", offset="n"))
    calls.read(a)


@pytest.mark.parametrize(
    "build",
    [exchanged, opposite_sides, sizes_of_another_branch, another_part, written_anew],
    ids=lambda one: one.__name__,
)
def test_what_no_run_loses_is_no_finding(build: Callable[[Calls], None]) -> None:
    calls = Calls()
    build(calls)
    assert not calls.findings()


def test_the_shape_of_a_counterexample_takes_the_branch() -> None:
    calls = Calls()
    storage = chosen(calls, calls.other, calls.s, "n <= 4")
    calls.through(calls.tensor(storage, "n", name="a"), calls.tensor(calls.s, "n", offset=2, name="b"))
    (found,) = calls.findings()
    assert found.counterexample == {"n": 5} and found.path == "`n <= 4` is false"
    assert (found.severity, found.verdict) == (Severity.ERROR, Verdict.ALWAYS_INVALID)


def test_of_two_halves_that_are_written_one_by_one_each_is_lost() -> None:
    calls = Calls()
    a, b = calls.tensor(calls.s, "2*n", name="a"), calls.tensor(calls.s, "n", name="b")
    for offset in (0, "n"):
        calls.call("copy", calls.params[0], calls.view(a, "n", offset=offset))
    calls.read(calls.view(a, "n"))
    calls.through(b)
    (found,) = calls.findings()
    assert found.verdict == Verdict.ALWAYS_INVALID


def test_what_may_be_no_access_is_no_error() -> None:
    calls = Calls()
    a, b = calls.tensor(calls.s, "n", name="a"), calls.tensor(calls.s, "n", name="b")
    calls.call("copy", calls.params[0], a)
    same = calls.packed("f", a)  # it may return `a`, or what it makes
    behind = calls.packed("g", same, ownership=Ownership.FRESH)
    calls.read(same)
    calls.call("copy", behind, b)
    (found,) = calls.findings()
    assert (found.severity, found.reason) == (Severity.WARNING, "`f` may return its argument")
