"""The options that an editor gives when it starts the server (`initializationOptions`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symalloc.arguments import shown
from symalloc.errors import UsageError
from symalloc.options import BINDING, SECONDS, option, read_fields, read_table, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The settings of the language server.  Raises UsageError for values that make no sense."""

    debounce: int = option(
        50, whole(0), "Milliseconds without a change before a text is checked.", in_file=True
    )
    timeout: float = option(60.0, SECONDS, "The most time for reading one text.", in_file=True)
    bind: Mapping[str, int] = option({}, BINDING, "Sizes at which a hover shows bytes.", in_file=True)

    def __post_init__(self) -> None:
        read_fields(self)


def read_options(given: object) -> ServerOptions:
    """Read the options of an editor, None where it gives none.  Raises UsageError for what makes no sense."""
    if given is None:
        return ServerOptions()
    if not isinstance(given, Mapping):
        raise UsageError(f"initializationOptions is {shown(given)}; it must be an object")
    return ServerOptions(**read_table(ServerOptions, given, "initializationOptions"))
