"""Names and sizes of dynamic dimensions, from what the author of a model wrote to TVM's variables."""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Callable, Mapping

from tvm import tirx

from symalloc.relax.ir_types import Node

# names that scripts and conditions on sizes give a meaning of their own
_RESERVED = frozenset(
    {"I", "R", "T", "Max", "Min", "Module", "ceildiv", "cls", "max", "metadata", "min", "round_up", "tvm"}
)
_WORDS = {"+": "_plus_", "-": "_minus_", "*": "_times_", "/": "_over_"}
_OPERATORS = re.compile(r"//|[-+*/]")


class DimensionNames:
    """Identifiers for dimensions, each given to one only: `batch size` becomes `batch_size`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def name(self, written: str, key: str | None = None) -> str:
        """The identifier for `key`, which the author wrote as `written`; the same for the same key."""
        key = written if key is None else key
        if key not in self._names:
            plain = identifier(written)
            name, count = plain, 1
            while name in self._taken:
                name, count = f"{plain}_{count}", count + 1
            self._names[key] = name
            self._taken.add(name)
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


def is_plain(written: str) -> bool:
    """Return whether `written` is a name rather than an expression."""
    return written.isidentifier() and not keyword.iskeyword(written)


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


def _quotient(numerator: Node, denominator: Node) -> Node:
    return tirx.floordiv(numerator, _at_least_one(denominator))


def _remainder(numerator: Node, denominator: Node) -> Node:
    return tirx.floormod(numerator, _at_least_one(denominator))


def _at_least_one(divisor: Node) -> Node:
    if isinstance(divisor, tirx.IntImm) and divisor.value >= 1:
        return divisor
    raise ValueError("the divisor of a size is no positive number")


_BINARY: Mapping[type[ast.operator], Callable[[Node, Node], Node]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: _quotient,
    ast.Mod: _remainder,
}
_FUNCTIONS: Mapping[str, Callable[[Node, Node], Node]] = {
    "FloorDiv": _quotient,
    "Mod": _remainder,
    "PythonMod": _remainder,
    "Max": tirx.max,
    "Min": tirx.min,
    "max": tirx.max,
    "min": tirx.min,
}
