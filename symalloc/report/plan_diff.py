"""Compares the plans of two modules function by function, at all shapes and at sample bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from symalloc.planner.memory_report.deployment import MOST_SUMS
from symalloc.prover.domain import Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.report.plan_json import Measure, PlannedFunction, TensorRecord
from symalloc.report.quantities import MOST_ROWS, binding_text, capped, columns, human_bytes, times
from symalloc.shown import Shown, counted
from symalloc.size.choice import is_nonnegative, maximum
from symalloc.size.condition import conjunction, le
from symalloc.size.expr import ZERO, Expr, highest


class TensorPair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same tensor in both plans."""

    before: TensorRecord
    after: TensorRecord


class TensorChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tensors of a plan against those of another: `resized` have another size, `moved` another offset only.

    A tensor with another name, but with the operator and the size of one that is gone, is the same.
    """

    new: tuple[TensorRecord, ...] = ()
    gone: tuple[TensorRecord, ...] = ()
    resized: tuple[TensorPair, ...] = ()
    moved: tuple[TensorPair, ...] = ()


_SAME: Sequence[Callable[[TensorRecord], Hashable]] = (
    lambda one: (one.name, one.operator, one.size),
    lambda one: (one.operator, one.size),
    lambda one: (one.name, one.operator),
)
"""The ways in which tensors are known again: those before another go first."""


def compare_tensors(before: Sequence[TensorRecord], after: Sequence[TensorRecord]) -> TensorChanges:
    """Compare the tensors of two plans, both in the order of allocation."""
    gone, new = list(before), list(after)
    pairs: list[TensorPair] = []
    for key in _SAME:
        pairs += _paired(gone, new, key)
    return TensorChanges(
        new=tuple(new),
        gone=tuple(gone),
        resized=tuple(p for p in pairs if p.before.size != p.after.size),
        moved=tuple(p for p in pairs if p.before.size == p.after.size and p.before.offset != p.after.offset),
    )


def _paired(
    gone: list[TensorRecord], new: list[TensorRecord], key: Callable[[TensorRecord], Hashable]
) -> list[TensorPair]:
    """Take tensors with equal keys out of both lists, the first of one with the first of the other."""
    waiting: dict[Hashable, list[TensorRecord]] = {}
    for one in gone:
        waiting.setdefault(key(one), []).append(one)
    pairs = [TensorPair(before=waiting[key(one)].pop(0), after=one) for one in new if waiting.get(key(one))]
    taken = {id(one) for pair in pairs for one in (pair.before, pair.after)}
    for left in (gone, new):
        left[:] = [one for one in left if id(one) not in taken]
    return pairs


class Trend(StrEnum):
    """The way of the bytes of one measure from one plan to another."""

    SAME = "same"
    NEVER_MORE = "never more"  # proved for every shape
    MORE = "more"  # at a shape that is known
    UNDECIDED = "undecided"  # not proved, and no more at any sample
    UNCOMPARED = "not compared"  # no formula, or each has symbols that the other lacks


class GrownAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shape at which the bytes grew; `proved` by the prover, `smallest` such shape, `always`: at each."""

    binding: Mapping[str, int]
    before: int
    after: int
    proved: bool
    smallest: bool = False
    always: bool = False


class MeasureChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bytes of one measure before and after, the largest of some sums; null where they are no formula."""

    before: tuple[Expr, ...] | None
    after: tuple[Expr, ...] | None
    trend: Trend
    grown: GrownAt | None = None
    reason: str | None = None


class SampleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bytes of each measure before and after at one binding; None where they are not known.

    `counts` is false for a shape that is not compared: with an empty dimension, or beyond the bounds.
    `factor` is that of a whole call, bytes after over bytes before; the ratios are arena over floor.
    """

    binding: Mapping[str, int]
    before: Mapping[Measure, int | None]
    after: Mapping[Measure, int | None]
    counts: bool
    factor: float | None
    ratio_before: float | None
    ratio_after: float | None


class GuardChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions that only one of the plans checks."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


