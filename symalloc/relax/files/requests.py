"""Requests and results of planning and running files.  Imports no TVM: they cross from process to process."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from symalloc.errors import RunError
from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.program.ir import Program
from symalloc.program.reading import ModuleOptions, UnreadableError
from symalloc.relax.read.script_file import ScriptModule, parse_script


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest(ModuleOptions):
    """A module in what `path` names: the one called `module` where there are several.

    `data` is the content of `path` where that is not in a file.
    """

    path: Path
    data: bytes | None = None
    module: str | None = None


class RefusedError(RunError):
    """A pool refused what a program did: no memory, a tensor outside of its storage, an overrun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """The pool that is asked for: at most `limit` bytes, in guard mode, its calls recorded."""

    limit: int | None = None
    guard: bool = False
    trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A module from a file, planned.

    `text` is the planned module in the form that was asked for; `program` the same module extracted, with
    spans into the script that TVM prints; `original` what was in the file.  `certificate` holds the proofs as
    files, where they were asked for.
    """

    text: str
    program: Program
    original: Program
    reports: tuple[FunctionReport, ...]
    certificate: Mapping[str, str] | None = None


def require_values(wanted: Iterable[str], binding: Mapping[str, int]) -> None:
    """Raises RunError where `binding` lacks one of the symbols `wanted`."""
    missing = [name for name in wanted if name not in binding]
    if missing:
        lacking = ", ".join(f"`{name}`" for name in missing)
        example = " ".join(f"--bind {name}=128" for name in missing)
        given = ", ".join(f'"{name}": 128' for name in missing)
        raise RunError(f"no value for {lacking}; add {example} (in Python {{{given}}})")


def written_symbols(request: PlanRequest, function: str | None) -> list[str]:
    """The symbols that the text of a `.py` file writes as extents of the function's parameters, sorted.

    There may be more.  None are known where the file or the function is not plain to see: whoever loads
    the file says what is wrong with it.
    """
    try:
        data = request.data if request.data is not None else _script(request.path)
        modules = parse_script(str(request.path), data).modules if data else ()
    except (OSError, UnreadableError):
        return []
    named = [module for module in modules if request.module in (None, module.name)]
    chosen = _function(named[0], function) if len(named) == 1 else None
    return [] if chosen is None else sorted(set(_extents(chosen)))


def _script(path: Path) -> bytes:
    return path.read_bytes() if path.suffix == ".py" else b""


def _function(module: ScriptModule, name: str | None) -> ast.FunctionDef | None:
    body = module.node.body if isinstance(module.node, ast.ClassDef) else [module.node]
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef) and _is_public(node)}
    if name is None and len(functions) == 1:
        return next(iter(functions.values()))
    return functions.get(name or "main")


def _is_public(node: ast.FunctionDef) -> bool:
    """True if a decorator is `R.function`, or a call of it that says nothing of being private."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        if ast.unparse(called) == "R.function" and not any(k.arg == "private" for k in keywords):
            return True
    return False


def _extents(node: ast.FunctionDef) -> Iterator[str]:
    """Names that are extents by themselves: `"n"` in `R.Tensor(("n", 4), "float32")`."""
    for argument in node.args.args:
        for call in _calls(argument.annotation):
            if ast.unparse(call.func) in ("R.Tensor", "R.Shape") and call.args:
                extents = call.args[0]
                elements = extents.elts if isinstance(extents, ast.Tuple | ast.List) else []
                texts = (e.value for e in elements if isinstance(e, ast.Constant))
                yield from (text for text in texts if isinstance(text, str) and text.isidentifier())


def _calls(annotation: ast.AST | None) -> Iterator[ast.Call]:
    """The calls in an annotation, but for those in the type of a function, whose symbols are its own."""
    if isinstance(annotation, ast.Call):
        if ast.unparse(annotation.func) == "R.Callable":
            return
        yield annotation
    for inner in ast.iter_child_nodes(annotation) if annotation is not None else ():
        yield from _calls(inner)
