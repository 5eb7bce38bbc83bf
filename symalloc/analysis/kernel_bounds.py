"""Indices of a kernel's body that are not inside by sight, each with the extent that it must stay below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from symalloc.analysis.loop_elimination import Extremes, extremes
from symalloc.analysis.plain_bounds import is_below
from symalloc.program.ir import Kernel, KernelBuffer, KernelScalar
from symalloc.program.kernel_access import KernelAccess
from symalloc.size.condition import Condition, ge
from symalloc.size.expr import Expr, product
from symalloc.size.sign import is_nonnegative


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBound:
    """Index number `axis` of an access, and the extent of the buffer there; in elements, over the kernel's
    symbols.

    `range` are its extremes over the loops.  `in_memory`: whatever it is, the element lies in the memory of
    the buffer, because the other indices make up for it.
    """

    access: KernelAccess
    buffer: KernelBuffer
    axis: int
    index: Expr
    extent: Expr
    range: Extremes
    in_memory: bool = False

    @property
    def certain_range(self) -> tuple[Expr, Expr]:
        """The least and the greatest index that must be inside.

        Where it is not known which passes are executed, these are the ends swapped: some pass must be inside.
        """
        ends = self.range.least, self.range.greatest
        return ends if self.access.exact else (ends[1], ends[0])


def index_bounds(kernel: Kernel) -> Iterator[IndexBound]:
    """The indices of `kernel` that are not inside by sight; those that depend on data are left out."""
    scalars = scalars_of(kernel)
    nonnegative = partial(is_nonnegative, signed=scalars)
    buffers = (*kernel.parameters, *kernel.own_buffers)
    for access in chain(kernel.accesses, kernel.own_accesses):
        buffer = buffers[access.parameter]
        if not isinstance(buffer, KernelBuffer) or buffer.shape is None:
            continue
        if len(buffer.shape) != len(access.indices):
            continue
        counters = tuple(loop.symbol for loop in access.loops)
        for axis, (index, extent) in enumerate(zip(access.indices, buffer.shape, strict=True)):
            if index is None or _is_inside(access, index, extent, scalars):
                continue
            found = extremes(index, access.domain, counters, nonnegative)
            yield IndexBound(access=access, buffer=buffer, axis=axis, index=index, extent=extent, range=found)


def place_in_memory(kernel: Kernel, bound: IndexBound) -> IndexBound | None:
    """The number of the element that an access is at, counted row by row, and that of all elements.

    None where these are not known, and for a buffer of one dimension.
    """
    access, shape = bound.access, bound.buffer.shape
    known = [index for index in access.indices if index is not None]
    if shape is None or len(shape) < 2 or len(known) < len(shape) or bound.buffer.layout is not None:
        return None
    place = known[0]
    for index, extent in zip(known[1:], shape[1:], strict=True):
        place = place * extent + index
    nonnegative = partial(is_nonnegative, signed=scalars_of(kernel))
    counters = tuple(loop.symbol for loop in access.loops)
    found = extremes(place, access.domain, counters, nonnegative)
    return replace(bound, index=place, extent=product(shape), range=found)


def entry_facts_of(kernel: Kernel) -> tuple[Condition, ...]:
    """The facts on entry to a kernel: the extents of its buffers are not negative."""
    extents = (e for p in kernel.parameters if isinstance(p, KernelBuffer) for e in p.shape or ())
    facts = dict.fromkeys(ge(extent, 0) for extent in extents if extent.as_symbol is None)
    return tuple(fact for fact in facts if fact.as_bool is None)


def unknown_indices(kernel: Kernel) -> int:
    """Count the indices that depend on data, or were not understood."""
    accesses = chain(kernel.accesses, kernel.own_accesses)
    return sum(index is None for access in accesses for index in access.indices)


def _is_inside(access: KernelAccess, index: Expr, extent: Expr, scalars: frozenset[str]) -> bool:
    """Return whether an index is plainly inside: mostly the symbol of a loop that ends at the extent."""
    name = index.as_symbol
    if name is not None and any(loop.symbol == name and loop.passes == extent for loop in access.loops):
        return True
    return is_nonnegative(index, scalars) and is_below(index, extent, access.domain, scalars)


def scalars_of(kernel: Kernel) -> frozenset[str]:
    """The symbols of a kernel that may be negative: no extent is one of them."""
    bare = {e.as_symbol for p in kernel.parameters if isinstance(p, KernelBuffer) for e in p.shape or ()}
    names = {p.name for p in kernel.parameters if isinstance(p, KernelScalar)}
    return frozenset(names - bare)
