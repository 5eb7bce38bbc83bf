"""Decides whether a script may be handed to TVM's parser, which evaluates every expression that it meets.

A whitelist over the syntax tree: a statement that is not named here, or an expression that is not named in
`script_expressions`, is refused.  Imports no TVM.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from symalloc.program.span import Span
from symalloc.relax.read.script_expressions import ExpressionGuard, kind_of, short
from symalloc.relax.read.script_file import Script, ScriptModule, dialect_path
from symalloc.relax.read.script_scope import function_scope, position

# statements about which there is nothing to check but their parts
_PLAIN_STATEMENTS = (
    *(ast.AnnAssign, ast.AugAssign, ast.Return, ast.Assert, ast.If, ast.While, ast.For),
    *(ast.Pass, ast.Break, ast.Continue),
)
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
            if isinstance(statement, ast.FunctionDef | ast.Expr | ast.Assign | ast.Pass):
                self.check(statement)
            else:
                self.refuse(statement, f"{kind_of(statement)} in the body of a module")

    def _function(self, node: ast.FunctionDef) -> None:
        self._decorators(node, "function")
        self.check_arguments(node.args)
        self.scopes.append(function_scope(node))
        self._annotations(node)
        for statement in node.body:
            self.check(statement)
        self.scopes.pop()

    def _annotations(self, node: ast.FunctionDef) -> None:
        for annotation in (*(argument.annotation for argument in node.args.args), node.returns):
            if annotation is not None:
                self.check(annotation)
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

    def _expression_statement(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or `...`
            self.check(node.value)

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.check(target)
        if self.is_module(node.value):
            self.module_names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        else:
            self.check(node.value)

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            if not isinstance(item.context_expr, ast.Call):
                self.refuse(item.context_expr, "`with` takes a call of the dialect")
            self._children(item)
        self._children(node)

    _CHECKS: ClassVar[Mapping[type[ast.AST], Callable[..., None]]] = {
        **ExpressionGuard._CHECKS,
        ast.FunctionDef: _function,
        ast.Expr: _expression_statement,
        ast.Assign: _assign,
        ast.With: _with,
        **dict.fromkeys(_PLAIN_STATEMENTS, ExpressionGuard._children),
    }


def _is_flag(keyword: ast.keyword) -> bool:
    return keyword.arg is not None and isinstance(keyword.value, ast.Constant)
