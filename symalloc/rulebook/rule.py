"""Rules: what is checked at every site of one kind, and what is said where it does not hold.

`Rule` is the typed shape of rules/*.toml; the rulebook has the shipped ones and a user's own.  Its texts are
templates, with `{tensor}`, `{nbytes}` or `{offset + nbytes}` in them.  Bytes, and sums of them, are written
with their unit (`4*m B`); `{nbytes:code}` writes them bare, as code.  `{{` and `}}` write braces.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from symalloc.errors import UsageError, nearest
from symalloc.rulebook.language import Constraint, Quantity, Unit, compile_constraint, compile_quantity
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr
from symalloc.size.parse import SizeSyntaxError, as_expr

Value: TypeAlias = Expr | Condition | Mapping[str, int] | str | int | None

EVERYWHERE = ("function",)
"""Names that every template may use."""
IN_ADVICE = ("precondition", "counterexample", "consequence", "reason")
"""Names that help and notes may use as well; where one has no value the sentence is left out."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """The part of a template between braces: a name, or an expression over quantities."""

    text: str
    quantity: Quantity | None = None
    in_bytes: bool = False

    def write(self, values: Mapping[str, Value]) -> str | None:
        value = values.get(self.text)
        if self.quantity is not None and self.text not in values:
            sizes = {name: values.get(name) for name in self.quantity.expr.symbols}
            known = {name: as_expr(size) for name, size in sizes.items() if isinstance(size, Expr | int)}
            value = self.quantity.expr.substitute(known) if len(known) == len(sizes) else None
        return None if value is None else _written(value, in_bytes=self.in_bytes)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    pieces: tuple[str | _Slot, ...]

    def render(self, values: Mapping[str, Value]) -> str | None:
        """The text with every name replaced by its value; None where one has none."""
        texts = [piece if isinstance(piece, str) else piece.write(values) for piece in self.pieces]
        known = [text for text in texts if text is not None]
        return "".join(known) if len(known) == len(texts) else None


@lru_cache(maxsize=1024)
def compile_template(text: str, site: str, extra: tuple[str, ...] = ()) -> Template:
    """`text` as a template over the names of `site`, `EVERYWHERE` and `extra`; raises SizeSyntaxError."""
    pieces: list[str | _Slot] = []
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise SizeSyntaxError(text, 0, f"{error}; write {{{{ and }}}} for braces") from None
    for literal, field, style, _ in parsed:
        if literal:
            pieces.append(literal)
        if field is not None:
            pieces.append(_slot(field.strip(), style or "", site, extra))
    return Template(tuple(pieces))


def _slot(text: str, style: str, site: str, extra: tuple[str, ...]) -> _Slot:
    if style not in ("", "code"):
        problem = f"unknown style `{style}`; only `code` is known"
        raise SizeSyntaxError(f"{{{text}:{style}}}", len(text) + 2, problem, "code")
    kind = SITE_KINDS[site]
    words = (*kind.texts, *EVERYWHERE, *extra)
    if text in words and text not in kind.quantities:
        return _Slot(text)
    if text.replace(".", "").isidentifier() and text not in kind.quantities:
        known = [*kind.quantities, *words]
        problem = f"unknown name `{text}`; a {site} site offers {', '.join(known)}"
        raise SizeSyntaxError(text, 0, problem, nearest(text, known))
    quantity = compile_quantity(text, kind.quantities)
    return _Slot(text, quantity, quantity.in_bytes and not style)


def _written(value: Expr | Condition | Mapping[str, int] | str | int, *, in_bytes: bool) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {number}" for name, number in value.items())
    if not in_bytes or not isinstance(value, Expr | int):
        return str(value)
    several = isinstance(value, Expr) and len(value.terms) > 1
    return f"({value}) B" if several else f"{value} B"


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


class GoodExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A module in which the rule finds nothing.

    `stage` is the stage at which it is linted, `budget` the bytes of --budget, `order` that of --order.
    """

    name: str
    module: str
    stage: StageName = "as-is"
    budget: int | None = None
    order: Literal["total", "lanes", "dag"] = "total"

    @property
    def title(self) -> str:
        """The name, with the options that the answer takes."""
        asked = [] if self.budget is None else [f"--budget {self.budget}"]
        asked += [] if self.order == "total" else [f"--order {self.order}"]
        return f"{self.name} ({' '.join(asked)})" if asked else self.name


