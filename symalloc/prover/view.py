"""What a prover remembers about one domain."""

from __future__ import annotations

from symalloc.prover.domain import Domain
from symalloc.prover.region import Region, build_region, components, relevant
from symalloc.prover.verdict import Proof
from symalloc.size.condition import Condition

__all__ = ["View", "content_key"]


class View:
    """A domain with its assumptions grouped, the regions built from it, and the proofs already given over
    it.
    """

    __slots__ = ("apart", "domain", "explained", "groups", "plain", "regions")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.groups = components(domain.assumptions) if domain.assumptions else []
        self.regions: dict[frozenset[str], tuple[Region, str]] = {}
        self.explained: dict[Condition, Proof] = {}
        self.plain: dict[Condition, Proof] = {}
        self.apart: dict[frozenset[str], Region] = {}

    def region(self, symbols: frozenset[str]) -> tuple[Region, str]:
        """The region that matters for `symbols`, and the text of its assumptions for the cache."""
        found = self.regions.get(symbols)
        if found is None:
            names, assumptions = relevant(self.groups, symbols)
            text = "&".join(a.key for a in assumptions)
            found = (build_region(self.domain, names, assumptions), text)
            self.regions[symbols] = found
        return found

    def other_groups(self, names: frozenset[str]) -> list[Region]:
        """The regions of the groups of assumptions that have no symbol of `names`."""
        return [self._group(group) for group in self.groups if group[0].isdisjoint(names)]

    def _group(self, group: tuple[frozenset[str], tuple[Condition, ...]]) -> Region:
        found = self.apart.get(group[0])
        if found is None:
            found = self.apart[group[0]] = build_region(self.domain, *group)
        return found


def content_key(domain: Domain) -> tuple[object, ...]:
    """Equal for domains that say the same in the same order."""
    return (
        domain.default_lower,
        domain.default_upper,
        tuple(sorted(domain.lower.items())),
        tuple(sorted(domain.upper.items())),
        tuple(a.key for a in domain.assumptions),
    )
