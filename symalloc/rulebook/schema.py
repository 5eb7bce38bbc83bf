"""The typed shape of rules/*.toml.  Unknown keys are refused with a suggestion."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from symalloc.rulebook.error import RuleError
from symalloc.size.parse import nearest

SeverityName: TypeAlias = Literal["error", "warning", "note"]
StageName: TypeAlias = Literal["auto", "as-is", "planned"]
FixName: TypeAlias = Literal["grow-storage", "insert-assertion", "remove-kill", "remove-suppression"]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The linter's answer to a bad module, each part only where it is given."""

    verdict: Literal["always-invalid", "runtime-check"] | None = None
    severity: SeverityName | None = None
    counterexample: dict[str, int] | None = None
    precondition: str | None = None
    message: str | None = None


class BadExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A module in which the rule finds a fault on exactly the lines marked `# <id>`.

    `stage` is the stage at which it is linted.
    """

    name: str
    module: str
    expect: Expectation = Expectation()
    stage: StageName = "as-is"


class GoodExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A module in which the rule finds nothing."""

    name: str
    module: str
    stage: StageName = "as-is"


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule as it is written; `symalloc.rulebook.book.Rule` is what becomes of it."""

    id: str
    name: str
    severity: SeverityName
    site: str
    message: str
    doc: str
    severity_at_runtime: SeverityName | Literal["off"] | None = None
    severity_when_empty: SeverityName | None = None
    constraint: str | None = None
    relation: str | None = None
    message_when_invalid: str | None = None
    label: str = ""
    labels: dict[str, str] = {}
    help: str | tuple[str, ...] = ()
    note: str | tuple[str, ...] = ()
    fixes: tuple[FixName, ...] = ()
    references: tuple[str, ...] = ()
    bad: tuple[BadExample, ...] = ()
    good: tuple[GoodExample, ...] = ()


def read_rule_file(path: Path) -> RuleFile:
    """The rule that `path` holds; raises RuleError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RuleError(file=path, problem=f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RuleError(file=path, problem=f"is not UTF-8 text: byte {error.start}") from None
    try:
        return msgspec.convert(tomllib.loads(text), RuleFile)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(path, str(error)) from None
    except msgspec.ValidationError as error:
        raise _misshapen(path, text, str(error)) from None


def line_of(text: str, field: str) -> int | None:
    """The line (from 1) on which `field` is set in a TOML text, None where it is not."""
    key = re.escape(field)
    found = re.search(rf"^\s*\[*{key}\]*\s*(=|$)", text, re.MULTILINE) or re.search(rf"\b{key}\s*=", text)
    return text.count("\n", 0, found.end()) + 1 if found else None


def _malformed(path: Path, problem: str) -> RuleError:
    place = re.search(r" \(at line (\d+), column \d+\)$", problem)
    if place is None:
        return RuleError(file=path, problem=f"is not TOML: {problem}")
    return RuleError(file=path, line=int(place[1]), problem=f"is not TOML: {problem[: place.start()]}")


def _misshapen(path: Path, text: str, problem: str) -> RuleError:
    """A RuleError for msgspec's message, which ends in ` - at `$.bad[0].expect`` below the top level."""
    what, _, where = problem.partition(" - at `$")
    where = where.rstrip("`").lstrip(".")
    unknown = re.match(r"Object contains unknown field `(.*)`", what)
    if unknown:
        key = unknown[1]
        return RuleError(
            file=path,
            line=line_of(text, key),
            field=f"{where}.{key}" if where else key,
            problem="unknown key",
            suggestion=nearest(key, _fields_at(where)),
        )
    missing = re.match(r"Object missing required field `(.*)`", what)
    if missing:
        return RuleError(file=path, field=where or None, problem=f"`{missing[1]}` is missing")
    line = line_of(text, where.split("[")[0].split(".")[0]) if where else None
    return RuleError(file=path, line=line, field=where or None, problem=_lowered(what))


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _fields_at(where: str) -> tuple[str, ...]:
    """The keys that may stand at `where` (`bad[0].expect`) of a rule file."""
    structs: Mapping[str, type[Any]] = {"bad": BadExample, "good": GoodExample, "expect": Expectation}
    last = where.rsplit(".", 1)[-1].split("[")[0]
    return tuple(structs.get(last, RuleFile).__struct_fields__)
