"""TVMScript to IRModules, without importing the user's file.

Each decorated class or function is handed to TVM's parser by itself, under the file's own name and line
numbers.  The parser evaluates the expressions that it meets, so a script has to pass `script_guard` first,
and is then evaluated inside `script_sandbox`, unless it is trusted.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tvm
import tvm.script
from tvm.script.ir_builder import IRBuilder
from tvm.script.parser.core import doc
from tvm.script.parser.core.diagnostics import Source as TVMSource
from tvm.script.parser.core.error import ParserError
from tvm.script.parser.core.parser import Parser

from symalloc.program.reading import ReadProblem, UnreadableError
from symalloc.program.span import Span, column_of
from symalloc.relax.ir_types import Node
from symalloc.relax.read.script_dialect import dialect_names, faces, takes_type_arguments
from symalloc.relax.read.script_file import (
    FACES,
    Constant,
    Imported,
    Metadata,
    ModuleSymbol,
    Script,
    ScriptModule,
    dialect_path,
    is_entry_point,
)
from symalloc.relax.read.script_guard import Refusal, refusals
from symalloc.relax.read.script_repair import drop_type_arguments, separate_symbols
from symalloc.relax.read.script_sandbox import sandbox
from symalloc.relax.tvm_error import error_text

_PLACE = re.compile(r"^ --> .*?:(\d+):(\d+)$", re.MULTILINE)
_MAX_REFUSALS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRead:
    """One module of a file: the IRModule, or the problems that stood in the way."""

    mod: tvm.IRModule | None
    problems: tuple[ReadProblem, ...] = ()


class ScriptReader:
    """Reads the modules of one script, one by one.

    With `trust` the guard is off, and module-level code is run where a name is needed that only it defines.
    Raises UnreadableError where that fails.
    """

    def __init__(self, script: Script, *, trust: bool) -> None:
        self._script, self._trust = script, trust
        self._outside = trusted_names(script) if trust else {}

    def read(self, module: ScriptModule) -> ModuleRead:
        """The IRModule that `module` describes, or what is wrong with it."""
        found = () if self._trust else tuple(refusals(self._script, module, dialect_names()))
        if not found:
            return _parse(self._script, module, self._outside, self._trust)
        problems = tuple(_refused(self._script, module, refusal) for refusal in found[:_MAX_REFUSALS])
        return ModuleRead(mod=None, problems=problems)


def _refused(script: Script, module: ScriptModule, refusal: Refusal) -> ReadProblem:
    return ReadProblem(
        file=script.file,
        message=f"not evaluated: {refusal.what}",
        hint=refusal.hint or "a file that you trust can be read with --trust, which evaluates what it holds",
        span=refusal.span,
        module=module.name,
    )


def _parse(script: Script, module: ScriptModule, outside: Mapping[str, object], trust: bool) -> ModuleRead:
    source = _ModuleSource(script, module)
    names = {**_names(script), **outside}
    try:
        if trust:
            mod = _run_parser(source, names)
        else:
            with sandbox() as builtins:
                mod = _run_parser(source, {**names, "__builtins__": builtins})
    except Exception as error:  # TVM's parser raises whatever the script made it raise
        return ModuleRead(mod=None, problems=(_parse_problem(script, module, error),))
    if not isinstance(mod, tvm.IRModule):
        mod = tvm.IRModule({module.node.name: mod})
    return ModuleRead(mod=mod)


def _run_parser(source: TVMSource, names: Mapping[str, object]) -> Node:
    parser = _ModuleParser(source, {})
    with IRBuilder() as builder:
        try:
            parser.parse(extra_vars=dict(names))
        except ParserError as error:
            parser.report_error(error.node, error.args[0])
        return builder.get()


class _ModuleParser(Parser):  # type: ignore[misc]
    """TVM's parser, which does not call the decorator of a function to learn whose function it is.

    `R.function(pure=False)` looks through the whole stack, which is of use only where Python decorates.
    """

    def get_dispatch_token(self, node: Node) -> str:
        """The dialect of the function `node`."""
        decorator = node.decorator_list[-1] if node.decorator_list else None
        if isinstance(decorator, doc.Call) and not decorator.args:
            called = self.eval_expr(decorator.func)
            if called in (faces()["R"].function, faces()["T"].prim_func) and _takes_options(
                called, decorator
            ):
                return str(called.dispatch_token)
        return str(super().get_dispatch_token(node))


def _takes_options(called: Callable[..., object], call: Node) -> bool:
    """Return whether the arguments of a call are constants for options that there are."""
    options = inspect.signature(called).parameters
    return all(word.arg in options and isinstance(word.value, doc.Constant) for word in call.keywords)


class _ModuleSource(TVMSource):  # type: ignore[misc]
    """One module of a script as TVM's parser wants it, with the places of the whole file."""

    def __init__(self, script: Script, module: ScriptModule) -> None:
        lines = script.text.split("\n")
        last = module.node.end_lineno or len(lines)
        block = "\n".join(lines[module.first_line - 1 : last])
        self.source_name = script.file
        self.start_line = module.first_line
        self.start_column = len(block) - len(block.lstrip())
        self.source = textwrap.dedent(block)
        self.full_source = script.text
        self._lines = lines
        self._bindings = script.bindings
        self._symbols = {
            name for name, binding in script.bindings.items() if isinstance(binding, ModuleSymbol)
        }

    def as_ast(self) -> Node:
        """The syntax tree in TVM's form."""
        tree = separate_symbols(ast.parse(self.source), self._symbols)
        return doc.to_doc(drop_type_arguments(tree, self._takes_types))

    def _takes_types(self, called: ast.expr) -> bool:
        path = dialect_path(called, self._bindings)
        return path is None or takes_type_arguments(path)

    def location(self, node: Node) -> tuple[int, int, int, int]:
        """The 1-based range of `node`; `ast` counts columns in bytes, we in characters."""
        line, column, end_line, end_column = super().location(node)
        start, end = (column_of(self._lines, n, c - 1) for n, c in ((line, column), (end_line, end_column)))
        return line, start, end_line, end


