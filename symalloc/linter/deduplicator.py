"""Findings that a later stage of a module repeats.

Passes rename variables and rewrite instructions, and a fault that was there before is not theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from symalloc.linter.diagnostic import Diagnostic
from symalloc.program.span import Source


class Deduplicator:
    """Tells the new findings of a stage from those that earlier stages had."""

    def __init__(self) -> None:
        self._seen: set[object] = set()
        self._constraints: Counter[object] = Counter()

    def fresh(self, diagnostics: Sequence[Diagnostic], sources: Mapping[str, Source]) -> list[Diagnostic]:
        """The findings of the next stage that none before had.

        One is a repetition where rule, module and function are the same, and the message is, or the place in
        the user's file, or the constraint and the variable that is bound; and where all of these but the
        constraint differ, as far as earlier stages had more findings of that constraint than are recognised.
        """
        known = [not self._seen.isdisjoint(_keys(d, sources)) for d in diagnostics]
        recognised = Counter(_constraint(d) for d, old in zip(diagnostics, known, strict=True) if old)
        renamed = self._constraints - recognised
        fresh = []
        for diagnostic, old in zip(diagnostics, known, strict=True):
            key = _constraint(diagnostic)
            if not old and renamed[key] > 0:
                renamed[key] -= 1
            elif not old:
                fresh.append(diagnostic)
        self._note(diagnostics, sources)
        return fresh

    def _note(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> None:
        self._seen.update(key for d in diagnostics for key in _keys(d, sources))
        self._constraints |= Counter(_constraint(d) for d in diagnostics if d.constraint is not None)


def _keys(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> Iterable[object]:
    """The dedup keys of a finding: two findings that share one are the same."""
    common = (diagnostic.rule, diagnostic.module, diagnostic.function)
    yield (*common, "message", diagnostic.message)
    span = diagnostic.span
    if span and span.file in sources and sources[span.file].origin is None:
        yield (*common, "place", span)
    if diagnostic.constraint is not None and diagnostic.binds:
        yield (*common, "binds", diagnostic.binds, diagnostic.constraint)


def _constraint(diagnostic: Diagnostic) -> object:
    return diagnostic.rule, diagnostic.module, diagnostic.function, diagnostic.constraint
