"""The difference between two plans, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symalloc.report.plan_diff import (
    FunctionDiff,
    GrownAt,
    MeasureChange,
    PlanDiff,
    SampleChange,
    TensorChanges,
    Trend,
)
from symalloc.report.plan_json import TensorRecord
from symalloc.report.quantities import MOST_ROWS, binding_text, capped, columns, human_bytes, times
from symalloc.shown import counted
from symalloc.size.choice import maximum
from symalloc.size.expr import Expr

WIDEST = 60  # characters of a formula


def plan_diff_text(diff: PlanDiff) -> str:
    """Return a section for each function, and at the end where the peak of a call grew."""
    parts = ["".join(f"{line.rstrip()}\n" for line in _function(one)) for one in diff.functions]
    parts += [f"{name}: new\n" for name in diff.new] + [f"{name}: gone\n" for name in diff.gone]
    return "\n".join((*parts, "".join(f"{line}\n" for line in _summary(diff))))


def _function(one: FunctionDiff) -> Iterator[str]:
    yield f"{one.function}:"
    rows = [
        (f"  {title}", before, after and f"-> {after}", trend)
        for title, before, after, trend in measures(one)
    ]
    yield from columns(rows, left=(0, 1, 2, 3))
    yield from capped([f"  guard gone: {text}" for text in one.guards.gone], "guards that are gone")
    yield from capped([f"  guard new: {text}" for text in one.guards.new], "new guards")
    yield from _tensors(one.tensors)
    if one.samples:
        yield from columns([_HEADS, *map(_row, one.samples)])


def measures(one: FunctionDiff) -> Iterator[tuple[str, str, str, str]]:
    """Yield each measure with its formula before, after (nothing where that is the same), and its trend."""
    for measure, change in one.measures.items():
        title = "whole call" if measure == "call" else measure
        after = "" if change.trend is Trend.SAME else _formula(change.after)
        yield title, _formula(change.before), after, _trend(change)


def _formula(sums: Sequence[Expr] | None) -> str:
    if sums is None:
        return "no formula"
    if not sums:
        return "0"
    text = str(maximum(*sums)) if len(sums) <= MOST_ROWS else ""
    return text if 0 < len(text) <= WIDEST else f"the largest of {counted(len(sums), 'sum')}"


def _trend(change: MeasureChange) -> str:
    if change.grown is not None:
        return f"more: {_grown(change.grown)}"
    if change.trend is Trend.NEVER_MORE:
        return "never more (proved)"
    return f"{change.trend.value}: {change.reason}" if change.reason else change.trend.value


def _grown(grown: GrownAt) -> str:
    """`n = 5: 320 B, before 256 B (proved, the smallest such shape)`."""
    at = f"{binding_text(grown.binding)}: " if grown.binding else ""
    amount = f"{at}{grown.after} B, before {grown.before} B"
    if not grown.proved:
        return f"{amount} (at a sample)"
    if grown.always:
        return f"{amount} (proved, so at every shape)"
    return f"{amount} (proved{', the smallest such shape' if grown.smallest else ''})"


def _tensors(changes: TensorChanges) -> Iterator[str]:
    changed = {name: getattr(changes, name) for name in ("new", "gone", "resized", "moved")}
    said = ", ".join(f"{len(found)} {what}" for what, found in changed.items() if found)
    yield f"  tensors: {said or 'the same'}"
    yield from capped([f"    new: {_tensor(one)}" for one in changes.new], "new ones")
    yield from capped([f"    gone: {_tensor(one)}" for one in changes.gone], "that are gone")
    resized = [f"    resized: {_tensor(pair.before)} -> {pair.after.size} B" for pair in changes.resized]
    yield from capped(resized, "of another size")


def _tensor(one: TensorRecord) -> str:
    by = f" of {one.operator}" if one.operator else ""
    return f"{one.name}{by}, {one.size} B"


_HEADS = ("  at", "whole call", "now", "factor", "arenas", "now", "arena/floor", "now", "")


def _row(sample: SampleChange) -> tuple[str, ...]:
    before, after = sample.before, sample.after
    return (
        f"  {binding_text(sample.binding) or 'any shape'}",
        human_bytes(before["call"]),
        human_bytes(after["call"]),
        times(sample.factor),
        human_bytes(before["arenas"]),
        human_bytes(after["arenas"]),
        times(sample.ratio_before),
        times(sample.ratio_after),
        "" if sample.counts else "not compared: beyond the bounds, or empty",
    )


def _summary(diff: PlanDiff) -> Iterator[str]:
    grown = [one for one in diff.functions if one.grew]
    if not grown:
        partly = [f"`{one.function}`" for one in diff.functions if one.peak_measure != "call"]
        doubt = f"; of {', '.join(partly)} only the arenas were compared" if partly else ""
        yield f"nothing grew{doubt}"
    for one in grown:
        what = "a call takes more" if one.peak_measure == "call" else "the arenas take more"
        why = one.peak.reason if one.peak.grown is None else _grown(one.peak.grown)
        if one.peak.grown is None:
            what = "cannot be compared" if one.peak.trend is Trend.UNCOMPARED else "undecided"
        yield f"{one.function}: {what}: {why}"
