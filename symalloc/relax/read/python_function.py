"""Models that a function of a Python file makes: `file.py:function`.  Runs the file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from symalloc.program.reading import UnreadableError
from symalloc.program.span import Span
from symalloc.relax.ir_types import Node
from symalloc.relax.read.model_file import ModelFunction
from symalloc.relax.read.python_object import KINDS, is_model, module_from
from symalloc.relax.tvm_error import error_text

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
