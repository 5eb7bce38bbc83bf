"""`symalloc server`: the language server, for editors."""

from __future__ import annotations

import click

from symalloc.errors import UsageError

EPILOG = """\
The editor starts it and talks to it over standard input and output.  docs/editor.md shows how to set
up VS Code and Neovim.

Exit status: 0 after the editor's "shutdown" and "exit", or the end of standard input, 1 after "exit" alone.
"""


@click.command(epilog=EPILOG)
def server_command() -> int:
    """Serve editors over the Language Server Protocol: findings as you type, sizes, fixes."""
    try:
        from symalloc.editor.language_server import Editor
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError(
            "the language server needs pygls, which is not installed: pip install 'symalloc[editor]'"
        ) from None
    return Editor().serve()
