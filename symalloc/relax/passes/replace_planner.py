"""PlanMemory in pipelines that make TVM's planner themselves.

Python code runs a pass by calling it: a pipeline, and each sequence that a pipeline makes in turn.  While a
replacement holds, what is called runs with ours where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import tvm
from tvm.ir.transform import Pass, Sequential

from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.passes.name_tensors import NameTensors
from symalloc.relax.passes.pass_sequence import PATCHING, PLANNER, REPLACING
from symalloc.relax.passes.pipeline import STORAGES_MADE, beside
from symalloc.relax.passes.plan_pass import PlanMemory


@dataclass(frozen=True, slots=True)
class Replacement:
    """The options of the planner that stands for TVM's, and whether tensors are named behind it."""

    options: PlanOptions
    names: bool = False


_call = Pass.__call__
_holding = 0  # replacements
_everywhere: Replacement | None = None


@contextmanager
def replace_planner(options: PlanOptions, *, names: bool = False) -> Iterator[None]:
    """Within, pipelines that this thread runs plan with PlanMemory where TVM's planner stands."""
    _hold(1)
    token = REPLACING.set(Replacement(options, names))
    try:
        yield
    finally:
        REPLACING.reset(token)
        _hold(-1)


def replace_planner_everywhere(options: PlanOptions) -> None:
    """Let all threads do so from now on, except where `replace_planner` says otherwise."""
    global _everywhere
    if _everywhere is None:
        _hold(1)
    _everywhere = Replacement(options)


def _hold(more: int) -> None:
    """Count the replacements that hold; TVM's own way of calling a pass is back behind the last."""
    global _holding, _call
    with PATCHING:
        if _holding == 0:
            _call = Pass.__call__
        _holding += more
        Pass.__call__ = _call_replaced if _holding else _call


def _call_replaced(called: Pass, module: tvm.IRModule) -> tvm.IRModule:
    ours = REPLACING.get(_everywhere)
    if isinstance(ours, Replacement):
        called, *behind = _replaced(called, ours)
        called = Sequential([called, *behind]) if behind else called
    return _call(called, module)


def _replaced(one: Pass, by: Replacement, before: str = "") -> list[Pass]:
    """`one`, which stands behind the pass `before`, with ours beside it, or within it if it is a sequence."""
    if one.info.name == PLANNER:
        return [PlanMemory(by.options)]
    if not isinstance(one, Sequential):
        named = [NameTensors()] if by.names and one.info.name == STORAGES_MADE else []
        return [*beside(one, before), *named]
    parts = list(one.passes)
    names = ["", *(str(part.info.name) for part in parts)]
    renewed = [ours for part, name in zip(parts, names, strict=False) for ours in _replaced(part, by, name)]
    if len(parts) == len(renewed) and all(map(Pass.same_as, parts, renewed)):
        return [one]
    info = one.info
    return [Sequential(renewed, info.opt_level, info.name, list(info.required), info.traceable)]
