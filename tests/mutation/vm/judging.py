"""What running a mutant shows, and what the linter says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import relax

import symalloc
from tests.mutation.vm.forked import Ended, in_child
from tests.mutation.vm.guarded_memory import load_guarded
from tests.mutation.vm.invocations import (
    Binding,
    Invocation,
    at,
    generic_bindings,
    public_functions,
    symbols_of,
)
from tests.mutation.vm.kernel_library import KernelLibrary
from tests.mutation.vm.observing import Observation, VmFault, differences, make_ready

__all__ = [
    "Finding",
    "Judgement",
    "Subject",
    "UnusableError",
    "VmOracle",
    "counterexamples",
    "lint_in_child",
]

_LARGEST = 1 << 11  # of a symbol in a counterexample that is run
_MOST_CALLS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A module to be mutated: `finish` runs the rest of the pipeline on it or on a mutant.

    `bindings`: at which values of their symbols its functions are called, `fixed` among others.
    """

    name: str
    module: tvm.IRModule
    finish: Callable[[tvm.IRModule], tvm.IRModule]
    bindings: tuple[Binding, ...] = ()
    fixed: Binding = field(default_factory=dict)

    def invocations(self, functions: Iterable[str]) -> list[Invocation]:
        """The calls that are made of `functions`."""
        found: dict[Invocation, None] = {}
        for function in functions:
            bindings = self.bindings or generic_bindings(self.module[function], self.fixed)
            for binding in bindings:
                found |= dict.fromkeys(at(self.module, function, binding))
        return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the linter says."""

    rule: str
    severity: str
    function: str
    message: str
    counterexample: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What running shows: faults, and whether the well-defined calls give what the original gives.

    `unbuilt`: why the mutant never runs, None where it does.
    """

    faults: tuple[VmFault, ...]
    same: bool
    unbuilt: str | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its faults."""
        return frozenset(f.kind for f in self.faults)


class UnusableError(Exception):
    """The unchanged module cannot be judged by this oracle; the text says why."""


class VmOracle:
    """A subject, built, with what its calls do: what its mutants are compared with."""

    def __init__(self, subject: Subject) -> None:
        load_guarded()
        self.subject = subject
        with tvm.target.Target("llvm"):
            self._library = KernelLibrary(subject.finish(subject.module))
        self.excluded: list[VmFault] = []
        self._usual: dict[Invocation, frozenset[str]] = {}
        self._entered = set(public_functions(subject.module))
        self._expected = self._expect(subject.invocations(sorted(self._entered)))
        self._expected |= self._expect(subject.invocations(self._unentered()))
        if all(o.error or self._usual[i] for i, o in self._expected.items()):
            seen = self.excluded or [o.error for o in self._expected.values()]
            raise UnusableError(f"no call is right: {seen[:1]}")

    def judge(
        self,
        mutant: tvm.IRModule,
        more: Iterable[Invocation] = (),
        reference: tvm.IRModule | None = None,
    ) -> Judgement:
        """What running `mutant` shows; `more`: calls to be made where the subject's own show nothing.

        `reference`: a module whose results it must give; None where they may be any.
        """
        found = self._compare(mutant, self._expected)
        if reference is not None:
            found = self._compare_results(found, mutant, reference)
        extra = [i for i in more if i not in self._expected]
        if found.faults or found.unbuilt or not extra:
            return found
        try:
            expected = self._expect(extra)
        except UnusableError:
            return found
        return self._compare(mutant, expected, same=found.same)

    def _compare_results(self, found: Judgement, mutant: tvm.IRModule, reference: tvm.IRModule) -> Judgement:
        ours, right = (self._run(mod, self._expected).observed for mod in (mutant, reference))
        faults = [
            VmFault(kind="operand-used-later", what="read when it was overwritten", invocation=i, run="plain")
            for i in ours.keys() & right.keys()
            if differences(ours[i][1], right[i][1])
        ]
        return replace(found, faults=(*found.faults, *faults), same=found.same and not faults)

    def _unentered(self) -> list[str]:
        """The functions that no call has come to: what is there for sizes beyond all machines."""
        functions = [g for g, f in self.subject.module.functions_items() if isinstance(f, relax.Function)]
        return sorted({str(g.name_hint) for g in functions} - self._entered)

    def _expect(self, invocations: Iterable[Invocation]) -> dict[Invocation, Observation]:
        """What the unchanged module does; calls at which it crashes are left out."""
        pending, expected = list(invocations), {}
        while pending:
            seen = self._run(self.subject.module, pending)
            if seen.unbuilt:
                raise UnusableError(seen.unbuilt)
            for invocation, (traced, plain) in seen.observed.items():
                self._entered |= traced.entered
                expected[invocation] = plain
                faults = _faults(plain, traced, plain)
                self.excluded += faults[:1]
                self._usual[invocation] = frozenset(f.kind for f in faults)
            self.excluded += seen.deaths
            done = {*seen.observed, *(f.invocation for f in seen.deaths)}
            pending = [i for i in pending if i not in done]
        return expected

    def _compare(
        self, mutant: tvm.IRModule, expected: Mapping[Invocation, Observation], *, same: bool = True
    ) -> Judgement:
        seen = self._run(mutant, expected, expected)
        faults = list(seen.deaths)
        for invocation, (traced, plain) in seen.observed.items():
            faults += self._beyond(expected[invocation], traced, plain)
            same = same and not differences(expected[invocation], plain)
        return Judgement(faults=tuple(faults), same=same and not faults, unbuilt=seen.unbuilt)

    def _beyond(self, expected: Observation, traced: Observation, plain: Observation) -> list[VmFault]:
        """The faults of one call of a kind that the unchanged module's call does not have."""
        usual = self._usual.get(plain.invocation, frozenset())
        return [f for f in _faults(expected, traced, plain) if f.kind not in usual]

    def _run(
        self,
        mod: tvm.IRModule,
        invocations: Iterable[Invocation],
        expected: Mapping[Invocation, Observation] | None = None,
    ) -> _Seen:
        """Call `mod`; where it is told what to expect, no further than to the first fault."""

        def action(tell: Tell) -> None:
            try:
                ready = make_ready(mod, self.subject.finish, self._library)
            except Exception as error:  # a pass, or code generation, raises whatever it raises
                tell(_Unbuilt(f"{type(error).__name__}: {error}"[:500]))
                return
            for invocation in invocations:
                tell(_Entering(invocation, "the machine"))
                traced = ready.traced(invocation, lambda what: tell(_Entering(invocation, what)))  # noqa: B023
                tell(traced)
                tell(_Entering(invocation, "a plain run"))
                plain = ready.plain(invocation)
                tell(_Done(invocation, traced, plain))
                if expected is not None and self._beyond(expected[invocation], traced, plain):
                    return

        return _Seen.of(in_child(action))


