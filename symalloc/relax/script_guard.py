"""Whether a script may be handed to TVM's parser, which evaluates every expression that it meets.

A whitelist over the syntax tree: a construct that is not named here is refused.  Allowed are the names that
the script defines itself, constants of its file, the names of the dialect (`script_dialect`), arithmetic,
comparisons, literals, subscripts, and calls of the dialect, of the script's own functions and of a few
builtins.  Imports no TVM.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.program.span import Span
from symalloc.relax.script_file import (
    Binding,
    Constant,
    Imported,
    Metadata,
    Opaque,
    Script,
    ScriptModule,
    Symbol,
    dialect_path,
)
from symalloc.relax.script_scope import Position, Scope, function_scope, position

__all__ = ["SAFE_BUILTINS", "Refusal", "refusals", "text_refusal"]

SAFE_BUILTINS = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "range"})
_BUILTINS = frozenset(dir(builtins))
# what is asked of buffers, variables and expressions; none of it leads back to Python's own objects
_VALUE_ATTRIBUTES = frozenset(
    "access_ptr astype byte_offset data dtype elem_offset scope shape strides vload vstore".split()  # noqa: SIM905
)
_TAKES_LAMBDA = frozenset({"T.index_map", "T.comm_reducer", "R.layout_transform"})
_DECORATORS = {"class": frozenset({"I.ir_module"}), "function": frozenset({"R.function", "T.prim_func"})}
_INFERENCE_PREFIXES = ("relax.", "tvm.relax.")

_Node: TypeAlias = "ast.expr | ast.stmt | ast.arg | ast.keyword"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One construct that is not evaluated: where it stands, what it is, what to do."""

    span: Span
    what: str
    hint: str | None = None


def refusals(script: Script, module: ScriptModule, dialect: frozenset[str]) -> Iterator[Refusal]:
    """What in `module` is refused, in the order it stands; nothing means that it may be parsed.

    `dialect` holds the allowed paths, such as `R.add`.
    """
    guard = _Guard(script.bindings, dialect, module.node)
    try:
        guard.check_module(module.node)
    except RecursionError:
        guard.refuse(module.node, "its expressions are nested too deeply")
    for node, what, hint in sorted(guard.found, key=lambda item: position(item[0])):
        yield Refusal(script.span(node), what, hint)


def text_refusal(text: str, dialect: frozenset[str]) -> str | None:
    """Why a string that TVM would evaluate (a quoted extent) is refused; None where it is harmless.

    A string that is no Python expression is harmless: evaluating it is a syntax error.
    """
    guard = _Guard({}, dialect, None)
    guard.check_text(ast.Constant(text, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0))
    return guard.found[0][1] if guard.found else None


