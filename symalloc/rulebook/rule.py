"""A rule as the linter uses it: checked, compiled, able to say what it has to say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from symalloc.rulebook.language import Clause, Constraint
from symalloc.rulebook.schema import BadExample, GoodExample, SeverityName
from symalloc.rulebook.template import IN_ADVICE, MissingValueError, Value, compile_template
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition on every site of one kind, and the words for where it does not hold.

    Exactly one of `constraint` (over the site's quantities) and `relation` (built into the engine) is set.
    `severity_at_runtime` is the severity of a finding whose verdict is a run-time check, None where such a
    verdict is no finding; `severity_when_empty` of one that takes an empty tensor, None where that makes no
    difference.  `label` is the text under the carets, `labels` those of further places of the
    site. `help` holds alternatives: the first whose names all have a value is shown; `notes` are shown one
    by one.
    """

    id: str
    name: str
    severity: SeverityName
    severity_at_runtime: SeverityName | None
    severity_when_empty: SeverityName | None
    site: str
    constraint: str | None
    relation: str | None
    message: str
    message_when_invalid: str
    label: str
    labels: Mapping[str, str]
    help: tuple[str, ...]
    notes: tuple[str, ...]
    fixes: tuple[str, ...]
    doc: str
    references: tuple[str, ...]
    bad: tuple[BadExample, ...]
    good: tuple[GoodExample, ...]
    file: Path
    _compiled: Constraint | None = field(repr=False, compare=False)

    @property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return re.split(r"(?<=\.)\s", self.doc, maxsplit=1)[0].replace("\n", " ")

    @property
    def needs(self) -> frozenset[str]:
        """The quantities that the constraint uses; empty for a relation."""
        return self._compiled.names if self._compiled else frozenset()

    @property
    def clauses(self) -> Clause | None:
        """The comparisons of the constraint, as they were written; None for a relation."""
        return self._compiled.clauses if self._compiled else None

    def condition(self, quantities: Mapping[str, Expr]) -> Condition:
        """The condition on the site; raises KeyError where `quantities` lacks one of `needs`."""
        if self._compiled is None:
            raise TypeError(f"{self.id} asks for a relation, not for a constraint")
        return self._compiled.at(quantities)

    def render(self, template: str, values: Mapping[str, Value]) -> str:
        """`template` with its names replaced; raises MissingValueError where one has no value."""
        return compile_template(template, self.site, IN_ADVICE).render(values)

    def render_message(self, values: Mapping[str, Value], *, never_holds: bool = False) -> str:
        """The message; `never_holds` where no binding satisfies the rule."""
        return self.render(self.message_when_invalid if never_holds else self.message, values)

    def render_help(self, values: Mapping[str, Value]) -> str | None:
        """The first alternative whose names all have a value."""
        return next(iter(self._rendered(self.help, values)), None)

    def render_notes(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        """The notes whose names all have a value."""
        return tuple(self._rendered(self.notes, values))

    def render_labels(self, values: Mapping[str, Value]) -> Mapping[str, str]:
        """The texts for further places of the site, by place; those whose names all have a value."""
        return {place: text for place, t in self.labels.items() for text in self._rendered((t,), values)}

    def _rendered(self, templates: Iterable[str], values: Mapping[str, Value]) -> Iterable[str]:
        for template in templates:
            try:
                yield self.render(template, values)
            except MissingValueError:
                continue
