"""A `.py` file of TVMScript as a syntax tree: its modules, and what each module-level name stands for.

Nothing of the file is executed, and no TVM is imported here.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from symalloc.program.reading import UnreadableError
from symalloc.program.span import Span, SyntaxNode, span_of
from symalloc.size.expr import constant
from symalloc.size.parse import parse_expr

STATEMENT_HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def expression_of(text: str) -> ast.expr | None:
    """The Python expression that `text` is; None where it is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def quoted_symbols(annotation: ast.expr | None) -> Iterator[str]:
    """Identifiers in the strings of a parameter's annotation: `R.Tensor(("m", "2 * n"))` defines symbols."""
    texts = (n.value for n in ast.walk(annotation or ast.Pass()) if isinstance(n, ast.Constant))
    for text in texts:
        inside = expression_of(text) if isinstance(text, str) else None
        nodes = [] if inside is None else list(ast.walk(inside))
        roots = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}  # the T of `T.int64(2)`
        yield from (n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in roots)


def stored_names(statement: ast.AST) -> Iterator[str]:
    """Names that the statement itself binds (not those of statements below it)."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        pending.extend(c for c in ast.iter_child_nodes(node) if not isinstance(c, STATEMENT_HOLDERS))


def constant_of(node: ast.expr, known: Mapping[str, Binding]) -> Constant | None:
    """The value of `node`: numbers, strings, True/False/None, tuples and lists of these, integer arithmetic,
    and the constants in `known`; None for anything else.
    """
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return Constant(node.value)
        case ast.Name(id=name) if isinstance(found := known.get(name), Constant):
            return found
        case ast.Tuple() | ast.List():
            items = [item for item in (constant_of(each, known) for each in node.elts) if item is not None]
            return Constant(tuple(i.value for i in items)) if len(items) == len(node.elts) else None
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float(number))):
            return Constant(-number)
    numbers = {name: constant(b.value) for name, b in known.items() if type(b.value) is int}
    with suppress(ValueError, ArithmeticError, RecursionError):
        whole = parse_expr(ast.unparse(node)).substitute(numbers).as_constant
        return None if whole is None else Constant(whole)
    return None


# how TVM's script packages are reached -> the letter that this program knows them by
FACES = {
    "tvm.script.ir": "I",
    "tvm.script.parser.ir": "I",
    "tvm.script.relax": "R",
    "tvm.script.parser.relax": "R",
    "tvm.script.tirx": "T",
    "tvm.script.parser.tirx": "T",
}
_SHORTCUTS = {"tvm.script.ir_module": "I.ir_module", "tvm.script.parser.ir_module": "I.ir_module"}
# a graph in JSON that holds code: what would load it may run it
_CODE = re.compile(r"EnvFunc|ffi\.Function|PackedFunc|ffi\.Module|runtime\.Module")
_ENTRY_POINTS = frozenset({"I.ir_module", "R.function", "T.prim_func"})


@dataclass(frozen=True, slots=True)
class Binding:
    """The thing that a module-level name stands for, as one of the kinds below."""

    value: Any


class Imported(Binding):
    """A name that an import binds: the dotted path of what it names."""


class Constant(Binding):
    """A name bound to a number, a string, or a tuple of such."""


class ModuleSymbol(Binding):
    """`m = TypeVar("m")`: the text."""


class Metadata(Binding):
    """`metadata = tvm.ir.load_json("…")`, as printed by script(show_meta=True): the JSON."""


class Opaque(Binding):
    """A name bound to something that only running the file would tell: what that is, in words."""


@dataclass(frozen=True, slots=True)
class ScriptModule:
    """A class decorated by I.ir_module, or a lone function decorated by R.function or T.prim_func.

    `name` is that of the class or function, with its line behind it (`Module:31`) where the file has
    several of that name.
    """

    name: str
    node: ast.ClassDef | ast.FunctionDef

    @property
    def line(self) -> int:
        """The line of its `class` or `def`, from 1."""
        return self.node.lineno

    @property
    def first_line(self) -> int:
        """The line of its first decorator, from 1."""
        return min(decorator.lineno for decorator in self.node.decorator_list)

    @property
    def wants_check(self) -> bool:
        """False where a decorator says `check_well_formed=False`."""
        calls = (decorator for decorator in self.node.decorator_list if isinstance(decorator, ast.Call))
        words = (keyword for call in calls for keyword in call.keywords)
        return not any(w.arg == "check_well_formed" and ast.unparse(w.value) == "False" for w in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file of TVMScript."""

    file: str
    text: str
    tree: ast.Module
    modules: tuple[ScriptModule, ...]
    bindings: Mapping[str, Binding]

    def span(self, node: SyntaxNode) -> Span:
        """The span of `node`; columns count characters."""
        return span_of(self.file, self.text.split("\n"), node)


