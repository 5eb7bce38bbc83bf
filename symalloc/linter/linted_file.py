"""The findings of one file, from wherever it was linted; and their form in a cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from symalloc.linter.diagnostic import Report
from symalloc.program.ir import Origin
from symalloc.program.span import Span

_NOT_STORED = frozenset({"candidates"})  # of a diagnostic; a report has none


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedFile:
    """The report on one file, and the symbols of its functions with where they get their values."""

    report: Report
    symbols: Mapping[str, tuple[Origin, ...]]

    @property
    def is_complete(self) -> bool:
        """True if all of it was read, and nothing was left undecided: linting it again gives the same."""
        return not self.report.unread and not self.report.summary.unknown


def report_of(linted: Sequence[LintedFile], *, seconds: float, skipped: int) -> Report:
    """Return the report on some files; it took `seconds`, and `skipped` files hold no module."""
    joined = Report.joined([one.report for one in linted])
    return replace(joined, summary=replace(joined.summary, seconds=seconds), skipped=skipped)


def stored(value: object) -> Any:
    """Return a record as what JSON can hold; `restored` makes it again."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        names = (field.name for field in fields(value) if field.name not in _NOT_STORED)
        return {name: stored(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: stored(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [stored(each) for each in value]
    return value


def restored(value: Any) -> LintedFile:
    """Return the record that `stored` was given; raises TypeError or ValueError for anything else."""
    found: LintedFile = _restored(value, LintedFile)
    return found


def _restored(value: Any, kind: Any) -> Any:
    """Make the `kind` that `value` is; checks every part of it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _restored(value, next(a for a in arguments if a is not type(None)))
    if kind is Span:
        return _span(value)
    if origin is tuple:
        return tuple(_restored(each, arguments[0]) for each in _checked(value, list))
    if origin is Counter:
        return Counter(_mapping(value, str, int))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(value, *arguments)
    if is_dataclass(kind):
        return _record(value, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return float(value) if kind is float and type(value) is int else _checked(value, kind)


def _record(value: Any, kind: Any) -> Any:
    given, hints = _checked(value, dict), _fields(kind)
    if given.keys() != hints.keys():
        raise ValueError(f"not the fields of {kind.__name__}")
    return kind(**{name: _restored(given[name], hint) for name, hint in hints.items()})


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.name not in _NOT_STORED}


def _mapping(value: Any, key: Any, item: Any) -> dict[Any, Any]:
    return {_restored(k, key): _restored(v, item) for k, v in _checked(value, dict).items()}


def _span(value: Any) -> Span:
    file, *numbers = _checked(value, list)
    return Span(_checked(file, str), *(_checked(number, int) for number in numbers))


def _checked(value: Any, kind: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind}")
    return value
