"""The parts that importers share: errors fit for a person, names of dimensions, and places of calls."""

from __future__ import annotations

import ast
import contextlib
import io
import keyword
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.ir import Call, Tuple

from symalloc.program.reading import ImportRefusedError, MissingExtraError
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.ir_types import Node, VarNode, error_text, free_name
from symalloc.relax.source_spans import at_place, map_places
from symalloc.size.choice import evaluated_divisors
from symalloc.size.expr import Expr
from symalloc.size.parse import SizeParser, parse_body

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
        raise ImportRefusedError(f"TVM's {importer} does not know {listed(names)}")


def listed(names: Sequence[str]) -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


# -- dimensions: from what the author of a model wrote to TVM's variables ------------------------------------


Axis: TypeAlias = tuple[str, int]
"""An axis of an input, by its name."""


def dimensions(
    written: Mapping[Axis, str], names: Mapping[str, str] | None = None
) -> tuple[Mapping[Axis, Node], Mapping[str, Node]]:
    """The extents of axes in TVM's terms, and the variables that they are made of, by what is written.

    What is `written` alike is one extent.  Arithmetic on names that are extents themselves is arithmetic;
    anything else is a variable, called as it is written or as `names` say; after its axis where nothing is
    written, or `names` do not know it.
    """
    found: dict[Axis, Node] = {}
    variables: dict[str, Node] = {}
    taken: dict[str, None] = {}
    for axis, text in sorted(written.items(), key=lambda item: not item[1].isidentifier()):
        size, key = _size(text), text or f"{axis[0]} {axis[1]}"
        if size is not None and size.symbols and size.symbols <= variables.keys():
            found[axis] = PrimBuilder(variables)(size)
            continue
        if key not in variables:
            own = f"{axis[0]}_dim{axis[1]}"
            name = free_name(identifier(text or own if names is None else names.get(text, own)), taken)
            taken[name] = None
            variables[key] = tirx.Var(name, "int64")
        found[axis] = variables[key]
    return found, variables


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


def _size(written: str) -> Expr | None:
    """The size that `written` gives; sizes are integers, so `/` rounds down.  None where it is no arithmetic
    that divides by positive numbers only.
    """
    text = re.sub(r"(?<!/)/(?!/)", "//", written)
    try:
        found = _DimensionParser(text).expr(parse_body(text))
    except ValueError:
        return None
    return None if evaluated_divisors((found,)) else found


class _DimensionParser(SizeParser):
    """Reads torch's names of divisions, too."""

    def expr(self, node: ast.expr) -> Expr:
        """See SizeParser."""
        match node:
            case ast.Call(func=ast.Name(id="FloorDiv"), args=[left, right], keywords=[]):
                divided = ast.BinOp(left, ast.FloorDiv(), right)
            case ast.Call(func=ast.Name(id="Mod" | "PythonMod"), args=[left, right], keywords=[]):
                divided = ast.BinOp(left, ast.Mod(), right)
            case _:
                return super().expr(node)
        return super().expr(ast.copy_location(divided, node))


# -- places --------------------------------------------------------------------------------------------------


class SourcedBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """Knows the place of each variable that it binds: `place`, called at each, of the call itself and of
    those in its arguments, which TVM's normalizer binds to variables of their own.
    """

    def __init__(self, place: Callable[[], Node | None] = lambda: None) -> None:
        super().__init__()
        self._place = place
        self._bound: dict[int, tuple[VarNode, Node | None]] = {}

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
        var: VarNode = super().emit(expr, name_hint)
        self._note(var, span)
        return var

    def normalize(self, expr: Node) -> Node:
        """As TVM's builder does."""
        span = self._place()
        made = super().normalize(expr)
        if span is None:
            return made
        self._note_within(made, span)
        return at_place(made, span) if isinstance(made, Call) and made.span is None else made

    def placed(self, module: tvm.IRModule) -> tvm.IRModule:
        """`module`, which this has built, with the places of its calls; those that have one keep it."""
        return map_places(module, lambda var, _: self._bound.get(var.__chandle__(), (None, None))[1])

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
