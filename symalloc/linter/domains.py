"""The domains of one function: over which points a constraint is asked, with which facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from symalloc.analysis.facts import Facts, FunctionFacts
from symalloc.program.model import Function, Origin, Var
from symalloc.program.types import TensorType, TupleType, Type
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import Expr, symbol

__all__ = ["LARGEST_EXTENT", "LARGEST_INPUT", "Domains"]

_NO_FACTS = Facts()

LARGEST_EXTENT = 2**22
"""What a symbol is at most where inputs are taken to be ordinary."""
LARGEST_INPUT = 2**32
"""Bytes of the largest parameter tensor where inputs are taken to be ordinary."""


class Domains:
    """Makes the domains of one function, each once: the prover remembers by domain.

    A symbol that is an extent is at least 0, a scalar is any int64.  Assumptions about symbols that the
    function does not have are left out.  A `sized` domain holds ordinary inputs only: no extent of 0 (an
    empty parameter limits no other extent), no symbol above `LARGEST_EXTENT`, no parameter above
    `LARGEST_INPUT` bytes.
    """

    def __init__(self, function: Function, facts: FunctionFacts, assume: Sequence[Condition]) -> None:
        scalars = (name for name, origin in function.symbols.items() if origin is Origin.SCALAR)
        lower = dict.fromkeys(scalars, INT64_MIN)
        known = function.symbols.keys()
        given = [c.substitute(facts.definitions) for c in assume if c.symbols <= known]
        self.plain = Domain(lower=lower, assumptions=(*given, *facts.entry))
        self._sized = self._ordinary(function)
        self._made: dict[tuple[Facts, bool, bool, tuple[Expr, ...]], Domain] = {}
        self._declared = _declared(function)

    def _ordinary(self, function: Function) -> Domain:
        inputs = (t.nbytes for p in function.params for t in _tensors(p))
        limits = [le(nbytes, LARGEST_INPUT) for nbytes in inputs if nbytes is not None]
        domain = self.plain.assuming(c for c in dict.fromkeys(limits) if c.as_bool is None)
        lower = dict.fromkeys(domain.lower, -LARGEST_EXTENT)
        return replace(non_empty(domain), lower=lower, default_upper=LARGEST_EXTENT)

    def entry(self, *, sized: bool, divisors: tuple[Expr, ...] = ()) -> Domain:
        """What is known on entry to the function; `divisors` are taken to be at least 1."""
        if divisors:
            return self._with(_NO_FACTS, sized=sized, calls=False, divisors=divisors)
        return self._sized if sized else self.plain

    def guarded(self, facts: Facts, *, sized: bool, divisors: tuple[Expr, ...] = ()) -> Domain:
        """What is known from asserts, casts and tests too."""
        return self._with(facts, sized=sized, calls=False, divisors=divisors)

    def full(self, facts: Facts, *, sized: bool, divisors: tuple[Expr, ...] = ()) -> Domain:
        """What is known from the checks of kernels too."""
        return self._with(facts, sized=sized, calls=True, divisors=divisors)

    def _with(self, facts: Facts, *, sized: bool, calls: bool, divisors: tuple[Expr, ...]) -> Domain:
        key = (facts, sized, calls, divisors)
        domain = self._made.get(key)
        if domain is None:
            known = (*facts.guards, *facts.calls) if calls else facts.guards
            usable = (ge(divisor, 1) for divisor in divisors)
            domain = self._made[key] = self.entry(sized=sized).assuming((*known, *usable))
        return domain

    def declared(self, domain: Domain, names: Sequence[str]) -> Domain:
        """`domain` with the declared bounds of the symbols `names`."""
        return domain.assuming(c for name in names for c in self._declared.get(name, ()))

    @property
    def bounded(self) -> Mapping[str, tuple[Condition, ...]]:
        """The declared bounds, by symbol."""
        return self._declared


def non_empty(domain: Domain) -> Domain:
    """The points of `domain` at which every extent is at least 1; scalars keep their bounds."""
    return replace(domain, default_lower=max(1, domain.default_lower))


def _declared(function: Function) -> dict[str, tuple[Condition, ...]]:
    """The declared bounds of each symbol; a lower bound counts only where there is an upper one, as in
    TVM.
    """
    found: dict[str, tuple[Condition, ...]] = {}
    for name, upper in function.declared_upper.items():
        lower = function.declared_lower.get(name)
        least = () if lower is None else (ge(symbol(name), lower),)
        found[name] = (le(symbol(name), upper), *least)
    return found


def _tensors(param: Var) -> list[TensorType]:
    found: list[TensorType] = []
    pending: list[Type] = [param.type]
    while pending:
        kind = pending.pop()
        if isinstance(kind, TensorType):
            found.append(kind)
        elif isinstance(kind, TupleType):
            pending.extend(kind.fields)
    return found
