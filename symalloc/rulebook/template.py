"""Message templates: text with `{tensor}`, `{nbytes}` or `{offset + nbytes}` in it.

A quantity is written with its unit where that is bytes (`4*m B`); `{nbytes:code}` writes it bare, as code.
`{{` and `}}` write braces.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from symalloc.errors import nearest
from symalloc.rulebook.language import Quantity, Unit, compile_quantity
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
    quantity: Quantity | None
    bare: bool

    def write(self, values: Mapping[str, Value]) -> str | None:
        value = values.get(self.text)
        if self.quantity is not None and self.text not in values:
            sizes = {name: values.get(name) for name in self.quantity.expr.symbols}
            known = {name: as_expr(size) for name, size in sizes.items() if isinstance(size, Expr | int)}
            value = self.quantity.at(known) if len(known) == len(sizes) else None
        if value is None:
            return None
        return _written(value, None if self.bare or self.quantity is None else self.quantity.unit)


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
    unit = kind.quantities.get(text)
    if unit is None and text in (*kind.texts, *EVERYWHERE, *extra):
        return _Slot(text, None, style == "code")
    if text.replace(".", "").isidentifier() and unit is None:
        known = [*kind.quantities, *kind.texts, *EVERYWHERE, *extra]
        problem = f"unknown name `{text}`; a {site} site offers {', '.join(known)}"
        raise SizeSyntaxError(text, 0, problem, nearest(text, known))
    return _Slot(text, compile_quantity(text, kind.quantities), style == "code")


def _written(value: Expr | Condition | Mapping[str, int] | str | int, unit: Unit | None) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {number}" for name, number in value.items())
    if unit is not Unit.BYTES or not isinstance(value, Expr | int):
        return str(value)
    several = isinstance(value, Expr) and len(value.terms) > 1
    return f"({value}) B" if several else f"{value} B"
