"""`symalloc rules`: list the rules."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from symalloc.cli.click_options import format_option, rules_option
from symalloc.cli.output import colour_wanted, show, terminal_width


@click.command()
@format_option("the list")
@rules_option
def rules_command(form: str, rules: tuple[Path, ...]) -> None:
    """List the rules: id, name, severity, and the condition that must hold.

    The severity error/note means: an error if no shape satisfies the rule, a note if some shapes do.  A third
    one, as in error/error/note, applies if only empty tensors violate the rule.
    """
    from symalloc.report.text import render_rule_json, render_rule_table
    from symalloc.rulebook.rule import load_rules

    book = load_rules(rules)
    if form == "json":
        show(render_rule_json(book), None)
        return
    colour = colour_wanted(sys.stdout)
    show(render_rule_table(book, colour=colour, width=terminal_width(sys.stdout)), None)
