"""Packing problems, read from files, packed and proved: `symalloc pack`.

Files are symalloc's own JSON or the CSV of MiniMalloc.

JSON: `{"name", "symbols": {"n": {"min": 1, "max": 1024}}, "buffers": [{"id", "size": "n*2048", "lower": 1,
"upper": 17, "alignment": 64}]}`.  Sizes are bytes, in Python syntax; a buffer is live in [lower, upper), but
not in its `gaps`, such as [[3, 5]]; where sizes are numbers, one with an `offset` in bytes stays there.
`max` may be null or missing; a missing `min` is 1 and a missing `alignment` 64.

CSV: a header with `id` (or `buffer`, `buffer_id`), `lower` (`begin`, `start`), `upper` and `size` in any
order, and perhaps `alignment` (missing: 1), `gaps`, such as `3-5 7-9`, and `offset` (empty: free).  An `end`
in the place of `upper` is the last position, in gaps too.  A gap with a window (`3-5@0:64`, for a part of the
buffer) counts as none, and `hint` is not needed.  All are integers.
"""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import lcm
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from symalloc.errors import nearest
from symalloc.planner.check.plan_certificate import plan_certificate
from symalloc.planner.check.validate import PlanRefusedError, validate
from symalloc.planner.grid import Grid, Ranges, score_grid
from symalloc.planner.interference import changes_of, live_sums, pairs_live_together
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.planner.offsets import assemble
from symalloc.planner.packing.exact_packing import SizedBuffers, pack_exactly, pack_greedily
from symalloc.planner.stack import LARGEST, SearchBudget, search
from symalloc.prover.domain import Domain, Verdict
from symalloc.prover.prover import Prover
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import Expr, constant, highest, round_up
from symalloc.size.parse import SizeSyntaxError, as_expr, is_sympy, parse_expr, symbols_in

NAME = re.compile(r"[A-Za-z_]\w*")
FUNCTIONS = frozenset({"max", "min", "ceildiv", "round_up", "piecewise"})  # names that expressions call
COLUMNS = ("id", "lower", "upper", "size")
OPTIONAL_COLUMNS = ("alignment", "gaps", "hint", "offset")
OTHER_NAMES = {"buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower", "end": "upper"}
MOST_ALIGNMENT = 2**32
_INTEGER = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_GAP = re.compile(r"(-?\d{1,100})-(-?\d{1,100})(@-?\d{1,100}:-?\d{1,100})?", re.ASCII)


class ProblemError(ValueError):
    """The problem makes no sense; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingProblem:
    """Buffers to pack; those that are `fixed`, by index, stay at these offsets in bytes.

    `ranges` gives for each symbol its least and its greatest value (None: no limit).  `table` is the
    CSV that it was read from, header first, where it was; `source` is the file, for errors.
    """

    name: str
    buffers: tuple[Buffer, ...]
    fixed: Mapping[int, int] = field(default_factory=dict)
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
    """A buffer that is live in [lower, upper) but for its gaps; its size is bytes, or an expression over the
    symbols; where it has an offset, it stays there.
    """

    id: str | int
    size: str | int
    lower: int
    upper: int
    alignment: int = 64
    gaps: tuple[tuple[int, int], ...] = ()
    offset: int | None = None


class ProblemDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A problem for `symalloc pack`; its name is the file's where it is missing."""

    buffers: tuple[_JsonBuffer, ...]
    name: str = ""
    symbols: dict[str, _JsonRange] = {}


def read_json(text: str, name: str) -> PackingProblem:
    """Return the problem that JSON `text` holds; `name` is used where it has none.  Raises ProblemError."""
    return _problem(lambda: msgspec.json.decode(text, type=ProblemDocument), name)


def problem_of(document: Mapping[str, Any], name: str = "problem") -> PackingProblem:
    """Return the problem that a dictionary in the JSON form holds, with sympy's sizes and symbols, too.

    Raises ProblemError.
    """
    return _problem(lambda: msgspec.convert(_in_texts(document), ProblemDocument), name)


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
    raw = [_row(header, row, line) for line, row in numbered]
    table = (header, *(row for _, row in numbered))
    return PackingProblem(name=name, buffers=_buffers(raw, {}), fixed=_fixed(raw), table=table)


