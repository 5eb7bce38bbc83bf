"""Records that are made by the thousand, one for each instruction of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, dataclass_transform

Record = TypeVar("Record")
Made = TypeVar("Made", bound=tuple[object, ...])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(*, eq: bool = True, kw_only: bool = True) -> Callable[[type[Record]], type[Record]]:
    """A dataclass with slots that nobody changes: the type checker sees to that, and Python does not.

    A frozen one takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq, kw_only=kw_only)


class _FromFields(Protocol):
    def __call__(self, kind: type[Made], fields: tuple[object, ...], /) -> Made: ...


from_fields: _FromFields = tuple.__new__
"""A NamedTuple from all of its fields in order, those with defaults too: as `kind(*fields)`, which takes four
times as long.
"""
