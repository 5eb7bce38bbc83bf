"""Turns one rule file into a rule: every name, unit and template checked before the first program is seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from symalloc.rulebook.error import RuleError
from symalloc.rulebook.language import Constraint, compile_constraint
from symalloc.rulebook.rule import Rule
from symalloc.rulebook.schema import RuleFile, SeverityName, line_of, read_rule_file
from symalloc.rulebook.sites import SITE_KINDS, SiteKind
from symalloc.rulebook.template import IN_ADVICE, compile_template
from symalloc.size.parse import SizeSyntaxError, nearest

_T = TypeVar("_T")


def read_rule(path: Path) -> Rule:
    """The rule in the file `path`; raises RuleError."""
    raw = read_rule_file(path)
    site = _site(path, raw)
    _check_names(path, raw)
    _check_templates(path, raw, site)
    return Rule(
        id=raw.id,
        name=raw.name,
        severity=raw.severity,
        severity_at_runtime=_severity_at_runtime(raw),
        severity_when_empty=raw.severity_when_empty,
        site=raw.site,
        constraint=raw.constraint,
        relation=raw.relation,
        message=raw.message,
        message_when_invalid=raw.message_when_invalid or raw.message,
        label=raw.label,
        labels=raw.labels,
        help=_several(raw.help),
        notes=_several(raw.note),
        fixes=raw.fixes,
        doc=raw.doc.strip(),
        references=raw.references,
        bad=raw.bad,
        good=raw.good,
        file=path,
        _compiled=_asked(path, raw, site),
    )


def _several(texts: str | tuple[str, ...]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts


def _severity_at_runtime(raw: RuleFile) -> SeverityName | None:
    if raw.severity_at_runtime == "off":
        return None
    return raw.severity_at_runtime or raw.severity


def _error(path: Path, name: str, problem: str, suggestion: str | None = None) -> RuleError:
    line = line_of(path.read_text(encoding="utf-8"), name.split(".")[0])
    return RuleError(file=path, line=line, field=name, problem=problem, suggestion=suggestion)


def _site(path: Path, raw: RuleFile) -> SiteKind:
    found = SITE_KINDS.get(raw.site)
    if found is None:
        known = list(SITE_KINDS)
        problem = f"unknown site `{raw.site}`; known are {', '.join(known)}"
        raise _error(path, "site", problem, nearest(raw.site, known))
    return found


def _check_names(path: Path, raw: RuleFile) -> None:
    if not re.fullmatch(r"[A-Z]{2,10}\d{3,4}", raw.id):
        raise _error(
            path, "id", f"`{raw.id}` is not a rule id: capital letters and three digits, such as HOUSE101"
        )
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", raw.name):
        raise _error(path, "name", f"`{raw.name}` is not a rule name: small letters joined by `-`")


def _asked(path: Path, raw: RuleFile, site: SiteKind) -> Constraint | None:
    if (raw.constraint is None) == (raw.relation is None):
        raise _error(path, "constraint", "a rule has either a `constraint` or a `relation`")
    if raw.constraint is not None:
        return _compiled(path, "constraint", partial(compile_constraint, raw.constraint, site.quantities))
    if raw.relation not in site.relations:
        known = ", ".join(site.relations) or "none"
        problem = f"unknown relation `{raw.relation}`; a {site.name} site knows {known}"
        raise _error(path, "relation", problem, nearest(str(raw.relation), site.relations))
    return None


def _check_templates(path: Path, raw: RuleFile, site: SiteKind) -> None:
    for place in raw.labels:
        if place not in site.places:
            problem = f"unknown place `{place}`; a {site.name} site has {', '.join(site.places) or 'none'}"
            raise _error(path, "labels", problem, nearest(place, site.places))
    for name, text, extra in _templates(raw):
        _compiled(path, name, partial(compile_template, text, site.name, extra))


def _templates(raw: RuleFile) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every template of a rule: where it stands, its text, the names it may use beside those of the site."""
    yield "message", raw.message, ()
    yield "message_when_invalid", raw.message_when_invalid or "", ()
    yield "label", raw.label, ()
    yield from ((f"labels.{place}", text, ()) for place, text in raw.labels.items())
    yield from (("help", text, IN_ADVICE) for text in _several(raw.help))
    yield from (("note", text, IN_ADVICE) for text in _several(raw.note))


def _compiled(path: Path, name: str, build: Callable[[], _T]) -> _T:
    try:
        return build()
    except SizeSyntaxError as error:
        raise _error(path, name, str(error), error.suggestion) from None
