"""Decides whether a script may be handed to TVM's parser, which evaluates every expression that it meets.

A whitelist over the syntax tree: a statement or an expression that is not named here is refused.  Allowed
expressions are literals, arithmetic, comparisons, subscripts, the names that the script binds, constants of
its file, the names of the dialect, and calls of the dialect, of the script's own functions and of a few
builtins.  Imports no TVM.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from symalloc.errors import nearest
from symalloc.program.reading import ReadProblem
from symalloc.relax.read.script_file import (
    Binding,
    Constant,
    Imported,
    Metadata,
    ModuleSymbol,
    Opaque,
    Script,
    ScriptModule,
    dialect_path,
    expression_of,
    quoted_symbols,
)

SAFE_BUILTINS = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "range"})
_BUILTINS = frozenset(dir(builtins))
# what is asked of buffers, variables and expressions; none of it leads back to Python's own objects
_VALUE_ATTRIBUTES = frozenset(
    "access_ptr astype byte_offset data dtype elem_offset scope shape strides vload vstore".split()  # noqa: SIM905
)
_TAKES_LAMBDA = frozenset({"T.index_map", "T.comm_reducer", "R.layout_transform"})
INFERENCE_PREFIXES = ("relax.", "tvm.relax.")
_TEXT = "R.str"
"""Makes a string of the program of its argument: TVM never takes it for an extent, and evaluates nothing."""
_INFERENCE_POSITION = 3  # of derive_func among the parameters of R.Callable
_TRUST_HINT = "write the value into the script; --trust runs the imports and code of a file that you trust"

# the parts in the order in which they are evaluated, where that is not the order of the syntax tree
_EVALUATED: Mapping[type[ast.AST], tuple[str, ...]] = {
    ast.For: ("iter", "target", "body", "orelse"),
    ast.AnnAssign: ("annotation", "value", "target"),
    ast.AugAssign: ("value", "target"),
}
_DECORATORS = {"class": frozenset({"I.ir_module"}), "function": frozenset({"R.function", "T.prim_func"})}

Node: TypeAlias = "ast.expr | ast.stmt | ast.arg | ast.keyword"


def refusals(script: Script, module: ScriptModule, dialect: frozenset[str]) -> Iterator[ReadProblem]:
    """The constructs in `module` that are not evaluated, in their order; none means that it may be parsed.

    `dialect` holds the allowed paths, such as `R.add`.
    """
    node = module.node
    guard = _Guard(script.bindings, dialect, node.name if isinstance(node, ast.ClassDef) else "")
    try:
        guard.check_module(node)
    except RecursionError:
        guard.refuse(node, "its expressions are nested too deeply")
    for refused, what, hint in sorted(guard.found, key=lambda item: (item[0].lineno, item[0].col_offset)):
        yield ReadProblem(
            file=script.file,
            message=f"not evaluated: {what}",
            hint=hint or "a file that you trust can be read with --trust, which evaluates what it holds",
            span=script.span(refused),
            module=module.name,
        )


def text_refusal(
    text: str, dialect: frozenset[str], bindings: Mapping[str, Binding] = MappingProxyType({})
) -> str | None:
    """Why a string that TVM would evaluate (a quoted extent) is refused; None where it is harmless.

    A string that is no Python expression is harmless: evaluating it is a syntax error.
    """
    inside = expression_of(text)
    if inside is None:
        return None
    guard = _Guard(bindings, dialect)
    guard.visit(inside)
    return guard.found[0][1] if guard.found else None


class _Guard(ast.NodeVisitor):
    """Walks a module; every refusal is recorded and the walk goes on, so that all are reported at once.

    The kinds of nodes that have a method here are the whitelist.
    """

    def __init__(
        self, bindings: Mapping[str, Binding], dialect: frozenset[str], own: str | None = None
    ) -> None:
        self.found: list[tuple[Node, str, str | None]] = []
        self.bindings = bindings
        self.scopes: list[set[str]] = []
        # names that stand for the module itself: its `own`, and what `cls = Module` binds
        self.module_names = {"cls", own} if own else set()
        self._dialect = dialect
        self._in_text = own is None  # a string is looked into, which no module holds

    def refuse(self, node: Node, what: str, hint: str | None = None) -> None:
        """Record that `node` is not allowed."""
        self.found.append((node, what, hint))

    def generic_visit(self, node: Any) -> None:
        """Refuse a node of any other kind."""
        self.refuse(node, f"{kind_of(node)} is no part of TVMScript")

    def _children(self, node: ast.AST) -> None:
        for field in _EVALUATED.get(type(node), node._fields):
            part = getattr(node, field)
            for child in part if isinstance(part, list) else (part,):
                if isinstance(child, ast.expr | ast.stmt):
                    self.visit(child)

    # expressions and statements about which there is nothing to check but their parts
    visit_BoolOp = visit_UnaryOp = visit_Compare = visit_IfExp = visit_Subscript = visit_Slice = _children  # noqa: N815
    visit_Tuple = visit_List = visit_Dict = visit_Set = visit_Starred = _children  # noqa: N815
    visit_AnnAssign = visit_AugAssign = visit_Return = visit_Assert = visit_If = visit_While = _children  # noqa: N815
    visit_For = visit_Pass = visit_Break = visit_Continue = _children  # noqa: N815

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Strings are not put together: what they would say could not be checked beforehand."""
        sides = (self.bindings.get(s.id) if isinstance(s, ast.Name) else s for s in (node.left, node.right))
        if any(isinstance(s, Constant | ast.Constant) and isinstance(s.value, str) for s in sides):
            self.refuse(node, f"arithmetic on strings, `{short(node)}`")
        self._children(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """TVM evaluates those strings that stand for extents; which ones do is not told apart."""
        refused = self._text_refusal(node.value)
        if refused is not None:
            self.refuse(node, f"the string `{short(node)}`, if it were evaluated: {refused}")

    def _text_refusal(self, text: object) -> str | None:
        return text_refusal(text, self._dialect, self.bindings) if isinstance(text, str) else None

    def visit_Name(self, node: ast.Name) -> None:
        refused = self._name_refusal(node)
        if refused is not None:
            self.refuse(node, *refused)
        elif isinstance(node.ctx, ast.Store) and self.scopes:
            self.scopes[-1].add(node.id)

    def _name_refusal(self, node: ast.Name) -> tuple[str, str | None] | None:
        name = node.id
        if is_reserved(name):
            return f"the reserved name `{name}`", None
        if not isinstance(node.ctx, ast.Load):
            own = dialect_path(node, self.bindings) is None
            return None if own else (f"`{name}` stands for the dialect and cannot be assigned", None)
        if self._in_text:
            return None  # a name alone is evaluated to no effect
        if name in SAFE_BUILTINS or self._is_local(name):
            return None
        binding = self.bindings.get(name)
        if isinstance(binding, ModuleSymbol | Metadata):
            return None
        if isinstance(binding, Constant):
            return self._constant_refusal(name, binding.value)
        if name in _BUILTINS:
            return f"`{name}` is a Python builtin", None
        return self._undefined(name) if binding is None else _foreign(name, binding)

    def _undefined(self, name: str) -> tuple[str, str]:
        """The message for a name that nothing in the file binds."""
        if name == "metadata":
            return "the script was printed without its constants", "print it with mod.script(show_meta=True)"
        known = [*self.bindings, *(local for scope in self.scopes for local in scope)]
        close = nearest(name, known)
        if close:
            hint = f"did you mean `{close}`?"
        elif "*" in self.bindings:
            hint = f"import it by name: `import *` may bind it; {_TRUST_HINT}"
        else:
            hint = f"define it: `{name} = 16` outside the module, or `{name} = T.int64()` for a symbol"
        return f"the script does not define `{name}`", hint

    def _constant_refusal(self, name: str, value: object) -> tuple[str, str | None] | None:
        if isinstance(value, tuple):
            refused = (self._constant_refusal(name, item) for item in value)
            return next((refusal for refusal in refused if refusal is not None), None)
        what = self._text_refusal(value)
        return None if what is None else (f"the string `{name}`, if it were evaluated: {what}", None)

    def _is_local(self, name: str) -> bool:
        """Return whether the script binds `name`; a builtin's name counts only behind its binding."""
        return any(name in scope for scope in self.scopes)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, f"an assignment to `{short(node)}`")
        elif is_reserved(node.attr):
            self.refuse(node, f"the attribute `{node.attr}`")
        elif path is not None:
            if path not in self._dialect:
                self.refuse(node, f"`{short(node)}` is not among the names of the dialect that only build IR")
        elif not self.is_module(node.value):
            before = len(self.found)
            self.visit(node.value)
            is_known = node.attr in _VALUE_ATTRIBUTES or self._in_text
            if not is_known and len(self.found) == before:
                self.refuse(node, f"the attribute `{node.attr}` of `{short(node.value)}`")

    def _path(self, node: ast.expr) -> str | None:
        """The dialect path of `node`, unless its root is a name that the script binds itself."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and self._is_local(root.id):
            return None
        return dialect_path(node, self.bindings)

    def is_module(self, node: ast.expr) -> bool:
        """Return whether `node` names the module itself, as in `cls.kernel`."""
        return isinstance(node, ast.Name) and node.id in self.module_names

    def visit_Call(self, node: ast.Call) -> None:
        path = self._path(node.func)
        if isinstance(node.func, ast.Name):
            self._called_name(node.func, path)
        elif isinstance(node.func, ast.Attribute):
            if self._in_text and path is None:
                self.refuse(node, f"a call of `{short(node.func)}`")
            self.visit(node.func)
        else:
            self.refuse(node, f"a call of `{short(node.func)}`")
        takes_lambda = path in _TAKES_LAMBDA
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if takes_lambda and isinstance(argument, ast.Lambda):
                self._lambda(argument)
            elif not (path == _TEXT and isinstance(argument, ast.Constant)):
                self.visit(argument)
        self._keywords(node, path)

    def _called_name(self, node: ast.Name, path: str | None) -> None:
        if node.id in SAFE_BUILTINS or path in self._dialect:
            return
        if node.id in _BUILTINS or self._in_text:
            self.refuse(node, f"a call of `{node.id}`")
        elif node.id not in self.bindings and not self._is_local(node.id):
            hint = f'a function of the module is called as `cls.{node.id}`, others by R.call_packed("…", …)'
            self.refuse(node, f"the script does not define `{node.id}`", hint)
        else:
            self.visit_Name(node)

    def _keywords(self, node: ast.Call, path: str | None) -> None:
        """`derive_func` names a function that TVM calls to infer types: only its own are let through."""
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword, "`**` in a call")
            elif keyword.arg == "derive_func":
                text = keyword.value.value if isinstance(keyword.value, ast.Constant) else ""
                if not str(text).startswith(INFERENCE_PREFIXES):
                    self.refuse(keyword, f"type inference by `{short(keyword.value)}`")
        if path == "R.Callable" and len(node.args) > _INFERENCE_POSITION:
            self.refuse(node, "type inference by a function given by position")

    def _lambda(self, node: ast.Lambda) -> None:
        self.check_arguments(node.args, star=True)
        arguments = [*node.args.args, *([node.args.vararg] if node.args.vararg else [])]
        self.scopes.append({argument.arg for argument in arguments})
        self.visit(node.body)
        self.scopes.pop()

    def check_arguments(self, arguments: ast.arguments, *, star: bool = False) -> None:
        """Check a parameter list: plain names without default values, and `*names` where `star`."""
        for default in (*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)):
            self.refuse(default, "a default value of a parameter")
        extras = (*arguments.kwonlyargs, *arguments.posonlyargs, arguments.kwarg)
        for extra in (*extras, None if star else arguments.vararg):
            if extra is not None:
                self.refuse(extra, f"`{extra.arg}` is no plain parameter")

    # -- statements -----------------------------------------------------------------------------------------

    def check_module(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        """Check a decorated class or function."""
        if isinstance(node, ast.FunctionDef):
            self.scopes.append({node.name})
            self.visit_FunctionDef(node)
            return
        for base in node.bases:
            self.refuse(base, "a module has no base class", "Python functions in modules are not read")
        for keyword in node.keywords:
            self.refuse(keyword, "a module takes no class arguments")
        self._decorators(node, "class")
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.Expr | ast.Assign | ast.Pass):
                self.visit(statement)
            else:
                self.refuse(statement, f"{kind_of(statement)} in the body of a module")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._decorators(node, "function")
        self.check_arguments(node.args)
        self.scopes.append(set(_names_bound(node)) - _BUILTINS)
        for argument in node.args.args:
            if argument.annotation is not None:
                self.visit(argument.annotation)
            self.scopes[-1] |= {argument.arg, *quoted_symbols(argument.annotation)}
        for part in (node.returns, *node.body):
            if part is not None:
                self.visit(part)
        for parameter in getattr(node, "type_params", ()):
            bound = getattr(parameter, "bound", None)
            if bound is not None and ast.unparse(bound) != "int":
                self.refuse(bound, "a type parameter is a plain name")
        self.scopes.pop()

    def _decorators(self, node: ast.ClassDef | ast.FunctionDef, kind: str) -> None:
        if len(node.decorator_list) != 1:
            self.refuse(node, f"a {kind} of a module has exactly one decorator")
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            path = dialect_path(call.func if call else decorator, self.bindings)
            if path not in _DECORATORS[kind]:
                self.refuse(decorator, f"`{short(decorator)}` is no decorator of the dialect")
            elif call and (
                call.args or not all(k.arg and type(k.value) is ast.Constant for k in call.keywords)
            ):
                self.refuse(decorator, "a decorator takes only True, False or literals by keyword")

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or `...`
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.is_module(node.value):
            self.module_names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        else:
            self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if not isinstance(item.context_expr, ast.Call):
                self.refuse(item.context_expr, "`with` takes a call of the dialect")
            self._children(item)
        self._children(node)


def _names_bound(node: ast.FunctionDef) -> Iterator[str]:
    """The names that a function binds anywhere."""
    yield from (parameter.name for parameter in getattr(node, "type_params", ()))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.FunctionDef):
            yield inner.name
        elif isinstance(inner, ast.arg):
            yield inner.arg
            yield from quoted_symbols(inner.annotation)


def _foreign(name: str, binding: Binding) -> tuple[str, str | None]:
    if isinstance(binding, Imported) and binding.value.split(".")[0] == "tvm":
        return f"`{name}` leads outside the script dialect, or is no value by itself", None
    if isinstance(binding, Imported):
        what = f"`{name}` is imported ({binding.value}), and a file is not run to be read"
    else:
        bound_to = binding.value if isinstance(binding, Opaque) else "not a value"
        what = f"`{name}` is {bound_to}, and a file is not run to be read"
    return what, _TRUST_HINT


def is_reserved(name: str) -> bool:
    """Names such as `__import__`; TVM itself prints variables called `_` and `__`."""
    return name.startswith("__") and bool(name.strip("_"))


def short(node: ast.AST, most: int = 60) -> str:
    """`node` as text on one line."""
    text = str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


_PLAIN_NAMES = {
    "JoinedStr": "an f-string",
    "Lambda": "a lambda",
    **dict.fromkeys(("ListComp", "SetComp", "DictComp", "GeneratorExp"), "a comprehension"),
    "NamedExpr": "an assignment inside an expression",
    **dict.fromkeys(("Import", "ImportFrom"), "an import"),
    "ClassDef": "a class inside a module",
    "AsyncFunctionDef": "an async function",
}


def kind_of(node: ast.AST) -> str:
    """The kind of `node`, in words."""
    kind = type(node).__name__
    return _PLAIN_NAMES.get(kind, f"`{kind.lower()}`")
