"""The rulebook: the shipped rules and a user's own, found by site, by id or by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from symalloc.errors import nearest
from symalloc.rulebook.reader import read_rule
from symalloc.rulebook.rule import Rule, RuleError
from symalloc.rulebook.sites import SITE_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Rules, ordered by id; ids and names are unique."""

    rules: tuple[Rule, ...]
    _sites: dict[str, tuple[Rule, ...]] = field(default_factory=dict, repr=False, compare=False)

    def by_site(self, kind: str) -> tuple[Rule, ...]:
        """The rules about one kind of site; raises KeyError for a kind that does not exist."""
        if kind not in SITE_KINDS:
            raise KeyError(kind)
        if kind not in self._sites:
            self._sites[kind] = tuple(rule for rule in self.rules if rule.site == kind)
        return self._sites[kind]

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
    """The rules that come with the package; read once a process."""
    return _rulebook([read_rule(file) for file in rule_files(_shipped_folder())])


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
