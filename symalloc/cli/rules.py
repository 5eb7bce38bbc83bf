"""`symalloc rules`: what is checked."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from symalloc.cli.output import colour_wanted, show, terminal_width


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to show them."
)
@click.option(
    "--rules", multiple=True, type=click.Path(path_type=Path), help="A folder (or file) of further rules."
)
def rules_command(form: str, rules: tuple[Path, ...]) -> None:
    """List the rules: id, name, severity, what they demand.

    A severity such as error/note means: an error where no shape satisfies the rule, a note where some do.
    A third one, as in error/error/note, is for what only empty tensors break.
    """
    from symalloc.report.rule_table import render_rule_json, render_rule_table
    from symalloc.rulebook.book import load_rules

    book = load_rules(rules)
    if form == "json":
        show(render_rule_json(book), None)
        return
    colour = colour_wanted("auto", sys.stdout)
    show(render_rule_table(book, colour=colour, width=terminal_width(sys.stdout)), None)
