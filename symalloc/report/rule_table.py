"""All rules at a glance: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from symalloc.rulebook.book import Rulebook
from symalloc.rulebook.rule import Rule

SHOWN = (
    *("id", "name", "severity", "severity_at_runtime", "severity_when_empty"),
    *("site", "constraint", "relation", "summary", "fixes", "references"),
)


def render_rule_table(book: Rulebook, *, colour: bool = False, width: int | None = None) -> str:
    """Render one rule a line: id, name, severity, summary; unbounded where `width` (columns) is None."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=max((len(r.id) for r in book.rules), default=1))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for rule in book.rules:
        table.add_row(rule.id, rule.name, severity_text(rule), rule.summary.replace("`", ""))
    return render_parts([table], colour=colour, width=width or 1000)


def render_parts(parts: Iterable[Table | Text], *, colour: bool, width: int) -> str:
    """Render `parts` one below the other for a terminal of `width` columns, without blanks at line ends."""
    stream = StringIO()
    console = Console(file=stream, force_terminal=colour, no_color=not colour, width=width, highlight=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def render_rule_json(book: Rulebook) -> str:
    """Render an array of objects, one a rule, without documentation and examples."""
    return json.dumps([{name: getattr(rule, name) for name in SHOWN} for rule in book.rules], indent=2) + "\n"


def severity_text(rule: Rule) -> str:
    """`error`, or `error/note` where a finding that depends on the shape is milder; `-` for none.

    A third one, as in `error/error/note`, is that of a finding that takes an empty tensor.
    """
    if rule.severity_when_empty is not None:
        return f"{rule.severity}/{rule.severity_at_runtime or '-'}/{rule.severity_when_empty}"
    if rule.severity_at_runtime == rule.severity:
        return rule.severity
    return f"{rule.severity}/{rule.severity_at_runtime or '-'}"
