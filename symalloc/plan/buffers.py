"""Which tensors of a function can be planned, as buffers; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.plan.aliases import aliases
from symalloc.plan.live import allocations, live_ranges
from symalloc.plan.model import ALIGNMENT, Buffer, Unplanned
from symalloc.program.model import AllocFresh, Function, Origin, Program
from symalloc.program.types import TensorType
from symalloc.prove.domain import Domain
from symalloc.prove.prover import Prover
from symalloc.prove.verdict import Verdict
from symalloc.size.atoms import FloorDiv, Max, Min, Mod, Select
from symalloc.size.condition import And, Condition, Or, Relation, ge
from symalloc.size.expr import ZERO, Expr
from symalloc.size.operations import maximum, round_up

__all__ = ["buffers", "divisors", "parts"]


def buffers(
    function: Function, program: Program, domain: Domain, prover: Prover
) -> tuple[tuple[Buffer, ...], tuple[Unplanned, ...]]:
    """The buffers of `function` (numbered from 0 in order of allocation) and the tensors that stay as
    they are.
    """
    known = aliases(function, program)
    ranges = live_ranges(function, known)
    found: list[Buffer] = []
    left: list[Unplanned] = []
    for allocation in allocations(function.body):
        nbytes = _nbytes(allocation)
        reason = known.escapes.get(allocation.var) or _unsized(nbytes, function, domain, prover)
        if reason is not None or nbytes is None:
            left.append(
                Unplanned(name=allocation.var.name, reason=reason or "its size is unknown", nbytes=nbytes)
            )
            continue
        found.append(
            Buffer(
                id=len(found),
                name=allocation.var.name,
                size=_reserved(nbytes, domain, prover),
                nbytes=nbytes,
                live=ranges[allocation.var],
                device=allocation.device,
                scope=allocation.scope,
                var=allocation.var,
            )
        )
    return tuple(found), tuple(left)


def parts(expr: Expr) -> Iterator[Expr]:
    """`expr` and every expression inside its atoms."""
    yield expr
    for atom in expr.atoms:
        match atom:
            case FloorDiv(numerator=numerator, denominator=denominator):
                inner: tuple[Expr, ...] = (numerator, denominator)
            case Mod(numerator=numerator, denominator=denominator):
                inner = (numerator, denominator)
            case Min(operands=operands) | Max(operands=operands):
                inner = operands
            case Select(condition=condition, then=then, otherwise=otherwise):
                inner = (then, otherwise, *_sides(condition))
            case _:
                inner = ()
        for part in inner:
            yield from parts(part)


def divisors(expr: Expr) -> Iterator[Expr]:
    """Every divisor in `expr` that is no positive constant."""
    for part in parts(expr):
        for atom in part.atoms:
            if isinstance(atom, FloorDiv | Mod) and (atom.denominator.as_constant or 0) <= 0:
                yield atom.denominator


def _sides(condition: Condition) -> tuple[Expr, ...]:
    if isinstance(condition, Relation):
        return (condition.expr,)
    if isinstance(condition, And | Or):
        return tuple(side for operand in condition.operands for side in _sides(operand))
    return ()


def _nbytes(allocation: AllocFresh) -> Expr | None:
    return TensorType(shape=allocation.shape, dtype=allocation.dtype).nbytes


def _unsized(nbytes: Expr | None, function: Function, domain: Domain, prover: Prover) -> str | None:
    """Why no place can be reckoned for a tensor of `nbytes` at function entry; None where it can."""
    if nbytes is None:
        return "its shape is not known"
    for name in sorted(nbytes.symbols):
        origin = function.symbols.get(name, Origin.UNDEFINED)
        if origin is Origin.CAST:
            return f"its size depends on `{name}`, which is known only after a match_cast"
        if origin is not Origin.DIMENSION:
            return f"its size depends on `{name}`, which is no dimension of a parameter"
    for divisor in divisors(nbytes):
        if not _always(ge(divisor, 1), domain, prover):
            return f"its size divides by `{divisor}`, which may be zero"
    return None


def _reserved(nbytes: Expr, domain: Domain, prover: Prover) -> Expr:
    """The bytes to set aside: rounded up to the alignment, and none where the size could come out
    negative.
    """
    rounded = round_up(nbytes, ALIGNMENT)
    return rounded if _always(ge(nbytes, 0), domain, prover) else maximum(rounded, ZERO)


def _always(condition: Condition, domain: Domain, prover: Prover) -> bool:
    return prover.prove(condition, domain, explain=False).verdict is Verdict.ALWAYS_VALID
