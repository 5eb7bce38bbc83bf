"""The parts that importers share: errors fit for a person, names of dimensions, and places of calls."""

from __future__ import annotations

import ast
import contextlib
import io
import keyword
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import tvm
from tvm import relax, tirx
from tvm.ir import Call, Op, Tuple

from symalloc.program.reading import ImportRefusedError, MissingExtraError
from symalloc.relax.ir_types import CallNode, Node, VarNode
from symalloc.relax.source_spans import at_place, map_places
from symalloc.relax.tvm_error import error_text

# names that scripts and conditions on sizes give a meaning of their own
_RESERVED = frozenset(
    {"I", "R", "T", "Max", "Min", "Module", "ceildiv", "cls", "max", "metadata", "min", "round_up", "tvm"}
)
_WORDS = {"+": "_plus_", "-": "_minus_", "*": "_times_", "/": "_over_"}
_NAMED = 3  # operators that one message names
_OPERATORS = re.compile(r"//|[-+*/]")


def require_extra(name: Literal["onnx", "torch"], *, reading: Path) -> None:
    """Raise MissingExtraError where the library `name`, which reading a file needs, is not installed."""
    if find_spec(name) is None:
        raise MissingExtraError(f"reading {reading} needs {name}: pip install 'symalloc[{name}]'")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep what importers print and warn of from the user; errors say what is wrong."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def refusal(place: str) -> Iterator[None]:
    """Raise what goes wrong within as ImportRefusedError that names the place, the innermost one."""
    try:
        yield
    except ImportRefusedError:
        raise
    except Exception as error:  # converters raise whatever they raise
        # with its kind where the text alone is a word or nothing, as that of a KeyError
        text, kind = error_text(error), type(error).__name__
        reason = text if " " in text else f"{kind} {text}"
        reason = f"TVM's importer fails ({kind})" if text == kind else reason
        raise ImportRefusedError(f"{place}: {reason}") from error


def require_known(importer: str, unknown: Iterable[str]) -> None:
    """Raise ImportRefusedError where there are operators that TVM's importer has no converter for."""
    names = list(unknown)
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise ImportRefusedError(f"TVM's {importer} does not know {', '.join(names[:_NAMED])}{more}")


# -- dimensions: from what the author of a model wrote to TVM's variables ------------------------------------


class DimensionNames:
    """Identifiers for dimensions, each given to one only: `batch size` becomes `batch_size`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, written: str, key: str | None = None) -> str:
        """The identifier for `key`, which the author wrote as `written`; the same for the same key."""
        key = written if key is None else key
        if key not in self._names:
            plain = identifier(written)
            name, count = plain, 1
            while name in self._names.values():
                name, count = f"{plain}_{count}", count + 1
            self._names[key] = name
        return self._names[key]


def identifier(written: str) -> str:
    """An ASCII identifier that reads like `written`, and means nothing else to a script."""
    spelled = _OPERATORS.sub(lambda found: _WORDS[found[0][0]], written)
    letters = (each for each in unicodedata.normalize("NFKD", spelled) if not unicodedata.combining(each))
    name = re.sub(r"\W+", "_", "".join(letters), flags=re.ASCII)
    if name != written:
        name = name.strip("_")
    if not name.strip("_"):
        return "dim"
    if name[0].isdigit():
        name = f"d{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in _RESERVED else name


def names_in(written: str) -> frozenset[str] | None:
    """The names in an arithmetic expression; None where `written` is none that `size_of` understands."""
    try:
        names = {node.id for node in ast.walk(_parsed(written)) if isinstance(node, ast.Name)}
        size_of(written, {name: tirx.Var("x", "int64") for name in names})
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return frozenset(names - _FUNCTIONS.keys())


def _parsed(written: str) -> ast.expr:
    return ast.parse(re.sub(r"(?<!/)/(?!/)", "//", written.strip()), mode="eval").body


def size_of(written: str, variables: Mapping[str, Node]) -> Node:
    """The size that `written` gives in TVM's terms; sizes are integers, so `/` rounds down.

    Raises SyntaxError, ValueError or KeyError where it is not arithmetic on `variables`.
    """
    return _size(_parsed(written), variables)


def _size(node: ast.expr, variables: Mapping[str, Node]) -> Node:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool) and abs(value) < 2**62:
            return tirx.IntImm("int64", value)
        case ast.Name(id=name):
            return variables[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return tirx.IntImm("int64", 0) - _size(operand, variables)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            return _BINARY[type(operator)](_size(left, variables), _size(right, variables))
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int() as power)) if 0 < power < 5:
            found = factor = _size(base, variables)
            for _ in range(power - 1):
                found = found * factor
            return found
        case ast.Call(func=ast.Name(id=name), args=[first, second], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_size(first, variables), _size(second, variables))
    raise ValueError(f"no arithmetic on sizes: {ast.unparse(node)}")


def _by_positive(divide: Callable[[Node, Node], Node]) -> Callable[[Node, Node], Node]:
    """`divide`, whose divisor must be a positive number."""

    def checked(numerator: Node, divisor: Node) -> Node:
        if not isinstance(divisor, tirx.IntImm) or divisor.value < 1:
            raise ValueError("the divisor of a size is no positive number")
        return divide(numerator, divisor)

    return checked


_BINARY: Mapping[type[ast.operator], Callable[[Node, Node], Node]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: _by_positive(tirx.floordiv),
    ast.Mod: _by_positive(tirx.floormod),
}
_FUNCTIONS: Mapping[str, Callable[[Node, Node], Node]] = {
    "FloorDiv": _by_positive(tirx.floordiv),
    "Mod": _by_positive(tirx.floormod),
    "PythonMod": _by_positive(tirx.floormod),
    "Max": tirx.max,
    "Min": tirx.min,
    "max": tirx.max,
    "min": tirx.min,
}


# -- places --------------------------------------------------------------------------------------------------


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

    @contextlib.contextmanager
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
            return None if call.span is not None else self._bound.get(var.__chandle__(), (None, None))[1]

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
        # sizes are calls as well
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.span is not None:
            return expr
        if not expr.op.name.startswith("relax."):
            return expr
        known = self._renewed.get(expr.__chandle__())
        if known is None:
            renewed = at_place(expr, span, [self._placed(each, span) for each in expr.args])
            known = self._renewed[expr.__chandle__()] = (expr, renewed)
        return known[1]
