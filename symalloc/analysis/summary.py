"""Function summaries: which parameters a function's result may be, which it writes, which it captures.

The leaves of a function's parameters (tuple fields taken apart) are numbered in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from symalloc.analysis.sets import NO_LEAVES, LeafSet
from symalloc.size.expr import ZERO, Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSummary:
    """One leaf of a result: the parameter leaves that it may be, and whether it may be `fresh` memory.

    `constant`: it may be a constant.  `storage` is its size in bytes where it is a storage of constant size.
    `filled` unless it is new memory that nothing has written.  `offset` is the byte offset that the handle
    carries, beyond that of a parameter that it is; None where unknown.
    """

    must: LeafSet = NO_LEAVES
    may: LeafSet = NO_LEAVES
    fresh: bool = True
    constant: bool = False
    storage: Expr | None = None
    filled: bool = True
    offset: Expr | None = ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSummary:
    """The effect of a function on its caller's memory.

    `results` holds an entry for each leaf of the result, in order; `reads` and `writes` are the parameter
    leaves read and written, other than by returning them, `captures` those that something may hold on to
    behind the call, other than as a result, `consumes` those that an in-place call overwrites, and
    `ignores_offset` those whose byte offset something in the function ignores or refuses.  `needs` are those
    whose content it reads before it writes any of it.
    """

    results: tuple[ResultSummary, ...] = ()
    reads: LeafSet = NO_LEAVES
    writes: LeafSet = NO_LEAVES
    may_writes: LeafSet = NO_LEAVES
    captures: LeafSet = NO_LEAVES
    consumes: LeafSet = NO_LEAVES
    ignores_offset: LeafSet = NO_LEAVES
    needs: LeafSet = NO_LEAVES

    @property
    def updated_results(self) -> tuple[ResultSummary, ...]:
        """The results, where what is overwritten in place counts as fresh memory."""
        if not self.consumes:
            return self.results
        kept = ~self.consumes
        return tuple(
            replace(
                result,
                must=result.must & kept,
                may=result.may & kept,
                fresh=result.fresh or bool((result.must | result.may) & self.consumes),
            )
            for result in self.results
        )


NO_EFFECTS = FunctionSummary()
