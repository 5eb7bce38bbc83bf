"""TVMScript to IRModules, without importing the user's file.

Each decorated class or function is handed to TVM's parser by itself, under the file's own name and line
numbers.  The parser evaluates the expressions that it meets, so a script has to pass `script_guard` first,
and is then evaluated inside `sandbox`, unless it is trusted.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import tvm
import tvm.script
from tvm.relax.script.parser import entry
from tvm.script.ir_builder import IRBuilder
from tvm.script.parser.core import doc, evaluator
from tvm.script.parser.core.diagnostics import Source as TVMSource
from tvm.script.parser.core.error import ParserError
from tvm.script.parser.core.parser import Parser

from symalloc.program.reading import ReadProblem, UnreadableError
from symalloc.program.span import Span, column_of
from symalloc.relax.ir_types import Node, error_text, free_name
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
from symalloc.relax.read.script_guard import SAFE_BUILTINS, refusals, text_refusal

_IR_NAMES = (
    *("ir_module", "module_attrs", "module_global_infos", "dummy_global_info", "vdevice", "lookup_vdevice"),
    *("meta_var", "Range", "StringImm", "StringType"),
)
_RELAX_NAMES = frozenset(
    (  # noqa: SIM905
        "Any Callable ExternFunc Object Prim Shape ShapeExpr Tensor Tuple TupleGetItem call_packed const "
        "cpu dataflow device dtype emit emit_match_cast emit_with_ty emit_with_type func_attr function "
        "match_cast output prim_value shape str to_vdevice tuple"
    ).split()
)
_RELAX_PACKAGES = ("builtin", "ccl", "grad", "image", "memory", "nn", "vision", "vm")
_DISTRIBUTED_NAMES = ("DTensor", "annotate_sharding", "call_tir", "const", "device_mesh", "redistribute")
_TIR_HOMES = frozenset(
    {"tvm.ir.prim.op", "tvm.target.codegen", "tvm.tirx.expr", "tvm.tirx.op", "tvm.tirx.script.builder.ir"}
)
_TIR_REFUSED = frozenset(
    (  # noqa: SIM905
        "LetAnnotation SMEMPool ScopeIdDef TMEMPool add_to_parent block_name_suffix_context device_entry "
        "meta_class register_script_namespace scalar_wrapper"
    ).split()
)
_TIR_ENTRIES = ("Buffer", "Ptr", "let", "prim_func")


# -- the dialect
#
# Names of TVM's script packages that a script may use: those that only build IR, as the installed TVM exports
# them, by where each object is defined.  Left out is what runs Python that the script brings along (macros,
# `R.emit_te`, `T.meta_class`), loads or compiles code (`T.call_kernel`), or changes TVM itself
# (`T.register_script_namespace`).


@cache
def faces() -> dict[str, ModuleType]:
    """The packages that a script reaches as I, R and T."""
    from tvm.script.parser import ir, relax, tirx

    return {"I": ir, "R": relax, "T": tirx}


@cache
def dialect_names() -> frozenset[str]:
    """Every allowed path, such as `R.memory.alloc_tensor`; the roots are I, R and T whatever a file calls
    them.
    """
    ir, relax, tirx = faces().values()
    paths = [f"I.{name}" for name in _IR_NAMES if hasattr(ir, name)]
    paths += (
        f"R.{name}"
        for name in relax.__all__
        if name in _RELAX_NAMES or _is_operator(getattr(relax, name, None))
    )
    for package in _RELAX_PACKAGES:
        held = vars(getattr(relax, package))
        paths += (f"R.{package}.{name}" for name, value in held.items() if _is_operator(value))
    paths += (f"R.dist.{name}" for name in _DISTRIBUTED_NAMES if hasattr(relax.dist, name))
    paths += (f"T.{name}" for name in _TIR_ENTRIES)
    paths += (
        f"T.{name}"
        for name in tirx.__all__
        if name not in _TIR_REFUSED and _builds_tir(getattr(tirx, name, None))
    )
    paths += (f"T.axis.{name}" for name in vars(tirx.axis) if not name.startswith("_"))
    return frozenset(paths)


@cache
def _takes_type_arguments(path: str) -> bool:
    root, *names = path.split(".")
    value: object = faces()[root]
    for name in names:
        value = getattr(value, name, None)
    return not inspect.isfunction(value) or "ty_args" in inspect.signature(value).parameters


def _is_operator(value: object) -> bool:
    is_public = inspect.isfunction(value) and not value.__name__.startswith("_")
    return is_public and (value.__module__ or "").startswith("tvm.relax.op.")


def _builds_tir(value: object) -> bool:
    if type(value).__name__ == "DtypeConstructor":
        return True
    if inspect.isclass(value):
        return value.__module__.startswith(("tvm.tirx.", "tvm.ir."))
    return inspect.isfunction(value) and value.__module__ in _TIR_HOMES


# -- repairs of what TVM prints and cannot read back


def _separate_symbols(function: ast.FunctionDef, symbols: Set[str]) -> None:
    """Rename, in a function that declares one of `symbols` anew (`m = T.int32()`), that symbol, also where it
    stands quoted in an annotation.

    TVM prints `m = TypeVar("m")` over a module some of whose functions share `m`, and reads the own `m` of
    another function as a redefinition of it.
    """
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    inside = [n for a in function.args.args if a.annotation for n in ast.walk(a.annotation)]
    quoted = [n for n in inside if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    texts = {text.value for text in quoted}
    is_kernel = any("prim_func" in ast.unparse(decorator) for decorator in function.decorator_list)
    plain = {node.id for node in inside if isinstance(node, ast.Name)}
    own = symbols & texts if is_kernel else symbols - plain - texts
    used = {node.id for node in names} | {argument.arg for argument in function.args.args}
    for old in sorted(own & set(_declared(function))):
        used.add(new := free_name(old, used, lambda n: "_" * n))
        for text in quoted:
            text.value = new if text.value == old else text.value
        for node in names:
            node.id = new if node.id == old else node.id


def _declared(function: ast.FunctionDef) -> Iterator[str]:
    """The names that are given the value of a call without arguments, such as `T.int64()`."""
    for statement in ast.walk(function):
        match statement:
            case ast.Assign(targets=targets, value=ast.Call(func=ast.Attribute(), args=[])):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


_REFUSED_EVENTS = frozenset(
    (  # noqa: SIM905
        "builtins.breakpoint builtins.input ctypes.dlopen os.chmod os.chown os.exec os.fork os.forkpty "
        "os.kill os.link os.mkdir os.posix_spawn os.putenv os.remove os.rename os.rmdir os.spawn "
        "os.symlink os.system os.truncate os.unsetenv os.utime pty.spawn subprocess.Popen "
        "sys._getframe.f_locals sys.setprofile sys.settrace urllib.Request"
    ).split()
)
_REFUSED_FAMILIES = tuple(
    "socket. shutil. ftplib. smtplib. http. sqlite3. webbrowser. cpython.run_".split()  # noqa: SIM905
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_state = {"active": False}


# -- walls around the evaluation of a script that passed the guard


class SandboxError(Exception):
    """A script tried, while it was evaluated, something that building IR never needs."""


@contextmanager
def sandbox() -> Iterator[Mapping[str, object]]:
    """Wall TVM's parser in; yields the name `__builtins__` that scripts are to be evaluated with.

    The guard alone should suffice; this is for the day that it does not.  Only a handful of builtins exist,
    strings that stand for shapes are checked again when they would be evaluated, and an audit hook stops what
    would start a process, write a file or open a connection.  It changes module-level functions of TVM while
    it is open: it belongs into worker processes only.
    """
    _install_hook()
    safe = {name: getattr(builtins, name) for name in SAFE_BUILTINS}
    saved = evaluator._get_builtin_or_none, entry._eval_shape
    evaluator._get_builtin_or_none = safe.get
    entry._eval_shape = _shape_evaluator(safe)
    _state["active"] = True
    try:
        yield {"__builtins__": safe}
    finally:
        _state["active"] = False
        evaluator._get_builtin_or_none, entry._eval_shape = saved


def _shape_evaluator(safe: Mapping[str, object]) -> Callable[[object, Mapping[str, object] | None], object]:
    def evaluate(shape: object, names: Mapping[str, object] | None) -> object:
        if not isinstance(shape, str):
            return shape
        refused = text_refusal(shape, dialect_names())
        if refused is not None:
            raise SandboxError(f"the shape {shape!r} is not evaluated: {refused}")
        return eval(compile(shape, "<shape>", "eval"), {**(names or {}), "__builtins__": safe})

    return evaluate


@cache
def _install_hook() -> None:
    """Install the hook once: it stays as long as the process."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _state["active"]:
        return
    writes = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
    if writes or event in _REFUSED_EVENTS or event.startswith(_REFUSED_FAMILIES):
        raise SandboxError(f"the script tried to {event} while it was read")


