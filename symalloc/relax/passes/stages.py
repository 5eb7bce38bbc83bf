"""A module at the stages of TVM's own compilation pipeline.

The passes are not listed here: TVM's pipeline runs as it is in relax.build, and who runs its passes keeps the
module after each of them, names the one that is running, and leaves out those that come after the last one
that is wanted.  An instrument has a module checked after every pass; what a check is comes from
outside, for this room knows no rules.

Most pipelines are Python functions that build their passes when they are called, and Python code runs a pass
by calling it.  So whoever wants other passes than a pipeline's own takes over these calls, for any target.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.instrument import PassInstrument, pass_instrument
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.target import Target

from symalloc.errors import UsageError, require_choice, shown
from symalloc.program.reading import AS_IS, STAGES, PipelineName
from symalloc.relax.extract.calls import MEMORY_OPERATORS
from symalloc.relax.ir_types import Node, calls_of, error_text, relax_functions
from symalloc.relax.passes.canonical_kernels import canonical_kernels


def target_of(value: object) -> Target:
    """The target that `value` is or names; raises UsageError."""
    if not isinstance(value, str | Target):
        raise UsageError(f"target is {shown(value)}; it must be the name of a target of TVM, or a Target")
    try:
        return Target(value)
    except Exception as error:  # TVM raises several kinds
        raise UsageError(f"target is {shown(value)}: {error_text(error)}") from None


def require_pipeline(value: object) -> None:
    """Raise UsageError for what is no pass, and not the name of a pipeline of symalloc."""
    if not isinstance(value, Pass):
        require_choice("pipeline", value, get_args(PipelineName))


PLANNER = "StaticPlanBlockMemory"
OPAQUE = "_pipeline"  # the name of the functions that TVM's pipelines are
UNNAMED = "sequential"  # of a Sequential that was given no other name
KILLS = "KillAfterLastUse"
STORAGES_MADE = "LowerAllocTensor"  # the pass behind which every storage is explicit

_OURS_BESIDE = frozenset(
    {PLANNER, "RewriteCUDAGraph", "ComputePrimValue", "VMShapeLower", STORAGES_MADE, KILLS}
)

_GRAPHS = "relax.backend.use_cuda_graph"


def tvm_pipeline(target: tvm.target.Target, name: PipelineName = "default") -> Pass:
    """TVM's own pipeline: "default" is what `relax.build` runs for `target`, "target" the target's own, which
    fuses operators.

    They differ on a CPU only.  Where TVM has no pipeline for a target, both are its general one.
    """
    if name == "target" or "gpu" in target.keys:
        try:
            return relax.get_default_pipeline(target)
        except (ValueError, AttributeError):  # those that relax.build takes for "there is none"
            pass
    return relax.get_pipeline("default")


def captures_graphs() -> bool:
    """Return whether RewriteCUDAGraph, run now, captures what it can."""
    return bool(PassContext.current().config.get(_GRAPHS, False))


def opened(one: Pass) -> Iterator[Pass]:
    """The passes of a sequence; some, such as FuseTIR, are sequences themselves, and stay one pass."""
    if isinstance(one, Sequential) and (one.info.name == UNNAMED or _holds_ours(one)):
        for part in one.passes:
            yield from opened(part)
    else:
        yield one


def _holds_ours(one: Pass) -> bool:
    """Return whether a pass that ours stand beside is in a sequence."""
    inner = one.passes if isinstance(one, Sequential) else ()
    return one.info.name in _OURS_BESIDE or any(map(_holds_ours, inner))


# -- calls of passes -----------------------------------------------------------------------------------------

PassRunner: TypeAlias = Callable[[Pass, tvm.IRModule], tvm.IRModule]

_RUNNER: ContextVar[PassRunner | None] = ContextVar("symalloc_pass_runner")
_everywhere: PassRunner | None = None
_lock = threading.Lock()
_holding = 0  # contexts in which `Pass.__call__` is another function than TVM's
_call = Pass.__call__


@contextmanager
def passes_run_by(run: PassRunner | None) -> Iterator[None]:
    """Within, `run` runs each pass that Python code of this thread calls; None: passes run as they are."""
    _hold(1)
    token = _RUNNER.set(run)
    try:
        yield
    finally:
        _RUNNER.reset(token)
        _hold(-1)


def passes_run_everywhere_by(run: PassRunner) -> None:
    """Let all threads do so from now on, except within `passes_run_by`."""
    global _everywhere
    if _everywhere is None:
        _hold(1)
    _everywhere = run


def run_pass(one: Pass, module: tvm.IRModule) -> tvm.IRModule:
    """`module` behind the pass itself."""
    return _call(one, module)


def _hold(more: int) -> None:
    """Count the contexts; TVM's own way of calling a pass is back behind the last."""
    global _holding, _call
    with _lock:
        if _holding == 0:
            _call = Pass.__call__
        _holding += more
        Pass.__call__ = _run_by_runner if _holding else _call