def _names(script: Script) -> dict[str, object]:
    """The values of the file's module-level names, as far as scripts may use them."""
    names: dict[str, object] = dict(faces())
    for name, binding in script.bindings.items():
        match binding:
            case Imported(path=path) if (value := _imported(path)) is not None:
                names[name] = value
            case Constant(value=value):
                names[name] = value
            case ModuleSymbol(name=symbol):
                names[name] = TypeVar(symbol)
            case Metadata(json=text):
                names[name] = tvm.ir.load_json(text)
            case _:
                names.pop(name, None)
    return names


def _imported(path: str) -> object | None:
    """The object behind an import of the dialect; None for any other import."""
    if path in FACES:
        return faces()[FACES[path]]
    return {
        "tvm": tvm,
        "tvm.script": tvm.script,
        "tvm.script.ir_module": tvm.script.ir_module,
        "tvm.script.ir.ir_module": tvm.script.ir_module,
    }.get(path)


def _parse_problem(script: Script, module: ScriptModule, error: Exception) -> ReadProblem:
    text = str(error)
    place = _PLACE.search(text)
    said = text[: place.start()] if place else text
    said = said.removeprefix("error: ").strip()
    span = _span_at(script, int(place[1]), int(place[2]), text) if place else script.span(module.node)
    message = f"TVM's parser refuses it: {error_text(RuntimeError(said))}" if said else _unsaid(script, span)
    return ReadProblem(file=script.file, message=message, span=span, module=module.name)


def _unsaid(script: Script, span: Span) -> str:
    """The message where TVM fails without a word: it does so on the printed form of a variable that is bound
    nowhere.
    """
    line = script.text.split("\n")[span.line - 1].strip()
    declared = re.fullmatch(r"(\w+): [\w.]+(\(.*\))?", line)
    if declared is None:
        return "TVM's parser fails here and does not say why"
    return f"`{declared[1]}` is declared but bound nowhere: it is used outside the block that binds it"


def _span_at(script: Script, line: int, column: int, report: str) -> Span:
    """The span of the first line that TVM's report underlines."""
    carets = re.search(r"\^+", report)
    width = len(carets[0]) if carets else 1
    return Span(file=script.file, line=line, column=column, end_line=line, end_column=column + width)


def trusted_names(script: Script) -> dict[str, object]:
    """The module-level names of `script` after its code ran, as far as the guard does not know them.

    The code runs with `__name__` set to the file's stem, so that `if __name__ == "__main__":` does not, and
    with the file's folder on the import path.  Nothing runs where every name is a constant or an import of
    the dialect.  Raises UnreadableError.
    """
    if not _needs_running(script):
        return {}
    path = Path(script.file)
    scope: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    tree = _Undecorated(script).visit(ast.parse(script.text))
    sys.path.insert(0, str(path.resolve().parent))
    try:
        exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), scope)
    except (Exception, SystemExit) as error:
        raise UnreadableError(f"its module-level code raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return {name: value for name, value in scope.items() if not name.startswith("__")}


def _needs_running(script: Script) -> bool:
    defined = {name for name, binding in script.bindings.items() if not _is_known(binding)}
    used = {n.id for m in script.modules for n in ast.walk(m.node) if isinstance(n, ast.Name)}
    return not script.modules or bool(defined & used - {m.node.name for m in script.modules})


def _is_known(binding: object) -> bool:
    if isinstance(binding, Imported):
        return (
            binding.path.split(".")[0] == "tvm" and binding.path.count(".") <= 2 and "script" in binding.path
        )
    return isinstance(binding, Constant | ModuleSymbol | Metadata)


class _Undecorated(ast.NodeTransformer):
    """Drops the modules, which are parsed by themselves."""

    def __init__(self, script: Script) -> None:
        self._bindings = script.bindings

    def _keep(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if is_entry_point(node, self._bindings) else node

    visit_ClassDef = visit_FunctionDef = _keep  # noqa: N815
