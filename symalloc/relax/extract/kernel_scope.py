"""Places in the body of a kernel: what holds where a statement stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symalloc.program.ir import KernelAccess, KernelBuffer, KernelLoop
from symalloc.size.condition import FALSE, Condition, conjunction, disjunction, ge, lt
from symalloc.size.expr import symbol


class KernelScope(NamedTuple):
    """The place of a statement in a kernel: what holds there, whether that is all, the loops around it."""

    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()

    def where(self, guards: Sequence[Condition], exact: bool) -> KernelScope:
        """The scope under further conditions."""
        held = tuple(part for guard in guards for part in guard.conjuncts)
        return self._replace(domain=(*self.domain, *held), exact=self.exact and exact)

    def inside(self, loop: KernelLoop) -> KernelScope:
        """The scope inside a loop."""
        count = symbol(loop.symbol)
        ends = () if loop.passes is None else (lt(count, loop.passes),)
        within = self.where((ge(count, 0), *ends), loop.passes is not None)
        return within._replace(loops=(*self.loops, loop))

    @property
    def unreached(self) -> KernelScope:
        """The scope behind a statement that nothing follows."""
        return self._replace(domain=(*self.domain, FALSE))

    @property
    def is_unreached(self) -> bool:
        """True if nothing is executed here."""
        return FALSE in self.domain

    def beyond(self, outer: KernelScope) -> Condition:
        """The conditions that hold here in addition to `outer`, which this scope was made from."""
        return conjunction(self.domain[len(outer.domain) :])

    def behind(self, then: KernelScope, otherwise: KernelScope) -> KernelScope:
        """The scope behind two branches that end in these scopes, some of whose passes were left there."""
        for ended, other in ((then, otherwise), (otherwise, then)):
            if ended.is_unreached:
                return other
        either = disjunction((then.beyond(self), otherwise.beyond(self)))
        return self.where((either,), then.exact and otherwise.exact)


class KernelAccesses(NamedTuple):
    """The accesses of a kernel's parameters, those of the buffers that it allocates, and these buffers.

    The buffers of its own are numbered behind the parameters.
    """

    of_parameters: tuple[KernelAccess, ...]
    of_own: tuple[KernelAccess, ...]
    own: tuple[KernelBuffer, ...]