_PLACE = re.compile(r"^ --> .*?:(\d+):(\d+)$", re.MULTILINE)
_MAX_REFUSALS = 10


def parse_module(
    script: Script, module: ScriptModule, trusted: Mapping[str, object] | None = None
) -> tvm.IRModule | tuple[ReadProblem, ...]:
    """The IRModule that `module` describes, or what is wrong with it.

    The guard is off where the script is trusted: `trusted` are then its `trusted_names`.
    """
    found = tuple(refusals(script, module, dialect_names())) if trusted is None else ()
    if found:
        return found[:_MAX_REFUSALS]
    source, names = _ModuleSource(script, module), _names(script)
    try:
        with sandbox() if trusted is None else nullcontext(trusted) as outside, IRBuilder() as builder:
            parser = Parser(source, {})
            try:
                parser.parse(extra_vars={**names, **outside})
            except ParserError as error:
                parser.report_error(error.node, error.args[0])
            mod = builder.get()
    except Exception as error:  # TVM's parser raises whatever the script made it raise
        return (_parse_problem(script, module, error),)
    return mod if isinstance(mod, tvm.IRModule) else tvm.IRModule({module.node.name: mod})


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

    def as_ast(self) -> Node:
        """The syntax tree in TVM's form."""
        symbols = {name for name, bound in self._bindings.items() if isinstance(bound, ModuleSymbol)}
        tree = ast.parse(self.source)
        for node in ast.walk(tree):
            if symbols and isinstance(node, ast.FunctionDef):
                _separate_symbols(node, symbols)
            elif isinstance(node, ast.Call) and not self._takes_types(node.func):
                node.keywords = [keyword for keyword in node.keywords if keyword.arg != "ty_args"]
        return doc.to_doc(tree)

    def _takes_types(self, called: ast.expr) -> bool:
        """False for an operator without `ty_args`, which TVM prints for R.builtin.alloc_tensor: the type
        follows from the rest.
        """
        path = dialect_path(called, self._bindings)
        return path is None or _takes_type_arguments(path)

    def location(self, node: Node) -> tuple[int, int, int, int]:
        """The 1-based range of `node`; `ast` counts columns in bytes, we in characters."""
        line, column, end_line, end_column = super().location(node)
        start, end = (column_of(self._lines, n, c - 1) for n, c in ((line, column), (end_line, end_column)))
        return line, start, end_line, end


