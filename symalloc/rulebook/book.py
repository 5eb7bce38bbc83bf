"""The rulebook: the shipped rules and a user's own, found by site, by id or by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from symalloc.errors import nearest
from symalloc.rulebook.rule import (
    IN_ADVICE,
    BadExample,
    Expectation,
    GoodExample,
    Rule,
    RuleError,
    compile_template,
)
from symalloc.rulebook.sites import SITE_KINDS, SiteKind
from symalloc.size.parse import SizeSyntaxError


def read_rule(path: Path) -> Rule:
    """The rule in the file `path`; raises RuleError."""
    rule = _converted(path)
    site = _site(rule)
    _check_templates(rule, site)
    _check_question(rule, site)
    return rule


def _converted(path: Path) -> Rule:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RuleError(file=path, problem=f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RuleError(file=path, problem=f"is not UTF-8 text: byte {error.start}") from None
    try:
        rule = msgspec.convert(_completed(tomllib.loads(text)), Rule)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(path, str(error)) from None
    except msgspec.ValidationError as error:
        raise _misshapen(path, text, str(error)) from None
    return msgspec.structs.replace(rule, file=path)


def _completed(written: dict[str, Any]) -> dict[str, Any]:
    """The keys of a rule file completed: some may be left out or be a text instead of a list."""
    written.setdefault("severity_at_runtime", written.get("severity"))
    if written["severity_at_runtime"] == "off":
        written["severity_at_runtime"] = None
    if "message" in written:
        written.setdefault("message_when_invalid", written["message"])
    for key in ("help", "note"):
        if isinstance(written.get(key), str):
            written[key] = [written[key]]
    if isinstance(written.get("doc"), str):
        written["doc"] = written["doc"].strip()
    return written


def _error(rule: Rule, name: str, problem: str, suggestion: str | None = None) -> RuleError:
    line = line_of(rule.file.read_text(encoding="utf-8"), name.split(".")[0])
    return RuleError(file=rule.file, line=line, field=name, problem=problem, suggestion=suggestion)


def _site(rule: Rule) -> SiteKind:
    found = SITE_KINDS.get(rule.site)
    if found is None:
        known = list(SITE_KINDS)
        problem = f"unknown site `{rule.site}`; known are {', '.join(known)}"
        raise _error(rule, "site", problem, nearest(rule.site, known))
    return found


def _check_question(rule: Rule, site: SiteKind) -> None:
    if (rule.constraint is None) == (rule.relation is None):
        raise _error(rule, "constraint", "a rule has either a `constraint` or a `relation`")
    if rule.relation is None:
        _check_syntax(rule, "constraint", lambda: rule.compiled)
    elif rule.relation not in site.relations:
        known = ", ".join(site.relations) or "none"
        problem = f"unknown relation `{rule.relation}`; a {site.name} site knows {known}"
        raise _error(rule, "relation", problem, nearest(rule.relation, site.relations))


def _check_templates(rule: Rule, site: SiteKind) -> None:
    for place in rule.labels:
        if place not in site.places:
            problem = f"unknown place `{place}`; a {site.name} site has {', '.join(site.places) or 'none'}"
            raise _error(rule, "labels", problem, nearest(place, site.places))
    labels = ((f"labels.{place}", text) for place, text in rule.labels.items())
    told = (("message", rule.message), ("message_when_invalid", rule.message_when_invalid))
    for name, text in (*told, ("label", rule.label), *labels):
        _check_syntax(rule, name, partial(compile_template, text, site.name))
    for name, text in (*(("help", text) for text in rule.help), *(("note", text) for text in rule.notes)):
        _check_syntax(rule, name, partial(compile_template, text, site.name, IN_ADVICE))


def _check_syntax(rule: Rule, name: str, build: Callable[[], object]) -> None:
    try:
        build()
    except SizeSyntaxError as error:
        raise _error(rule, name, str(error), error.suggestion) from None


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
    return RuleError(file=path, line=line, field=where or None, problem=what[:1].lower() + what[1:])


def _fields_at(where: str) -> tuple[str, ...]:
    """The keys that may stand at `where` (`bad[0].expect`) of a rule file."""
    structs: Mapping[str, type[Any]] = {"bad": BadExample, "good": GoodExample, "expect": Expectation}
    last = where.rsplit(".", 1)[-1].split("[")[0]
    return tuple(structs.get(last, Rule).__struct_encode_fields__)


@dataclass(frozen=True, kw_only=True)
class Rulebook:
    """Rules, ordered by id; ids and names are unique."""

    rules: tuple[Rule, ...]

    @cached_property
    def _by_site(self) -> Mapping[str, tuple[Rule, ...]]:
        return {kind: tuple(rule for rule in self.rules if rule.site == kind) for kind in SITE_KINDS}

    def by_site(self, kind: str) -> tuple[Rule, ...]:
        """The rules about one kind of site; raises KeyError for a kind that does not exist."""
        return self._by_site[kind]

    def get(self, key: str) -> Rule:
        """The rule with that id (in any case) or name; raises RuleError with a suggestion."""
        for rule in self.rules:
            if key.upper() == rule.id.upper() or key.lower() == rule.name:
                return rule
        names = [rule.name for rule in self.rules]
        ids = [rule.id for rule in self.rules]
        raise RuleError(
            problem=f"unknown rule `{key}`", suggestion=nearest(key.upper(), ids) or nearest(key, names)
        )

    def ids(self, selector: str) -> frozenset[str]:
        """The ids that `selector` means: a rule's id or name, or the beginning of ids (`SYM2`).

        Raises RuleError where there is none.
        """
        found = frozenset(rule.id for rule in self.rules if rule.id.upper().startswith(selector.upper()))
        return found if found and selector else frozenset((self.get(selector).id,))

    def select(self, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Rulebook:
        """The rules selected (all, where `select` is empty) and not ignored; raises RuleError."""
        chosen = frozenset().union(*map(self.ids, select)) if select else {rule.id for rule in self.rules}
        dropped: frozenset[str] = frozenset().union(*map(self.ids, ignore))
        return Rulebook(rules=tuple(r for r in self.rules if r.id in chosen and r.id not in dropped))


def load_rules(extra: Sequence[Path] = ()) -> Rulebook:
    """The shipped rules and those in the `extra` files or folders; raises RuleError."""
    if not extra:
        return shipped_rules()
    rules = list(shipped_rules().rules)
    for place in extra:
        rules += [read_rule(file) for file in rule_files(place)]
    return _rulebook(rules)


@lru_cache(maxsize=1)
def shipped_rules() -> Rulebook:
    """The rules that come with the package, which tests check; read once a process."""
    return _rulebook([_converted(file) for file in rule_files(_shipped_folder())])


def _shipped_folder() -> Path:
    """symalloc/rules in an installed package, rules/ beside the package in an editable install."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "rules", package.parent / "rules"):
        if folder.is_dir():
            return folder
    raise RuleError(
        file=package / "rules", problem="the shipped rules are missing: the installation is incomplete"
    )


def rule_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise RuleError(file=place, problem="there is no such folder of rules")
    files = sorted(place.glob("*.toml"))
    if not files:
        raise RuleError(file=place, problem="holds no rules (*.toml)")
    return files


def _rulebook(rules: Sequence[Rule]) -> Rulebook:
    """The rules in order; raises RuleError for the second of two with one id or name."""
    seen: dict[str, Rule] = {}
    for rule in rules:
        for name, key in (("id", rule.id), ("name", rule.name)):
            other = seen.setdefault(key, rule)
            if other is not rule:
                raise RuleError(
                    file=rule.file, field=name, problem=f"`{key}` is already taken by {other.file}"
                )
    return Rulebook(rules=tuple(sorted(rules, key=lambda rule: rule.id)))
