"""`symalloc explain`: explain one rule."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from symalloc.cli.click_options import rules_option
from symalloc.cli.output import colour_wanted, show, terminal_width


@click.command()
@click.argument("rule", required=False)
@click.option("--all", "every", is_flag=True, help="Show all examples, not only the first of each kind.")
@rules_option
def explain_command(rule: str | None, every: bool, rules: tuple[Path, ...]) -> None:
    """Explain RULE with examples.  RULE is an id such as SYM101, or a name; without it, list the rules."""
    from symalloc.report.text import render_rule_page, render_rule_table
    from symalloc.rulebook.rule import load_rules

    colour, width = colour_wanted(sys.stdout), terminal_width(sys.stdout)
    book = load_rules(rules)
    if rule is None:
        text = render_rule_table(book, colour=colour, width=width)
    else:
        text = render_rule_page(book.get(rule), every=every, colour=colour, width=width)
    show(text, None)