def _problem(read: Callable[[], ProblemDocument], name: str) -> PackingProblem:
    try:
        raw = read()
    except msgspec.ValidationError as error:
        raise ProblemError(_misshapen(str(error))) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProblemError(f"not JSON: {error}") from None
    ranges = {symbol: _range(symbol, bounds) for symbol, bounds in raw.symbols.items()}
    given = [(f"buffers[{i}] (`{b.id}`)", b) for i, b in enumerate(raw.buffers)]
    problem = PackingProblem(
        name=raw.name or name, buffers=_buffers(given, ranges), fixed=_fixed(given), ranges=ranges
    )
    if problem.fixed and problem.symbols:
        where = given[next(iter(problem.fixed))][0]
        raise ProblemError(f"{where}.offset: offsets are given where all sizes are numbers, and some are not")
    return problem


def _range(name: str, bounds: _JsonRange) -> tuple[int, int | None]:
    where = f"symbols.{name}"
    if not NAME.fullmatch(name) or name.lower() in FUNCTIONS:
        raise ProblemError(f"{where}: `{name}` is no name for a symbol")
    if bounds.min < 0:
        raise ProblemError(f"{where}.min: {bounds.min} is negative; a symbol counts elements")
    if bounds.max is not None and bounds.max < bounds.min:
        raise ProblemError(f"{where}: max {bounds.max} is less than min {bounds.min}")
    return bounds.min, bounds.max


def _buffers(given: Iterable[tuple[str, _JsonBuffer]], ranges: Mapping[str, object]) -> tuple[Buffer, ...]:
    """Return the buffers, each of which comes with the words for where it was read; raise ProblemError."""
    found: dict[str, Buffer] = {}
    for where, raw in given:
        name, size, live = str(raw.id), _size(raw.size, where, ranges), tuple(_without_gaps(raw))
        if (size.as_constant or 0) < 0:
            raise ProblemError(f"{where}.size: {size} is negative")
        if raw.lower >= raw.upper:
            raise ProblemError(f"{where}: it is never live: lower {raw.lower} is not below upper {raw.upper}")
        if not 1 <= raw.alignment <= MOST_ALIGNMENT:
            raise ProblemError(f"{where}.alignment: {raw.alignment} is not between 1 and {MOST_ALIGNMENT}")
        if not live:
            raise ProblemError(f"{where}.gaps: it is never live: there is nothing but gaps")
        if not name:
            raise ProblemError("the id of a buffer is empty")
        if name in found:
            raise ProblemError(f"two buffers have the id `{name}`")
        found[name] = Buffer(
            id=len(found), name=name, size=size, nbytes=size, live=live, alignment=raw.alignment
        )
    return tuple(found.values())


def _without_gaps(raw: _JsonBuffer) -> Iterator[tuple[int, int]]:
    """Yield the intervals in which a buffer is live."""
    begin = raw.lower
    for gap, end in sorted((*raw.gaps, (raw.upper, raw.upper))):
        if gap > begin:
            yield begin, min(gap, raw.upper)
        begin = max(begin, end)
        if begin >= raw.upper:
            return


def _fixed(given: Sequence[tuple[str, _JsonBuffer]]) -> dict[int, int]:
    """Return the offsets that are given, by the index of the buffer; raise ProblemError."""
    found = {i: raw.offset for i, (_, raw) in enumerate(given) if raw.offset is not None}
    for index, offset in found.items():
        where, raw = given[index]
        if not 0 <= offset <= LARGEST:
            raise ProblemError(f"{where}.offset: {offset} is not between 0 and {LARGEST}")
        if offset % raw.alignment:
            raise ProblemError(f"{where}.offset: {offset} is no multiple of its alignment {raw.alignment}")
    return found


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


def _header(row: Sequence[str]) -> tuple[str, ...]:
    known = (*COLUMNS, *OPTIONAL_COLUMNS)
    meant = [OTHER_NAMES.get(name, name) for name in row]
    for name, column in zip(row, meant, strict=True):
        if column not in known:
            raise ProblemError(
                f"line 1: unknown column `{name}`{_hint(name, known)}; known are {', '.join(known)}"
            )
        if meant.count(column) > 1:
            named = [f"`{other}`" for other, same in zip(row, meant, strict=True) if same == column]
            raise ProblemError(f"line 1: two columns are named {' and '.join(dict.fromkeys(named))}")
    missing = [name for name in COLUMNS if name not in meant]
    if missing:
        raise ProblemError(f"line 1: there is no column `{missing[0]}`")
    return tuple(row)


