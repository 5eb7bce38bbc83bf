"""The shapes at which a function fits a number of bytes, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symalloc.planner.memory_report.fitting import Fit, FunctionFit, LargestValue
from symalloc.prover.verdict import Proof, Verdict, counterexample_title
from symalloc.report.quantities import human_bytes


def fit_lines(fit: FunctionFit) -> Iterator[str]:
    """Yield the condition under which the arenas fit, and the whole call, and the largest symbols alone."""
    yield f"{fit.function}: fits {human_bytes(fit.arenas.limit)} ({fit.arenas.limit} B)"
    yield from _part("arenas", fit.arenas)
    yield from _part("whole call", fit.call)


def exceeding_line(function: str, proof: Proof, limit: int) -> str:
    """Say that the arenas of a function can take more than `limit` bytes, and at which shape."""
    at = proof.counterexample
    if at is None and proof.unknown:
        return f"`{function}`: it is not proved that its arenas take at most {limit} B within its bounds"
    where = f": {counterexample_title(proof.smallest)} {binding_text(at)}" if at else ""
    return f"`{function}`: its arenas can take more than {limit} B{where}"


def binding_text(binding: Mapping[str, int]) -> str:
    """Return `n = 128, b = 2`."""
    return ", ".join(f"{name} = {value}" for name, value in binding.items())


def _part(what: str, fit: Fit) -> Iterator[str]:
    yield f"  {what}: {_when(fit)}"
    known = "" if fit.unknown is None else ", by what is known"
    yield from (f"    {_value(one)}{known}" for one in fit.largest)


def _when(fit: Fit) -> str:
    proof = fit.proof
    if fit.unknown is not None and proof.verdict is not Verdict.ALWAYS_INVALID:
        return f"not proved: {fit.unknown}"
    if proof.holds:
        return "at every shape (proved)"
    if proof.verdict is Verdict.ALWAYS_INVALID:
        return "at no shape (proved)"
    if proof.precondition is not None:
        return f"exactly when {proof.precondition} (proved)"
    at = proof.counterexample
    found = f"; {counterexample_title(proof.smallest)} {binding_text(at)}" if at else ""
    return f"at some shapes, no short condition was found{found}"


def _value(one: LargestValue) -> str:
    alone = f" at {binding_text(one.at)}" if one.at else ""
    if not one.monotone:
        return f"largest {one.symbol}{alone}: unknown, more of it is not proved to take more memory"
    if one.value is None:
        return f"largest {one.symbol}{alone}: none"
    return f"largest {one.symbol}{alone}: {'any' if one.unbounded else one.value}"
