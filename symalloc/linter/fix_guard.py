"""Fix: assert the precondition in front of the statement that needs it."""

from __future__ import annotations

import ast

from symalloc.linter.diagnostic import Fix, TextEdit
from symalloc.linter.fix_context import FixContext
from symalloc.size.notation import TVMSCRIPT
from symalloc.size.parse import SizeSyntaxError, parse_condition

__all__ = ["insert_assertion"]


def insert_assertion(context: FixContext) -> Fix | None:
    """Insert `R.assert_op(…)` on a line of its own.  Not safe: inputs that got away with it are stopped.

    R.assert_op is lowered by LegalizeOps, which every script goes through; it is not allowed in dataflow
    blocks and pure functions (the changed script does not read there, and the fix is not offered).
    """
    span, text = context.diagnostic.span, context.diagnostic.precondition
    if span is None or not text:
        return None
    statement, call = context.script.statement_at(span), context.script.call_at(span)
    if statement is None or call is None or not context.script.stands_alone(statement):
        return None
    try:
        condition = parse_condition(text)
    except SizeSyntaxError:
        return None
    names = sorted(condition.symbols)
    message = f"need {text}, got {', '.join(f'{name}={{}}' for name in names)}"
    assertion = (
        f'{_dialect(call)}.assert_op({condition.text(TVMSCRIPT)}, [{", ".join(names)}], format="{message}")'
    )
    edit = TextEdit(
        span=context.script.line_start(statement.lineno),
        text=f"{context.script.indent(statement.lineno)}{assertion}\n",
    )
    return Fix(title=f"check it: {assertion}", edits=(edit,), safe=False)


def _dialect(call: ast.Call) -> str:
    """The name under which the script knows the Relax dialect: the first of `R.memory.alloc_tensor`."""
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else "R"
