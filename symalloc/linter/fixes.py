"""Fixes: made from a finding, tried on a copy of the text, linted again, and only then offered."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from symalloc.linter.diagnostic import (
    Diagnostic,
    Fix,
    FixCandidate,
    Severity,
    TextEdit,
    UserScript,
    parse_user_script,
)
from symalloc.linter.function_prover import FunctionProver
from symalloc.linter.sites.site import Finding, FunctionContext
from symalloc.linter.sites.storages import storages_of
from symalloc.program.ir import Alias, AllocStorage, AllocTensor, Kill
from symalloc.program.span import Source, Span
from symalloc.program.types import byte_count
from symalloc.size.choice import maximum, reaching
from symalloc.size.condition import le
from symalloc.size.expr import Expr, ceildiv
from symalloc.size.notation import TVMSCRIPT

MAX_ROUNDS = 20
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
RelintText = Callable[[str], Sequence[Diagnostic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One file before and after fixes; `fixes` counts them."""

    file: str
    before: str
    after: str
    fixes: int

    def diff(self) -> str:
        """The change as a unified diff; empty where there is none."""
        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, f"a/{self.file}", f"b/{self.file}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Make `edits` in `text`; they must not overlap.  Inserted lines end as those of `text` do."""
    starts = [*(match.start() for match in _LINE.finditer(text)), len(text)]  # of lines as Python counts them
    newline = "\r\n" if "\r\n" in text else "\n"
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        first = starts[edit.span.line - 1] + edit.span.column - 1
        last = min(starts[edit.span.end_line - 1] + edit.span.end_column - 1, len(text))
        text = text[:first] + edit.text.replace("\n", newline) + text[last:]
    return text


def rewrite(
    file: str, text: str, diagnostics: Sequence[Diagnostic], relint: RelintText, *, unsafe: bool
) -> Rewrite:
    """Fix `text` until nothing more can be fixed: in each round the fixes that do not touch each other.

    `relint` gives the findings, with fixes, in a text.  A round that does not leave fewer findings, or
    brings new ones, is taken back and only its first fix tried.
    """
    before, count = text, 0
    for _ in range(MAX_ROUNDS):
        chosen = _compatible(diagnostics, unsafe)
        for tried in dict.fromkeys((chosen, chosen[:1])):
            changed = apply_edits(text, [edit for fix in tried for edit in fix.edits])
            found = relint(changed) if tried else diagnostics
            if improves(diagnostics, found):
                text, diagnostics, count = changed, found, count + len(tried)
                break
        else:
            break
    return Rewrite(file=file, before=before, after=text, fixes=count)


def improves(
    before: Iterable[Diagnostic], after: Iterable[Diagnostic], target: Diagnostic | None = None
) -> bool:
    """True where findings went away and no new error or warning came; with `target`, one of its kind.

    Findings are told apart by their kinds: lines move, and messages quote sizes.
    """
    old, new = Counter(d.kind for d in before), Counter(d.kind for d in after)
    worse = Counter(d.kind for d in after if d.severity is not Severity.NOTE)
    if any(count > old[kind] for kind, count in worse.items()):
        return False
    if target is not None:
        return new[target.kind] < old[target.kind]
    return new.total() < old.total()


def _compatible(diagnostics: Iterable[Diagnostic], unsafe: bool) -> tuple[Fix, ...]:
    """The first fix of each finding, less those that touch the same text as one before."""
    chosen: tuple[Fix, ...] = ()
    for fix in (d.fix for d in diagnostics if d.fix is not None and (d.fix.safe or unsafe)):
        if not any(a.span.meets(b.span) for other in chosen for a in other.edits for b in fix.edits):
            chosen += (fix,)
    return chosen


Relint = Callable[[Sequence[tuple[str, str]]], Sequence[Sequence[Diagnostic]]]
"""Gives the findings in each of some changes: a file, and what it would hold."""
MAX_CANDIDATES = 64  # per file: each is read and linted again


# -- trying ------------------------------------------------------------------------------------------------


def tried_fixes(
    found: Iterable[tuple[Source, Sequence[Diagnostic]]], relint: Relint
) -> dict[int, tuple[Fix, ...]]:
    """Try the fixes of findings; return those that help, by the `id` of the diagnostic.

    A fix helps if its finding is gone and nothing new has come.  `found` are the findings of files, each with
    the text of the file; `relint` gives the findings in each of some texts, each taken as the contents of a
    file.  Each text is linted once.
    """
    tries = [
        (diagnostic, fix, diagnostics, (source.file, apply_edits(source.text, fix.edits)))
        for source, diagnostics in found
        for diagnostic, fix in islice(_fixes(source, diagnostics), MAX_CANDIDATES)
    ]
    changes = list(dict.fromkeys(change for *_, change in tries))
    after = dict(zip(changes, relint(changes), strict=True)) if changes else {}
    good: dict[int, tuple[Fix, ...]] = {}
    for diagnostic, fix, before, change in tries:
        if improves(before, after[change], diagnostic):
            outcome = "always valid" if diagnostic.verdict else "gone"
            good[id(diagnostic)] = (*good.get(id(diagnostic), ()), replace(fix, outcome=outcome))
    return good


def _fixes(source: Source, diagnostics: Sequence[Diagnostic]) -> Iterable[tuple[Diagnostic, Fix]]:
    script = parse_user_script(source) if any(d.candidates for d in diagnostics) else None
    if script is None:
        return
    for diagnostic in diagnostics:
        if diagnostic.span is not None and diagnostic.span.file == script.file:
            for candidate in diagnostic.candidates:
                fix = candidate(script)
                if fix is not None:
                    yield diagnostic, fix


# -- making ------------------------------------------------------------------------------------------------


