"""Decides whether a script may be handed to TVM's parser, which evaluates every expression that it meets.

A whitelist over the syntax tree: a statement that is not named here, or an expression that is not named in
`script_expressions`, is refused.  Imports no TVM.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from symalloc.program.span import Span
from symalloc.relax.read.script_expressions import ExpressionGuard, is_reserved, kind_of, short
from symalloc.relax.read.script_file import Script, ScriptModule, dialect_path
from symalloc.relax.read.script_scope import function_scope, position

_DECORATORS = {"class": frozenset({"I.ir_module"}), "function": frozenset({"R.function", "T.prim_func"})}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One construct that is not evaluated: where it stands, what it is, what to do."""

    span: Span
    what: str
    hint: str | None = None


def refusals(script: Script, module: ScriptModule, dialect: frozenset[str]) -> Iterator[Refusal]:
    """The constructs in `module` that are refused, in their order; none means that it may be parsed.

    `dialect` holds the allowed paths, such as `R.add`.
    """
    node = module.node
    guard = _ModuleGuard(script.bindings, dialect, node.name if isinstance(node, ast.ClassDef) else "")
    try:
        guard.check_module(node)
    except RecursionError:
        guard.refuse(node, "its expressions are nested too deeply")
    for refused, what, hint in sorted(guard.found, key=lambda item: position(item[0])):
        yield Refusal(script.span(refused), what, hint)


class _ModuleGuard(ExpressionGuard):
    """Walks one module."""

    def check_module(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        """Check a decorated class or function."""
        if isinstance(node, ast.FunctionDef):
            self.scopes.append({node.name: (0, 0)})
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
            self.refuse(statement, f"{kind_of(statement)} in the body of a module")

    def _function(self, node: ast.FunctionDef) -> None:
        self._decorators(node, "function")
        self.check_arguments(node.args)
        self.scopes.append(function_scope(node))
        self._annotations(node)
        self._body(node.body)
        self.scopes.pop()

    def _annotations(self, node: ast.FunctionDef) -> None:
        for argument in node.args.args:
            self.check_optional(argument.annotation)
        self.check_optional(node.returns)
        for parameter in getattr(node, "type_params", ()):
            bound = getattr(parameter, "bound", None)
            if bound is not None and ast.unparse(bound) != "int":
                self.refuse(bound, "a type parameter is a plain name")

    def _decorators(self, node: ast.ClassDef | ast.FunctionDef, kind: str) -> None:
        if len(node.decorator_list) != 1:
            self.refuse(node, f"a {kind} of a module has exactly one decorator")
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            path = dialect_path(call.func if call else decorator, self.bindings)
            if path not in _DECORATORS[kind]:
                self.refuse(decorator, f"`{short(decorator)}` is no decorator of the dialect")
            elif call and (call.args or not all(_is_flag(keyword) for keyword in call.keywords)):
                self.refuse(decorator, "a decorator takes only True, False or literals by keyword")

    # -- statements

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        check = _STATEMENTS.get(type(node))
        if check is None:
            self.refuse(node, f"{kind_of(node)} is no part of TVMScript")
        else:
            check(self, node)

    def _expression_statement(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or `...`
            self.check(node.value)

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._target(target)
        if self.is_module(node.value):
            self.module_names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        else:
            self.check(node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self._target(node.target)
        self.check(node.annotation)
        self.check_optional(node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        self._target(node.target)
        self.check(node.value)

    def _target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self._new_name(node)
        elif isinstance(node, ast.Tuple | ast.List):
            for item in node.elts:
                self._target(item)
        elif isinstance(node, ast.Starred):
            self._target(node.value)
        elif isinstance(node, ast.Subscript):
            self.check(node.value)
            self.check(node.slice)
        else:
            self.refuse(node, f"an assignment to `{short(node)}`")

    def _new_name(self, node: ast.Name) -> None:
        if is_reserved(node.id):
            self.refuse(node, f"the name `{node.id}` is reserved")
        elif dialect_path(node, self.bindings) is not None:
            self.refuse(node, f"`{node.id}` stands for the dialect and cannot be assigned")

    def _return(self, node: ast.Return) -> None:
        self.check_optional(node.value)

    def _if(self, node: ast.If | ast.While) -> None:
        self.check(node.test)
        self._body(node.body)
        self._body(node.orelse)

    def _for(self, node: ast.For) -> None:
        self._target(node.target)
        self.check(node.iter)
        self._body(node.body)
        self._body(node.orelse)

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            if not isinstance(item.context_expr, ast.Call):
                self.refuse(item.context_expr, "`with` takes a call of the dialect")
            self.check(item.context_expr)
            if item.optional_vars is not None:
                self._target(item.optional_vars)
        self._body(node.body)

    def _assertion(self, node: ast.Assert) -> None:
        self.check(node.test)
        self.check_optional(node.msg)

    def _nothing(self, node: ast.stmt) -> None:
        """Pass, break, continue: nothing to evaluate."""


_STATEMENTS: Mapping[type[ast.stmt], Callable[..., None]] = {
    ast.FunctionDef: _ModuleGuard._function,
    ast.Expr: _ModuleGuard._expression_statement,
    ast.Assign: _ModuleGuard._assign,
    ast.AnnAssign: _ModuleGuard._annotated,
    ast.AugAssign: _ModuleGuard._augmented,
    ast.Return: _ModuleGuard._return,
    ast.If: _ModuleGuard._if,
    ast.While: _ModuleGuard._if,
    ast.For: _ModuleGuard._for,
    ast.With: _ModuleGuard._with,
    ast.Assert: _ModuleGuard._assertion,
    ast.Pass: _ModuleGuard._nothing,
    ast.Break: _ModuleGuard._nothing,
    ast.Continue: _ModuleGuard._nothing,
}


def _is_flag(keyword: ast.keyword) -> bool:
    return keyword.arg is not None and isinstance(keyword.value, ast.Constant)
