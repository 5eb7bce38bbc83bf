"""The options of a lint run: one record, which Python, pyproject.toml and the command line fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any, TypedDict

from symalloc.analysis.dependencies import OrderName
from symalloc.errors import UsageError, require_text, require_texts, shown
from symalloc.options import FLAG, PATH, PATHS, TEXTS, Kind, amount, choice, option, options_of, whole
from symalloc.program.reading import PipelineName, ReadOptions
from symalloc.size.condition import Condition
from symalloc.size.parse import ConditionLike, SizeSyntaxError, as_condition, is_sympy, parse_condition


class LintKeywords(TypedDict, total=False):
    """Keyword arguments for how to lint, as `LintOptions` has them; docs/options.md describes each."""

    assume: ConditionLike | Sequence[ConditionLike]
    select: str | Sequence[str]
    ignore: str | Sequence[str]
    rules: str | Path | Sequence[str | Path]
    exclude: str | Sequence[str]
    per_file_ignores: Mapping[str, str | Sequence[str]]
    stage: str
    pipeline: PipelineName
    trust: bool
    strict: bool
    timeout: float
    jobs: int | None
    budget: str | int | None
    order: OrderName
    baseline: str | Path | None


def _rule_keys(name: str, value: object) -> tuple[str, ...]:
    """Return the keys of rules in some texts: `SYM1,SYM2` counts as two."""
    keys = (key.strip() for text in require_texts(name, value) for key in text.split(","))
    return tuple(key for key in keys if key)


def _keys_per_file(name: str, value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise UsageError(f'{name} is {shown(value)}; it must be a table, such as {{ "tests/*" = ["SYM2"] }}')
    return {
        require_text(f"a pattern of {name}", pattern): _rule_keys(f"{name} of {pattern}", keys)
        for pattern, keys in value.items()
    }


def require_conditions(name: str, value: object) -> tuple[str, ...]:
    """Return the conditions that the argument `name` is, as texts: one or several, texts or sympy's.

    Raises UsageError.
    """
    given = (value,) if isinstance(value, str | Condition) or is_sympy(value) else value
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise UsageError(f"{name} is {shown(given)}; it must be a condition or a list of conditions")
    try:
        return tuple(one if isinstance(one, str) else str(as_condition(one)) for one in given)
    except ValueError as error:
        raise UsageError(str(error)) from None


_RULES = Kind(read=_rule_keys, metavar="RULE", several=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions(ReadOptions):
    """Options of reading and of checking.

    `cache`: the command line keeps findings from one run to the next.  Raises UsageError for values that
    make no sense.
    """

    select: tuple[str, ...] = option(
        (), _RULES, "Check only these rules: ids, prefixes of ids (SYM2), or names.", in_file=True
    )
    ignore: tuple[str, ...] = option((), _RULES, "Do not check these rules.", in_file=True, adds=True)
    rules: tuple[Path, ...] = option(
        (), PATHS, "A folder or file with rules of your own.", in_file=True, adds=True
    )
    assume: tuple[str, ...] = option(
        (),
        Kind(read=require_conditions, metavar="COND", several=True),
        'A condition on symbols, such as "n <= 2048".',
        in_file=True,
        adds=True,
    )
    jobs: int | None = option(
        None,
        whole(1),
        "Read at most N files at once, each in a process of its own; by default one per CPU.",
        in_file=True,
        short=("-j",),
    )
    budget: int | None = option(
        None,
        amount(1),
        "Report calls that can hold more than this at once, such as 512MiB (SYM402).",
        in_file=True,
    )
    order: OrderName = option(
        "total",
        choice(OrderName),
        "Report tensors that share bytes and can be alive together in another order than that of the text: "
        "lanes, in which each device keeps its own; dag, any that the dependency graph permits (SYM212).",
    )
    strict: bool = option(
        False, FLAG, "Count notes. Report undecided constraints and unknown constructs as errors."
    )
    baseline: Path | None = option(
        None, PATH, "Leave out the findings that this file holds, unless they got worse.", in_file=True
    )
    exclude: tuple[str, ...] = option((), TEXTS, "Glob patterns of files and folders.", in_file=True)
    per_file_ignores: Mapping[str, tuple[str, ...]] = option(
        {},
        Kind(read=_keys_per_file, metavar="TABLE"),
        "Rules that are not checked in files that match a glob pattern.",
        in_file=True,
    )
    cache: bool = option(
        True, FLAG, "Keep findings from one run of the command line to the next.", in_file=True
    )

    @property
    def reports_unused(self) -> bool:
        """True where a suppression without effect is a finding: a run over some stages only cannot tell."""
        return self.stage in ("auto", "all")

    def excludes(self, file: str) -> bool:
        """True where `file` is not to be linted."""
        return any(matches_file(file, pattern) for pattern in self.exclude)

    def overlaid(self, **given: Any) -> LintOptions:
        """These options with a caller's laid over them, where they are given: they replace or, if they are
        options that add, add.
        """
        table = options_of(self)
        chosen: dict[str, Any] = {
            name: (*getattr(self, name), *value) if table[name].adds else value
            for name, value in given.items()
            if value not in (None, ())
        }
        return replace(self, **chosen)


def parse_assumptions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Parse conditions on symbols; raises UsageError, which quotes the text that is wrong."""
    parsed = []
    for text in texts:
        try:
            parsed.append(parse_condition(text))
        except SizeSyntaxError as error:
            raise UsageError(f"assumption `{text}`: {error.problem}, at column {error.column + 1}") from None
    return tuple(parsed)


def matches_file(file: str, pattern: str) -> bool:
    """True where `file`, or its name, or a folder it lies in, matches the glob `pattern`."""
    path = PurePath(file)
    candidates = (path.as_posix(), path.name, *(parent.as_posix() for parent in path.parents))
    return any(fnmatch(candidate, pattern.rstrip("/")) for candidate in candidates)