def fix_candidates(finding: Finding) -> tuple[FixCandidate, ...]:
    """Return the fixes that the rule of `finding` names, to be made in a script."""
    wanted = (FIXERS[name] for name in finding.rule.fixes if name in FIXERS)
    return tuple(partial(fixer, finding) for fixer in wanted)


def _remove_kill(finding: Finding, script: UserScript) -> Fix | None:
    """Delete the line of a kill whose variable is dead already."""
    span = finding.where
    statement = script.statement_at(span) if span else None
    if statement is None or not isinstance(finding.instruction, Kill):
        return None
    if not script.stands_alone(statement):
        return None
    last = statement.end_lineno or statement.lineno
    lines = Span(file=script.file, line=statement.lineno, column=1, end_line=last + 1, end_column=1)
    return Fix(title="remove the second kill", edits=(TextEdit(span=lines, text=""),), safe=True)


def _insert_assertion(finding: Finding, script: UserScript) -> Fix | None:
    """Insert `R.assert_op(…)` on a line of its own.  Not safe: inputs that got away with it are stopped.

    R.assert_op is lowered by LegalizeOps, which every script goes through; it is not allowed in dataflow
    blocks and pure functions (the changed script does not read there, and the fix is not offered).
    """
    span, condition = finding.where, finding.precondition
    if span is None or condition is None:
        return None
    statement, call = script.statement_at(span), script.call_at(span)
    if statement is None or call is None or not script.stands_alone(statement):
        return None
    names = sorted(condition.symbols)
    message = f"need {condition}, got {', '.join(f'{name}={{}}' for name in names)}"
    assertion = (
        f'{_dialect(call)}.assert_op({condition.text(TVMSCRIPT)}, [{", ".join(names)}], format="{message}")'
    )
    edit = TextEdit(span=script.at(statement.lineno), text=f"{script.indent(statement.lineno)}{assertion}\n")
    return Fix(title=f"check it: {assertion}", edits=(edit,), safe=False)


def _dialect(call: ast.Call) -> str:
    """The name under which the script knows the Relax dialect: the first of `R.memory.alloc_tensor`."""
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else "R"


def _grow_storage(finding: Finding, script: UserScript) -> Fix | None:
    """Write the size of a storage anew: the largest end of a tensor placed on it.

    None where some tensor's end is unknown, something else gets hold of the storage (it might count on its
    size), or the size is not written as a shape in the call that reserves it.
    """
    tensor, context = finding.instruction, finding.context
    regions = storages_of(context, tensor) if isinstance(tensor, AllocTensor) else ()
    storage = regions[0].instruction if len(regions) == 1 else None
    if not isinstance(storage, AllocStorage) or storage.span is None:
        return None
    if not _holds_only_tensors(context, storage):
        return None
    call = script.call_at(storage.span)
    shape = _shape_argument(call) if call else None
    instructions = (instruction for _, instruction in context.analysis.cfg.instructions)
    placed = (i for i in instructions if isinstance(i, AllocTensor))
    tensors = [i for i in placed if any(r.instruction is storage for r in storages_of(context, i))]
    needed = _largest_end(tensors, context.prover)
    if shape is None or needed is None:
        return None
    counted = storage.dialect != "memory" and storage.dtype  # R.vm.alloc_storage counts elements of its dtype
    size = ceildiv(needed, counted.itemsize) if counted else needed
    text = f"{ast.unparse(shape.func)}([{size.text(TVMSCRIPT)}])"
    edit = TextEdit(span=script.span(shape), text=text)
    return Fix(title=f"{_reason(tensors, storage)}: {text}", edits=(edit,), safe=True)


def _holds_only_tensors(context: FunctionContext, storage: AllocStorage) -> bool:
    """True where nothing but tensors, other names and kills uses the storage."""
    whole = context.points_to.regions_of(storage.var)
    return all(
        isinstance(point.instruction, AllocTensor | Alias | Kill)
        for point in context.analysis.cfg.points
        for variable in point.uses
        if context.points_to.regions_of(variable) & whole
    )


def _shape_argument(call: ast.Call) -> ast.Call | None:
    """The `R.shape([…])` that a storage's size is given as."""
    given = [call.args[0]] if call.args else [k.value for k in call.keywords if k.arg in ("size", "shape")]
    match given:
        case [ast.Call(func=ast.Attribute(attr="shape"), args=[ast.List()]) as shape]:
            return shape
    return None


def _largest_end(tensors: Sequence[AllocTensor], prover: FunctionProver) -> Expr | None:
    """The largest end in bytes, without those that another is proved to reach; None where one is unknown."""
    sizes = ((tensor.offset, byte_count(tensor.shape, tensor.dtype)) for tensor in tensors)
    ends = [offset + nbytes for offset, nbytes in sizes if nbytes is not None]
    if not ends or len(ends) < len(tensors):
        return None
    return maximum(*reaching(ends, lambda high, low: prover.always(le(low, high))))


def _reason(tensors: Sequence[AllocTensor], storage: AllocStorage) -> str:
    counted = {name for t in tensors for extent in t.shape or () for name in extent.symbols}
    if storage.dialect == "memory" and counted and any(t.dtype.itemsize > 1 for t in tensors):
        names = ", ".join(sorted(counted))
        return f"storage is in bytes, {names} count{'s' * (len(counted) == 1)} elements"
    return "reserve what its tensors need"


# by the names that rules give them; `remove-suppression` is about comments, and made in suppressions.py
FIXERS: Mapping[str, Callable[[Finding, UserScript], Fix | None]] = {
    "grow-storage": _grow_storage,
    "insert-assertion": _insert_assertion,
    "remove-kill": _remove_kill,
}
