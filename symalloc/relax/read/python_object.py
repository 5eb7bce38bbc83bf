"""IRModules from models in memory, and from those that a function of a Python file makes.

Models are those of TVM, of onnx, of torch.export, and TVM's nn.Module with a spec.

The kind of an object is told by its classes: neither onnx nor torch is imported to find out.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.exporter import Exporter
from tvm.relax.frontend.nn.spec import ModuleSpec

from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.program.span import Span
from symalloc.relax.ir_types import Node
from symalloc.relax.read.find_files import ModelFunction
from symalloc.relax.read.importing import SourcedBuilder, refusal
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
    lists = isinstance(module, nn.ModuleList | nn.ModuleDict)
    for name, value in _items(module.modules if lists else vars(module)):
        if isinstance(value, nn.Module):
            yield from _modules(value, f"{path}.{name}" if path else name)


def _items(held: object) -> Iterator[tuple[str, object]]:
    if isinstance(held, Mapping):
        yield from held.items()
    elif isinstance(held, list):
        yield from ((str(number), one) for number, one in enumerate(held))


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
    return (
        isinstance(value, tvm.IRModule)
        or _is_a(value, "onnx", "ModelProto")
        or is_exported_program(value)
        or _is_spec_pair(value)
    )


def module_from(value: object) -> Node:
    """The IRModule that `value` is, or describes.  Raises UnreadableError where nothing can be made of it."""
    if isinstance(value, tvm.IRModule):
        return value
    if _is_a(value, "onnx", "ModelProto"):
        from symalloc.relax.read.onnx_model import import_onnx

        return import_onnx(value)
    if is_exported_program(value):
        from symalloc.relax.read.torch_program import import_torch

        return import_torch(value)
    if isinstance(value, tuple) and _is_spec_pair(value):
        return _from_spec(*value)
    raise UnreadableError(f"it is of type {type(value).__name__}, not {KINDS}")


def is_exported_program(value: object) -> bool:
    """Return whether `value` is a program of torch.export."""
    return _is_a(value, "torch", "ExportedProgram")


def _is_a(value: object, package: str, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(value).__mro__
    )


def _is_spec_pair(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], tvm.relax.frontend.nn.Module)
        and not isinstance(value[1], tvm.relax.frontend.nn.Module)
    )


def _from_spec(network: Node, spec: object) -> Node:
    """The module that an nn.Module of TVM exports; its weights are inputs, because it holds none."""
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
            raise UnreadableError(f"{function.file} defines no `{function.name}`{_functions(module)}")
        made = found if is_model(found) else _called(function, found)
        if not is_model(made):
            what = "None" if made is None else f"an object of type {type(made).__name__}"
            raise UnreadableError(f"{function.name}() returned {what}; it must return {KINDS}")
        return module_from(made)


def _functions(module: object) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == _MODULE
    ]
    return f"; it defines {', '.join(own[:12])}" if own else ""


def _called(function: ModelFunction, found: object) -> object:
    if not callable(found):
        raise UnreadableError(f"{function.name} is neither a function nor {KINDS}")
    needed = _needed(found)
    if needed:
        raise UnreadableError(
            f"{function.name}() takes {', '.join(needed)}, and is called without arguments",
            hint="give them defaults, or name a function that calls it",
        )
    with _said(function.file, f"{function.name}() failed"):
        return found()


def _needed(found: object) -> list[str]:
    """The parameters without which `found` cannot be called."""
    try:
        parameters = inspect.signature(found).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    return [
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


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
    except SystemExit as error:
        raise UnreadableError(f"{what}: it called sys.exit({error.code!r})", _place(file, error)) from error
    except SyntaxError as error:
        raise UnreadableError(f"{what}: syntax error: {error.msg} (line {error.lineno})") from error
    except Exception as error:
        kind, text = type(error).__name__, error_text(error)
        told = kind if text == kind else f"{kind}: {text}"
        raise UnreadableError(f"{what}: {told}", _place(file, error)) from error


def _place(file: Path, error: BaseException) -> Span | None:
    path = str(file.resolve())
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path and f.lineno]
    return Span(file=str(file), line=lines[-1], column=1, end_line=lines[-1], end_column=2) if lines else None
