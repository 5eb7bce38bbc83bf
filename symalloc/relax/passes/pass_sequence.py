"""The passes that a pipeline of TVM's runs, as a list.

Most of TVM's pipelines are Python functions that build their passes when they are called.  So a pipeline is
called with every pass that Python code runs recorded, not run: what is in it is found, for any target.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import get_args

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.target import Target

from symalloc.arguments import require_choice, shown
from symalloc.errors import UsageError
from symalloc.program.reading import PipelineName
from symalloc.relax.tvm_error import error_text


def require_target(value: object) -> None:
    """Raise UsageError for what can be no target; which names it knows TVM says itself."""
    if not isinstance(value, str | Target):
        raise UsageError(f"target is {shown(value)}; it must be the name of a target of TVM, or a Target")


def target_of(value: object) -> Target:
    """The target that `value` is or names; raises UsageError."""
    require_target(value)
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

_GRAPHS = "relax.backend.use_cuda_graph"
PATCHING = threading.RLock()
"""Held while `Pass.__call__` is another function than TVM's, or becomes one."""
REPLACING: ContextVar[object] = ContextVar("symalloc_replacing")
"""The options of the planner that stands for TVM's in this thread; None where none does."""


class NoPlannerError(Exception):
    """A pipeline runs no pass that plans memory: there is no place for ours."""


tvm_ffi.register_error(NoPlannerError)  # or it leaves TVM's pass runner as a RuntimeError


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


@contextmanager
def as_tvm_has_them() -> Iterator[None]:
    """Within, the passes that this thread calls run as they are: nothing replaces TVM's planner."""
    token = REPLACING.set(None)
    try:
        yield
    finally:
        REPLACING.reset(token)


def captures_graphs() -> bool:
    """Return whether RewriteCUDAGraph, run now, captures what it can."""
    return bool(PassContext.current().config.get(_GRAPHS, False))


def passes_of(pipeline: Pass, module: tvm.IRModule, target: tvm.target.Target) -> list[Pass]:
    """The passes that `pipeline` runs on `module` for `target`, in order, each plain Sequential taken apart.

    `module` stays as it is: a pipeline that looks at what its own passes made sees what went in.
    """
    with target:
        if isinstance(pipeline, Sequential):
            return [*_flat(pipeline, module)]
        return [part for one in _recorded(pipeline, module) for part in _flat(one, module)]


def around_planner(passes: Sequence[Pass]) -> tuple[list[Pass], list[Pass]]:
    """The passes in front of the first that plans memory, and those behind it; raises NoPlannerError."""
    names = [str(one.info.name) for one in passes]
    if PLANNER not in names:
        ran = ", ".join(names) or "nothing"
        raise NoPlannerError(f"the pipeline has no {PLANNER}, whose place is ours; it runs {ran}")
    place = names.index(PLANNER)
    behind = zip(passes[place + 1 :], names[place + 1 :], strict=True)
    return list(passes[:place]), [one for one, name in behind if name != PLANNER]


def _flat(one: Pass, module: tvm.IRModule) -> Iterator[Pass]:
    if isinstance(one, Sequential) and _is_opened(one):
        parts: Sequence[Pass] = list(one.passes)
    elif str(one.info.name) == OPAQUE:
        parts = _recorded(one, module)
    else:
        yield one
        return
    for part in parts:
        yield from _flat(part, module)


def _is_opened(one: Sequential) -> bool:
    """Return whether a sequence is a mere list of passes, or holds the planner: some passes, such as FuseTIR,
    are sequences themselves.
    """
    return one.info.name == UNNAMED or _holds_planner(one)


def _holds_planner(one: Pass) -> bool:
    inner = one.passes if isinstance(one, Sequential) else ()
    return one.info.name == PLANNER or any(map(_holds_planner, inner))


def _recorded(pipeline: Pass, module: tvm.IRModule) -> list[Pass]:
    """The passes that the function behind `pipeline` calls, none of which runs.

    Instruments of the context that is current are not told of this.
    """
    now = PassContext.current()
    bare = PassContext(now.opt_level, now.required_pass, now.disabled_pass, config=dict(now.config))
    run = Pass.__call__
    with _calls_recorded() as found, bare:
        run(pipeline, module)
    return found


@contextmanager
def _calls_recorded() -> Iterator[list[Pass]]:
    """Within, passes that this thread calls do nothing and are in the list that is given."""
    found: list[Pass] = []
    run, here = Pass.__call__, threading.get_ident()

    def record(called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        if threading.get_ident() != here:
            return run(called, module)
        found.append(called)
        return module

    with PATCHING:
        Pass.__call__ = record
        try:
            yield found
        finally:
            Pass.__call__ = run
