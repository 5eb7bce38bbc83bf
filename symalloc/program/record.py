"""Records that are made by the thousand, one for each instruction of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, dataclass_transform

Record = TypeVar("Record")
Made = TypeVar("Made", bound=tuple[object, ...])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(*, eq: bool = True, kw_only: bool = True) -> Callable[[type[Record]], type[Record]]:
    """A dataclass with slots that nobody changes: the type checker sees to that, and Python does not.

    A frozen one takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq, kw_only=kw_only)


def by_position(kind: type[Record]) -> Callable[..., Record]:
    """A function that makes records of `kind` from all of their fields in order, those of a base first: with
    keywords that takes five times as long.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type] # it is a dataclass
    stores = "".join(f"    made.{name} = {name}\n" for name in names)
    scope: dict[str, Any] = {"new": object.__new__, "kind": kind}
    exec(f"def make({', '.join(names)}):\n    made = new(kind)\n{stores}    return made\n", scope)
    make: Callable[..., Record] = scope["make"]
    return make


class _FromFields(Protocol):
    def __call__(self, kind: type[Made], fields: tuple[object, ...], /) -> Made: ...


from_fields: _FromFields = tuple.__new__
"""A NamedTuple from all of its fields in order, those with defaults too: as `kind(*fields)`, which takes four
times as long.
"""
