"""The places in an author's model that calls come from, as spans of TVM's on the calls themselves.

A script's calls have theirs from TVM's parser.  An imported model has no text: the span is named after the
part of the model, such as a node or the path of a module, and has the line of a source file or none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import Call, SourceName, Span

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.program.ir import Var
from symalloc.relax.ir_types import BindingNode, CallNode, Node, VarNode, bound, elements, typed_call
from symalloc.relax.rewrite import map_bindings

_INSTALLED = "/site-packages/"


def place_span(part: str, file: str = "", line: int = 0) -> Node:
    """A span for the place `part` of a model, in that line of `file`; either may be ""."""
    name = f"{part} at {file}" if part and file else part or file
    return Span(SourceName(name), line, line, 0, 0)


def place_text(span: Node | None) -> str:
    """The place at `span` for a person: `model.py:12`, `layers.0 at model.py:12`, `node_7`; "" for None."""
    if span is None:
        return ""
    name, line = str(span.source_name.name), int(span.line)
    if line <= 0:
        return name
    part, at, file = name.rpartition(" at ")
    return f"{part}{at}{_short(file, str(Path.cwd()))}:{line}"


def at_place(call: CallNode, span: Node) -> CallNode:
    """`call` with that span."""
    return typed_call(call.op, elements(call.args), call.ty, call.ty_args, span, call.attrs)


def place_of(value: Node | None) -> Node | None:
    """The span of `value` where it is a call that has one."""
    return value.span if isinstance(value, Call) else None


def source_of(binding: object) -> str:
    """The place of what `binding` binds, for a person; "" where none is known."""
    return place_text(place_of(getattr(binding, "value", None)))


def sources_in(analysis: FunctionAnalysis) -> Mapping[Var, str]:
    """The places that the calls of a function come from, by the variables that they are bound to."""
    found = ((one.var, source_of(one.handle)) for _, one in analysis.cfg.instructions)
    return {var: place for var, place in found if place}


@lru_cache(maxsize=256)
def _short(file: str, here: str) -> str:
    """`file` relative to the directory `here`, or to where packages are installed, if it lies there."""
    if _INSTALLED in file:
        return file.rpartition(_INSTALLED)[2]
    return os.path.relpath(file, here) if Path(file).is_relative_to(here) else file


Finder = Callable[[VarNode, CallNode], Node | None]
"""The span for a call without one that is bound to a variable; None where nothing is known."""


def map_places(module: tvm.IRModule, find: Finder) -> tvm.IRModule:
    """`module` with the spans that `find` gives for its calls without one; nothing else changes."""

    def placed(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value, lacks = binding.value, type(binding) is relax.VarBinding and type(binding.value) is Call
        span = find(binding.var, value) if lacks and value.span is None else None
        return None if span is None else [bound(binding.var, at_place(value, span))]

    return map_bindings(module, placed)
