"""The table of options: a record's fields say what the command line, pyproject.toml, Python and editors take.

    class PlanOptions:
        effort: EffortName = option("quick", choice(EffortName), "The time spent on the search.")

        def __post_init__(self) -> None:
            read_fields(self)

Every room may use it.  docs/options.md lists all options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar, get_args

from symalloc.errors import (
    UsageError,
    meant,
    require_binding,
    require_bytes,
    require_choice,
    require_flag,
    require_path,
    require_paths,
    require_seconds,
    require_text,
    require_texts,
    require_whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The values of one kind of option.

    `read(name, value)` returns the value as a record holds it, or raises UsageError, whose text begins with
    `name`.  `parse` makes a value of a word of the command line, which may give `several`; `metavar` stands
    for one in its help.
    """

    read: Callable[[str, Any], Any]
    metavar: str
    parse: Callable[[str], Any] = str
    several: bool = False


def _number(kind: type[int] | type[float], word: str) -> object:
    """Return the number that `word` is, or the word, which `Kind.read` then refuses."""
    try:
        return kind(word)
    except ValueError:
        return word


def choice(words: Any) -> Kind:
    """One of some words, given as a sequence or as a Literal."""
    known: Sequence[str] = get_args(words) or words
    return Kind(read=partial(require_choice, choices=known), metavar=f"[{'|'.join(known)}]")


def whole(least: int, most: int | None = None, metavar: str = "N") -> Kind:
    """A whole number of at least `least`, and at most `most`."""
    read = partial(require_whole, least=least, most=most)
    return Kind(read=read, metavar=metavar, parse=partial(_number, int))


def amount(least: int = 0) -> Kind:
    """Bytes: a number, or text such as "512MiB"."""
    return Kind(read=partial(require_bytes, least=least), metavar="BYTES")


FLAG = Kind(read=require_flag, metavar="")
TEXT = Kind(read=require_text, metavar="TEXT")
TEXTS = Kind(read=require_texts, metavar="TEXT", several=True)
PATH = Kind(read=require_path, metavar="PATH")
PATHS = Kind(read=require_paths, metavar="PATH", several=True)
SECONDS = Kind(read=require_seconds, metavar="SECONDS", parse=partial(_number, float))
BINDING = Kind(read=require_binding, metavar="NAME=N")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: the kind of its values, and what is said of it.

    `in_file`: [tool.symalloc] of pyproject.toml may set it, in words with hyphens; the command line then
    `adds` to it, or replaces it.  `short` is a second flag; `metavar` stands for a value in help.
    """

    kind: Kind
    help: str
    default: Any
    in_file: bool = False
    adds: bool = False
    short: tuple[str, ...] = ()
    metavar: str = ""


def option(default: Any, kind: Kind, help: str, **more: Any) -> Any:  # noqa: A002 - as click has it
    """A field of a record that is an option; `more` is that of `Option`.  None stands for "not given"."""
    known = Option(kind=kind, help=help, default=default, **more)
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"option": known})
    return field(default=default, metadata={"option": known})


def options_of(record: Any) -> dict[str, Option]:
    """Return the options that are fields of a record, or of a class of records, by name."""
    return {one.name: one.metadata["option"] for one in fields(record) if "option" in one.metadata}


def read_fields(record: Any) -> None:
    """Read each option of a new record, frozen as it is.  Raises UsageError."""
    for name, known in options_of(record).items():
        value = getattr(record, name)
        if value is not None or known.default is not None:
            object.__setattr__(record, name, known.kind.read(name, value))


Record = TypeVar("Record")


def made(record: type[Record], given: Mapping[str, Any], keywords: type, **more: Any) -> Record:
    """Make a record of keyword arguments, and of `more`; those that are no fields of it are passed over.

    `keywords` is the TypedDict of the arguments that there are.  Raises TypeError for another one, UsageError
    for a value that makes no sense.
    """
    known = list(keywords.__annotations__)
    for name in given:
        if name not in known:
            raise TypeError(f"unexpected keyword argument {name!r}{meant(name, known)}")
    return record(**more, **{name: given[name] for name in options_of(record) if name in given})


def read_table(record: Any, given: Mapping[str, Any], place: str, prefix: str = "") -> dict[str, Any]:
    """Return the options of a table in a file or a message, read: by their names in `record`.

    `prefix` and the name of the key begin each message.  Raises UsageError.
    """
    known = {name.replace("_", "-"): name for name, one in options_of(record).items() if one.in_file}
    for key in given:
        if key not in known:
            hint = meant(key.replace("_", "-"), list(known)) or f"; known are {', '.join(known)}"
            raise UsageError(f"{prefix}unknown key `{key}` in {place}{hint}")
    table = options_of(record)
    return {
        known[key]: table[known[key]].kind.read(f"{prefix}`{key}`", value) for key, value in given.items()
    }