def _run_by_runner(called: Pass, module: tvm.IRModule) -> tvm.IRModule:
    return (_RUNNER.get(_everywhere) or run_pass)(called, module)


ALLOCATED = "CallTIRRewrite"
# FoldConstant compiles kernels of the module and runs them; a linter must not
_EXECUTES = frozenset({"FoldConstant"})
_WRAPPERS = frozenset({UNNAMED, OPAQUE, "symalloc"})
_MEMORY_OPERATIONS = MEMORY_OPERATORS.keys() - {
    "relax.builtin.alloc_tensor",
    "relax.memory.ensure_zero_offset",
    "relax.memory.view",
    "relax.vm.call_tir_dyn",
}
"""Those that place tensors on storages, or kill."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module after the pass `stage`."""

    stage: str
    mod: tvm.IRModule


class UnknownPassError(Exception):
    """The pipeline has no pass `name`; it has `passes`."""

    def __init__(self, name: str, passes: Sequence[str]) -> None:
        super().__init__(f"the pipeline has no pass {name}")
        self.name, self.passes = name, tuple(dict.fromkeys(passes))


class PassFailedError(Exception):
    """A pass of TVM raised; `stage` names it (empty before the first), the text is what TVM says, without its
    stack.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclass(frozen=True, slots=True)
class WantedStages:
    """The passes of the pipeline after which a module is read: those of `names`, or all from `first` on.

    Passes inside other passes do not count.  Those behind the last of `names` are not run.
    """

    names: tuple[str, ...] = ()
    first: str = ""


def wanted_stages(stage: str, planned: bool) -> tuple[bool, WantedStages | None]:
    """(whether the module is read as it stands, which passes to read it after, None for no lowering).

    `planned`: whether the module already holds memory operations, in which case TVM plans nothing more for
    it.
    """
    if stage not in STAGES:
        return False, WantedStages((stage,))
    if stage == AS_IS or (planned and stage == "auto"):
        return True, None
    if stage == "all":
        return True, WantedStages(first=ALLOCATED)
    if planned:
        return True, None
    return stage == "auto", WantedStages((PLANNER, KILLS))


def lower(
    mod: tvm.IRModule,
    target: str,
    *,
    wanted: WantedStages,
    keep: Callable[[Lowered], object],
    entering: Callable[[str], object] = lambda _: None,
    trust: bool = False,
    pipeline: PipelineName = "default",
) -> None:
    """Run TVM's pipeline for `target` on `mod`, and `keep` it after every pass that is wanted.

    `keep` is called while the pipeline runs, so that what came before a crash is not lost; `entering` is told
    the name of each pass before it runs.  `pipeline` is that of `tvm_pipeline`.  Raises PassFailedError, and
    UnknownPassError where there is no such pass.
    """
    given = frozenset(v.name_hint for v in mod.get_global_vars())
    skip = frozenset[str]() if trust else _EXECUTES
    stages = _Stages(wanted=wanted, keep=keep, entering=entering, given=given, skip=skip)
    try:
        chosen = tvm.target.Target(target)
        passes = tvm_pipeline(chosen, pipeline)
        context = tvm.transform.PassContext(opt_level=2, disabled_pass=[*skip])
        with chosen, context, passes_run_by(stages):
            passes(mod)
    except Exception as error:  # a pass raises whatever it raises
        raise PassFailedError(stages.running, error_text(error)) from error
    for name in set(wanted.names).difference(stages.seen):
        raise UnknownPassError(name, stages.seen)


def instrument(name: str, **methods: Callable[..., object]) -> PassInstrument:
    """An instrument as TVM takes it: it wraps classes, and its wrapper hides their fields."""
    return pass_instrument(type(name, (), {at: staticmethod(method) for at, method in methods.items()}))()


@dataclass(slots=True, kw_only=True)
class _Stages:
    """Runs the passes that a pipeline calls, and hands on the module behind those that are wanted.

    `seen` are the passes so far, in order; those in `skip` do nothing, wherever they are called.
    In front of the planning of memory kernels get names free of chance, unless they were `given`.
    """

    wanted: WantedStages
    keep: Callable[[Lowered], object]
    entering: Callable[[str], object]
    given: frozenset[str]
    skip: frozenset[str]
    running: str = ""
    seen: list[str] = field(default_factory=list)

    def __call__(self, called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        """`module` behind a pass or a sequence; what is called within a pass is part of it."""
        for one in opened(called):
            name = str(one.info.name)
            if name in _WRAPPERS:
                module = run_pass(one, module)
            elif not self.wanted.names or not {*self.wanted.names} <= {*self.seen}:
                module = self.behind(one, name, module)
        return module

    def behind(self, one: Pass, name: str, module: tvm.IRModule) -> tvm.IRModule:
        """`module` behind one pass."""
        if name not in self.skip:
            self.running = name
            self.entering(name)
        with passes_run_by(self.inner):
            module = run_pass(Sequential([one]), module)
        if name == ALLOCATED:
            module = canonical_kernels(module, self.given)
        first, names = self.wanted.first, self.wanted.names
        wanted = (name in names and name not in self.seen) or (bool(first) and first in (name, *self.seen))
        self.seen.append(name)
        if wanted:
            self.keep(Lowered(name, module))
        return module

    def inner(self, called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        """`module` behind a pass that another one calls."""
        return module if called.info.name in self.skip else run_pass(called, module)


def has_memory_operations(mod: Node) -> bool:
    """Return whether any Relax function of `mod` already places tensors on storages or kills them."""
    return any(True for _ in calls_of(mod, _MEMORY_OPERATIONS))


# -- a module checked after every pass -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error or warning in a module: the rule that it breaks, the function it is in, and what is wrong,
    for a person.
    """

    rule: str
    function: str
    text: str
    error: bool = True


