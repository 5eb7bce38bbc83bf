"""Packing problems as files: symalloc's own JSON and the CSV of MiniMalloc.

JSON: `{"name", "symbols": {"n": {"min": 1, "max": 1024}}, "buffers": [{"id", "size": "n*2048", "lower": 1,
"upper": 17, "alignment": 64}]}`.  Sizes are bytes, in Python syntax; a buffer is live in [lower, upper).
`max` may be null or missing; a missing `min` is 1 and a missing `alignment` 64.  CSV: a header with `id`,
`lower`, `upper`, `size` in any order and perhaps `alignment` (missing: 1); sizes are integers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from symalloc.errors import nearest
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import Expr, constant
from symalloc.size.parse import SizeSyntaxError, as_expr, is_sympy, parse_expr, symbols_in

NAME = re.compile(r"[A-Za-z_]\w*")
FUNCTIONS = frozenset({"max", "min", "ceildiv", "round_up", "piecewise"})  # names that expressions call
COLUMNS = ("id", "lower", "upper", "size")
OPTIONAL_COLUMNS = ("alignment",)
MOST_ALIGNMENT = 2**32


class ProblemError(ValueError):
    """The problem makes no sense; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingProblem:
    """Buffers to pack, each live in one interval.

    `ranges` gives for each symbol its least and its greatest value (None: no limit).  `table` is the
    CSV that it was read from, header first, where it was; `source` is the file, for errors.
    """

    name: str
    buffers: tuple[Buffer, ...]
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    table: tuple[tuple[str, ...], ...] | None = None
    source: str = "problem"

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that sizes depend on."""
        return frozenset().union(*(b.size.symbols for b in self.buffers))


class _JsonRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values of a symbol that are likely; no proof relies on a maximum, null is none."""

    min: int = 1
    max: int | None = None


class _JsonBuffer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer that is live in [lower, upper); its size is bytes, or an expression over the symbols."""

    id: str | int
    size: str | int
    lower: int
    upper: int
    alignment: int = 64


class ProblemDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A problem for `symalloc pack`; its name is the file's where it is missing."""

    buffers: tuple[_JsonBuffer, ...]
    name: str = ""
    symbols: dict[str, _JsonRange] = {}


def read_json(text: str, name: str) -> PackingProblem:
    """Return the problem that JSON `text` holds; `name` is used where it has none.  Raises ProblemError."""
    try:
        raw = msgspec.json.decode(text, type=ProblemDocument)
    except msgspec.ValidationError as error:
        raise ProblemError(_misshapen(str(error))) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProblemError(f"not JSON: {error}") from None
    return _problem(raw, name)


def problem_of(document: Mapping[str, Any], name: str = "problem") -> PackingProblem:
    """Return the problem that a dictionary in the JSON form holds, with sympy's sizes and symbols, too.

    Raises ProblemError.
    """
    try:
        raw = msgspec.convert(_in_texts(document), ProblemDocument)
    except msgspec.ValidationError as error:
        raise ProblemError(_misshapen(str(error))) from None
    return _problem(raw, name)


