"""TVM's nn.Module as an IRModule whose calls say which module, and which line of its code, they come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.exporter import Exporter
from tvm.relax.frontend.nn.spec import ModuleSpec

from symalloc.relax.ir_types import Node
from symalloc.relax.read.sourced_builder import SourcedBuilder
from symalloc.relax.source_spans import place_span

_TVM = str(Path(tvm.__file__).parent)


def export_sourced(network: nn.Module, spec: object) -> object:
    """The module that `network.export_tvm(spec)` gives, with the places of its calls.

    Those of a class that exports in a way of its own stay as they are.
    """
    if type(network).export_tvm is not nn.Module.export_tvm:
        return network.export_tvm(spec)[0]
    paths: dict[int, str] = {}
    for path, module in _modules(network, ""):
        paths.setdefault(id(module), path)
    builder = SourcedBuilder(lambda: _place(sys._getframe(2), paths))
    exporter = Exporter(debug=False)
    exporter.builder = builder
    exported, _, external = exporter.build(ModuleSpec.from_raw(spec, network))
    if external:
        raise ValueError("it holds ExternModules, which are compiled beside the module")
    return builder.placed(exported)


def _modules(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """A module and those below it, with their paths."""
    yield path, module
    lists = isinstance(module, nn.ModuleList | nn.ModuleDict)
    for name, value in _items(module.modules if lists else vars(module)):
        if isinstance(value, nn.Module):
            yield from _modules(value, f"{path}.{name}" if path else name)


def _items(held: object) -> Iterator[tuple[str, object]]:
    if isinstance(held, Mapping):
        yield from held.items()
    elif isinstance(held, list):
        yield from ((str(number), one) for number, one in enumerate(held))


def _place(frame: FrameType | None, paths: Mapping[int, str]) -> Node | None:
    """The place of the code around `frame`: the innermost module, and the innermost line outside of TVM."""
    path: str | None = None
    code: FrameType | None = None
    while frame is not None and (path is None or code is None):
        if path is None:
            path = paths.get(id(frame.f_locals.get("self")))
        if code is None and not frame.f_code.co_filename.startswith(_TVM):
            code = frame
        frame = frame.f_back
    if path is None or code is None:
        return None
    return place_span(path, code.f_code.co_filename, code.f_lineno)