Tell = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class _Unbuilt:
    reason: str


@dataclass(frozen=True, slots=True)
class _Entering:
    invocation: Invocation
    what: str


@dataclass(frozen=True, slots=True)
class _Done:
    invocation: Invocation
    traced: Observation
    plain: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What came out of one child: for each call the traced run and the plain one."""

    observed: Mapping[Invocation, tuple[Observation, Observation]]
    deaths: Sequence[VmFault]
    unbuilt: str | None

    @classmethod
    def of(cls, ended: Ended) -> _Seen:
        unbuilt = next((m.reason for m in ended.told if isinstance(m, _Unbuilt)), None)
        entered = [m for m in ended.told if isinstance(m, _Entering)]
        own = next((m for m in ended.told if isinstance(m, BaseException)), None)
        if own is not None:
            raise own
        if ended.died and not entered:
            unbuilt = f"compiling it ends with {ended.died}"
        deaths = [_death(entered[-1], ended.died)] if ended.died and entered else []
        traced = [m for m in ended.told if isinstance(m, Observation)]
        deaths += [f for m in traced if deaths and m.invocation == deaths[0].invocation for f in m.faults]
        done = [m for m in ended.told if isinstance(m, _Done)]
        return cls(observed={m.invocation: (m.traced, m.plain) for m in done}, deaths=deaths, unbuilt=unbuilt)


def _death(last: _Entering, how: str) -> VmFault:
    run = "plain" if last.what == "a plain run" else "traced"
    return VmFault(kind="crash", what=f"{how} in {last.what}", invocation=last.invocation, run=run)


def _faults(expected: Observation, traced: Observation, plain: Observation) -> list[VmFault]:
    """The faults of one call.  Where the original is stopped by a check, another check may stop it."""
    found = [f for f in (*traced.faults, *plain.faults) if not (expected.error and f.kind == "refused")]
    if found or traced.error or plain.error or not differences(traced, plain):
        return found
    what = "a kernel does something else when its arguments lie apart"
    return [VmFault(kind="arguments-overlap", what=what, invocation=plain.invocation, run="both")]


def lint_in_child(mod: tvm.IRModule) -> Sequence[Finding]:
    """What the linter says of `mod`; RuntimeError where it fails."""

    def action(tell: Tell) -> None:
        for d in symalloc.lint(mod, stage="as-is"):
            tell(
                Finding(
                    rule=d.rule,
                    severity=str(d.severity),
                    function=d.function,
                    message=d.one_line,
                    counterexample=tuple(sorted((d.counterexample or {}).items())),
                )
            )

    ended = in_child(action)
    errors = [m for m in ended.told if not isinstance(m, Finding)]
    if errors or ended.died:
        raise RuntimeError(f"the linter fails: {errors} {ended.died}")
    return ended.told


def counterexamples(mod: tvm.IRModule, findings: Iterable[Finding]) -> list[Invocation]:
    """The calls at which errors are said to show, where they are small enough to be made."""
    found: dict[Invocation, None] = {}
    public = public_functions(mod)
    for finding in findings:
        values = dict(finding.counterexample)
        if finding.severity != "error" or not all(0 <= v <= _LARGEST for v in values.values()):
            continue
        for name in [finding.function] if finding.function in public else public:
            binding = {symbol: values.get(symbol, 3) for symbol in symbols_of(mod[name])}
            found |= dict.fromkeys(at(mod, name, binding))
    return list(found)[:_MOST_CALLS]