def _row(header: Sequence[str], row: Sequence[str], line: int) -> tuple[str, _JsonBuffer]:
    if len(row) != len(header):
        raise ProblemError(f"line {line}: {len(row)} cells under {len(header)} columns")
    cells = {OTHER_NAMES.get(column, column): text for column, text in zip(header, row, strict=True)}
    name, last = cells.pop("id"), int("end" in header)
    gaps = [_GAP.fullmatch(gap) for gap in cells.pop("gaps", "").split()]
    if None in gaps:
        raise ProblemError(f"line {line}, gaps: they are written such as `3-5 7-9`")
    for column in ("hint", "offset"):
        if not cells.get(column):
            cells.pop(column, None)
    for column, text in cells.items():
        if not _INTEGER.fullmatch(text):
            raise ProblemError(f"line {line}, {column}: `{text[:40]}` is no integer")
    numbers = {"alignment": 1, **{column: int(text) for column, text in cells.items()}}
    numbers.pop("hint", None)
    numbers["upper"] += last
    empty = tuple((int(gap[1]), int(gap[2]) + last) for gap in gaps if gap is not None and gap[3] is None)
    return f"line {line} (`{name}`)", _JsonBuffer(id=name, gaps=empty, **numbers)


def _misshapen(problem: str) -> str:
    """Return what msgspec says, with the place in front, and for an unknown key the one probably meant."""
    what, _, where = problem.partition(" - at `$")
    place = where.rstrip("`").lstrip(".").replace("[...]", "")
    unknown = re.match(r"Object contains unknown field `(.*)`", what)
    if unknown:
        within = {"buffers": _JsonBuffer, "symbols": _JsonRange}
        kind = next((kind for key, kind in within.items() if place.startswith(key)), ProblemDocument)
        what = f"unknown key `{unknown[1]}`{_hint(unknown[1], kind.__struct_fields__)}"
    else:
        what = what[:1].lower() + what[1:]
    return f"{place}: {what}" if place else what


def _hint(word: str, known: Sequence[str]) -> str:
    close = nearest(word, known)
    return f"; did you mean `{close}`?" if close else ""


# -- packings ----------------------------------------------------------------------------------------------


DENSE, CLOSE, STEPS = 4096, 64, 96
"""All values up to the first, where there is one symbol; for two all up to the second, then a geometric
sequence.
"""
DESCENTS = 20  # of the exact search, each of which looks at all pairs: with fewer it finds nothing


class FloorRatio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of the arena and of the floor at one binding, and their ratio, 1 without a live byte."""

    binding: Mapping[str, int]
    bytes: int
    floor: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A packing of a problem, proved for all bindings.

    `offsets` are bytes by id, `arena` is the whole; `ratios` compares it with the floor (the largest sum of
    bytes live at one position) at bindings that go past the declared bounds. `overrun` is a binding
    within the declared bounds at which the arena exceeds the capacity that was asked for (empty for a
    static problem); None where it fits. `certificate` holds the proof as files, where it was asked for.
    """

    problem: PackingProblem
    arena: Expr
    offsets: Mapping[str, Expr]
    ratios: tuple[FloorRatio, ...]
    seconds: float
    overrun: Mapping[str, int] | None = None
    certificate: Mapping[str, str] | None = None

    @property
    def worst_ratio(self) -> float:
        """The worst of `ratios`."""
        return max(r.ratio for r in self.ratios)

    @property
    def mean_ratio(self) -> float:
        """The mean of `ratios`."""
        return sum(r.ratio for r in self.ratios) / len(self.ratios)


