"""IRModules from models in memory, and from those that a function of a Python file makes.

Models are those of TVM, of onnx, of torch.export, and TVM's nn.Module with a spec.

The kind of an object is told by its classes: neither onnx nor torch is imported to find out.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.exporter import Exporter
from tvm.relax.frontend.nn.spec import ModuleSpec

from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.program.span import Span
from symalloc.relax.ir_types import Node
from symalloc.relax.read.find_files import ModelFunction
from symalloc.relax.read.importing import SourcedBuilder, refusal
from symalloc.relax.read.onnx_model import import_onnx
from symalloc.relax.read.torch_program import import_torch
from symalloc.relax.source_spans import place_span
from symalloc.relax.tvm_error import error_text

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
    builder = SourcedBuilder(lambda: _model_place(sys._getframe(2), paths))
    exporter = Exporter(debug=False)
    exporter.builder = builder
    exported, _, external = exporter.build(ModuleSpec.from_raw(spec, network))
    if external:
        raise ValueError("it holds ExternModules, which are compiled beside the module")
    return builder.placed(exported)


def _modules(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """A module and those below it, with their paths."""
    yield path, module
    held = module.modules if isinstance(module, nn.ModuleList | nn.ModuleDict) else vars(module)
    for name, value in held.items() if isinstance(held, Mapping) else enumerate(held):
        if isinstance(value, nn.Module):
            yield from _modules(value, f"{path}.{name}" if path else str(name))


def _model_place(frame: FrameType | None, paths: Mapping[int, str]) -> Node | None:
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


KINDS = (
    "an IRModule, an onnx.ModelProto, a torch.export.ExportedProgram, "
    "or a pair of a tvm.relax.frontend.nn.Module and its spec"
)


def is_model(value: object) -> bool:
    """Return whether `module_from` can make a module of `value`."""
    return isinstance(value, tvm.IRModule) or _importer(value) is not None


def module_from(value: object) -> Node:
    """The IRModule that `value` is, or describes.  Raises UnreadableError where nothing can be made of it."""
    if isinstance(value, tvm.IRModule):
        return value
    load = _importer(value)
    if load is None:
        raise UnreadableError(f"it is of type {type(value).__name__}, not {KINDS}")
    return load(value)


def _importer(value: object) -> Callable[[Any], Node] | None:
    """The function that makes an IRModule of a model of another kind; None where `value` is none."""
    if is_exported_program(value):
        return import_torch
    if _is_a(value, "onnx", "ModelProto"):
        return import_onnx
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], nn.Module):
        return None if isinstance(value[1], nn.Module) else _from_spec
    return None


def is_exported_program(value: object) -> bool:
    """Return whether `value` is a program of torch.export."""
    return _is_a(value, "torch", "ExportedProgram")


def _is_a(value: object, package: str, name: str) -> bool:
    kinds = type(value).__mro__
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in kinds)


def _from_spec(pair: tuple[Node, object]) -> Node:
    """The module that an nn.Module of TVM exports; its weights are inputs, because it holds none."""
    network, spec = pair
    with refusal(f"{type(network).__name__}.export_tvm"):
        exported = export_sourced(network, spec)
    if not isinstance(exported, tvm.IRModule):
        raise ImportRefusedError(f"{type(network).__name__}.export_tvm gave no IRModule")
    return exported


_MODULE = "__symalloc_model__"


def load_function(function: ModelFunction, *, trust: bool) -> Node:
    """The IRModule of what `function` returns, called without arguments.

    A name that holds a model instead of a function gives that model.  Raises UnreadableError, also unless
    `trust`: this runs whatever the file holds.
    """
    if not trust:
        raise UnreadableError(
            f"{function.name} is a function, and calling it runs the code of {function.file}",
            hint="a file that you trust can be run with --trust",
        )
    with _imported(function.file) as module:
        found = getattr(module, function.name, None)
        if found is None:
            own = [
                name
                for name, value in vars(module).items()
                if not name.startswith("_") and getattr(value, "__module__", None) == _MODULE
            ]
            others = f"; it defines {', '.join(own[:12])}" if own else ""
            raise UnreadableError(f"{function.file} defines no `{function.name}`{others}")
        made = found if is_model(found) else _called(function, found)
        if not is_model(made):
            what = "None" if made is None else f"an object of type {type(made).__name__}"
            raise UnreadableError(f"{function.name}() returned {what}; it must return {KINDS}")
        return module_from(made)


def _called(function: ModelFunction, found: object) -> object:
    if not callable(found):
        raise UnreadableError(f"{function.name} is neither a function nor {KINDS}")
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
    if needed:
        raise UnreadableError(
            f"{function.name}() takes {', '.join(needed)}, and is called without arguments",
            hint="give them defaults, or name a function that calls it",
        )
    with _said(function.file, f"{function.name}() failed"):
        return found()


@contextmanager
def _imported(file: Path) -> Iterator[object]:
    """The file as a module that was imported; what lies beside it can be imported, and is forgotten again."""
    path = file.resolve()
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise UnreadableError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    before, folder = set(sys.modules), str(path.parent)
    sys.modules[_MODULE] = module
    sys.path.insert(0, folder)
    try:
        with _said(file, f"importing {file} failed"):
            spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder + "/"):
                del sys.modules[name]


@contextmanager
def _said(file: Path, what: str) -> Iterator[None]:
    """Raise what the user's code raises as UnreadableError, with the last line of `file` that it was in."""
    try:
        yield
    except SyntaxError as error:
        raise UnreadableError(f"{what}: syntax error: {error.msg} (line {error.lineno})") from error
    except (Exception, SystemExit) as error:
        kind, text = type(error).__name__, error_text(error)
        told = kind if text == kind else f"{kind}: {text}"
        if isinstance(error, SystemExit):
            told = f"it called sys.exit({error.code!r})"
        path, frames = str(file.resolve()), traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == path and frame.lineno]
        place = Span(str(file), lines[-1], 1, lines[-1], 2) if lines else None
        raise UnreadableError(f"{what}: {told}", place) from error
