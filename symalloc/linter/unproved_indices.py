"""Indices of kernels that the kernel's own text does not prove to be inside their buffers.

Each kernel is looked at once, over its own symbols, before any call of it is: what holds for all extents and
scalars holds at every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from symalloc.analysis.kernels.index_bounds import (
    IndexBound,
    entry_facts_of,
    index_bounds,
    place_in_memory,
    scalars_of,
    unknown_indices,
)
from symalloc.program.ir import Kernel
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import Condition, conjunction, ge, le, lt
from symalloc.size.defined import evaluated_divisors
from symalloc.size.expr import ZERO


@dataclass(frozen=True, slots=True)
class KernelIndices:
    """The indices of a kernel that take a look at its calls, and the number of those that depend on data."""

    unproved: tuple[IndexBound, ...] = ()
    data_dependent: int = 0


class UnprovedIndices:
    """Proves the indices of kernels inside their buffers, each kernel when it is first asked for."""

    def __init__(self, kernels: Mapping[str, Kernel], prover: Prover) -> None:
        self._kernels, self._prover = kernels, prover
        self._known: dict[str, KernelIndices] = {}

    @property
    def data_dependent(self) -> int:
        """The number of indices that depend on data, in the kernels that were asked for."""
        return sum(found.data_dependent for found in self._known.values())

    def of(self, name: str) -> tuple[IndexBound, ...]:
        """The indices of the kernel `name` that are not proved; none for what is no kernel."""
        found = self._known.get(name)
        if found is None:
            kernel = self._kernels.get(name)
            found = self._known[name] = KernelIndices() if kernel is None else self._read(kernel)
        return found.unproved

    def _read(self, kernel: Kernel) -> KernelIndices:
        bounds, data_dependent = list(index_bounds(kernel)), unknown_indices(kernel)
        if not bounds:
            return KernelIndices((), data_dependent)
        lower = dict.fromkeys(scalars_of(kernel), INT64_MIN)
        domain = Domain(lower=lower, assumptions=(*kernel.asserts, *entry_facts_of(kernel)))
        unproved = tuple(
            self._placed(kernel, bound, domain) for bound in bounds if not self._is_proved(bound, domain)
        )
        return KernelIndices(unproved, data_dependent)

    def _placed(self, kernel: Kernel, bound: IndexBound, domain: Domain) -> IndexBound:
        """`bound` with the knowledge whether it stays in the memory of its buffer."""
        place = place_in_memory(kernel, bound)
        inside_memory = place is not None and bound.access.exact and self._is_proved(place, domain)
        return replace(bound, in_memory=True) if inside_memory else bound

    def _is_proved(self, bound: IndexBound, domain: Domain) -> bool:
        wanted = inside(bound)
        if wanted.as_bool is not None:
            return wanted.as_bool
        divisors = evaluated_divisors((bound.range.least, bound.range.greatest, bound.extent))
        usable = (ge(divisor, 1) for divisor in divisors)
        return self._prover.implies((*bound.range.where, *usable), wanted, domain)


def inside(bound: IndexBound) -> Condition:
    """The condition that an index is inside: at every pass, or where it is not known which of them are
    executed at some pass.
    """
    least, greatest = bound.certain_range
    return conjunction((le(ZERO, least), lt(greatest, bound.extent)))
