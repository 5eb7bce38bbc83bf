"""TVM's pipelines, and a hand in how they run.

Most of them are Python functions that build their passes when they are called, and Python code runs a pass by
calling it.  So whoever wants other passes than a pipeline's own takes over these calls, for any target.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, get_args

import tvm
from tvm import relax
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.target import Target

from symalloc.errors import UsageError, require_choice, shown
from symalloc.program.reading import PipelineName
from symalloc.relax.tvm_error import error_text


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
