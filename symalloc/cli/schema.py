"""`symalloc schema`: the JSON Schemas of documents."""

from __future__ import annotations

import click

from symalloc.cli.output import OneOf, show
from symalloc.report.document import KINDS, schema_text


@click.command()
@click.argument("document", type=OneOf(tuple(KINDS)))
def schema_command(document: str) -> None:
    """Print the JSON Schema of a DOCUMENT that a verb writes as --format json, or that it reads."""
    show(schema_text(document), None)