def pack_problem(
    problem: PackingProblem,
    *,
    budget: SearchBudget,
    capacity: int | None = None,
    certify: bool = False,
    prover: Prover | None = None,
) -> Packing:
    """Return a proved packing of `problem`; `capacity` is in bytes.

    Declared maxima are not relied on.  Raises ProblemError where a size can be negative or is not defined,
    PlanRefusedError where the packing cannot be proved.
    """
    start = perf_counter()
    prover = prover or Prover()
    domain = _domain(problem, prover)
    if problem.symbols or _exceeds(problem):
        # at the sizes that they take up in a pile: what lies on one starts at a multiple
        step = lcm(*(b.alignment for b in problem.buffers))
        rounded = [replace(b, size=round_up(b.size, step)) for b in problem.buffers]
        found = search(rounded, problem.ranges, budget)
        assembled = assemble(problem.buffers, found.stacking, domain)
        if assembled is None:
            raise ProblemError("too many sums of its sizes would have to be compared")
        arena, ratios = assembled, _ratios_of(assembled.size, live_sums(problem.buffers), problem.ranges)
    else:
        offsets, floor = _pack_static(problem, budget, capacity)
        height = _height(problem.buffers, offsets)
        placements = tuple(map(Placement, problem.buffers, map(constant, offsets)))
        arena = Arena.of(constant(height), placements)
        ratio = height / floor if floor else 1.0
        ratios = (FloorRatio(binding={}, bytes=height, floor=floor, ratio=ratio),)
    plan = Plan(function=problem.name, arenas=(arena,))
    faults = validate(plan, domain, prover, machine=False)
    if faults:
        raise PlanRefusedError.of(problem.name, faults)
    return Packing(
        problem=problem,
        arena=arena.size,
        offsets={p.buffer.name: p.offset for p in arena.placements},
        ratios=ratios,
        overrun=None if capacity is None else _overrun(arena.size, capacity, problem, prover),
        certificate=plan_certificate([(plan, domain)], prover, machine=False) if certify else None,
        seconds=perf_counter() - start,
    )


def _domain(problem: PackingProblem, prover: Prover) -> Domain:
    """Return the domain that packings are proved over.

    It starts at each symbol's declared minimum, at 1 where all sizes make sense there: divisors are at least
    1, and no size is negative.
    """
    lows = {name: low for name, (low, _) in problem.ranges.items()}
    wide = Domain(lower={name: min(low, 1) for name, low in lows.items()})
    claims: dict[Condition, int] = {}  # with the index of a buffer that needs it
    for index, buffer in enumerate(problem.buffers):
        for divisor in sorted(buffer.size.divisors, key=lambda e: e.key):
            claims.setdefault(ge(divisor, 1), index)
        claims.setdefault(ge(buffer.size, 0), index)
    if all(prover.prove(claim, wide, explain=False).verdict is Verdict.ALWAYS_VALID for claim in claims):
        return wide
    domain = Domain(lower=lows)
    for claim, index in claims.items():
        proof = prover.prove(claim, domain)
        if proof.verdict is not Verdict.ALWAYS_VALID:
            buffer, point = problem.buffers[index], sorted((proof.counterexample or {}).items())
            where = ", ".join(f"{name} = {value}" for name, value in point) or "any binding"
            at = "" if proof.counterexample is None else f": not at {where}"
            raise ProblemError(
                f"buffers[{index}] (`{buffer.name}`).size: `{buffer.size}` makes sense only where {claim}{at}"
                "; give the symbols a `min` from which it does"
            )
    return domain


def _overrun(arena: Expr, capacity: int, problem: PackingProblem, prover: Prover) -> Mapping[str, int] | None:
    """Return a binding within the declared bounds at which `arena` exceeds `capacity`, if there is one."""
    upper = {name: high for name, (_, high) in problem.ranges.items() if high is not None}
    domain = Domain(lower={name: low for name, (low, _) in problem.ranges.items()}, upper=upper)
    proof = prover.prove(le(arena, capacity), domain)
    return None if proof.verdict is Verdict.ALWAYS_VALID else proof.counterexample or {}


# -- sizes that are all known --------------------------------------------------------------------------------