def decode(data: bytes) -> str:
    """The text of a Python file, line ends normalised, a byte order mark removed.

    Raises UnreadableError where `data` is no text in the encoding that it declares (UTF-8 by default).
    """
    if b"\0" in data:
        raise UnreadableError("it is a binary file, not Python source")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise UnreadableError(f"it is not valid text: {error}", hint="save the file as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_text(file: str, text: str) -> Script:
    """Parse `text`, what `file` holds, and find the modules in it.  Raises UnreadableError."""
    try:
        tree = ast.parse(text, filename=file)
    except SyntaxError as error:
        raise UnreadableError(f"syntax error: {error.msg}", _error_span(file, text, error)) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise UnreadableError("its expressions are nested too deeply for Python's parser") from error
    bindings = dict(_bindings(tree))
    held = _statements(tree, lambda node: is_entry_point(node, bindings))
    nodes = [node for node in held if is_entry_point(node, bindings)]
    often = Counter(node.name for node in nodes)
    # findings, fixes and `--module` tell modules apart by name
    names = (f"{node.name}:{node.lineno}" if often[node.name] > 1 else node.name for node in nodes)
    modules = tuple(ScriptModule(name, node) for name, node in zip(names, nodes, strict=True))
    return Script(file=file, text=text, tree=tree, modules=modules, bindings=bindings)


def _error_span(file: str, text: str, error: SyntaxError) -> Span | None:
    """The place that Python gives; the end of the text where that is behind it."""
    if error.lineno is None:
        return None
    line, column = error.lineno, max(error.offset or 1, 1)
    lines = text.rstrip().split("\n")
    if line > len(lines):
        last = len(lines[-1]) + 1
        return Span(file=file, line=len(lines), column=last, end_line=len(lines), end_column=last + 1)
    end_line, end_column = error.end_lineno or line, error.end_offset or 0
    if (end_line, end_column) <= (line, column):
        end_line, end_column = line, column + 1
    return Span(file=file, line=line, column=column, end_line=end_line, end_column=end_column)


# -- modules


def _statements(tree: ast.AST, closed: Callable[[ast.AST], bool]) -> Iterator[ast.AST]:
    """A tree and what holds statements in it, in the order of the text; nothing below what is `closed`."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if not closed(node):
            children = [c for c in ast.iter_child_nodes(node) if isinstance(c, STATEMENT_HOLDERS)]
            pending.extend(reversed(children))


def is_entry_point(
    node: ast.AST, bindings: Mapping[str, Binding]
) -> TypeGuard[ast.ClassDef | ast.FunctionDef]:
    """Return whether `node` is a class or function that is decorated as a module of its own."""
    if not isinstance(node, ast.ClassDef | ast.FunctionDef):
        return False
    targets = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(dialect_path(target, bindings) in _ENTRY_POINTS for target in targets)


def dialect_path(node: ast.expr, bindings: Mapping[str, Binding]) -> str | None:
    """`R.memory.alloc_tensor` for attributes that reach it, whatever the file calls R; None for all others.

    I, R and T are known where the file binds these names to nothing else: TVM prints its imports as comments.
    """
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    binding = bindings.get(node.id)
    if binding is None and node.id in ("I", "R", "T"):
        return ".".join([node.id, *reversed(names)])
    if not isinstance(binding, Imported):
        return None
    path = ".".join([binding.value, *reversed(names)])
    faces = (face + path[len(known) :] for known, face in FACES.items() if f"{path}.".startswith(f"{known}."))
    return _SHORTCUTS.get(path) or next(faces, None)


# -- module-level names


def _bindings(tree: ast.Module) -> Mapping[str, Binding]:
    found: dict[str, Binding] = {}
    for statement in _statements(tree, lambda node: isinstance(node, _SCOPES)):
        for name, binding in _bound_by(statement, found):
            found[name] = (
                binding if found.get(name, binding) == binding else Opaque("several different things")
            )
    return found


def _bound_by(statement: ast.AST, known: Mapping[str, Binding]) -> Iterator[tuple[str, Binding]]:
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            root = alias.name.split(".")[0]
            yield (alias.asname, Imported(alias.name)) if alias.asname else (root, Imported(root))
    elif isinstance(statement, ast.ImportFrom):
        base = "." * statement.level + (statement.module or "")
        yield from ((a.asname or a.name, Imported(f"{base}.{a.name}")) for a in statement.names)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        value = _value(statement.value, known)
        yield from ((name, value) for name in stored_names(statement))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        value = _value(statement.value, known) if statement.value else Opaque("only declared")
        yield statement.target.id, value
    elif isinstance(statement, _SCOPES):
        kind = "class" if isinstance(statement, ast.ClassDef) else "function"
        yield statement.name, Opaque(f"the {kind} defined in line {statement.lineno}")
    else:
        yield from ((name, Opaque("something computed")) for name in stored_names(statement))


def _value(node: ast.expr, known: Mapping[str, Binding]) -> Binding:
    found = constant_of(node, known)
    if found is not None:
        return found
    match node:
        case ast.Call(func=called, args=[ast.Constant(value=str(text))], keywords=[]):
            name = ast.unparse(called)
            if name in ("TypeVar", "typing.TypeVar"):
                return ModuleSymbol(text)
            if name == "tvm.ir.load_json" and not _CODE.search(text):
                return Metadata(text)
    return Opaque("something computed")


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file.  Raises UnreadableError with the reason in words."""
    try:
        if not path.is_file():
            raise UnreadableError("it is not a regular file" if path.exists() else "there is no such file")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error
