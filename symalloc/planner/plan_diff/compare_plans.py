"""Compares the plans of two modules function by function, at all shapes and at sample bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from symalloc.planner.plan_diff.plan_record import MEASURES, FunctionRecord, Measure, TensorRecord
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Proof, Verdict
from symalloc.shown import counted, to_text
from symalloc.size.choice import maximum
from symalloc.size.condition import conjunction, le
from symalloc.size.evaluation import highest
from symalloc.size.expr import ZERO, Expr
from symalloc.size.sign import is_nonnegative

MOST_SUMS = 64  # of a formula that the prover is asked about

Pair: TypeAlias = tuple[TensorRecord, TensorRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChanges:
    """Tensors of a plan against those of another: `resized` have another size, `moved` another offset only.

    A tensor with another name, but with the operator and the size of one that is gone, is the same.
    """

    new: tuple[TensorRecord, ...] = ()
    gone: tuple[TensorRecord, ...] = ()
    resized: tuple[Pair, ...] = ()
    moved: tuple[Pair, ...] = ()


_SAME: Sequence[Callable[[TensorRecord], Hashable]] = (
    lambda one: (one.callee, one.name, one.operator, one.size),
    lambda one: (one.callee, one.operator, one.size),
    lambda one: (one.callee, one.name, one.operator),
)
"""The ways in which tensors are known again: those before another go first."""


def compare_tensors(before: Sequence[TensorRecord], after: Sequence[TensorRecord]) -> TensorChanges:
    """Compare the tensors of two plans, both in the order of allocation."""
    gone, new = list(before), list(after)
    pairs: list[Pair] = []
    for key in _SAME:
        pairs += _paired(gone, new, key)
    return TensorChanges(
        new=tuple(new),
        gone=tuple(gone),
        resized=tuple(pair for pair in pairs if pair[0].size != pair[1].size),
        moved=tuple(p for p in pairs if p[0].size == p[1].size and p[0].offset != p[1].offset),
    )


def _paired(
    gone: list[TensorRecord], new: list[TensorRecord], key: Callable[[TensorRecord], Hashable]
) -> list[Pair]:
    """Take tensors with equal keys out of both lists, the first of one with the first of the other."""
    waiting: dict[Hashable, list[TensorRecord]] = {}
    for one in gone:
        waiting.setdefault(key(one), []).append(one)
    pairs = [(waiting[key(one)].pop(0), one) for one in new if waiting.get(key(one))]
    taken = {id(one) for pair in pairs for one in pair}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownAt:
    """A shape at which the bytes grew; `proved` by the prover, `smallest` such shape, `always`: at each."""

    binding: Mapping[str, int]
    before: int
    after: int
    proved: bool
    smallest: bool = False
    always: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureChange:
    """The bytes of one measure before and after, the largest of some sums; None where they are no formula."""

    measure: Measure
    before: tuple[Expr, ...] | None
    after: tuple[Expr, ...] | None
    trend: Trend
    grown: GrownAt | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleChange:
    """The bytes of each measure before and after at one binding; None where they are not known.

    `counts` is false for a shape that is not compared: with an empty dimension, or beyond the bounds.
    """

    binding: Mapping[str, int]
    before: Mapping[Measure, int | None]
    after: Mapping[Measure, int | None]
    counts: bool

    @property
    def is_known(self) -> bool:
        """True if some of the bytes are known."""
        return any(nbytes is not None for nbytes in (*self.before.values(), *self.after.values()))

    def factor(self, measure: Measure) -> float | None:
        """Bytes after over bytes before."""
        return _over(self.after[measure], self.before[measure])

    def ratios(self) -> tuple[float | None, float | None]:
        """Arena over floor, before and after."""
        before, after = self.before, self.after
        return _over(before["arenas"], before["floor"]), _over(after["arenas"], after["floor"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDiff:
    """The difference between two plans of one function; `guards_gone` and `guards_new` are conditions."""

    function: str
    measures: tuple[MeasureChange, ...]
    samples: tuple[SampleChange, ...]
    tensors: TensorChanges
    guards_gone: tuple[str, ...]
    guards_new: tuple[str, ...]

    @property
    def peak(self) -> MeasureChange:
        """The change that counts: of a whole call, or of the arenas where a whole call was no formula."""
        call, arenas, *_ = self.measures
        return arenas if call.before is None else call

    @property
    def grew(self) -> bool:
        """True where the peak is more at some shape, cannot be compared, or was not decided."""
        return self.peak.trend not in (Trend.SAME, Trend.NEVER_MORE)


def compare_function(
    before: FunctionRecord, after: FunctionRecord, bindings: Sequence[Mapping[str, int]], prover: Prover
) -> FunctionDiff:
    """Compare two plans of one function, at `bindings`, or where there are none at their samples."""
    shown = list(bindings) or _unique((*before.samples, *after.samples))
    samples = [_sample(before, after, at) for at in shown]
    told = tuple(one for one in samples if one.is_known)
    changes = tuple(_change(measure, before, after, told, prover) for measure in MEASURES)
    gone, new = Counter(before.guards), Counter(after.guards)
    return FunctionDiff(
        function=after.name,
        measures=changes,
        samples=told,
        tensors=compare_tensors(before.tensors, after.tensors),
        guards_gone=tuple((gone - new).elements()),
        guards_new=tuple((new - gone).elements()),
    )


def _change(
    measure: Measure,
    before: FunctionRecord,
    after: FunctionRecord,
    samples: Sequence[SampleChange],
    prover: Prover,
) -> MeasureChange:
    old, new = before.sums.get(measure), after.sums.get(measure)

    def change(trend: Trend, grown: GrownAt | None = None, reason: str = "") -> MeasureChange:
        return MeasureChange(
            measure=measure,
            before=old,
            after=new,
            trend=trend,
            grown=grown,
            reason=reason,
        )

    if old is None or new is None:
        return change(Trend.UNCOMPARED, reason="no formula is known")
    if frozenset(old) == frozenset(new):
        return change(Trend.SAME)
    only_old, only_new = _symbols(old) - _symbols(new), _symbols(new) - _symbols(old)
    if only_old and only_new:
        return change(
            Trend.UNCOMPARED, reason=f"only before: {_names(only_old)}; only after: {_names(only_new)}"
        )
    proof = _never_more(old, new, after, prover)
    if proof is not None and proof.holds:
        return change(Trend.NEVER_MORE)
    grown = _by_proof(old, new, proof, after.domain) or _by_samples(measure, samples)
    if grown is not None:
        return change(Trend.MORE, grown)
    return change(Trend.UNDECIDED, reason="not proved, and no more at the samples")


def _never_more(
    old: Sequence[Expr], new: Sequence[Expr], after: FunctionRecord, prover: Prover
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


def _by_samples(measure: Measure, samples: Iterable[SampleChange]) -> GrownAt | None:
    for sample in samples:
        before, after = sample.before[measure], sample.after[measure]
        if sample.counts and before is not None and after is not None and after > before:
            return GrownAt(binding=sample.binding, before=before, after=after, proved=False)
    return None


def _sample(before: FunctionRecord, after: FunctionRecord, at: Mapping[str, int]) -> SampleChange:
    compared = {name: value for name, value in at.items() if name in _names_in(before) | _names_in(after)}
    return SampleChange(
        binding=at,
        before=_bytes(before, at),
        after=_bytes(after, at),
        counts=after.domain.contains(compared),
    )


def _bytes(record: FunctionRecord, at: Mapping[str, int]) -> dict[Measure, int | None]:
    known = {measure: record.sums.get(measure) for measure in MEASURES}
    return {measure: None if sums is None else highest(sums, at) for measure, sums in known.items()}


def _names_in(record: FunctionRecord) -> frozenset[str]:
    sums = (one for sums in record.sums.values() for one in sums or ())
    return _symbols(sums) | record.bounds.keys() | record.signed


def _symbols(sums: Iterable[Expr]) -> frozenset[str]:
    return frozenset().union(*(one.symbols for one in sums))


def _names(symbols: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(symbols))


def _unique(bindings: Iterable[Mapping[str, int]]) -> list[Mapping[str, int]]:
    return list({tuple(sorted(at.items())): at for at in bindings}.values())


def _over(bytes_: int | None, base: int | None) -> float | None:
    if bytes_ is None or base is None:
        return None
    return bytes_ / base if base else (1.0 if bytes_ == 0 else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiff:
    """The difference between the plans of two modules; `new` and `gone` are functions of one of them only."""

    functions: tuple[FunctionDiff, ...]
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def grew(self) -> bool:
        """True where the peak of some function grew, cannot be compared, or was not decided."""
        return any(one.grew for one in self.functions)

    def __str__(self) -> str:
        """The difference as `symalloc diff` prints it."""
        return to_text(self)

    def __repr__(self) -> str:
        grown = [one.function for one in self.functions if one.peak.grown is not None]
        unknown = [one.function for one in self.functions if one.grew and one.peak.grown is None]
        parts = [f"{', '.join(grown)} grew"] * bool(grown) + [f"{', '.join(unknown)} not decided"] * bool(
            unknown
        )
        said = ", ".join(parts) or "nothing grew"
        return f"<PlanDiff: {said} in {counted(len(self.functions), 'function')}>"


def compare_plans(
    before: Sequence[FunctionRecord],
    after: Sequence[FunctionRecord],
    bindings: Sequence[Mapping[str, int]] = (),
) -> PlanDiff:
    """Compare the plans of the functions that two modules have in common.

    They are shown at `bindings`, or where there are none at those at which the plans were shown.
    """
    old, prover = {record.name: record for record in before}, Prover()
    names = {record.name for record in after}
    return PlanDiff(
        functions=tuple(
            compare_function(old[record.name], record, bindings, prover)
            for record in after
            if record.name in old
        ),
        new=tuple(record.name for record in after if record.name not in old),
        gone=tuple(name for name in old if name not in names),
    )