class BadExample(GoodExample, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A module in which the rule finds a fault on exactly the lines marked `# <id>`."""

    expect: Expectation = Expectation()


class Rule(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    dict=True,
    rename={"notes": "note", "file": ""},
):
    """A condition on every site of one kind, and the words for where it does not hold.

    Exactly one of `constraint` (over the site's quantities) and `relation` (built into the engine) is set.
    `severity_at_runtime` is the severity of a finding whose verdict is a run-time check, None where such a
    verdict is no finding; `severity_when_empty` of one that takes an empty tensor, None where that makes no
    difference.  `label` is the text under the carets, `labels` those of further places of the
    site. `help` holds alternatives: the first whose names all have a value is shown; `notes` are shown one
    by one.  `file` is where the rule was read from; no key of a rule file sets it.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{2,10}\d{3,4}$")]
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")]
    severity: SeverityName
    site: str
    message: str
    doc: str
    severity_at_runtime: SeverityName | None
    message_when_invalid: str
    severity_when_empty: SeverityName | None = None
    constraint: str | None = None
    relation: str | None = None
    label: str = ""
    labels: dict[str, str] = {}
    help: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fixes: tuple[FixName, ...] = ()
    references: tuple[str, ...] = ()
    bad: tuple[BadExample, ...] = ()
    good: tuple[GoodExample, ...] = ()
    file: Path = Path()

    @cached_property
    def compiled(self) -> Constraint | None:
        """The constraint over the site's quantities, None for a relation; raises SizeSyntaxError."""
        if self.constraint is None:
            return None
        return compile_constraint(self.constraint, SITE_KINDS[self.site].quantities)

    @property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return re.split(r"(?<=\.)\s", self.doc, maxsplit=1)[0].replace("\n", " ")

    @property
    def needs(self) -> frozenset[str]:
        """The quantities that the constraint uses; empty for a relation."""
        return self.compiled.names if self.compiled else frozenset()

    def condition(self, quantities: Mapping[str, Expr]) -> Condition:
        """The condition on the site; raises KeyError where `quantities` lacks one of `needs`."""
        if self.compiled is None:
            raise TypeError(f"{self.id} asks for a relation, not for a constraint")
        return self.compiled.at(quantities)

    def rendered(self, templates: Iterable[str], values: Mapping[str, Value]) -> tuple[str, ...]:
        """The texts of those `templates` of the rule whose names all have a value."""
        texts = (compile_template(one, self.site, IN_ADVICE).render(values) for one in templates)
        return tuple(text for text in texts if text is not None)

    def message_about(self, values: Mapping[str, Value], *, never_holds: bool = False) -> str | None:
        """The message; None where a name has no value.  `never_holds`: no binding satisfies the rule."""
        chosen = self.message_when_invalid if never_holds else self.message
        return next(iter(self.rendered((chosen,), values)), None)

    def help_about(self, values: Mapping[str, Value]) -> str | None:
        """The first help whose names all have a value."""
        return next(iter(self.rendered(self.help, values)), None)


class RuleError(UsageError):
    """A rule file, or a request for a rule, that makes no sense.

    `file`, `line` (from 1) and `field` say where, as far as known; `suggestion` is what was probably meant.
    """

    def __init__(
        self,
        *,
        problem: str,
        file: Path | None = None,
        line: int | None = None,
        field: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        place = "" if file is None else f"{file}:{line}: " if line else f"{file}: "
        subject = f"{field}: " if field else ""
        hint = f" (did you mean `{suggestion}`?)" if suggestion else ""
        super().__init__(f"{place}{subject}{problem}{hint}")
        self.file, self.line, self.field = file, line, field
        self.problem, self.suggestion = problem, suggestion


class SiteKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of site: what it is, and the names it offers."""

    name: str
    description: str
    quantities: dict[str, Unit] = {}
    texts: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def _kinds() -> Mapping[str, SiteKind]:
    table = (resources.files("symalloc.rulebook") / "sites.toml").read_text(encoding="utf-8")
    written: dict[str, dict[str, Any]] = tomllib.loads(table)
    return {name: msgspec.convert({"name": name, **kind}, SiteKind) for name, kind in written.items()}


SITE_KINDS = _kinds()
"""The kinds of sites by name."""


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
    def by_site(self) -> Mapping[str, tuple[Rule, ...]]:
        """The rules about each kind of site."""
        return {kind: tuple(rule for rule in self.rules if rule.site == kind) for kind in SITE_KINDS}

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