class FunctionDiff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The difference between two plans of one function.

    `grew`: the bytes of `peak_measure` are more at some shape, cannot be compared, or were not decided; those
    are the bytes of a whole call, or of the arenas where a whole call was no formula.
    """

    function: str
    grew: bool
    peak_measure: Measure = msgspec.field(name="peak")
    measures: Mapping[Measure, MeasureChange]
    guards: GuardChanges
    tensors: TensorChanges
    samples: tuple[SampleChange, ...]

    @property
    def peak(self) -> MeasureChange:
        """The change that counts."""
        return self.measures[self.peak_measure]


def compare_function(
    before: PlannedFunction, after: PlannedFunction, bindings: Sequence[Mapping[str, int]], prover: Prover
) -> FunctionDiff:
    """Compare two plans of one function, at `bindings`, or where there are none at their samples."""
    shown = (sample.binding for sample in (*before.samples, *after.samples))
    both = {tuple(sorted(at.items())): at for at in shown}
    samples = [_sample(before, after, at) for at in bindings or both.values()]
    told = tuple(one for one in samples if {*one.before.values(), *one.after.values()} != {None})
    changes = {measure: _change(measure, before, after, told, prover) for measure in after.sums}
    peak: Measure = "arenas" if changes["call"].before is None else "call"
    gone, new = (Counter(guard.condition for guard in one.guards) for one in (before, after))
    return FunctionDiff(
        function=after.function,
        grew=changes[peak].trend not in (Trend.SAME, Trend.NEVER_MORE),
        peak_measure=peak,
        measures=changes,
        guards=GuardChanges(new=tuple((new - gone).elements()), gone=tuple((gone - new).elements())),
        tensors=compare_tensors(before.tensors, after.tensors),
        samples=told,
    )


def _change(
    measure: Measure,
    before: PlannedFunction,
    after: PlannedFunction,
    samples: Sequence[SampleChange],
    prover: Prover,
) -> MeasureChange:
    old, new = before.sums[measure], after.sums[measure]

    def change(trend: Trend, grown: GrownAt | None = None, reason: str | None = None) -> MeasureChange:
        return MeasureChange(before=old, after=new, trend=trend, grown=grown, reason=reason)

    if old is None or new is None:
        return change(Trend.UNCOMPARED, reason="no formula is known")
    if frozenset(old) == frozenset(new):
        return change(Trend.SAME)
    only = [_symbols(old) - _symbols(new), _symbols(new) - _symbols(old)]
    if all(only):
        before_names, after_names = (", ".join(f"`{name}`" for name in sorted(names)) for names in only)
        return change(Trend.UNCOMPARED, reason=f"only before: {before_names}; only after: {after_names}")
    proof = _never_more(old, new, after, prover)
    if proof is not None and proof.holds:
        return change(Trend.NEVER_MORE)
    grown = _by_proof(old, new, proof, after.domain)
    for one in samples if grown is None else ():
        was, now = one.before[measure], one.after[measure]
        if one.counts and was is not None and now is not None and now > was:
            grown = GrownAt(binding=one.binding, before=was, after=now, proved=False)
            break
    if grown is not None:
        return change(Trend.MORE, grown)
    return change(Trend.UNDECIDED, reason="not proved, and no more at the samples")


def _never_more(
    old: Sequence[Expr], new: Sequence[Expr], after: PlannedFunction, prover: Prover
) -> Proof | None:
    """Prove that the largest of `new` is at most that of `old`; None where there are too many sums."""
    left = [one for one in new if not any(is_nonnegative(other - one, after.signed) for other in old)]
    if len(left) > MOST_SUMS or len(old) > MOST_SUMS:
        return None
    before = maximum(*old) if old else ZERO
    return prover.prove(conjunction(le(one, before) for one in left), after.domain)


def _by_proof(
    old: Sequence[Expr], new: Sequence[Expr], proof: Proof | None, domain: Domain
) -> GrownAt | None:
    """Return the shape that refutes the proof, computed once more."""
    if proof is None or (proof.counterexample is None and proof.verdict is not Verdict.ALWAYS_INVALID):
        return None
    at = dict(proof.counterexample or {})
    others = (_symbols(old) | _symbols(new)) - at.keys()
    at |= {name: min(max(1, domain.lower_of(name)), domain.upper_of(name)) for name in others}
    before, after = highest(old, at), highest(new, at)
    if before is None or after is None or after <= before:
        return None
    always = proof.verdict is Verdict.ALWAYS_INVALID
    return GrownAt(
        binding=at, before=before, after=after, proved=True, smallest=proof.smallest, always=always
    )


def _sample(before: PlannedFunction, after: PlannedFunction, at: Mapping[str, int]) -> SampleChange:
    names: set[str] = set()
    for record in (before, after):
        names |= _symbols(one for sums in record.sums.values() for one in sums or ())
        names |= record.bounds.keys() | set(record.signed)
    compared = {name: value for name, value in at.items() if name in names}
    was, now = _bytes(before, at), _bytes(after, at)
    return SampleChange(
        binding=at,
        before=was,
        after=now,
        counts=after.domain.contains(compared),
        factor=_over(now["call"], was["call"]),
        ratio_before=_over(was["arenas"], was["floor"]),
        ratio_after=_over(now["arenas"], now["floor"]),
    )


def _bytes(record: PlannedFunction, at: Mapping[str, int]) -> dict[Measure, int | None]:
    return {measure: None if sums is None else highest(sums, at) for measure, sums in record.sums.items()}


def _symbols(sums: Iterable[Expr]) -> frozenset[str]:
    return frozenset().union(*(one.symbols for one in sums))


def _over(bytes_: int | None, base: int | None) -> float | None:
    if bytes_ is None or base is None:
        return None
    return bytes_ / base if base else (1.0 if bytes_ == 0 else None)


class PlanDiff(
    Shown, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=1
):
    """The difference between the plans of two modules; `new` and `gone` are functions of one of them only.

    `grew`: that of some function is true.
    """

    grew: bool
    functions: tuple[FunctionDiff, ...]
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def __repr__(self) -> str:
        grown = [one.function for one in self.functions if one.peak.grown is not None]
        unknown = [one.function for one in self.functions if one.grew and one.peak.grown is None]
        named = ((grown, "grew"), (unknown, "not decided"))
        said = ", ".join(f"{', '.join(names)} {what}" for names, what in named if names) or "nothing grew"
        return f"<PlanDiff: {said} in {counted(len(self.functions), 'function')}>"


def compare_plans(
    before: Sequence[PlannedFunction],
    after: Sequence[PlannedFunction],
    bindings: Sequence[Mapping[str, int]] = (),
) -> PlanDiff:
    """Compare the plans of the functions that two modules have in common.

    They are shown at `bindings`, or where there are none at those at which the plans were shown.
    """
    old, prover = {record.function: record for record in before}, Prover()
    names = {record.function for record in after}
    pairs = [(old[record.function], record) for record in after if record.function in old]
    functions = tuple(compare_function(*pair, bindings, prover) for pair in pairs)
    return PlanDiff(
        grew=any(one.grew for one in functions),
        functions=functions,
        new=tuple(record.function for record in after if record.function not in old),
        gone=tuple(name for name in old if name not in names),
    )


WIDEST = 60  # characters of a formula


def plan_diff_text(diff: PlanDiff) -> str:
    """Return a section for each function, and at the end where the peak of a call grew."""
    parts = ["".join(f"{line.rstrip()}\n" for line in _function(one)) for one in diff.functions]
    parts += [f"{name}: new\n" for name in diff.new] + [f"{name}: gone\n" for name in diff.gone]
    return "\n".join((*parts, "".join(f"{line}\n" for line in _summary(diff))))


def _function(one: FunctionDiff) -> Iterator[str]:
    yield f"{one.function}:"
    rows = []
    for measure, change in one.measures.items():
        title = "whole call" if measure == "call" else measure
        after = "" if change.trend is Trend.SAME else f"-> {_formula(change.after)}"
        rows.append((f"  {title}", _formula(change.before), after, _trend(change)))
    yield from columns(rows, left=(0, 1, 2, 3))
    yield from capped([f"  guard gone: {text}" for text in one.guards.gone], "guards that are gone")
    yield from capped([f"  guard new: {text}" for text in one.guards.new], "new guards")
    yield from _tensors(one.tensors)
    if one.samples:
        yield from columns([_HEADS, *map(_row, one.samples)])


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
