"""Values of symbols on the command line: `n=128,b=2`."""

from __future__ import annotations

from collections.abc import Iterable

from symalloc.errors import UsageError

MOST = 2**63 - 1  # what a dimension of a tensor can be


def parse_binding(texts: Iterable[str], option: str) -> dict[str, int]:
    """The values in texts such as `n=128` and `n=128,b=2`; `option` names where they stand.

    Raises UsageError.
    """
    found: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise UsageError(f"{option} {part}: expected NAME=NUMBER, such as n=128")
        try:
            number = int(value)
        except ValueError:
            raise UsageError(f"{option} {part}: {value[:40]!r} is no whole number") from None
        if abs(number) > MOST:
            raise UsageError(f"{option} {part}: no dimension can be more than 2**63 - 1")
        if found.setdefault(name, number) != number:
            raise UsageError(f"{option} gives `{name}` two values, {found[name]} and {number}")
    return found