def _names(script: Script) -> dict[str, object]:
    """The values of the file's module-level names, as far as scripts may use them."""
    entry_points = ("tvm.script.ir_module", "tvm.script.ir.ir_module")
    imports = {path: faces()[face] for path, face in FACES.items()}
    known = {
        "tvm": tvm,
        "tvm.script": tvm.script,
        **dict.fromkeys(entry_points, tvm.script.ir_module),
        **imports,
    }
    names: dict[str, object] = dict(faces())
    for name, binding in script.bindings.items():
        match binding:
            case Imported(value=path) if path in known:
                names[name] = known[path]
            case Constant(value=value):
                names[name] = value
            case ModuleSymbol(value=symbol):
                names[name] = TypeVar(symbol)
            case Metadata(value=text):
                names[name] = tvm.ir.load_json(text)
            case _:
                names.pop(name, None)
    return names


def _parse_problem(script: Script, module: ScriptModule, error: Exception) -> ReadProblem:
    text = str(error)
    place = _PLACE.search(text)
    said = (text[: place.start()] if place else text).removeprefix("error: ").strip()
    span = script.span(module.node)
    if place is not None:  # the first line that TVM's report underlines
        line, column = int(place[1]), int(place[2])
        width = len(carets[0]) if (carets := re.search(r"\^+", text)) else 1
        span = Span(file=script.file, line=line, column=column, end_line=line, end_column=column + width)
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


# -- code of files that are trusted

EXECUTED = "__symalloc_model__"
"""The name of a file as a module."""


@contextmanager
def executed(file: Path, tree: ast.Module | None = None) -> Iterator[ModuleType]:
    """The file as a module whose code has run: all of it, or `tree`.  Raises UnreadableError.

    What lies beside it can be imported, and is forgotten again.  Its name is not "__main__".
    """
    path, module = file.resolve(), ModuleType(EXECUTED)
    before, folder = set(sys.modules), str(path.parent)
    module.__file__, sys.modules[EXECUTED] = str(path), module
    sys.path.insert(0, folder)
    try:
        with told_of(file, f"importing {file} failed"):
            exec(compile(tree or path.read_bytes(), path, "exec"), vars(module))
        yield module
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder + "/"):
                del sys.modules[name]


@contextmanager
def told_of(file: Path, what: str) -> Iterator[None]:
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


def trusted_names(script: Script) -> dict[str, object]:
    """The module-level names of `script` after its code ran, as far as the guard does not know them.

    Nothing runs where every name is a constant or an import of the dialect.  Raises UnreadableError.
    """
    if not _needs_running(script):
        return {}
    tree = ast.fix_missing_locations(_Undecorated(script).visit(ast.parse(script.text)))
    with executed(Path(script.file), tree) as module:
        return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def _needs_running(script: Script) -> bool:
    defined = {name for name, binding in script.bindings.items() if not _is_known(binding)}
    used = {n.id for m in script.modules for n in ast.walk(m.node) if isinstance(n, ast.Name)}
    return not script.modules or bool(defined & used - {m.node.name for m in script.modules})


def _is_known(binding: object) -> bool:
    if not isinstance(binding, Imported):
        return isinstance(binding, Constant | ModuleSymbol | Metadata)
    parts = binding.value.split(".")
    return parts[0] == "tvm" and len(parts) <= 3 and "script" in binding.value


class _Undecorated(ast.NodeTransformer):
    """Drops the modules, which are parsed by themselves."""

    def __init__(self, script: Script) -> None:
        self._bindings = script.bindings

    def _keep(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if is_entry_point(node, self._bindings) else node

    visit_ClassDef = visit_FunctionDef = _keep  # noqa: N815
