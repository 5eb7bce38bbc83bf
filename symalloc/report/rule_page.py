"""One rule explained: what it demands, why, what breaks it, what does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from io import StringIO

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from symalloc.report.quantities import binding_text
from symalloc.rulebook.rule import SITE_KINDS, BadExample, Rule, Rulebook

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


WIDTH = 100


def render_rule_page(
    rule: Rule, *, every: bool = False, colour: bool = False, width: int | None = None
) -> str:
    """Render the page of `rule` for a terminal of `width` columns; `every`: all examples, not one a kind."""
    return render_parts(_parts(rule, every), colour=colour, width=min(width or WIDTH, WIDTH))


def _parts(rule: Rule, every: bool) -> Iterator[Text]:
    yield Text.assemble(
        (f"{rule.id} {rule.name}", "bold"),
        f" ({severity_text(rule)})\n",
        (f"at: {SITE_KINDS[rule.site].description}\n", "dim"),
        ("must hold: " if rule.constraint else "looked for: ", "dim"),
        (rule.constraint or rule.relation or "", "cyan"),
    )
    yield Text()
    for paragraph in rule.doc.split("\n\n"):  # on one line, to be wrapped anew
        pieces = re.split(r"(`[^`]*`)", " ".join(paragraph.split()))
        yield Text.assemble(*((piece, "cyan" if piece.startswith("`") else "") for piece in pieces))
        yield Text()
    for bad in rule.bad if every else rule.bad[:1]:
        yield from _example(f"Found: {bad.title}", bad.module, rule)
        yield from _answer(rule, bad)
        yield Text()
    for good in rule.good if every else rule.good[:1]:
        yield from _example(f"Fine: {good.title}", good.module, rule)
        yield Text()
    yield from _footer(rule, every)


def _example(title: str, module: str, rule: Rule) -> Iterator[Text]:
    yield Text(title, style="bold")
    code = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(module.strip())
    code.rstrip()
    for line in code.split("\n", allow_blank=True):
        yield Text("    ", no_wrap=True, overflow="ignore").append_text(line)


def _answer(rule: Rule, bad: BadExample) -> Iterator[Text]:
    """The answer to a bad example, as far as the rule states it (and its test checks it)."""
    expect = bad.expect
    if expect.message:
        milder = rule.severity_at_runtime if expect.verdict == "runtime-check" else None
        severity = expect.severity or milder or rule.severity
        yield Text.assemble((f"{severity}[{rule.id}]", "bold"), f": {expect.message}")
    if expect.verdict:
        yield Text(f"  = verdict: {expect.verdict}")
    if expect.counterexample is not None:
        yield Text(f"  = counterexample: {binding_text(expect.counterexample)}")
    if expect.precondition:
        yield Text(f"  = holds only when: {expect.precondition}")


def _footer(rule: Rule, every: bool) -> Iterator[Text]:
    hidden = 0 if every else max(len(rule.bad) - 1, 0) + max(len(rule.good) - 1, 0)
    if hidden:
        yield Text(
            f"{hidden} more example{'s' if hidden > 1 else ''}: symalloc explain {rule.id} --all", style="dim"
        )
    if rule.fixes:
        yield Text(f"Offered fixes (--fix): {', '.join(rule.fixes)}")
    for reference in rule.references:  # `apache/tvm#17322` as a link
        address = re.sub(r"^([\w.-]+/[\w.-]+)#(\d+)$", r"https://github.com/\1/issues/\2", reference)
        yield Text(f"See {address}")
    yield Text(f"Allow one finding: # symalloc: allow({rule.id})", style="dim")
