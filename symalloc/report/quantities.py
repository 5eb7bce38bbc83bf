"""Byte counts, bindings and names for a person, and tables of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil
from textwrap import fill

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
WIDEST_PLACE = 40
MOST_ROWS = 12  # of a table of buffers, kernels, arenas or tensors; all of them are in the JSON


def human_bytes(count: int | None) -> str:
    """`count` bytes in the largest unit that leaves at least one: 1.5 KiB; `-` for what is not known."""
    if count is None:
        return "-"
    unit, value = UNITS[0], float(count)
    for larger in UNITS[1:]:
        if value < 1024:
            break
        unit, value = larger, value / 1024
    if unit == "B":
        return f"{count} B"
    return f"{value:.1f} {unit}" if value < 1e6 else f"{value:.1e} {unit}"


def binding_text(binding: Mapping[str, int]) -> str:
    """Return `n = 128, b = 2`."""
    return ", ".join(f"{name} = {value}" for name, value in binding.items())


def at_binding(binding: Mapping[str, int] | None) -> str:
    """Return ` at n = 128, b = 2`, nothing for no symbols."""
    return f" at {binding_text(binding)}" if binding else ""


def cut(text: object, width: int) -> str:
    """Return the text of something in at most `width` characters, an ellipsis in place of the rest."""
    whole = str(text)
    return whole if len(whole) <= width else f"{whole[: width - 1]}…"


def capped(lines: Sequence[str], what: str, most: int = MOST_ROWS) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from lines[:most]
    if len(lines) > most:
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        yield f"{indent}… and {len(lines) - most} more {what}"


def broken(text: str, width: int, indent: int = 0, margin: int = 0) -> str:
    """`text`, which begins behind `indent` cells, broken at `width`; further lines begin behind `margin`."""
    if len(text) + indent <= width:
        return text
    return fill(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * margin,
        break_long_words=False,
        break_on_hyphens=False,
    )[indent:]


def times(ratio: float | None) -> str:
    """A ratio with three decimals; `-` for what is not known."""
    return "-" if ratio is None else f"{ratio:.3f}" if ratio < 1e5 else f"{ratio:.2e}"


def at_most(ratio: float) -> str:
    """A ratio rounded up to three decimals, but for what arithmetic on floats adds."""
    return times(ceil(ratio * 1000 - 1e-6) / 1000)


def percent(share: float | None) -> str:
    """A share of 1 in per cent; `-` for what is not known."""
    return "-" if share is None else f"{100 * share:.1f}%"


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """The rows of a table as lines: columns are as wide as need be, those in `left` flush to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def cut_place(place: str) -> str:
    """`layers.0 at src/model.py:12` in few columns: folders go first, then the file, then outer modules."""
    module, at, file = place.rpartition(" at ")
    folders = file.split("/")
    shorter = (f"{module}{at}…/{'/'.join(folders[i:])}" for i in range(1, len(folders)))
    fitting = next((text for text in (place, *shorter) if len(text) <= WIDEST_PLACE), module or file)
    return fitting if len(fitting) <= WIDEST_PLACE else f"…{fitting[1 - WIDEST_PLACE :]}"
