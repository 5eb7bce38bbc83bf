"""Findings that declared bounds rule out: they are reported as one finding for each symbol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from symalloc.linter.finding import Finding
from symalloc.linter.sites.site import RelationSite, Site
from symalloc.program.declared_bounds import DeclaredBound
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import conjunction

_NAMED = 3
_SUBJECTS = ("tensor", "first", "what", "storage", "argument", "callee", "variable")


class BoundDependent(NamedTuple):
    """A finding that `needed` bounds rule out; with fewer of them it may be a fault."""

    needed: tuple[DeclaredBound, ...]
    finding: Finding


def by_symbol(
    dependents: Iterable[BoundDependent],
) -> Mapping[str, tuple[tuple[DeclaredBound, ...], tuple[Finding, ...]]]:
    """By symbol the bounds that are needed of it, and the findings that need them."""
    bounds: dict[str, dict[DeclaredBound, None]] = {}
    findings: dict[str, dict[Finding, None]] = {}
    for needed, finding in dependents:
        for bound in needed:
            bounds.setdefault(bound.symbol, {})[bound] = None
            findings.setdefault(bound.symbol, {})[finding] = None
    return {name: (tuple(sorted(bounds[name], key=_lower_first)), tuple(findings[name])) for name in bounds}


def bound_site(bounds: Sequence[DeclaredBound], dependents: Sequence[Finding]) -> RelationSite:
    """The site of the bounds of one symbol, where the first of `dependents` stands."""
    first, count = dependents[0], len(dependents)
    texts = {
        "symbol": bounds[0].symbol,
        "declared": " and ".join(bound.text for bound in bounds),
        "check": str(conjunction(bound.condition for bound in bounds)),
        "count": "1 constraint needs" if count == 1 else f"{count} constraints need",
        "needed_by": _listed(_subject(finding.site) for finding in dependents),
    }
    return RelationSite(
        kind="declared-bound",
        instruction=first.site.instruction,
        span=first.site.span,
        relation="bound-not-enforced",
        texts=texts,
    )


def smallest_told(dependents: Iterable[Finding]) -> Finding | None:
    """The finding with the least counterexample, of those that depend on the shapes."""
    told = [f for f in dependents if f.verdict is Verdict.RUNTIME_CHECK]
    return min(told, key=lambda f: sorted((f.counterexample or {"": 2**64}).values())[::-1], default=None)


def _lower_first(bound: DeclaredBound) -> bool:
    return bound.is_upper


def _listed(subjects: Iterator[str]) -> str:
    """Names in a message: `a`, `b`, `c` and 3 more."""
    names = list(dict.fromkeys(subjects))
    shown = [f"`{name}`" for name in names[:_NAMED]]
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _subject(site: Site) -> str:
    return next((site.texts[key] for key in _SUBJECTS if key in site.texts), site.kind)