def _pack_static(
    problem: PackingProblem, budget: SearchBudget, capacity: int | None
) -> tuple[list[int], int]:
    """Return offsets in bytes, in the order of the buffers, and the floor.

    Greedy packings are tried first, then from the best of them the exact method, where none reaches the floor
    or lies within `capacity`.  It looks at all pairs that are live together again and again, and is left out
    where that would take all that it may do.
    """
    buffers, fixed = problem.buffers, problem.fixed
    _require_apart(buffers, fixed)
    given = SizedBuffers.of(buffers, fixed)
    target = given.floor if capacity is None else max(capacity, given.floor)
    best = pack_greedily(given, target, work=budget.exact, seed=budget.seed).tolist()
    work = budget.exact if capacity is None else budget.capacity
    pairs = pairs_live_together([b.live for b in buffers])
    if _height(buffers, best) <= target or pairs * DESCENTS > work:
        return best, given.floor
    steps = work * len(buffers) // max(2 * pairs, len(buffers))
    exact = pack_exactly(buffers, best, capacity=capacity, seed=budget.seed, steps=steps, fixed=fixed).offsets
    return best if exact is None else exact, given.floor


def _exceeds(problem: PackingProblem) -> bool:
    """Return whether 63 bits may not hold the offsets; raise ProblemError where some are given then."""
    sizes = sum(b.size.evaluate({}) + b.alignment for b in problem.buffers)
    if sizes + max(problem.fixed.values(), default=0) < LARGEST:
        return False
    if problem.fixed:
        raise ProblemError(f"beside offsets that are given, sizes must not add up to {LARGEST} bytes")
    return True


def _require_apart(buffers: Sequence[Buffer], fixed: Mapping[int, int]) -> None:
    """Raise ProblemError where two overlap at the offsets that are given for them."""
    sizes = {i: buffers[i].size.evaluate({}) for i in fixed}
    spans = {i: (at, at + sizes[i], i) for i, at in fixed.items() if sizes[i]}
    lying: list[tuple[int, int, int]] = []
    for begins, ends in changes_of([b.live if i in spans else () for i, b in enumerate(buffers)]):
        for index in ends:
            del lying[bisect_left(lying, spans[index])]
        for start, end, index in map(spans.__getitem__, begins):
            place = bisect_left(lying, (start, end, index))
            for low, high, other in lying[max(place - 1, 0) : place + 1]:
                if low < end and start < high:
                    names = " and ".join(f"`{buffers[i].name}`" for i in sorted((index, other)))
                    raise ProblemError(f"{names} overlap at the offsets that are given for them")
            lying.insert(place, (start, end, index))


def _height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Return the end of the topmost buffer in bytes; 0 where there is none."""
    ends = (offset + b.size.evaluate({}) for b, offset in zip(buffers, offsets, strict=True))
    return max(ends, default=0)


# -- the arena beside the floor, far past declared bounds ---------------------------------------------------


def _ratios_of(arena: Expr, sums: Sequence[Expr], ranges: Ranges) -> tuple[FloorRatio, ...]:
    """The ratios over the grid that searches use, and at the worst binding of a far denser one.

    `sums` are the live sums of the floor.
    """
    grid = score_grid((arena, *sums), ranges)
    bindings = [grid.binding(point) for point in range(len(grid))]
    dense = Grid(names=grid.names, points=tuple(_dense(grid.names, ranges)))
    if len(dense):
        floors = np.maximum(dense.values(sums).max(axis=0, initial=0.0), 1.0)
        worst = dense.binding(int((dense.values([arena])[0] / floors).argmax()))
        if worst not in bindings:
            bindings.append(worst)
    ordered = sorted(bindings, key=lambda b: tuple(b.values()))
    both = [(b, arena.evaluate(b), highest(sums, b) or 0) for b in ordered]
    return tuple(
        FloorRatio(binding=b, bytes=taken, floor=least, ratio=taken / least if least else 1.0)
        for b, taken, least in both
    )


def _dense(names: Sequence[str], ranges: Ranges) -> Iterator[tuple[int, ...]]:
    """Points of a dense grid over one or two symbols; none for more."""
    lows = [max(ranges.get(name, (1, None))[0], 1) for name in names]
    if len(names) == 1:
        yield from ((extent,) for extent in range(lows[0], lows[0] + DENSE))
    if len(names) == 2:
        far = [np.geomspace(low + CLOSE, low + DENSE, STEPS).astype(int).tolist() for low in lows]
        yield from product(
            *(sorted({*range(low, low + CLOSE), *steps}) for low, steps in zip(lows, far, strict=True))
        )