class _Guard:
    """Walks one module; every refusal is recorded and the walk goes on, so that all are reported at once."""

    def __init__(
        self, bindings: Mapping[str, Binding], dialect: frozenset[str], module: ast.AST | None
    ) -> None:
        self.found: list[tuple[_Node, str, str | None]] = []
        self._bindings = bindings
        self._dialect = dialect
        self._packages = {path.rsplit(".", 1)[0] for path in dialect if path.count(".") > 1}
        # names that stand for the module itself: its own, and what `cls = Module` binds
        self._module_names = {"cls", module.name} if isinstance(module, ast.ClassDef) else set()
        self._scopes: list[Scope] = []
        self._in_text = False

    def refuse(self, node: _Node, what: str, hint: str | None = None) -> None:
        """Record that `node` is not allowed."""
        self.found.append((node, what, hint))

    # -- modules and functions

    def check_module(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        """Check a decorated class or function."""
        if isinstance(node, ast.FunctionDef):
            self._scopes.append({node.name: (0, 0)})
            self._function(node)
            return
        for base in node.bases:
            self.refuse(base, "a module has no base class", "Python functions in modules are not read")
        for keyword in node.keywords:
            self.refuse(keyword, "a module takes no class arguments")
        self._decorators(node, "class")
        for statement in node.body:
            self._class_statement(statement)

    def _class_statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.FunctionDef):
            self._function(statement)
        elif isinstance(statement, ast.Expr | ast.Assign | ast.Pass):
            self._statement(statement)
        else:
            self.refuse(statement, f"{_article(statement)} in the body of a module")

    def _function(self, node: ast.FunctionDef) -> None:
        self._decorators(node, "function")
        self._arguments(node.args)
        self._scopes.append(function_scope(node))
        self._annotations(node)
        self._body(node.body)
        self._scopes.pop()

    def _annotations(self, node: ast.FunctionDef) -> None:
        for argument in node.args.args:
            self._optional(argument.annotation)
        self._optional(node.returns)
        for parameter in getattr(node, "type_params", ()):
            bound = getattr(parameter, "bound", None)
            if bound is not None and ast.unparse(bound) != "int":
                self.refuse(bound, "a type parameter is a plain name")

    def _decorators(self, node: ast.ClassDef | ast.FunctionDef, kind: str) -> None:
        if len(node.decorator_list) != 1:
            self.refuse(node, f"a {kind} of a module has exactly one decorator")
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            path = dialect_path(call.func if call else decorator, self._bindings)
            if path not in _DECORATORS[kind]:
                self.refuse(decorator, f"`{_short(decorator)}` is no decorator of the dialect")
            elif call and (call.args or not all(_is_flag(keyword) for keyword in call.keywords)):
                self.refuse(decorator, "a decorator takes only True, False or literals by keyword")

    def _arguments(self, arguments: ast.arguments) -> None:
        for default in (*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)):
            self.refuse(default, "a default value of a parameter")
        for extra in (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.posonlyargs):
            if extra is not None:
                self.refuse(extra, f"`{extra.arg}` is no plain parameter")

    # -- statements

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        check = _STATEMENTS.get(type(node))
        if check is None:
            self.refuse(node, f"{_article(node)} is no part of TVMScript")
        else:
            check(self, node)

    def _nested_function(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def _expression_statement(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or `...`
            self._expr(node.value)

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._target(target)
        if self._is_module(node.value):
            self._module_names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        else:
            self._expr(node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self._target(node.target)
        self._expr(node.annotation)
        self._optional(node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        self._target(node.target)
        self._expr(node.value)

    def _target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self._new_name(node)
        elif isinstance(node, ast.Tuple | ast.List):
            for item in node.elts:
                self._target(item)
        elif isinstance(node, ast.Starred):
            self._target(node.value)
        elif isinstance(node, ast.Subscript):
            self._expr(node.value)
            self._expr(node.slice)
        else:
            self.refuse(node, f"an assignment to `{_short(node)}`")

    def _new_name(self, node: ast.Name) -> None:
        if _is_reserved(node.id):
            self.refuse(node, f"the name `{node.id}` is reserved")
        elif dialect_path(node, self._bindings) is not None:
            self.refuse(node, f"`{node.id}` stands for the dialect and cannot be assigned")

    def _return(self, node: ast.Return) -> None:
        self._optional(node.value)

    def _if(self, node: ast.If | ast.While) -> None:
        self._expr(node.test)
        self._body(node.body)
        self._body(node.orelse)

    def _for(self, node: ast.For) -> None:
        self._target(node.target)
        self._expr(node.iter)
        self._body(node.body)
        self._body(node.orelse)

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            if not isinstance(item.context_expr, ast.Call):
                self.refuse(item.context_expr, "`with` takes a call of the dialect")
            self._expr(item.context_expr)
            if item.optional_vars is not None:
                self._target(item.optional_vars)
        self._body(node.body)

    def _assertion(self, node: ast.Assert) -> None:
        self._expr(node.test)
        self._optional(node.msg)

    def _nothing(self, node: ast.stmt) -> None:
        """Pass, break, continue: nothing to evaluate."""

    # -- expressions

    def _optional(self, node: ast.expr | None) -> None:
        if node is not None:
            self._expr(node)

    def _expr(self, node: ast.expr) -> None:
        check = _EXPRESSIONS.get(type(node))
        if check is None:
            self.refuse(node, f"{_article(node)} is no part of TVMScript")
        else:
            check(self, node)

    def _children(self, node: ast.expr) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expr(child)

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.check_text(node)

    def check_text(self, node: ast.Constant) -> None:
        """Check a string.  TVM evaluates those that stand for extents; which ones do is not told apart."""
        try:
            inside = ast.parse(str(node.value).strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        guard = _Guard(self._bindings, self._dialect, None)
        guard._in_text = True
        guard._expr(inside)
        if guard.found:
            self.refuse(node, f"the string `{_short(node)}`, if it were evaluated: {guard.found[0][1]}")

    def _name(self, node: ast.Name) -> None:
        refused = self._name_refusal(node)
        if refused is not None:
            self.refuse(node, *refused)

    def _name_refusal(self, node: ast.Name) -> tuple[str, str | None] | None:
        name = node.id
        if _is_reserved(name):
            return f"the name `{name}`", None
        if self._in_text:
            return (f"`{name}` is a Python builtin", None) if name in _BUILTINS - SAFE_BUILTINS else None
        binding = self._bindings.get(name)
        is_known = isinstance(binding, Constant | Symbol | Metadata) or name in SAFE_BUILTINS
        if is_known or self._is_local(name, position(node)):
            return None
        if name in _BUILTINS:
            return f"`{name}` is a Python builtin", None
        return _foreign(name, binding)

    def _is_local(self, name: str, here: Position) -> bool:
        """Whether the script binds `name`; a builtin's name counts only behind the place that binds it."""
        for scope in self._scopes:
            bound = scope.get(name)
            if bound is not None and (name not in _BUILTINS or bound <= here):
                return True
        return False

    def _attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if node.attr.startswith("_"):
            self.refuse(node, f"the attribute `{node.attr}`")
        elif path is not None:
            if path not in self._dialect:
                self.refuse(
                    node, f"`{_short(node)}` is not among the names of the dialect that only build IR"
                )
        elif self._is_module(node.value):
            return
        else:
            self._expr(node.value)
            if not self._in_text and node.attr not in _VALUE_ATTRIBUTES:
                self.refuse(node, f"the attribute `{node.attr}` of `{_short(node.value)}`")

    def _path(self, node: ast.expr) -> str | None:
        """The dialect path of `node`, unless its root is a name that the script binds itself."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and any(root.id in scope for scope in self._scopes):
            return None
        return dialect_path(node, self._bindings)

    def _is_module(self, node: ast.expr) -> bool:
        """Whether `node` names the module itself, as in `cls.kernel`."""
        return isinstance(node, ast.Name) and node.id in self._module_names

    def _call(self, node: ast.Call) -> None:
        path = self._path(node.func)
        if isinstance(node.func, ast.Name):
            self._called_name(node.func, path)
        elif isinstance(node.func, ast.Attribute):
            if self._in_text and path is None:
                self.refuse(node, f"a call of `{_short(node.func)}`")
            self._expr(node.func)
        else:
            self.refuse(node, f"a call of `{_short(node.func)}`")
        takes_lambda = path in _TAKES_LAMBDA
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if takes_lambda and isinstance(argument, ast.Lambda):
                self._lambda(argument)
            else:
                self._expr(argument)
        self._inference(node)

    def _called_name(self, node: ast.Name, path: str | None) -> None:
        if node.id in SAFE_BUILTINS or path in self._dialect:
            return
        if node.id in _BUILTINS or self._in_text:
            self.refuse(node, f"a call of `{node.id}`")
        else:
            self._name(node)

    def _inference(self, node: ast.Call) -> None:
        """`derive_func` names a function that TVM calls to infer types: only its own are let through."""
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg == "derive_func" and not _is_own_inference(value):
                self.refuse(keyword, f"type inference by `{_short(value)}`")

    def _lambda(self, node: ast.Lambda) -> None:
        self._arguments(node.args) if not node.args.vararg else self._star_arguments(node.args)
        names = [*(a.arg for a in node.args.args), *([node.args.vararg.arg] if node.args.vararg else [])]
        self._scopes.append(dict.fromkeys(names, position(node)))
        self._expr(node.body)
        self._scopes.pop()

    def _star_arguments(self, arguments: ast.arguments) -> None:
        for default in (*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)):
            self.refuse(default, "a default value of a parameter")


_STATEMENTS: Mapping[type[ast.stmt], Callable[[_Guard, ast.stmt], None]] = {
    ast.FunctionDef: _Guard._nested_function,  # type: ignore[dict-item]
    ast.Expr: _Guard._expression_statement,  # type: ignore[dict-item]
    ast.Assign: _Guard._assign,  # type: ignore[dict-item]
    ast.AnnAssign: _Guard._annotated,  # type: ignore[dict-item]
    ast.AugAssign: _Guard._augmented,  # type: ignore[dict-item]
    ast.Return: _Guard._return,  # type: ignore[dict-item]
    ast.If: _Guard._if,  # type: ignore[dict-item]
    ast.While: _Guard._if,  # type: ignore[dict-item]
    ast.For: _Guard._for,  # type: ignore[dict-item]
    ast.With: _Guard._with,  # type: ignore[dict-item]
    ast.Assert: _Guard._assertion,  # type: ignore[dict-item]
    ast.Pass: _Guard._nothing,
    ast.Break: _Guard._nothing,
    ast.Continue: _Guard._nothing,
}
_EXPRESSIONS: Mapping[type[ast.expr], Callable[[_Guard, ast.expr], None]] = {
    ast.Constant: _Guard._constant,  # type: ignore[dict-item]
    ast.Name: _Guard._name,  # type: ignore[dict-item]
    ast.Attribute: _Guard._attribute,  # type: ignore[dict-item]
    ast.Call: _Guard._call,  # type: ignore[dict-item]
    ast.BinOp: _Guard._children,
    ast.BoolOp: _Guard._children,
    ast.UnaryOp: _Guard._children,
    ast.Compare: _Guard._children,
    ast.IfExp: _Guard._children,
    ast.Tuple: _Guard._children,
    ast.List: _Guard._children,
    ast.Dict: _Guard._children,
    ast.Set: _Guard._children,
    ast.Subscript: _Guard._children,
    ast.Slice: _Guard._children,
    ast.Starred: _Guard._children,
}


def _foreign(name: str, binding: Binding | None) -> tuple[str, str | None]:
    if isinstance(binding, Imported):
        what = f"`{name}` is imported ({binding.path}), and a file is not run to be read"
    elif isinstance(binding, Opaque):
        what = f"`{name}` is {binding.what}, and a file is not run to be read"
    elif name == "metadata":
        return "the script was printed without its constants", "print it with mod.script(show_meta=True)"
    else:
        return f"the script does not define `{name}`", None
    return what, "write the value into the script, or read the file with --trust if you trust it"


def _is_reserved(name: str) -> bool:
    """Names such as `__import__`; TVM itself prints variables called `_` and `__`."""
    return name.startswith("__") and bool(name.strip("_"))


def _is_flag(keyword: ast.keyword) -> bool:
    return keyword.arg is not None and isinstance(keyword.value, ast.Constant)


def _is_own_inference(node: ast.expr) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return node.value.startswith(_INFERENCE_PREFIXES)


def _short(node: ast.AST, most: int = 60) -> str:
    text = str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


_PLAIN_NAMES = {
    "JoinedStr": "an f-string",
    "Lambda": "a lambda",
    "ListComp": "a comprehension",
    "SetComp": "a comprehension",
    "DictComp": "a comprehension",
    "GeneratorExp": "a comprehension",
    "NamedExpr": "an assignment inside an expression",
    "Import": "an import",
    "ImportFrom": "an import",
    "ClassDef": "a class inside a module",
    "AsyncFunctionDef": "an async function",
}


def _article(node: ast.AST) -> str:
    kind = type(node).__name__
    return _PLAIN_NAMES.get(kind, f"`{kind.lower()}`")