def _in_texts(value: Any) -> Any:
    """`value` with texts in place of what is sympy's or ours, at every depth."""
    if isinstance(value, Mapping):
        return {_in_texts(key): _in_texts(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_in_texts(one) for one in value]
    try:
        return str(as_expr(value)) if isinstance(value, Expr) or is_sympy(value) else value
    except ValueError as error:
        raise ProblemError(str(error)) from None


def read_csv(text: str, name: str) -> PackingProblem:
    """Return the static problem that a MiniMalloc CSV holds.  Raises ProblemError."""
    try:
        rows = [tuple(cell.strip() for cell in row) for row in csv.reader(io.StringIO(text), strict=True)]
    except csv.Error as error:
        raise ProblemError(f"not CSV: {error}") from None
    if not any(rows):
        raise ProblemError("there is nothing in it; the first line names the columns: id,lower,upper,size")
    header = _header(rows[0])
    numbered = [(line, row) for line, row in enumerate(rows[1:], start=2) if any(row)]
    buffers = tuple(_row(id_, header, row, line) for id_, (line, row) in enumerate(numbered))
    _require_different(b.name for b in buffers)
    return PackingProblem(name=name, buffers=buffers, table=(header, *(row for _, row in numbered)))


def _problem(raw: ProblemDocument, name: str) -> PackingProblem:
    ranges = {symbol: _range(symbol, bounds) for symbol, bounds in raw.symbols.items()}
    buffers = tuple(_buffer(i, b, ranges) for i, b in enumerate(raw.buffers))
    _require_different(b.name for b in buffers)
    return PackingProblem(name=raw.name or name, buffers=buffers, ranges=ranges)


def _range(name: str, bounds: _JsonRange) -> tuple[int, int | None]:
    where = f"symbols.{name}"
    if not NAME.fullmatch(name) or name.lower() in FUNCTIONS:
        raise ProblemError(f"{where}: `{name}` is no name for a symbol")
    if bounds.min < 0:
        raise ProblemError(f"{where}.min: {bounds.min} is negative; a symbol counts elements")
    if bounds.max is not None and bounds.max < bounds.min:
        raise ProblemError(f"{where}: max {bounds.max} is less than min {bounds.min}")
    return bounds.min, bounds.max


def _buffer(id_: int, raw: _JsonBuffer, ranges: Mapping[str, object]) -> Buffer:
    where = f"buffers[{id_}] (`{raw.id}`)"
    size = _size(raw.size, where, ranges)
    return _checked(id_, str(raw.id), size, (raw.lower, raw.upper), raw.alignment, where)


def _size(size: str | int, where: str, ranges: Mapping[str, object]) -> Expr:
    if isinstance(size, int):
        return constant(size)
    try:
        expr = parse_expr(size)
        names = sorted(symbols_in(size) - ranges.keys())
    except SizeSyntaxError as error:
        raise ProblemError(f"{where}.size: {error}") from None
    if names:
        hint = _hint(names[0], list(ranges))
        raise ProblemError(f"{where}.size: `{names[0]}` is not among the symbols{hint}, in `{size}`")
    return expr


def _checked(id_: int, name: str, size: Expr, live: tuple[int, int], alignment: int, where: str) -> Buffer:
    """Return the buffer, if it can be; raise ProblemError otherwise."""
    value, (lower, upper) = size.as_constant, live
    if value is not None and value < 0:
        raise ProblemError(f"{where}.size: {value} is negative")
    if lower >= upper:
        raise ProblemError(f"{where}: it is never live: lower {lower} is not below upper {upper}")
    if not 1 <= alignment <= MOST_ALIGNMENT:
        raise ProblemError(f"{where}.alignment: {alignment} is not between 1 and {MOST_ALIGNMENT}")
    return Buffer(id=id_, name=name, size=size, nbytes=size, live=(live,), alignment=alignment)


def _require_different(ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for id_ in ids:
        if not id_:
            raise ProblemError("the id of a buffer is empty")
        if id_ in seen:
            raise ProblemError(f"two buffers have the id `{id_}`")
        seen.add(id_)


def _header(row: Sequence[str]) -> tuple[str, ...]:
    known = (*COLUMNS, *OPTIONAL_COLUMNS)
    for name in row:
        if name not in known:
            raise ProblemError(
                f"line 1: unknown column `{name}`{_hint(name, known)}; known are {', '.join(known)}"
            )
        if row.count(name) > 1:
            raise ProblemError(f"line 1: two columns are named `{name}`")
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise ProblemError(f"line 1: there is no column `{missing[0]}`")
    return tuple(row)


def _row(id_: int, header: Sequence[str], row: Sequence[str], line: int) -> Buffer:
    if len(row) != len(header):
        raise ProblemError(f"line {line}: {len(row)} cells under {len(header)} columns")
    cells = dict(zip(header, row, strict=True))
    found = {name: _number(cells[name], f"line {line}, {name}") for name in header if name != "id"}
    live, name = (found["lower"], found["upper"]), cells["id"]
    return _checked(
        id_, name, constant(found["size"]), live, found.get("alignment", 1), f"line {line} (`{name}`)"
    )


def _number(text: str, where: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,100}", text, re.ASCII):
        raise ProblemError(f"{where}: `{text[:40]}` is no integer")
    return int(text)


def _misshapen(problem: str) -> str:
    """Return what msgspec says, with the place in front, and for an unknown key the one probably meant."""
    what, _, where = problem.partition(" - at `$")
    place = where.rstrip("`").lstrip(".").replace("[...]", "")
    unknown = re.match(r"Object contains unknown field `(.*)`", what)
    if unknown:
        what = f"unknown key `{unknown[1]}`{_hint(unknown[1], _keys_at(place))}"
    else:
        what = what[:1].lower() + what[1:]
    return f"{place}: {what}" if place else what


def _keys_at(place: str) -> tuple[str, ...]:
    within = {"buffers": _JsonBuffer, "symbols": _JsonRange}
    kind = next((kind for key, kind in within.items() if place.startswith(key)), ProblemDocument)
    return kind.__struct_fields__


def _hint(word: str, known: Sequence[str]) -> str:
    close = nearest(word, known)
    return f"; did you mean `{close}`?" if close else ""
