"""Rules: what is checked at every site of one kind, and what is said where it does not hold.

`Rule` is the typed shape of rules/*.toml; `symalloc.rulebook.book` reads and checks one.  Its texts are
templates, with `{tensor}`, `{nbytes}` or `{offset + nbytes}` in them.  Bytes, and sums of them, are written
with their unit (`4*m B`); `{nbytes:code}` writes them bare, as code.  `{{` and `}}` write braces.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from symalloc.errors import UsageError, nearest
from symalloc.rulebook.language import Constraint, Quantity, compile_constraint, compile_quantity
from symalloc.rulebook.sites import SITE_KINDS
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr
from symalloc.size.parse import SizeSyntaxError, as_expr

Value: TypeAlias = Expr | Condition | Mapping[str, int] | str | int | None

EVERYWHERE = ("function",)
"""Names that every template may use."""
IN_ADVICE = ("precondition", "counterexample", "consequence", "reason")
"""Names that help and notes may use as well; where one has no value the sentence is left out."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """The part of a template between braces: a name, or an expression over quantities."""

    text: str
    quantity: Quantity | None = None
    in_bytes: bool = False

    def write(self, values: Mapping[str, Value]) -> str | None:
        value = values.get(self.text)
        if self.quantity is not None and self.text not in values:
            sizes = {name: values.get(name) for name in self.quantity.expr.symbols}
            known = {name: as_expr(size) for name, size in sizes.items() if isinstance(size, Expr | int)}
            value = self.quantity.at(known) if len(known) == len(sizes) else None
        return None if value is None else _written(value, in_bytes=self.in_bytes)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    pieces: tuple[str | _Slot, ...]

    def render(self, values: Mapping[str, Value]) -> str | None:
        """The text with every name replaced by its value; None where one has none."""
        texts = [piece if isinstance(piece, str) else piece.write(values) for piece in self.pieces]
        known = [text for text in texts if text is not None]
        return "".join(known) if len(known) == len(texts) else None


@lru_cache(maxsize=1024)
def compile_template(text: str, site: str, extra: tuple[str, ...] = ()) -> Template:
    """`text` as a template over the names of `site`, `EVERYWHERE` and `extra`; raises SizeSyntaxError."""
    pieces: list[str | _Slot] = []
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise SizeSyntaxError(text, 0, f"{error}; write {{{{ and }}}} for braces") from None
    for literal, field, style, _ in parsed:
        if literal:
            pieces.append(literal)
        if field is not None:
            pieces.append(_slot(field.strip(), style or "", site, extra))
    return Template(tuple(pieces))


def _slot(text: str, style: str, site: str, extra: tuple[str, ...]) -> _Slot:
    if style not in ("", "code"):
        problem = f"unknown style `{style}`; only `code` is known"
        raise SizeSyntaxError(f"{{{text}:{style}}}", len(text) + 2, problem, "code")
    kind = SITE_KINDS[site]
    words = (*kind.texts, *EVERYWHERE, *extra)
    if text in words and text not in kind.quantities:
        return _Slot(text)
    if text.replace(".", "").isidentifier() and text not in kind.quantities:
        known = [*kind.quantities, *words]
        problem = f"unknown name `{text}`; a {site} site offers {', '.join(known)}"
        raise SizeSyntaxError(text, 0, problem, nearest(text, known))
    quantity = compile_quantity(text, kind.quantities)
    return _Slot(text, quantity, quantity.in_bytes and not style)


def _written(value: Expr | Condition | Mapping[str, int] | str | int, *, in_bytes: bool) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {number}" for name, number in value.items())
    if not in_bytes or not isinstance(value, Expr | int):
        return str(value)
    several = isinstance(value, Expr) and len(value.terms) > 1
    return f"({value}) B" if several else f"{value} B"


SeverityName: TypeAlias = Literal["error", "warning", "note"]
StageName: TypeAlias = Literal["auto", "as-is", "planned"]
FixName: TypeAlias = Literal["grow-storage", "insert-assertion", "remove-kill", "remove-suppression"]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The linter's answer to a bad module, each part only where it is given."""

    verdict: Literal["always-invalid", "runtime-check"] | None = None
    severity: SeverityName | None = None
    counterexample: dict[str, int] | None = None
    precondition: str | None = None
    message: str | None = None


class GoodExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A module in which the rule finds nothing.

    `stage` is the stage at which it is linted, `budget` the bytes of --budget, `order` that of --order.
    """

    name: str
    module: str
    stage: StageName = "as-is"
    budget: int | None = None
    order: Literal["total", "lanes", "dag"] = "total"

    @property
    def title(self) -> str:
        """The name, with the options that the answer takes."""
        asked = [] if self.budget is None else [f"--budget {self.budget}"]
        asked += [] if self.order == "total" else [f"--order {self.order}"]
        return f"{self.name} ({' '.join(asked)})" if asked else self.name


class BadExample(GoodExample, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A module in which the rule finds a fault on exactly the lines marked `# <id>`."""

    expect: Expectation = Expectation()


class Rule(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    dict=True,
    rename={"notes": "note", "file": ""},
):
    """A condition on every site of one kind, and the words for where it does not hold.

    Exactly one of `constraint` (over the site's quantities) and `relation` (built into the engine) is set.
    `severity_at_runtime` is the severity of a finding whose verdict is a run-time check, None where such a
    verdict is no finding; `severity_when_empty` of one that takes an empty tensor, None where that makes no
    difference.  `label` is the text under the carets, `labels` those of further places of the
    site. `help` holds alternatives: the first whose names all have a value is shown; `notes` are shown one
    by one.  `file` is where the rule was read from; no key of a rule file sets it.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{2,10}\d{3,4}$")]
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")]
    severity: SeverityName
    site: str
    message: str
    doc: str
    severity_at_runtime: SeverityName | None
    message_when_invalid: str
    severity_when_empty: SeverityName | None = None
    constraint: str | None = None
    relation: str | None = None
    label: str = ""
    labels: dict[str, str] = {}
    help: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fixes: tuple[FixName, ...] = ()
    references: tuple[str, ...] = ()
    bad: tuple[BadExample, ...] = ()
    good: tuple[GoodExample, ...] = ()
    file: Path = Path()

    @cached_property
    def compiled(self) -> Constraint | None:
        """The constraint over the site's quantities, None for a relation; raises SizeSyntaxError."""
        if self.constraint is None:
            return None
        return compile_constraint(self.constraint, SITE_KINDS[self.site].quantities)

    @property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return re.split(r"(?<=\.)\s", self.doc, maxsplit=1)[0].replace("\n", " ")

    @property
    def needs(self) -> frozenset[str]:
        """The quantities that the constraint uses; empty for a relation."""
        return self.compiled.names if self.compiled else frozenset()

    def condition(self, quantities: Mapping[str, Expr]) -> Condition:
        """The condition on the site; raises KeyError where `quantities` lacks one of `needs`."""
        if self.compiled is None:
            raise TypeError(f"{self.id} asks for a relation, not for a constraint")
        return self.compiled.at(quantities)

    def rendered(self, templates: Iterable[str], values: Mapping[str, Value]) -> tuple[str, ...]:
        """The texts of those `templates` of the rule whose names all have a value."""
        texts = (compile_template(one, self.site, IN_ADVICE).render(values) for one in templates)
        return tuple(text for text in texts if text is not None)

    def message_about(self, values: Mapping[str, Value], *, never_holds: bool = False) -> str | None:
        """The message; None where a name has no value.  `never_holds`: no binding satisfies the rule."""
        chosen = self.message_when_invalid if never_holds else self.message
        return next(iter(self.rendered((chosen,), values)), None)

    def help_about(self, values: Mapping[str, Value]) -> str | None:
        """The first help whose names all have a value."""
        return next(iter(self.rendered(self.help, values)), None)


class RuleError(UsageError):
    """A rule file, or a request for a rule, that makes no sense.

    `file`, `line` (from 1) and `field` say where, as far as known; `suggestion` is what was probably meant.
    """

    def __init__(
        self,
        *,
        problem: str,
        file: Path | None = None,
        line: int | None = None,
        field: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        place = "" if file is None else f"{file}:{line}: " if line else f"{file}: "
        subject = f"{field}: " if field else ""
        hint = f" (did you mean `{suggestion}`?)" if suggestion else ""
        super().__init__(f"{place}{subject}{problem}{hint}")
        self.file, self.line, self.field = file, line, field
        self.problem, self.suggestion = problem, suggestion
