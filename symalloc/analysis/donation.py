"""Donated inputs, each to carry an output: their notation, and the inputs and outputs that the names mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from symalloc.analysis.regions import Pointees, PointsTo, align
from symalloc.errors import UsageError
from symalloc.program import ir
from symalloc.program.operands import other_names, type_of
from symalloc.program.types import TensorType, Type, type_leaves

WHOLE = "result"  # what a result that is no tuple answers to, beside its variables' names
NOT_RETURNED = -1  # the path of what is no field of a result

_NAME = r"[A-Za-z_]\w*"
_OUTPUT = rf"{_NAME}|\d+(?:\.\d+)*"
_INPUT = rf"(?P<input>{_NAME}(?:\.\d+)*)(?:\[(?P<capacity>{_NAME})\])?"
_FORM = re.compile(rf"(?:(?P<function>{_NAME}):)?(?P<output>{_OUTPUT})={_INPUT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Donation:
    """`output` of `function` is to be written into the memory of its parameter `input`.

    `output`: a field of the result (`0`, `1.0`), a variable's name, returned or not, or "result".
    `input`: a parameter, or a field of one (`caches.0`).  `function` may be None where the module has one
    public function, or `main`.  `capacity`: the name of a new size, the rows that the input has room for
    on the axis on which the output is longer; None where it is as the function says.
    """

    output: str
    input: str
    function: str | None = None
    capacity: str | None = None

    def __str__(self) -> str:
        return f"{self.output}={self.input}" + (f"[{self.capacity}]" if self.capacity else "")


def parse_donation(text: str) -> Donation:
    """`[FUNCTION:]OUTPUT=INPUT`, or `…=INPUT[ROWS]` with room for so many rows; raises UsageError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text!r} is no alias; write OUTPUT=INPUT, such as 0=weights, longer=caches.1, step:result=x or "
            "1=cache[rows], with room for `rows` rows"
        )
    return Donation(**found.groupdict())


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One field of a parameter or of a result that is no tuple itself.

    `path` are the indices that lead to it, `names` all that it may be called by, the plainest first; `cell`
    is what it points to.  `parameter` is the index of the parameter, None for a result.
    """

    path: tuple[int, ...]
    names: tuple[str, ...]
    type: Type
    cell: Pointees
    parameter: int | None = None

    def __str__(self) -> str:
        return f"`{self.names[0]}`"


def function_meant(wanted: str | None, public: Sequence[str]) -> str | None:
    """The one of the `public` functions that is called `wanted`, or meant without a name; None where that is
    not clear.
    """
    if wanted is not None:
        return wanted if wanted in public else None
    return "main" if "main" in public else public[0] if len(public) == 1 else None


def inputs_of(points_to: PointsTo) -> tuple[Leaf, ...]:
    """The leaves of the parameters, in order."""
    named = zip(_parameters(points_to.cfg.function), points_to.parameters, strict=True)
    return tuple(
        Leaf(path=path, names=(name,), type=kind, cell=cell, parameter=index)
        for (index, path, name, kind), cell in named
    )


def donated(function: ir.Function, donations: Iterable[Donation]) -> frozenset[int]:
    """The leaves of the parameters of `function`, counted in order, that `donations` to it name."""
    names = {d.input for d in donations}
    return frozenset(i for i, (_, _, name, _) in enumerate(_parameters(function)) if name in names)


def _parameters(function: ir.Function) -> Iterator[tuple[int, tuple[int, ...], str, Type]]:
    """The leaves of the parameters: parameter, path, name, type."""
    for index, param in enumerate(function.params):
        for path, kind in type_leaves(param.type):
            yield index, path, ".".join((param.name, *map(str, path))), kind


def intermediates_of(points_to: PointsTo) -> Iterator[Leaf]:
    """Yield the variables that hold tensors, whether these are returned or not."""
    for var in points_to.cfg.definitions:
        cell = points_to.value_of(var)
        if isinstance(cell, Pointees) and isinstance(var.type, TensorType):
            names = points_to.cfg.function.names_of(var)
            yield Leaf(path=(NOT_RETURNED,), names=names, type=var.type, cell=cell)


def outputs_of(points_to: PointsTo) -> tuple[Leaf, ...]:
    """The leaves of the result, in order."""
    function, makers = points_to.cfg.function, points_to.cfg.definitions
    result, kind = function.body.result, type_of(function.body.result)
    found: list[Leaf] = []
    for (path, leaf), cell in zip(type_leaves(kind), align(points_to.result, kind), strict=True):
        known = other_names(result, makers, path)
        variables = (one for one, inner in known if isinstance(one, ir.Var) and not inner)
        called = (name for var in variables for name in function.names_of(var))
        names = dict.fromkeys((".".join(map(str, path)) or WHOLE, *called))
        found.append(Leaf(path=path, names=tuple(names), type=leaf, cell=cell))
    return tuple(found)
