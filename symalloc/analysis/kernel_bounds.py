"""Indices of a kernel's body that are not inside by sight, each with the extent that it must stay below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from symalloc.analysis.loop_elimination import Extremes, extremes
from symalloc.program.ir import Kernel, KernelBuffer, KernelScalar
from symalloc.program.kernel_access import KernelAccess
from symalloc.size.condition import Condition, ge
from symalloc.size.expr import Expr, Mod, Symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBound:
    """Index number `axis` of an access, and the extent of the buffer there; in elements, over the kernel's
    symbols.

    `range` are its extremes over the loops.
    """

    access: KernelAccess
    buffer: KernelBuffer
    axis: int
    index: Expr
    extent: Expr
    range: Extremes

    @property
    def certain_range(self) -> tuple[Expr, Expr]:
        """The least and the greatest index that must be inside.

        Where it is not known which passes are executed, these are the ends swapped: some pass must be inside.
        """
        ends = self.range.least, self.range.greatest
        return ends if self.access.exact else (ends[1], ends[0])


def index_bounds(kernel: Kernel) -> Iterator[IndexBound]:
    """The indices of `kernel` that are not inside by sight; those that depend on data are left out."""
    nonnegative = partial(_is_nonnegative, scalars=scalars_of(kernel))
    buffers = (*kernel.parameters, *kernel.own_buffers)
    for access in chain(kernel.accesses, kernel.own_accesses):
        buffer = buffers[access.parameter]
        if not isinstance(buffer, KernelBuffer) or buffer.shape is None:
            continue
        if len(buffer.shape) != len(access.indices):
            continue
        passes = {loop.symbol: loop.passes for loop in access.loops}
        for axis, (index, extent) in enumerate(zip(access.indices, buffer.shape, strict=True)):
            if index is None or _is_inside(index, extent, passes):
                continue
            found = extremes(index, access.domain, tuple(passes), nonnegative)
            yield IndexBound(access=access, buffer=buffer, axis=axis, index=index, extent=extent, range=found)


def entry_facts_of(kernel: Kernel) -> tuple[Condition, ...]:
    """The facts on entry to a kernel: the extents of its buffers are not negative."""
    extents = (e for p in kernel.parameters if isinstance(p, KernelBuffer) for e in p.shape or ())
    facts = dict.fromkeys(ge(extent, 0) for extent in extents if extent.as_symbol is None)
    return tuple(fact for fact in facts if fact.as_bool is None)


def unknown_indices(kernel: Kernel) -> int:
    """Count the indices that depend on data, or were not understood."""
    accesses = chain(kernel.accesses, kernel.own_accesses)
    return sum(index is None for access in accesses for index in access.indices)


def _is_inside(index: Expr, extent: Expr, passes: dict[str, Expr | None]) -> bool:
    """Return whether an index is a loop's symbol, a literal or a remainder that is plainly below the extent.

    A division by zero is none of a buffer's concern.
    """
    atom, most = index.as_atom, extent.as_constant
    if isinstance(atom, Symbol):
        runs = passes.get(atom.name)
        number = None if runs is None else runs.as_constant
        return runs == extent or (number is not None and most is not None and number <= most)
    if isinstance(atom, Mod):
        return atom.denominator == extent
    value = index.as_constant
    return value is not None and most is not None and 0 <= value < most


def scalars_of(kernel: Kernel) -> frozenset[str]:
    """The symbols of a kernel that may be negative: no extent is one of them."""
    bare = {e.as_symbol for p in kernel.parameters if isinstance(p, KernelBuffer) for e in p.shape or ()}
    names = {p.name for p in kernel.parameters if isinstance(p, KernelScalar)}
    return frozenset(names - bare)


def _is_nonnegative(expr: Expr, scalars: frozenset[str]) -> bool:
    return all(
        coefficient > 0 and all(isinstance(a, Symbol) and a.name not in scalars for a, _ in monomial)
        for monomial, coefficient in expr.terms.items()
    )
