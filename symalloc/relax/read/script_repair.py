"""Repairs of what TVM prints and cannot read back.

A symbol `m` of one function (an int32 of a kernel, a match_cast) beside functions with another `m`: TVM
prints `m = TypeVar("m")` over the module for the latter and `m = T.int32()` inside the former, and on reading
the first makes the second a redefinition.  The function's own symbol gets a name of its own.

`R.builtin.alloc_tensor(…, ty_args=(…))`: printed, but no parameter of that operator; the type follows from
the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from typing import TypeGuard


def separate_symbols(tree: ast.Module, symbols: Set[str]) -> ast.Module:
    """Rename, in each function that declares one of `symbols` anew (`m = T.int32()`), that symbol."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for name in _declared_anew(node, symbols):
                _Renamer(name, _fresh(name, node)).rename(node)
    return tree


def _declared_anew(function: ast.FunctionDef, symbols: Set[str]) -> Iterator[str]:
    """Symbols that `function` declares in its body and that are not those of the module."""
    quoted = {str(text.value) for a in function.args.args for text in _strings(a.annotation)}
    plain = {n.id for a in function.args.args if a.annotation for n in ast.walk(a.annotation) if _is_name(n)}
    theirs = symbols & quoted if _is_kernel(function) else symbols - plain - quoted
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign) and _is_declaration(statement.value):
            yield from (t.id for t in statement.targets if isinstance(t, ast.Name) and t.id in theirs)


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _is_declaration(value: ast.expr) -> bool:
    """`T.int64()`."""
    return isinstance(value, ast.Call) and not value.args and isinstance(value.func, ast.Attribute)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("prim_func" in ast.unparse(decorator) for decorator in function.decorator_list)


def _strings(annotation: ast.expr | None) -> Iterator[ast.Constant]:
    if annotation is not None:
        yield from (
            n for n in ast.walk(annotation) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        )


def _fresh(name: str, function: ast.FunctionDef) -> str:
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    used.update(argument.arg for argument in function.args.args)
    while name in used:
        name += "_"
    return name


class _Renamer(ast.NodeVisitor):
    """Renames one symbol in one function, also where it stands quoted in an annotation."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def rename(self, function: ast.FunctionDef) -> None:
        """Change `function` in place."""
        for argument in function.args.args:
            for text in _strings(argument.annotation):
                text.value = self._new if text.value == self._old else text.value
        self.visit(function)

    def visit_Name(self, node: ast.Name) -> None:
        """Rename a use."""
        if node.id == self._old:
            node.id = self._new


def drop_type_arguments(tree: ast.Module, takes_types: Callable[[ast.expr], bool]) -> ast.Module:
    """Remove `ty_args=` from calls of what `takes_types` says has no such parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not takes_types(node.func):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "ty_args"]
    return tree
