"""`symalloc schema`: the JSON Schemas of documents."""

from __future__ import annotations

import click

from symalloc.cli.click_options import Word
from symalloc.cli.output import show
from symalloc.options import choice
from symalloc.report.document import KINDS, schema_text


@click.command()
@click.argument("document", type=Word(choice(tuple(KINDS))))
def schema_command(document: str) -> None:
    """Print the JSON Schema of a DOCUMENT that a verb writes as --format json, or that it reads."""
    show(schema_text(document), None)
