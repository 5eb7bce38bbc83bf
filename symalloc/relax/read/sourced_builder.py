"""A block builder for importers: every call that it binds says what part of the model it was made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tvm
from tvm import relax
from tvm.ir import Call, Op, Tuple

from symalloc.relax.ir_types import CallNode, Node, VarNode
from symalloc.relax.source_spans import at_place, map_places


class SourcedBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """Gives the calls that are bound or normalized the span of `place`, called at each, unless they have one.

    TVM's normalizer takes calls out of the arguments of others, and rebuilds these without their spans.
    Invariant: an expression is rebuilt once, so that what is shared stays shared.
    """

    def __init__(self, place: Callable[[], Node | None] = lambda: None) -> None:
        super().__init__()
        self._place = place
        self._bound: dict[int, tuple[VarNode, Node | None]] = {}
        self._renewed: dict[int, tuple[Node, Node]] = {}  # with what they stand for, so that it stays alive

    @contextmanager
    def at(self, span: Node | None) -> Iterator[None]:
        """Within, calls are given `span`; None changes nothing."""
        outer = self._place
        if span is not None:
            self._place = lambda: span
        try:
            yield
        finally:
            self._place = outer

    def emit(self, expr: Node, name_hint: str = "") -> VarNode:
        """As TVM's builder does."""
        span = self._place()
        var: VarNode = super().emit(expr if span is None else self._placed(expr, span), name_hint)
        self._note(var, span)
        return var

    def normalize(self, expr: Node) -> Node:
        """As TVM's builder does."""
        span = self._place()
        if span is None:
            return super().normalize(expr)
        made = super().normalize(self._placed(expr, span))
        self._note_within(made, span)
        return at_place(made, span) if isinstance(made, Call) and made.span is None else made

    def placed(self, module: tvm.IRModule) -> tvm.IRModule:
        """`module`, which this has built, with the places that normalizing has lost."""

        def find(var: VarNode, call: CallNode) -> Node | None:
            return None if call.span is not None else self._bound.get(var.__chandle__(), _UNKNOWN)[1]

        return map_places(module, find)

    def _note(self, var: VarNode, span: Node | None) -> None:
        """Enter the place of a variable that was just bound, and of those that were bound on the way."""
        if var.__chandle__() not in self._bound:
            self._bound[var.__chandle__()] = (var, span)
            self._note_within(self.lookup_binding(var), span)

    def _note_within(self, value: Node | None, span: Node | None) -> None:
        if isinstance(value, Call | Tuple):
            for part in value.args if isinstance(value, Call) else value.fields:
                if isinstance(part, Tuple):
                    self._note_within(part, span)
                elif isinstance(part, relax.Var) and self.lookup_binding(part) is not None:
                    self._note(part, span)

    def _placed(self, expr: Node, span: Node) -> Node:
        """`expr` with `span` on each operator call in it that has none."""
        if isinstance(expr, Tuple):
            return relax.Tuple([self._placed(field, span) for field in expr.fields])
        if not _is_operator_call(expr) or expr.span is not None:
            return expr
        known = self._renewed.get(expr.__chandle__())
        if known is None:
            renewed = at_place(expr, span, [self._placed(each, span) for each in expr.args])
            known = self._renewed[expr.__chandle__()] = (expr, renewed)
        return known[1]


_UNKNOWN = (None, None)


def _is_operator_call(expr: Node) -> bool:
    """Return whether `expr` is a call of a Relax operator; sizes are calls as well."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name.startswith("relax.")
