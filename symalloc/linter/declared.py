"""Sites of kind `declared-bound`: bounds that a function declares, nothing enforces, and a verdict relies
on.
"""

from __future__ import annotations

from collections.abc import Sequence

from symalloc.linter.finding import Finding
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.sites.site import Site
from symalloc.rulebook.rule import Rule
from symalloc.size.expr import constant, symbol

__all__ = ["declared_bounds"]

_NAMED = 3
_SUBJECTS = ("tensor", "first", "what", "storage")


def declared_bounds(one: FunctionCheck) -> list[Finding]:
    """One finding for each declared bound that some constraint of the function needs."""
    needs: dict[str, list[Finding]] = {}
    for names, finding in one.leaning:
        for name in names:
            needs.setdefault(name, []).append(finding)
    rules = [r for r in one.rulebook.by_site("declared-bound") if r.relation == "bound-not-enforced"]
    return [_finding(one, name, needy, rule) for name, needy in needs.items() for rule in rules]


def _finding(one: FunctionCheck, name: str, needy: Sequence[Finding], rule: Rule) -> Finding:
    first = needy[0]
    bound = one.scene.function.declared_upper[name]
    site = Site(
        kind="declared-bound",
        instruction=first.site.instruction,
        relation=rule.relation,
        quantities={"symbol": symbol(name), "bound": constant(bound)},
        texts={"symbol": name, "bound": str(bound), "needed_by": _listed(needy)},
    )
    return Finding(
        rule=rule,
        site=site,
        step=first.step,
        function=one.scene.function.name,
        facts=first.facts,
        constraint=first.constraint,
        domain=first.domain,
        judgement=first.judgement,
    )


def _listed(needy: Sequence[Finding]) -> str:
    """`a`, `b` and 3 more."""
    names = list(dict.fromkeys(_subject(finding.site) for finding in needy))
    shown = [f"`{name}`" for name in names[:_NAMED]]
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _subject(site: Site) -> str:
    return next((site.texts[key] for key in _SUBJECTS if key in site.texts), site.kind)
