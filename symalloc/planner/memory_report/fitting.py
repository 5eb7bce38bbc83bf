"""The shapes at which the memory of a function fits a number of bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import conjunction, le
from symalloc.size.evaluation import highest
from symalloc.size.expr import Expr, constant, symbol

MOST_SUMS = 64  # of a formula that the prover is asked about


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestValue:
    """The largest value of a symbol that fits, the others at `at`.

    `value` is None where nothing fits, or where the formula is not shown to grow with the symbol
    (`monotone` is False); `unbounded`: every value fits.
    """

    symbol: str
    at: Mapping[str, int]
    value: int | None
    monotone: bool = True

    @property
    def unbounded(self) -> bool:
        """True where every value fits."""
        return self.value == INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The proof that some memory of a function takes at most `limit` bytes, and the largest value of each of
    its symbols alone.

    `unknown` says why there may be more memory than what is known; then only that nothing fits is proved, and
    the largest values are at most that.
    """

    limit: int
    proof: Proof
    largest: tuple[LargestValue, ...]
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFit:
    """The shapes at which the arenas of a function fit, and its whole call."""

    function: str
    arenas: Fit
    call: Fit


def fit_function(report: FunctionReport, limit: int, prover: Prover) -> FunctionFit:
    """Return where the memory of a planned function takes at most `limit` bytes, whatever is declared."""
    outcome = report.outcome
    return FunctionFit(
        function=report.plan.function,
        arenas=_fit(outcome.reserved, report, limit, prover),
        call=_fit(outcome.planned, report, limit, prover),
    )


def arena_proof(report: FunctionReport, limit: int, prover: Prover) -> Proof:
    """Return the proof that the arenas take at most `limit` bytes within the declared bounds."""
    lower = {n: bound if n in report.signed else max(bound, 0) for n, bound in report.lower.items()}
    domain = Domain(lower=dict.fromkeys(report.signed, INT64_MIN) | lower, upper=dict(report.upper))
    return _proof(report.reserved, limit, domain, prover, report.outcome.reserved.not_known)


def _proof(
    sums: Sequence[Expr] | None, limit: int, domain: Domain, prover: Prover, unknown: str | None
) -> Proof:
    """Prove that the largest of `sums` is at most `limit`; with `unknown` memory only the contrary."""
    if sums is None:
        return Proof(verdict=Verdict.RUNTIME_CHECK, decided_by="size", unknown=True, reason=unknown)
    proof = prover.prove(conjunction(le(one, limit) for one in sums), domain)
    if unknown is None or proof.verdict is Verdict.ALWAYS_INVALID:
        return proof
    return replace(proof, verdict=Verdict.RUNTIME_CHECK, precondition=None, unknown=True, reason=unknown)


def _fit(timeline: Timeline, report: FunctionReport, limit: int, prover: Prover) -> Fit:
    sums, unknown = timeline.known.sums(report.signed), timeline.not_known
    if sums is not None and len(sums) > MOST_SUMS:
        sums, unknown = None, "its formula is too long"
    domain = Domain(lower=dict.fromkeys(sorted(report.signed), INT64_MIN))
    names = sorted(frozenset().union(*(one.symbols for one in sums or ())))
    at = {**dict.fromkeys(names, 1), **(report.samples[0].binding if report.asked else {})}
    others = {name: {other: at[other] for other in names if other != name} for name in names}
    return Fit(
        limit=limit,
        proof=_proof(sums, limit, domain, prover, unknown),
        largest=tuple(_largest(name, sums or (), limit, others[name], prover) for name in names),
        unknown=unknown,
    )


def _largest(
    name: str, sums: Sequence[Expr], limit: int, at: Mapping[str, int], prover: Prover
) -> LargestValue:
    """Return the largest value >= 0 of one symbol by bisection; each sum must be proved to grow with it."""
    alone = [one.substitute({other: constant(value) for other, value in at.items()}) for one in sums]
    more = {name: symbol(name) + 1}
    if not all(prover.prove(le(one, one.substitute(more)), explain=False).holds for one in alone):
        return LargestValue(symbol=name, at=at, value=None, monotone=False)

    def fits(value: int) -> bool:
        taken = highest(alone, {name: value})
        return taken is not None and taken <= limit

    largest = bisect_left(range(INT64_MAX), True, key=lambda value: not fits(value + 1)) if fits(0) else None
    return LargestValue(symbol=name, at=at, value=largest)
