"""TVM's parser of scripts with short cuts: the tests read a thousand scripts.

The parser evaluates every piece of an expression by itself: it makes Python's syntax tree of it and compiles
that; it enters a source span for names and operators, too, of which nothing is built.  Here what consists of
names and constants is evaluated directly, all else by TVM.  A decorator takes the whole stack and the source
of its sixty frames, and reads a line of one; here only that is read.  The nightly run takes no short cut.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import EllipsisType, FrameType, NoneType
from typing import Any, NamedTuple

Names = Mapping[str, Any]

_ATOMIC = (NoneType, EllipsisType, int, bool, float, str, bytes, complex)
_LEFT_TO_TVM = object()


def read_scripts_quickly() -> None:
    """Have TVM's parser take the short cuts."""
    from tvm.relax.script.parser import entry as functions
    from tvm.script.parser.core import doc, evaluator
    from tvm.script.parser.ir import entry as modules
    from tvm.tirx.script.parser import entry as kernels

    plain = _Plain(doc)
    is_atomic, evaluate, visit = doc._is_atomic_type, evaluator._eval_expr, evaluator.ExprEvaluator._visit
    operators = (doc.operator, doc.unaryop, doc.cmpop)
    leaves = {
        doc.Constant,
        doc.Load,
        doc.Store,
        *(each for kind in operators for each in kind.__subclasses__()),
    }

    @wraps(is_atomic)
    def is_atomic_quickly(node: Any) -> bool:
        return isinstance(node, _ATOMIC)

    table = doc.Registry._inst.table

    def to_doc_quickly(node: Any) -> Any:
        kind = type(node)
        if kind in _ATOMIC:
            return node
        return [*map(to_doc_quickly, node)] if kind is list else table[kind.__name__].to_doc(node)

    for entry in table.values():
        entry.to_doc.func = to_doc_quickly
    functions.inspect = kernels.inspect = modules.inspect = _LateInspect()

    @wraps(evaluate)
    def evaluate_quickly(node: Any, names: Names | None) -> Any:
        value = _LEFT_TO_TVM if names is None else plain.value(node, names)
        return evaluate(node, names) if value is _LEFT_TO_TVM else value

    @wraps(visit)
    def visit_quickly(one: Any, node: Any) -> Any:
        kind = type(node)
        if kind in leaves or (kind is doc.Name and node.id in one.value_table):
            return node
        return visit(one, node)

    doc._is_atomic_type, evaluator._eval_expr = is_atomic_quickly, evaluate_quickly
    evaluator.ExprEvaluator._visit = visit_quickly


class _LateInspect:
    """`inspect`, whose stacks have the lines of their frames where somebody asks for one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def stack(self) -> Sequence[_LateFrame]:
        return [_LateFrame(frame, line) for frame, line in traceback.walk_stack(sys._getframe(1))]


class _LateFrame(NamedTuple):
    frame: FrameType
    lineno: int

    @property
    def code_context(self) -> list[str] | None:
        line = linecache.getline(self.frame.f_code.co_filename, self.lineno)
        return [line] if line else None


class _Plain:
    """Values of expressions whose parts are names and constants."""

    def __init__(self, doc: Any) -> None:
        self._doc = doc
        self._ways: dict[type, Callable[[Any, Names], Any]] = {
            doc.Name: self._part,
            doc.Constant: self._part,
            doc.Attribute: self._attribute,
            doc.Call: self._call,
            doc.Subscript: self._subscript,
            doc.Tuple: lambda node, names: self._all(node.elts, names, tuple),
            doc.List: lambda node, names: self._all(node.elts, names, list),
        }

    def value(self, node: Any, names: Names) -> Any:
        """The value of `node`, or _LEFT_TO_TVM."""
        way = self._ways.get(type(node))
        return _LEFT_TO_TVM if way is None else way(node, names)

    def _part(self, node: Any, names: Names) -> Any:
        if type(node) is self._doc.Constant:
            return node.value
        return names.get(node.id, _LEFT_TO_TVM) if type(node) is self._doc.Name else _LEFT_TO_TVM

    def _all(self, nodes: Any, names: Names, form: Callable[[list[Any]], Any]) -> Any:
        values = [self._part(node, names) for node in nodes]
        return _LEFT_TO_TVM if any(value is _LEFT_TO_TVM for value in values) else form(values)

    def _attribute(self, node: Any, names: Names) -> Any:
        value = self._part(node.value, names)
        return _LEFT_TO_TVM if value is _LEFT_TO_TVM else getattr(value, node.attr)

    def _subscript(self, node: Any, names: Names) -> Any:
        value, index = self._part(node.value, names), self._part(node.slice, names)
        return _LEFT_TO_TVM if value is _LEFT_TO_TVM or index is _LEFT_TO_TVM else value[index]

    def _call(self, node: Any, names: Names) -> Any:
        if any(word.arg is None for word in node.keywords):
            return _LEFT_TO_TVM
        parts = self._all([node.func, *node.args, *(word.value for word in node.keywords)], names, list)
        if parts is _LEFT_TO_TVM:
            return _LEFT_TO_TVM
        function, *rest = parts
        count = len(node.args)
        words = (word.arg for word in node.keywords)
        return function(*rest[:count], **dict(zip(words, rest[count:], strict=True)))