Mode: TypeAlias = Literal["raise", "warn"]
Check: TypeAlias = Callable[[tvm.IRModule, str], Sequence[MemoryFault]]


class VerificationError(Exception):
    """A pass left a module with a memory fault that it did not have before.

    Built from the text alone: TVM's pass runner keeps nothing else of an exception.
    """


class VerificationWarning(UserWarning):
    """The same as a warning."""


tvm_ffi.register_error(VerificationError)  # or it leaves TVM's pass runner as a RuntimeError


def make_instrument(check: Check, mode: Mode = "raise") -> PassInstrument:
    """A pass instrument that calls `check(module, pass name)` after every pass that leaves memory operations.

    Faults that the module had before the pass are not charged to it; of nested passes the innermost is
    named.  Raises VerificationError through the pass for errors, unless `mode` is "warn"; warns with
    VerificationWarning of all else.
    """
    watch = _Watch(check, mode)
    return instrument(
        "VerifyMemory",
        enter_pass_ctx=watch.reset,
        exit_pass_ctx=watch.reset,
        run_before_pass=watch.before,
        run_after_pass=watch.after,
    )


class _Watch:
    """Follows one module through nested passes.

    Invariant: `known` counts the faults of the module as it last was, by rule, function and severity.
    """

    def __init__(self, check: Check, mode: Mode) -> None:
        self._check, self._mode = check, mode
        self.reset()

    def reset(self) -> None:
        """Forget everything: a context begins, or ends (also by an exception)."""
        self._depth = 0
        self._known: Counter[tuple[str, str, bool]] = Counter()

    def before(self, module: Node, info: Node) -> None:
        """At the outermost pass, note the faults that are there already."""
        self._depth += 1
        if self._depth == 1:
            self._known = Counter(map(_key, self._faults(module, info)))

    def after(self, module: Node, info: Node) -> None:
        """Charge the pass with the faults that were not there before."""
        self._depth -= 1
        if not relax_functions(module):
            return  # a part of the module under way, on which a pass runs another one
        faults = self._faults(module, info)
        found = Counter(map(_key, faults))
        added, self._known = found - self._known, found
        if info.name not in _WRAPPERS:
            self._report(str(info.name), [f for f in faults if _key(f) in added])

    def _faults(self, module: Node, info: Node) -> Sequence[MemoryFault]:
        return self._check(module, str(info.name)) if has_memory_operations(module) else ()

    def _report(self, name: str, faults: Sequence[MemoryFault]) -> None:
        """Warn of the warnings, then raise (or warn of) the errors."""
        for error, what in ((False, "possible memory fault"), (True, "memory fault")):
            found = [f for f in faults if f.error is error]
            if not found:
                continue
            rules = ", ".join(sorted({f.rule for f in found}))
            many = f"a {what}" if len(found) == 1 else f"{len(found)} {what}s"
            texts = "\n".join(f.text.rstrip() for f in found)
            text = f"{name} brings in {many} ({rules}):\n{texts}"
            if error and self._mode == "raise":
                raise VerificationError(text)
            warnings.warn(VerificationWarning(text), stacklevel=2)


def _key(fault: MemoryFault) -> tuple[str, str, bool]:
    return fault.rule, fault.function, fault.error
