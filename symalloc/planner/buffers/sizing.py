"""The bytes to set aside for a tensor, and the instruction that they wait for."""

from __future__ import annotations

from dataclasses import dataclass

from symalloc.planner.buffers.symbol_definitions import KnownSymbols, SymbolDefinition
from symalloc.planner.memory_plan import ALIGNMENT
from symalloc.program.types import ScalarType
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.choice import maximum
from symalloc.size.condition import Condition, ge
from symalloc.size.expr import ZERO, Expr, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The bytes to set aside for `nbytes`: rounded up to the alignment and never negative.

    They are known behind `definition`, or at entry where that is None.
    """

    nbytes: Expr
    size: Expr
    definition: SymbolDefinition | None


class Sizes:
    """Finds what each number of bytes needs, over the domain of a function; remembers the answers, for layers
    repeat.
    """

    def __init__(self, known: KnownSymbols, prover: Prover) -> None:
        self.known, self.domain, self.prover = known, known.domain, prover
        self._found: dict[Expr, Sized | str] = {}

    def of(self, nbytes: Expr | None) -> Sized | str:
        """Return what to set aside for `nbytes`, or the reason why that cannot be computed."""
        if nbytes is None:
            return "its shape is not known"
        found = self._found.get(nbytes)
        if found is None:
            found = self._found[nbytes] = self._sized(nbytes)
        return found

    def _sized(self, nbytes: Expr) -> Sized | str:
        needs: SymbolDefinition | None = None
        for name in sorted(nbytes.symbols):
            where = self.known.later.get(name)
            reason = self._unusable(name, where)
            if reason is not None:
                return f"its size depends on `{name}`, {reason}"
            if where is not None and (needs is None or needs.step < where.step):
                needs = where
        for divisor in sorted(nbytes.divisors, key=lambda d: d.key):
            if not self._always(ge(divisor, 1)):
                return f"its size divides by `{divisor}`, which may be zero"
        return Sized(nbytes=nbytes, size=self._reserved(nbytes), definition=needs)

    def _unusable(self, name: str, where: SymbolDefinition | None) -> str | None:
        """Return the reason why nothing can be sized by a symbol, None where it can."""
        if where is not None and isinstance(where.var.type, ScalarType):
            return "which is a scalar that the function itself computes"
        if where is not None and where.nested:
            return "which gets its value inside a branch"
        if where is None and name not in self.known.entry:
            return "which no parameter and no match_cast binds"
        return None

    def _reserved(self, nbytes: Expr) -> Expr:
        """Return the bytes rounded up to the alignment, and none where the size could come out negative."""
        rounded = round_up(nbytes, ALIGNMENT)
        return rounded if self._always(ge(nbytes, 0)) else maximum(rounded, ZERO)

    def _always(self, condition: Condition) -> bool:
        return self.prover.prove(condition, self.domain, explain=False).verdict is Verdict.ALWAYS_VALID


def padded_size(nbytes: Expr | None) -> Expr | None:
    """Return the bytes that a tensor without a place takes, where they are defined at every binding."""
    return None if nbytes is None or nbytes.divisors else round_up(nbytes, ALIGNMENT)
