"""SYM212 is told where, and as surely as, some order of calls loses a tensor."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import check
from symalloc.program.ir import TupleValue, Var
from symalloc.prover.domain import Verdict
from tests.linter.engine_run import BOOK, PROVER
from tests.program.build import Body, param

RULES = BOOK.select(("SYM203", "SYM212"))


class Calls(Body):
    """A function that copies its inputs x and y to tensors, and these to results, each by itself."""

    def __init__(self, steps: str) -> None:
        super().__init__(param("x", "n"), param("y", "n"))
        self.results: list[Var] = []
        self.follow(f"s = storage 2*n; other = storage 2*n; {steps}")

    def through(self, *tensors: Var) -> None:
        """Copy an input to each of the tensors, and what it holds to a result."""
        for number, tensor in enumerate(tensors):
            self.call("copy", self.params[number % 2], tensor)
            self.shown(tensor)

    def shown(self, tensor: Var) -> Var:
        out = self.tensor(self.storage("n"), "n")
        self.call("copy", tensor, out)
        self.results.append(out)
        return out

    def chosen(self, then: Var, otherwise: Var, condition: str | None = None) -> Var:
        return self.branch(lambda: then, lambda: otherwise, condition=condition)

    def exchanged(self, one: Var, other: Var) -> Var:
        return self.branch(lambda: TupleValue((one, other)), lambda: TupleValue((other, one)))

    def filled(self, target: Var) -> Var:
        """One side of an If fills a tensor."""

        def fill() -> Var:
            self.call("fill", target)
            return self.params[0]

        return self.branch(fill, lambda: self.params[0])

    def findings(self) -> list[Diagnostic]:
        whole = self.program(TupleValue(tuple(self.results)))
        found = list(check(whole, RULES, PROVER, options=LintOptions(order="dag")).diagnostics)
        assert {one.rule for one in found} <= {"SYM212"}
        return found


AB = "a = tensor s n; b = tensor s n"


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        (f"{AB}; _ = through a b", ""),
        ("one = chosen s other; a = tensor one n; b = tensor s n; _ = through a b", "a condition is true"),
        ("one = chosen other s; a = tensor s n; b = tensor one n; _ = through a b", "a condition is false"),
        (
            "one = chosen s other; third = storage n; two = chosen s third; "
            "a = tensor one n; b = tensor two n; _ = through a b",
            "a condition is true",
        ),
        (  # nobody reads b: it may only do harm
            "a = tensor s n; late = tensor s n offset=n; copy x a; copy x late; one = chosen a late; "
            "_ = shown one; b = tensor s n offset=n; fill b",
            "a condition is false",
        ),
        (f"{AB}; _ = through a; one = filled b; _ = shown one", "a condition is true"),
    ],
)
def test_a_finding_names_the_branches_that_it_takes(steps: str, path: str) -> None:
    (found,) = Calls(steps).findings()
    assert found.path == path


@pytest.mark.parametrize(
    "steps",
    [
        # two tensors that are never in the same of two storages
        "both = exchanged s other; one = take both 0; a = tensor one n; two = take both 1; b = tensor two n; "
        "_ = through a b",
        # two storages of Ifs on one condition
        "third = storage n; one = chosen s third n<=4; fourth = storage n; two = chosen fourth s n<=4; "
        "a = tensor one n; b = tensor two n; _ = through a b",
        # they would meet beyond 4 only, where the one lies elsewhere
        "one = chosen s other n<=4; a = tensor one n; b = tensor s n offset=4; _ = through a b",
        # of the larger tensor only the other half is ever touched
        "a = tensor s 2*n; b = tensor s n; half = view a n offset=n; _ = through half b",
        # the half that `b` overwrites is written behind `b`, whenever the other half is
        "a = tensor s 2*n; b = tensor s n offset=n; copy x b; out = shown b; low = view a n; fill low; "
        "high = view a n offset=n; copy out high; _ = shown a",
    ],
)
def test_what_no_run_loses_is_no_finding(steps: str) -> None:
    assert not Calls(steps).findings()


def test_the_shape_of_a_counterexample_takes_the_branch() -> None:
    calls = Calls("one = chosen other s n<=4; a = tensor one n; b = tensor s n offset=2; _ = through a b")
    (found,) = calls.findings()
    assert found.counterexample == {"n": 5} and found.path == "`n <= 4` is false"
    assert (found.severity, found.verdict) == (Severity.ERROR, Verdict.ALWAYS_INVALID)


def test_of_two_halves_that_are_written_one_by_one_each_is_lost() -> None:
    halves = "a = tensor s 2*n; low = view a n; copy x low; high = view a n offset=n; copy x high"
    (found,) = Calls(f"{halves}; again = view a n; _ = shown again; b = tensor s n; _ = through b").findings()
    assert found.verdict == Verdict.ALWAYS_INVALID


def test_what_may_be_no_access_is_no_error() -> None:
    """The packed function may return `a`, or what it makes."""
    steps = f"{AB}; copy x a; same = packed f a; behind = packed g same ownership=FRESH"
    (found,) = Calls(f"{steps}; _ = shown same; copy behind b").findings()
    assert (found.severity, found.reason) == (Severity.WARNING, "`f` may return its argument")
