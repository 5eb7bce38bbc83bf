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


def separate_symbols(tree: ast.Module, symbols: Set[str]) -> ast.Module:
    """Rename, in each function that declares one of `symbols` anew (`m = T.int32()`), that symbol."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for name in _declared_anew(node, symbols):
                _rename(node, name, _fresh(name, node))
    return tree


def _declared_anew(function: ast.FunctionDef, symbols: Set[str]) -> Iterator[str]:
    """Symbols that `function` declares in its body and that are not those of the module."""
    quoted = {str(text.value) for a in function.args.args for text in _strings(a.annotation)}
    annotations = (a.annotation for a in function.args.args if a.annotation)
    plain = {n.id for annotation in annotations for n in ast.walk(annotation) if isinstance(n, ast.Name)}
    theirs = symbols & quoted if _is_kernel(function) else symbols - plain - quoted
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign) and _is_declaration(statement.value):
            yield from (t.id for t in statement.targets if isinstance(t, ast.Name) and t.id in theirs)


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


def _rename(function: ast.FunctionDef, old: str, new: str) -> None:
    """Rename a symbol in one function, in place, also where it stands quoted in an annotation."""
    quoted = (text for argument in function.args.args for text in _strings(argument.annotation))
    for text in (text for text in quoted if text.value == old):
        text.value = new
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new


def drop_type_arguments(tree: ast.Module, takes_types: Callable[[ast.expr], bool]) -> ast.Module:
    """Remove `ty_args=` from calls of what `takes_types` says has no such parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not takes_types(node.func):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "ty_args"]
    return tree
