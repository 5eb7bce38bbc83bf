"""Values of symbols on the command line: `n=128,b=2`, and to sweep over `n=1..512`, `n=1,8,64..128:32`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, product
from math import prod

from symalloc.errors import MOST_EXTENT, UsageError

MOST_BINDINGS = 100_000


def parse_binding(texts: Iterable[str]) -> dict[str, int]:
    """The values in texts of --bind such as `n=128` and `n=128,b=2`; raises UsageError."""
    found: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, value = _named(part, f"--bind {part}: expected NAME=NUMBER, such as n=128")
        number = _number(f"--bind {part}", value)
        if found.setdefault(name, number) != number:
            raise UsageError(f"--bind gives `{name}` two values, {found[name]} and {number}")
    return found


def parse_bindings(texts: Iterable[str]) -> list[dict[str, int]]:
    """The sets of values in such texts: a symbol that has one already begins a further set."""
    found: list[dict[str, int]] = []
    for text in texts:
        given = parse_binding([text])
        if found and found[-1].keys().isdisjoint(given):
            found[-1].update(given)
        else:
            found.append(given)
    return found


def parse_sweeps(texts: Iterable[str]) -> dict[str, list[int]]:
    """The values of each symbol, in the order in which they are written; raises UsageError."""
    found: dict[str, list[int]] = {}
    for text in texts:
        expected = f"--sweep {text}: expected NAME=VALUES, such as n=1..512 or n=16..512:16"
        name, values = _named(text, expected)
        if not values:
            raise UsageError(expected)
        if name in found:
            raise UsageError(
                f"--sweep gives the values of `{name}` twice; write them in one: {name}=1,2,8..16"
            )
        ranges = [_range(text, part.strip()) for part in values.split(",")]
        if sum(map(len, ranges)) > MOST_BINDINGS:
            raise UsageError(f"--sweep {text}: more than {MOST_BINDINGS} values")
        found[name] = list(chain.from_iterable(ranges))
    return found


def bindings(fixed: Mapping[str, int], swept: Mapping[str, list[int]]) -> list[dict[str, int]]:
    """All bindings: those that are `fixed`, with each combination of the swept values, the last symbol's
    changing first.  Raises UsageError.
    """
    for name in swept.keys() & fixed.keys():
        raise UsageError(f"`{name}` has a value by --bind and is swept over; leave one out")
    count = prod(map(len, swept.values()))
    if count > MOST_BINDINGS:
        raise UsageError(f"--sweep makes {count} bindings; at most {MOST_BINDINGS} are run")
    return [{**fixed, **dict(zip(swept, chosen, strict=True))} for chosen in product(*swept.values())]


def _named(text: str, expected: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise UsageError(expected)
    return name, value


def _range(text: str, part: str) -> range:
    """The values of `8`, `1..512` or `1..512:16`; a range holds both of its ends where the step allows."""
    where = f"--sweep {text}"
    span, colon, step = part.partition(":")
    first, dots, last = span.partition("..")
    begin, stride = _number(where, first), _number(where, step) if colon else 1
    end = _number(where, last) if dots else begin
    if stride < 1:
        raise UsageError(f"{where}: a step must be at least 1, not {stride}")
    if colon and not dots:
        raise UsageError(f"{where}: a step needs a range, such as {first}..512:{step}")
    if end < begin:
        raise UsageError(f"{where}: the range {span} is empty")
    return range(begin, end + 1, stride)


def _number(where: str, part: str) -> int:
    try:
        number = int(part)
    except ValueError:
        raise UsageError(f"{where}: {part[:40]!r} is no whole number") from None
    if abs(number) > MOST_EXTENT:
        raise UsageError(f"{where}: no dimension can be more than 2**63 - 1")
    return number
