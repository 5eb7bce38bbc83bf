"""TVMScript to IRModules, without importing the user's file.

Each decorated class or function is handed to TVM's parser by itself, under the file's own name and line
numbers.  The parser evaluates the expressions that it meets, so a script has to pass `script_guard` first,
and is then evaluated inside `script_sandbox`, unless it is trusted.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Mapping
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

from symalloc.program.reading import ReadProblem
from symalloc.program.span import Span
from symalloc.relax.ir_types import Node
from symalloc.relax.read.script_dialect import dialect_names, takes_type_arguments
from symalloc.relax.read.script_file import (
    Constant,
    Imported,
    Metadata,
    ModuleSymbol,
    Script,
    ScriptModule,
    dialect_path,
)
from symalloc.relax.read.script_guard import Refusal, refusals
from symalloc.relax.read.script_repair import drop_type_arguments, separate_symbols
from symalloc.relax.read.script_sandbox import sandbox
from symalloc.relax.tvm_error import error_text

_PLACE = re.compile(r"^ --> .*?:(\d+):(\d+)$", re.MULTILINE)
_MAX_REFUSALS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRead:
    """One module of a file: the IRModule, or the problems that stood in the way.

    `line` is that of its `class` or `def`.  `checked` is False where the script switched the well-formedness
    check off itself.
    """

    name: str
    mod: tvm.IRModule | None
    line: int
    problems: tuple[ReadProblem, ...] = ()
    checked: bool = True


class ScriptReader:
    """Reads the modules of one script, one by one.

    With `trust` the guard is off, and module-level code is run where a name is needed that only it defines.
    Raises TrustedCodeError where that fails.
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
        return ModuleRead(name=module.name, mod=None, line=module.line, problems=problems)


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
        return ModuleRead(
            name=module.name, mod=None, line=module.line, problems=(_parse_problem(script, module, error),)
        )
    if not isinstance(mod, tvm.IRModule):
        mod = tvm.IRModule({module.node.name: mod})
    return ModuleRead(name=module.name, mod=mod, line=module.line, checked=_wants_check(module.node))


def _run_parser(source: TVMSource, names: Mapping[str, object]) -> Node:
    parser = Parser(source, {})
    with IRBuilder() as builder:
        try:
            parser.parse(extra_vars=dict(names))
        except ParserError as error:
            parser.report_error(error.node, error.args[0])
        return builder.get()


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
        self._wide = {n for n, line in enumerate(lines, 1) if not line.isascii()}
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
        return line, self._characters(line, column), end_line, self._characters(end_line, end_column)

    def _characters(self, line: int, column: int) -> int:
        if line not in self._wide:
            return column
        before = self._lines[line - 1].encode()[: column - 1]
        return len(before.decode(errors="replace")) + 1


def _names(script: Script) -> dict[str, object]:
    """The values of the file's module-level names, as far as scripts may use them."""
    faces = _faces()
    names: dict[str, object] = {name: faces[name] for name in "IRT"}
    for name, binding in script.bindings.items():
        match binding:
            case Imported(path=path) if _imported(path) is not None:
                names[name] = _imported(path)
            case Constant(value=value):
                names[name] = value
            case ModuleSymbol(name=symbol):
                names[name] = TypeVar(symbol)
            case Metadata(json=text):
                names[name] = tvm.ir.load_json(text)
            case _:
                names.pop(name, None)
    return names


def _faces() -> dict[str, object]:
    from tvm.script.parser import ir, relax, tirx

    return {"I": ir, "R": relax, "T": tirx}


def _imported(path: str) -> object | None:
    """The object behind an import of the dialect; None for any other import."""
    faces = _faces()
    return {
        "tvm": tvm,
        "tvm.script": tvm.script,
        "tvm.script.ir": faces["I"],
        "tvm.script.parser.ir": faces["I"],
        "tvm.script.relax": faces["R"],
        "tvm.script.parser.relax": faces["R"],
        "tvm.script.tirx": faces["T"],
        "tvm.script.parser.tirx": faces["T"],
        "tvm.script.ir_module": tvm.script.ir_module,
        "tvm.script.ir.ir_module": tvm.script.ir_module,
    }.get(path)


def _wants_check(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """False where a decorator says `check_well_formed=False`."""
    calls = (decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call))
    keywords = (keyword for call in calls for keyword in call.keywords)
    return not any(
        k.arg == "check_well_formed" and isinstance(k.value, ast.Constant) and k.value.value is False
        for k in keywords
    )


def _parse_problem(script: Script, module: ScriptModule, error: Exception) -> ReadProblem:
    text = str(error)
    place = _PLACE.search(text)
    said = text[: place.start()] if place else text
    said = said.removeprefix("error: ").strip()
    span = _span_at(script, int(place[1]), int(place[2]), text) if place else script.span(module.node)
    message = f"TVM's parser refuses it: {error_text(RuntimeError(said))}" if said else _unsaid(script, span)
    return ReadProblem(
        file=script.file,
        message=message,
        span=span,
        module=module.name,
    )


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


class TrustedCodeError(Exception):
    """The module-level code of a trusted file raised; the text says what and where."""


def trusted_names(script: Script) -> dict[str, object]:
    """The module-level names of `script` after its code ran, as far as the guard does not know them.

    The code runs with `__name__` set to the file's stem, so that `if __name__ == "__main__":` does not, and
    with the file's folder on the import path.  Nothing runs where every name is a constant or an import of
    the dialect.  Raises TrustedCodeError.
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
        raise TrustedCodeError(f"its module-level code raised {type(error).__name__}: {error}") from error
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
    return type(binding).__name__ in ("Constant", "ModuleSymbol", "Metadata")


class _Undecorated(ast.NodeTransformer):
    """Drops the modules, which are parsed by themselves."""

    def __init__(self, script: Script) -> None:
        self._bindings = script.bindings

    def _keep(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        calls = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
        entries = ("I.ir_module", "R.function", "T.prim_func")
        if any(dialect_path(call, self._bindings) in entries for call in calls):
            return ast.copy_location(ast.Pass(), node)
        return node

    visit_ClassDef = visit_FunctionDef = _keep  # noqa: N815
