"""The bindings at which a plan is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from symalloc.errors import nearest
from symalloc.program.ir import Function, Origin

BoundLabel: TypeAlias = Literal["bound", "beyond"]
_AT_ENTRY = (Origin.DIMENSION, Origin.SCALAR)
EXTENTS = (1, 16, 128, 1024)  # every symbol alike, but within its declared bounds
BEYOND = 2  # times the declared bound: bounds are not enforced by TVM


class SampleError(ValueError):
    """A binding that does not fit the function; the text is meant for the user."""


def bound_label(binding: Mapping[str, int], function: Function) -> BoundLabel | None:
    """Return `bound` for a binding at the declared upper bounds, `beyond` past one of them."""
    upper = {name: bound for name, bound in function.declared_upper.items() if name in binding}
    if any(binding[name] > bound for name, bound in upper.items()):
        return "beyond"
    return "bound" if upper and all(binding[name] == bound for name, bound in upper.items()) else None


def standard(symbols: Iterable[str], function: Function) -> list[dict[str, int]]:
    """Small to large extents, the declared upper bounds, and extents beyond them."""
    names = sorted(symbols)
    if not names:
        return [{}]
    found = [{name: _within(extent, name, function) for name in names} for extent in EXTENTS]
    upper = {name: bound for name, bound in function.declared_upper.items() if name in names}
    if upper:
        beyond = {name: BEYOND * bound for name, bound in upper.items()}
        found += [{**found[-1], **upper}, {**found[-1], **beyond}]
    return [binding for i, binding in enumerate(found) if binding not in found[:i]]


def chosen(
    symbols: Iterable[str], function: Function, wanted: Sequence[Mapping[str, int]]
) -> list[dict[str, int]]:
    """Those of the bindings `wanted` that give a value to each of `symbols` that is known at entry, without
    what else they give; raises SampleError for a negative extent.
    """
    names = sorted(symbols)
    needed = needed_at_entry(names, function)
    fitting = [
        {name: binding[name] for name in names if name in binding}
        for binding in wanted
        if all(name in binding for name in needed)
    ]
    for name, value in (item for binding in fitting for item in binding.items()):
        if value < 0 and function.symbols.get(name) is not Origin.SCALAR:
            raise SampleError(f"`{name}` is an extent of a tensor and cannot be {value}")
    return fitting


def needed_at_entry(symbols: Iterable[str], function: Function) -> list[str]:
    """Return those of `symbols` that are known at entry: a binding must give each of them a value."""
    return [name for name in symbols if function.symbols.get(name) in _AT_ENTRY]


def check_wanted(
    wanted: Sequence[Mapping[str, int]], functions: Mapping[str, Iterable[str]], later: Iterable[str] = ()
) -> None:
    """Raises SampleError where a binding names a symbol of none of `functions`, or lacks one of all of them.

    `functions` holds, by name, the symbols that a binding must give; `later` those that it may give, because
    they become known only during the call.
    """
    known = sorted(frozenset(later).union(*functions.values()))
    for binding in wanted:
        for name in (name for name in binding if name not in known):
            close = nearest(name, known)
            hint = f"did you mean `{close}`?" if close else f"there are {_quoted(known) or 'none'}"
            raise SampleError(f"`{name}` is no symbol of the module's functions; {hint}")
        if not any(frozenset(names) <= binding.keys() for names in functions.values()):
            text = ", ".join(f"{name} = {value}" for name, value in binding.items())
            takes = "; ".join(f"`{name}` takes {_quoted(sorted(of))}" for name, of in functions.items())
            raise SampleError(f"{text} gives no function all that it takes: {takes}")


def _within(extent: int, name: str, function: Function) -> int:
    low, high = function.declared_lower.get(name, 0), function.declared_upper.get(name)
    raised = max(extent, low)
    return raised if high is None else min(raised, high)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
