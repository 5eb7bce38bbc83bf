"""The page of a plan or a trace: its data, and one file with style and script that loads nothing."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from symalloc.analysis.tensor_origin import TensorOrigin
from symalloc.analysis.timeline import Timeline
from symalloc.linter.diagnostic import Report
from symalloc.planner.grid import TYPICAL
from symalloc.planner.memory_report.call_moments import held_tensor
from symalloc.planner.memory_report.function_report import FunctionReport, TvmComparison
from symalloc.pool.trace import Alloc, Free, PlacedBlock, PoolTimeline, TimelinePoint
from symalloc.program.ir import Var
from symalloc.report.plan_json import function_document
from symalloc.report.quantities import binding_text
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

SAFE = 2**53 - 1  # a larger integer is no number of JavaScript's: it is written as text
Node: TypeAlias = list[Any]


def exact(number: int) -> int | str:
    """Return `number` as JSON that a browser reads without loss."""
    return number if -SAFE <= number <= SAFE else str(number)


class FormulaTable(Algebra[int, int]):
    """Sizes and conditions as a table of nodes, which the page evaluates for any binding, in one pass.

    A node is a list: its kind, then numbers of nodes before it.  Kinds are `["s", name]`, `["+", term, …]`
    with terms `[coefficient, node, power, node, power, …]`, `["//", a, b]`, `["%", a, b]`, `["min", …]`,
    `["max", …]`, `["if", condition, a, b]`, `["<=", a]`, `["==", a]`, `["!=", a]` (compared with 0),
    `["and", …]` and `["or", …]`.  Nothing in a table is code,
    whatever symbols are called.  Each distinct node is in `nodes` once.

    `formulas` holds the text and the node of each formula, by the numbers that `add` returns; `symbols` the
    names in the formulas added since it was last emptied.
    """

    ordered = True

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.formulas: list[tuple[str, int]] = []
        self.symbols: set[str] = set()
        self.memo = {}
        self._numbers: dict[Expr | Condition, int] = {}
        self._known: dict[str, int] = {}

    def add(self, formula: Expr | Condition) -> int:
        """Return the number of `formula`, which is added where it is new."""
        self.symbols |= formula.symbols
        number = self._numbers.get(formula)
        if number is None:
            number = self._numbers[formula] = len(self.formulas)
            self.formulas.append((str(formula), formula.fold(self)))
        return number

    def _node(self, *node: Any) -> int:
        number = self._known.setdefault(repr(node), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(list(node))
        return number

    def symbol(self, name: str) -> int:
        return self._node("s", name)

    def total(self, terms: Sequence[Term[int]]) -> int:
        return self._node("+", *([exact(c), *(part for f in factors for part in f)] for c, factors in terms))

    def floordiv(self, numerator: int, denominator: int) -> int:
        return self._node("//", numerator, denominator)

    def mod(self, numerator: int, denominator: int) -> int:
        return self._node("%", numerator, denominator)

    def minimum(self, operands: Sequence[int]) -> int:
        return self._node("min", *operands)

    def maximum(self, operands: Sequence[int]) -> int:
        return self._node("max", *operands)

    def select(self, condition: int, then: int, otherwise: int) -> int:
        return self._node("if", condition, then, otherwise)

    def relation(self, operator: Operator, terms: Sequence[Term[int]]) -> int:
        return self._node(operator, self.total(terms))

    def conjunction(self, operands: Sequence[int]) -> int:
        return self._node("and", *operands)

    def disjunction(self, operands: Sequence[int]) -> int:
        return self._node("or", *operands)


MOST_BLOCKS = 20_000  # the largest in bytes times their time
MOST_MOMENTS = 20_000  # of more, each stands for several with the most that they had


def trace_data(timeline: PoolTimeline, *, title: str) -> dict[str, Any]:
    """`{"kind": "trace", "title", "timed", "end", "blocks", "moments", ...}`.

    Time goes by events of the trace, by number.  A block is `[name, begin, end, address, bytes, call]`, `end`
    null where it is never freed; a moment `[event, time, live, used, reserved]`, its time in nanoseconds
    since the first event, where the trace is `timed`.
    """
    trace, moments, statistics = timeline.trace, timeline.moments, timeline.statistics
    events = [i for i, event in enumerate(trace.events) if isinstance(event, Alloc | Free)][: len(moments)]
    begins = {m.block: event for event, m in zip(events, moments, strict=True) if m.allocates}
    ends = {m.block: event for event, m in zip(events, moments, strict=True) if not m.allocates}
    end, first = events[-1] + 1 if events else 0, trace.times[0] if trace.times else 0

    def entry(block: PlacedBlock) -> list[Any]:
        number = block.number
        where = exact(block.address), exact(block.nbytes)
        return [timeline.name(number), begins[number], ends.get(number), *where, block.call]

    def lasting(block: PlacedBlock) -> int:
        return block.nbytes * (ends.get(block.number, end) - begins[block.number])

    blocks = sorted(timeline.blocks.values(), key=lasting, reverse=True)[:MOST_BLOCKS]
    return {
        "kind": "trace",
        "title": title,
        "name": trace.name,
        "timed": bool(trace.times),
        "end": end,
        "blocks": [entry(block) for block in sorted(blocks, key=lambda b: b.number)],
        "all_blocks": len(timeline.blocks),
        "moments": [
            [event, time - first, *map(exact, sizes)] for event, time, *sizes in _moments(events, moments)
        ],
        "all_moments": len(moments),
        "peak": {
            "live": exact(max((m.live for m in moments), default=0)),
            "used": exact(statistics.peak_used),
            "reserved": exact(statistics.peak_reserved),
        },
        "commits": statistics.commits,
        "decommits": statistics.decommits,
        "given_back": exact(statistics.decommitted),
        "failed": timeline.failed,
    }


def _moments(events: Sequence[int], moments: Sequence[TimelinePoint]) -> Iterator[tuple[int, ...]]:
    """Yield event, time, live, used and reserved; of many, the most of several events in a row."""
    each = -(-len(moments) // MOST_MOMENTS) or 1
    for first in range(0, len(moments), each):
        some = moments[first : first + each]
        most = map(max, zip(*((m.live, m.used, m.reserved) for m in some), strict=True))
        yield events[first], some[0].time, *most


def plan_data(reports: Sequence[FunctionReport], lint: Report, *, title: str) -> dict[str, Any]:
    """`{"kind": "plan", "title", "nodes", "formulas", "findings", "functions"}`.

    A function is as in the plan's JSON, with formulas as `{"f": number}`, and has besides: `reserved`, the
    sums of arenas that are reserved together; `returned` and `until`, what touches it last, in its buffers;
    `calls`, what a call holds, by who planned; `symbols`, with the bounds that are declared; and `start`, the
    binding that is shown first.  A finding `binds` the variable of the instruction at fault, or nothing.
    """
    table = FormulaTable()
    functions = [_function(report, table) for report in reports]
    return {
        "kind": "plan",
        "title": title,
        "functions": functions,
        "findings": [
            {
                "rule": d.rule,
                "severity": d.severity.value,
                "message": " ".join(d.message.split()),
                "function": d.function,
                "binds": d.binds,
                "at": binding_text(d.counterexample or {}),
            }
            for d in lint
        ],
        "nodes": table.nodes,
        "formulas": table.formulas,
    }


def _function(report: FunctionReport, table: FormulaTable) -> dict[str, Any]:
    table.symbols.clear()
    plain = msgspec.to_builtins(function_document(report), enc_hook=lambda size: {"f": table.add(size)})
    for sample in plain["samples"]:
        del sample["peak"]  # the page finds it at any binding
    for guard, written in zip(report.plan.guards, plain["guards"], strict=True):
        written |= {"condition": guard.condition, "check": guard.check}
    document: dict[str, Any] = _encoded(plain, table)
    last = report.outcome.operators.last
    for arena, written in zip(report.plan.arenas, document["arenas"], strict=True):
        for placement, buffer in zip(arena.placements, written["buffers"], strict=True):
            buffer["returned"] = placement.buffer.returned
            buffer["until"] = None if placement.buffer.var is None else last.get(placement.buffer.var)
    document["reserved"] = document["reserved"] or []
    document["calls"] = _calls(report, table)
    names = sorted(table.symbols)
    document["symbols"] = [{"name": n, "upper": _encoded(report.upper.get(n), table)} for n in names]
    document["start"] = {name: str(report.shown_first.get(name, TYPICAL)) for name in names}
    return document


def _encoded(value: Any, table: FormulaTable) -> Any:
    """Return plain JSON: formulas by number, integers that a browser would round as text."""
    match value:
        case Expr() | Condition():
            return {"f": table.add(value)}
        case bool():
            return value
        case int():
            return exact(value)
        case Mapping():
            return {str(key): _encoded(item, table) for key, item in value.items()}
        case list() | tuple():
            return [_encoded(item, table) for item in value]
    return value


def _calls(report: FunctionReport, table: FormulaTable) -> dict[str, Any]:
    """Return what a call holds, by who planned it; null where nobody did, or a function calls itself.

    `{"steps": count, "held": [tensor, …]}`; a tensor has the fields of `PeakTensor`, but for `idle`, and is
    `live` at steps as buffers are.
    """
    both = report.comparison or TvmComparison(bounded=None, unbounded=Timeline(problem="not asked"))
    found: dict[str, Any] = {
        "ours": _call(report.outcome.planned, report.origins, report.outcome.operators.last),
        "unplanned": _call(report.outcome.unplanned, report.origins, report.outcome.operators.last),
        "tvm_bounded": None if both.bounded is None else _call(both.bounded, both.origins, {}),
        "tvm_unbounded": _call(both.unbounded, both.origins, {}),
    }
    return {**_encoded(found, table), "fallback": report.outcome.fallback}


def _call(
    timeline: Timeline, origins: Mapping[Var, TensorOrigin], last: Mapping[Var, str]
) -> dict[str, Any] | None:
    if timeline.problem is not None:
        return None
    held: dict[int, dict[str, Any]] = {}
    for one in timeline.reservations:
        if one.number not in held:
            told = held_tensor(one, timeline.steps[one.begin], origins, last)
            names = {name: getattr(told, name) for name in ("name", "kind", "operator", "source", "until")}
            held[one.number] = {**names, "bytes": one.size, "live": []}
        held[one.number]["live"].append((one.begin, one.end))
    for name in timeline.unseen:  # what nothing is known of counts where results do
        unknown = {"name": name, "kind": "result", "operator": name, "source": None, "until": None}
        held[-len(held) - 1] = {**unknown, "bytes": None, "live": [(0, len(timeline.steps))]}
    return {"steps": len(timeline.steps), "held": [*held.values()]}


SCRIPTS = ("formulas.js", "drawing.js", "explorer.js", "plan.js", "trace.js", "start.js")
# whatever ends a script element, begins a comment, or is a line of JavaScript's but not of JSON's
_UNSAFE = re.compile("[<>&\u2028\u2029]")


def map_page(data: Mapping[str, Any]) -> str:
    """Return the page that shows `data`, which `plan_data` or `trace_data` made.

    Its policy (Content-Security-Policy) permits this script and this style alone, and no request.
    """
    style = _part("page.css")
    script = f'"use strict";\n(() => {{\n{"".join(map(_part, SCRIPTS))}}})();\n'
    kind = "Allocation trace" if data["kind"] == "trace" else "Memory map"
    parts = {
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        "title": escape(f"{data['title']} - {kind.lower()}"),
        "heading": kind,
        "file": escape(str(data["title"])),
        "style": style,
        "script": script,
        # JSON that no name in it can leave
        "data": _UNSAFE.sub(
            lambda found: f"\\u{ord(found[0]):04x}",
            json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False),
        ),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


@cache
def _part(name: str) -> str:
    return (resources.files("symalloc.report.map") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
