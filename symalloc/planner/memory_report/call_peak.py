"""The peak of a call at one binding: its step, the tensors that are alive there, and the one whose
absence would lower it most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

from symalloc.analysis.call_memory import CalleeMemory, CallMemory, HeldMemory, padded
from symalloc.analysis.tensor_origin import NO_CALL, NO_ORIGIN, OperatorCall, TensorOrigin
from symalloc.program.ir import Var
from symalloc.size.evaluation import evaluated

PeakKind: TypeAlias = Literal["tensor", "result", "storage", "callee"]
MOST_TRIED = 64  # tensors that are left out to see what that saves, the largest first


class Moment(NamedTuple):
    """A moment of a call: a program point, and the order of what happens there."""

    point: int
    order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakTensor:
    """Memory that is held at the peak, in bytes rounded up to 64.

    `until` is the operator that touches it last, empty for a result; `idle`: the operator at the peak does
    not touch it.
    """

    name: str
    nbytes: int
    kind: PeakKind
    origin: TensorOrigin = NO_ORIGIN
    until: str = ""
    idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPeak:
    """The moment at which a call holds most: `nbytes`, while the operator call number `step` of `steps` runs.

    `tensors` come by size.  `remedy` is the one without which the peak would be least, `without` bytes; None
    where no tensor alone makes a difference.
    """

    nbytes: int
    operator: str
    step: int
    steps: int
    tensors: tuple[PeakTensor, ...] = ()
    remedy: PeakTensor | None = None
    without: int = 0


class _Item(NamedTuple):
    """Memory of known size, from the moment `begin` up to `end`; `var` is its variable in the program."""

    tensor: PeakTensor
    begin: Moment
    end: Moment
    var: Var | None = None


def call_peak(
    memory: CallMemory, binding: Mapping[str, int], origins: Mapping[Var, TensorOrigin]
) -> CallPeak | None:
    """Return the parts of the peak of a call at `binding`, results included: `CallMemory.peak` in parts.

    None where a size is not known there, or a function is called within a call of itself.
    """
    if memory.recursive:
        return None
    if memory.paths:
        found = [call_peak(path, binding, origins) for path in memory.paths]
        known = [one for one in found if one is not None]
        return max(known, key=lambda one: one.nbytes) if len(known) == len(found) else None
    items = _items(memory, binding, origins)
    if items is None:
        return None
    moments = sorted({item.begin for item in items})
    held = _totals(items, moments)
    if not any(held):
        return CallPeak(nbytes=0, operator="", step=0, steps=len(memory.calls))
    at = moments[held.index(max(held))]
    running = next(((n, call) for n, call in enumerate(memory.calls, 1) if call.point >= at.point), None)
    step, call = running or (0, NO_CALL)
    alive = [i for i in items if _alive(i, at) and i.tensor.nbytes]
    shown = [_within(item, memory.calls, call) for item in sorted(alive, key=lambda i: -i.tensor.nbytes)]
    remedy, without = _remedy(shown, moments, held)
    return CallPeak(
        nbytes=max(held),
        operator=call.operator,
        step=step,
        steps=len(memory.calls),
        tensors=tuple(item.tensor for item in shown),
        remedy=remedy,
        without=without,
    )


def _totals(items: Sequence[_Item], moments: Sequence[Moment]) -> list[int]:
    """Return the bytes that are held at each moment; `moments` are in order."""
    changes = [0] * (len(moments) + 1)
    for item in items:
        changes[bisect_left(moments, item.begin)] += item.tensor.nbytes
        changes[bisect_left(moments, item.end)] -= item.tensor.nbytes
    return list(accumulate(changes[:-1]))


def _alive(item: _Item, at: Moment) -> bool:
    return item.begin <= at < item.end


def _within(item: _Item, calls: Sequence[OperatorCall], peak: OperatorCall) -> _Item:
    """Return `item` with what touches it last, and whether the call at the peak does."""
    if item.var is None:
        return item
    last = next((c.operator for c in reversed(calls) if item.var in c.touches), "")
    until = "" if item.tensor.kind == "result" else last
    return item._replace(tensor=replace(item.tensor, until=until, idle=item.var not in peak.touches))


def _remedy(
    alive: Sequence[_Item], moments: Sequence[Moment], held: Sequence[int]
) -> tuple[PeakTensor | None, int]:
    """Return the tensor without which the peak is least, and that peak; of equals one that is idle."""
    best: tuple[int, bool] = (max(held), False)
    found: PeakTensor | None = None
    for item in alive[:MOST_TRIED]:
        size = item.tensor.nbytes
        left = max(
            total - size if _alive(item, at) else total for at, total in zip(moments, held, strict=True)
        )
        if left < max(held) and (left, not item.tensor.idle) < best:
            best, found = (left, not item.tensor.idle), item.tensor
    return found, best[0]


# -- the memory of a call ----------------------------------------------------------------------------------


def _items(
    memory: CallMemory, binding: Mapping[str, int], origins: Mapping[Var, TensorOrigin]
) -> list[_Item] | None:
    """Return all that a call takes; None where a size is not known at `binding`."""
    kinds: tuple[tuple[PeakKind, Sequence[HeldMemory]], ...] = (
        ("storage", memory.storages),
        ("tensor", memory.fresh),
        ("result", memory.results),
    )
    found = [_held(kind, one, binding, origins) for kind, held in kinds for one in held]
    found += [item for callee in memory.callees for item in _callee(callee, binding, origins)]
    known = [item for item in found if item is not None]
    return known if len(known) == len(found) else None


def _held(
    kind: PeakKind, held: HeldMemory, binding: Mapping[str, int], origins: Mapping[Var, TensorOrigin]
) -> _Item | None:
    size = padded(evaluated(held.size, binding))
    if size is None:
        return None
    origin = NO_ORIGIN if held.var is None else origins.get(held.var, NO_ORIGIN)
    name = "" if held.var is None else held.var.name
    return _Item(
        tensor=PeakTensor(name=name, nbytes=size, kind=kind, origin=origin),
        begin=Moment(held.begin, 2 if held.called else 0),
        end=Moment(held.end, 3),
        var=held.var,
    )


def _callee(
    callee: CalleeMemory, binding: Mapping[str, int], origins: Mapping[Var, TensorOrigin]
) -> Iterator[_Item | None]:
    """Yield what a called function holds at its own peak."""
    values = {name: evaluated(value, binding) for name, value in callee.values.items()}
    known = {name: value for name, value in values.items() if value is not None}
    peak = call_peak(callee.memory, known, origins)
    begin, end = Moment(callee.point, 0), Moment(callee.point, 1)
    if peak is None:
        yield None
        return
    for tensor in peak.tensors:
        name = f"{callee.name}.{tensor.name}"
        yield _Item(tensor=replace(tensor, name=name, kind="callee"), begin=begin, end=end)
