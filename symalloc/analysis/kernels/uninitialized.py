"""The bytes of a tensor that are read although nothing wrote them, where parts of it were written.

Parts are held against what is read along one dimension, where all are parts of one tensor of one shape, or as
ranges of bytes from the start of the memory, where each is one; element by element where they are no boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from symalloc.analysis.kernels.coverage import Elements, Passes, Points, Range, element_index
from symalloc.analysis.regions import Region, sum_of
from symalloc.program.types import DType, TensorType, row_dim
from symalloc.size.choice import Min, is_nonnegative, maximum, minimum, select
from symalloc.size.condition import Condition, conjunction, disjunction, ge, le, lt
from symalloc.size.expr import ONE, ZERO, Expr, floordiv, mod, product, symbol

_MOST_RANGES = 2
"""The number of ranges, none of them plainly next to another, up to which the order is told."""


def left_out(wanted: Range, written: Sequence[Range]) -> Expr | None:
    """The part of `wanted` from the first number that `written` lacks on; at most 0 where it lacks none.

    None where there are too many ranges in `written` to tell.
    """
    merged = _merged(written)
    if len(merged) > _MOST_RANGES:
        return None
    reached = wanted.begin
    for _ in merged:  # whatever their order: each pass reaches the end of one more
        for one in merged:
            reached = _after(one, reached)
        if len(merged) == 1:
            break
    return wanted.end - reached


def _after(one: Range, reached: Expr) -> Expr:
    """The end up to which all is written, where that was `reached` before."""
    joins = conjunction((one.condition, le(one.begin, reached)))
    return select(joins, maximum(reached, one.end), reached)


def _merged(ranges: Iterable[Range]) -> Sequence[Range]:
    """The ranges, those joined of which one begins exactly where the other ends."""
    found = dict.fromkeys(ranges)
    for one, other in permutations(found, 2):
        joined = Range(one.begin, other.end, one.condition)
        filled = all(is_nonnegative(part.end - part.begin) for part in (one, other))
        if filled and (one.end, one.condition) == (other.begin, other.condition):
            return _merged([joined, *(rest for rest in found if rest not in (one, other))])
    return [*found]


_ALL = Elements(())
NO_EXTENTS: tuple[Expr, ...] = ()


class MemoryRange(NamedTuple):
    """A part of a region that a point reads or writes: `elements` of a tensor of type `type` that is it.

    All of the region where neither is given.
    """

    region: Region
    type: TensorType | None = None
    elements: Elements = _ALL

    @property
    def is_whole(self) -> bool:
        """True if it is all of the region."""
        return self.elements.is_whole and self.elements.exact

    @property
    def sized(self) -> bool:
        """True if it is elements of a tensor whose shape and type are known."""
        return self.type is not None and self.type.shape is not None and self.type.dtype is not None

    @property
    def element(self) -> Range | None:
        """The bytes of one element from the start of the root, over `element_index`."""
        kind, number = self.type, ZERO
        if kind is None or kind.shape is None or kind.dtype is None or self.region.offset is None:
            return None
        for axis, extent in enumerate(kind.shape):
            number = number * extent + element_index(axis)
        begin = self.region.offset + number * kind.dtype.itemsize
        return Range(begin, begin + kind.dtype.itemsize)

    def is_at(self, other: MemoryRange) -> bool:
        """True if it is part of the same bytes."""
        one, two = self.region, other.region
        known = one.offset is not None and one.nbytes is not None
        return one is two or (known and (one.offset, one.nbytes) == (two.offset, two.nbytes))

    def is_like(self, other: MemoryRange) -> bool:
        """True if it is part of the same bytes, in elements of the same places."""
        if not (self.sized and other.sized) or self.type is None or other.type is None:
            return False
        same = self.type.shape == other.type.shape and self.type.nbytes == other.type.nbytes
        return same and self.is_at(other)

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions of which it is a part only."""
        return tuple(axis for axis, found in enumerate(self.elements.ranges) if found is not None)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions on sizes under which it is read or written at all."""
        parts = (r for r in self.elements.ranges if r is not None)
        runs = (ge(r.end - r.begin, 1) for r in parts)
        return tuple(c for c in (*self.elements.conditions, *runs) if c.as_bool is not True)


class UninitializedRange(NamedTuple):
    """The `lacking` bytes, at most 0 where there is no gap, and what is `written`, in words, or the
    elements `where` a condition holds, over so many dimensions.

    `idle`: there is one only where some loop of a kernel that fills all is not run at all.  `passes`: the gap
    is that at each of these, as if a loop counted elements, if they are no range; with `estimate` there may
    be one at others, too.  `by_data`: it hangs on the elements of a buffer.
    """

    lacking: Expr
    written: str = ""
    idle: bool = False
    passes: Passes | None = None
    estimate: bool = False
    by_data: bool = False
    where: tuple[Condition, int] | None = None

    @property
    def words(self) -> str:
        """The words for what is written; empty where nothing is."""
        return self.written if self.where is None else _elements_in_words(*self.where)


def uninitialized_ranges(wanted: MemoryRange, parts: Sequence[MemoryRange]) -> Iterator[UninitializedRange]:
    """The gaps that `parts` leave in `wanted`, as far as they are known.

    Where the place of what is written hangs on data, one is what it leaves wherever that is, the other what
    is left without it.
    """
    found = gap_between(wanted, parts)
    if found is not None:
        yield found
    others = [part for part in parts if not part.elements.by_data]
    if len(others) < len(parts):
        without = gap_between(wanted, others)
        if without is not None:
            yield without._replace(by_data=True)


def gap_between(
    wanted: MemoryRange, parts: Sequence[MemoryRange], lost: MemoryRange | None = None
) -> UninitializedRange | None:
    """The gap that `parts` leave in `wanted`, or in what of it lies in `lost`; None where it is not known."""
    found = _gap(wanted, parts, lost)
    if found is None:
        return None
    conditions = conjunction((*wanted.conditions, *(() if lost is None else lost.conditions)))
    idle = any(e.runs and e._replace(runs=()).is_whole for e in (part.elements for part in parts))
    return found._replace(lacking=select(conditions, found.lacking, ZERO), idle=idle)


def _gap(
    wanted: MemoryRange, parts: Sequence[MemoryRange], lost: MemoryRange | None
) -> UninitializedRange | None:
    if not all(map(_fits, (wanted, *parts))):
        return None
    whole = (one for one in parts if one.is_whole and one.is_at(wanted))
    parts = [*whole][:1] or [_in_shape(one, wanted) for one in parts]
    if wanted.elements.points is not None:
        return _at_elements(wanted, parts, lost)
    if lost is None and not parts:
        return UninitializedRange(_nbytes(wanted))
    if lost is None and not wanted.elements.exact:
        return None
    if any(part.elements.is_scattered for part in (*parts, *(() if lost is None else (lost,)))):
        return _at_elements(wanted, parts, lost)
    return _in_bytes(wanted, parts, lost) or _at_elements(wanted, parts, lost)


def _in_shape(part: MemoryRange, wanted: MemoryRange) -> MemoryRange:
    """The part as one of a tensor with the type of `wanted` where that has the same rows; else itself."""
    one, other = part.type, wanted.type
    same = one is not None and other is not None and part.is_at(wanted) and one.nbytes == other.nbytes
    if not same or one is None or other is None or one.dtype != other.dtype or part.elements.is_scattered:
        return part
    shape, reshaped = one.shape or (), other.shape or ()
    rows = {row_dim(axis, shape, reshaped): part.elements.ranges[axis] for axis in part.axes}
    if -1 in rows or len(rows) < len(part.axes):
        return part
    ranges = tuple(map(rows.get, range(len(reshaped))))
    return part._replace(type=other, elements=part.elements._replace(ranges=ranges))


def _fits(stretch: MemoryRange) -> bool:
    """False where a kernel indexes other dimensions than its argument has: it stops when it is called."""
    kind = stretch.type
    return kind is None or kind.shape is None or len(stretch.elements.ranges) == len(kind.shape)


def _nbytes(stretch: MemoryRange) -> Expr:
    """The bytes of a stretch; 1 where they are not known, for there are some."""
    elements, kind = stretch.elements, stretch.type
    if not elements.exact or kind is None or kind.shape is None or kind.dtype is None:
        return ONE if stretch.region.nbytes is None else stretch.region.nbytes
    pairs = zip(elements.ranges, kind.shape, strict=True)
    return product(e if r is None else r.end - r.begin for r, e in pairs) * kind.dtype.itemsize


# -- element by element --------------------------------------------------------------------------------------


def _at_elements(
    wanted: MemoryRange, parts: Sequence[MemoryRange], lost: MemoryRange | None
) -> UninitializedRange | None:
    """The gap at each element of a tensor that lies where `wanted` does, or at the passes that read `wanted`;
    with `lost` at each that shares a byte with an element of it.
    """
    single, sized = _in_single(wanted), [one for one in (wanted, *parts) if one.sized]
    found = next((one for one in sized if one.is_at(wanted)), single)
    if len({one.type.dtype.itemsize for one in sized if one.type and one.type.dtype}) > 1:
        wanted, found = _bytewise(wanted), single  # parts may hold an element together
    if found is None or found.type is None or found.type.shape is None:
        return None
    shape, points = found.type.shape, wanted.elements.points
    held = [_holding(part, found) for part in _joined(parts)]
    looked_at, taken = _holding(wanted, found), ((), ()) if lost is None else _sharing(lost, found)
    if None in held or looked_at is None or taken is None:
        return None
    names = [element_index(axis).as_symbol or "" for axis in range(len(shape) + len(taken[1]))]
    counters: tuple[tuple[str, Expr | None], ...] = tuple(zip(names, (*shape, *taken[1]), strict=True))
    inside = (lt(element_index(axis), extent) for axis, extent in enumerate(shape))
    among = conjunction((*inside, looked_at, *taken[0]))
    written = disjunction(one for one in held if one is not None)
    where = (written, len(shape)) if parts else None
    if points is not None:
        at = dict(zip(names, points.indices, strict=False))
        among = conjunction((*points.conditions, *(c.substitute(at) for c in taken[0])))
        written, counters = written.substitute(at), (*points.counters, *counters[len(shape) :])
    estimate = points is not None or not all(part.elements.exact for part in parts)
    passes = Passes(among.conjuncts, counters)
    return UninitializedRange(select(written, ZERO, ONE), passes=passes, estimate=estimate, where=where)


def _joined(parts: Sequence[MemoryRange]) -> Sequence[MemoryRange]:
    """The parts, those as one of which the next begins along an axis exactly where the one before ends."""
    found = [*parts[:1]]
    for part in parts[1:]:
        last, (own, other) = found[-1], (one.elements.ranges for one in (found[-1], part))
        apart = [at for at, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]]
        before, after = (one[apart[0]] if len(apart) == 1 else None for one in (own, other))
        if before and after and before.end == after.begin and _rises(before) and _rises(after):
            ranges = (*own[: apart[0]], before._replace(end=after.end), *own[apart[0] + 1 :])
            both, same = (one._replace(elements=one.elements._replace(ranges=ranges)) for one in (last, part))
            if both == same and before.condition == after.condition:
                found[-1] = both
                continue
        found.append(part)
    return [*map(_completed, found)]


def _completed(part: MemoryRange) -> MemoryRange:
    """The part with all of a dimension for a range that is seen to reach from its start to its end."""
    ranges, shape = part.elements.ranges, (part.type.shape if part.type else None) or ()

    def is_all(one: Range | None, extent: Expr) -> bool:
        if one is None or one.end != extent or one.condition.as_bool is not True:
            return False
        return _rises(Range(one.begin, ZERO))

    kept = tuple(None if is_all(*pair) else pair[0] for pair in zip(ranges, shape, strict=False))
    return part._replace(elements=part.elements._replace(ranges=kept)) if kept else part


def _rises(one: Range) -> bool:
    """Return whether a range is seen to end no earlier than it begins."""
    pairs = ((size, size.as_atom) for size in (one.end, one.begin))
    ends, begins = (atom.operands if isinstance(atom, Min) else (size,) for size, atom in pairs)
    return all(any(is_nonnegative(end - begin) for begin in begins) for end in ends)


def _in_single(wanted: MemoryRange) -> MemoryRange | None:
    """A region as a tensor of single bytes."""
    nbytes = wanted.region.nbytes
    kind = None if nbytes is None else TensorType(shape=(nbytes,), dtype=DType("uint8", 8))
    return None if kind is None else MemoryRange(wanted.region, kind, Elements((None,)))


def _bytewise(wanted: MemoryRange) -> MemoryRange:
    """The same read, at each byte of an element where passes tell of it."""
    points, element = wanted.elements.points, wanted.element
    if points is None or element is None:
        return wanted
    at = {element_index(axis).as_symbol or "": index for axis, index in enumerate(points.indices)}
    first, end = (place.substitute(at) - (wanted.region.offset or ZERO) for place in element[:2])
    byte, counters = symbol("byte'"), (*points.counters, ("byte'", end - first))
    found = Points((first + byte,), (*points.conditions, lt(byte, end - first)), counters)
    return wanted._replace(type=None, elements=wanted.elements._replace(points=found))


def _holding(part: MemoryRange, unit: MemoryRange) -> Condition | None:
    """The condition that `part` holds all of an element of the tensor `unit`; None where it is not told."""
    if part.is_like(unit) or (part.elements.is_whole and part.is_at(unit)):
        return part.elements.condition
    found = None if part.elements.is_scattered else bytes_of(part)
    element = unit.element
    if element is None:
        return None
    if found is None:
        return _within(element, part)
    inside = le(found.begin, element.begin), le(element.end, found.end)
    return conjunction((*part.elements.conditions, *inside))


def _within(element: Range, part: MemoryRange) -> Condition | None:
    """The condition that the bytes `element` are those of one element of `part`, or lie in one."""
    kind, start, size = part.type, part.region.offset, (element.end - element.begin).as_constant
    if kind is None or not kind.shape or kind.dtype is None or start is None:
        return None
    if not size or kind.dtype.itemsize % size or (element.begin - start) % size != ZERO:
        return None
    number, indices = floordiv(element.begin - start, kind.dtype.itemsize), dict[str, Expr]()
    for axis in range(len(kind.shape) - 1, 0, -1):
        indices[element_index(axis).as_symbol or ""] = mod(number, kind.shape[axis])
        number = floordiv(number, kind.shape[axis])
    indices[element_index(0).as_symbol or ""] = number
    inside = ge(number, 0), lt(number, kind.shape[0])
    return conjunction((*inside, part.elements.condition.substitute(indices)))


def _sharing(lost: MemoryRange, unit: MemoryRange) -> tuple[tuple[Condition, ...], tuple[Expr, ...]] | None:
    """The conditions under which an element of `unit` shares a byte with `lost`, and the extents of further
    indices in them, those of the element of `lost`; None where they are not told.
    """
    if lost.is_like(unit):
        return (lost.elements.condition,), ()
    element, extents = unit.element, NO_EXTENTS
    found, conditions = bytes_of(lost), lost.elements.conditions
    if lost.elements.is_scattered or found is None:
        found = lost.element
        if lost.type is None or lost.type.shape is None or unit.type is None or found is None:
            return None
        extents, rank = lost.type.shape, len(unit.type.shape or ())
        own = {element_index(a).as_symbol or "": element_index(a + rank) for a in range(len(extents))}
        inside = (lt(element_index(axis), extent) for axis, extent in enumerate(extents))
        conditions = tuple(c.substitute(own) for c in (*inside, lost.elements.condition))
        found = Range(found.begin.substitute(own), found.end.substitute(own))
    if element is None:
        return None
    return (*conditions, lt(found.begin, element.end), lt(element.begin, found.end)), extents


def _elements_in_words(where: Condition, rank: int) -> str:
    names = [f"i{axis}" for axis in range(rank)]
    plain = {element_index(axis).as_symbol or "": symbol(name) for axis, name in enumerate(names)}
    return f"the elements [{', '.join(names)}] where {where.substitute(plain)}"


# -- in bytes ------------------------------------------------------------------------------------------------


def _in_bytes(
    wanted: MemoryRange, parts: Sequence[MemoryRange], lost: MemoryRange | None
) -> UninitializedRange | None:
    target = bytes_of(wanted)
    taken = target if lost is None else bytes_of(lost)
    if target is not None and taken is not None and lost is not None:
        begin, end = maximum(target.begin, taken.begin), minimum(target.end, taken.end)
        target = Range(begin, end)
    ranges = [bytes_of(part) for part in parts]
    known = [
        found._replace(condition=conjunction(part.elements.conditions))
        for found, part in zip(ranges, parts, strict=True)
        if found is not None
    ]
    if target is None or taken is None or len(known) < len(parts):
        return None
    left = left_out(target, known)
    if left is None:
        return None
    if not known and lost is None:
        return UninitializedRange(_nbytes(wanted))
    begin = wanted.region.offset or ZERO
    shown = [Range(one.begin - begin, one.end - begin) for one in known]
    told = dict.fromkeys(f"{one.begin} to {one.end}" for one in shown)
    return UninitializedRange(left, f"bytes {' and '.join(told)}")


def bytes_of(stretch: MemoryRange) -> Range | None:
    """The bytes of a stretch from the start of its root; None where they are not known, or no range."""
    begin, end = stretch.region.offset, sum_of(stretch.region.offset, stretch.region.nbytes)
    if begin is None or end is None:
        return None
    if not stretch.axes:
        return Range(begin, end)
    kind, axis, elements = stretch.type, stretch.axes[0], stretch.elements
    if kind is None or kind.shape is None or kind.dtype is None or len(stretch.axes) > 1:
        return None
    if any(extent != ONE for extent in kind.shape[:axis]):
        return None
    found = elements.ranges[axis]
    if found is None:
        return None
    step = product(kind.shape[axis + 1 :]) * kind.dtype.itemsize
    return Range(begin + found.begin * step, begin + found.end * step)
