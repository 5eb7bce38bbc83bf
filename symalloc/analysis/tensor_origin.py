"""The origin of a tensor: what writes it first, the name of its value, and the place in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.sets import members
from symalloc.program import ir
from symalloc.program.operands import callee_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOrigin:
    """The kernel or function that writes a tensor first, the variable of the source that holds it, and the
    place of the source that it is computed for, such as `layers.0 at model.py:12`.

    Each is empty where it is not known.
    """

    operator: str = ""
    variable: str = ""
    source: str = ""

    def __str__(self) -> str:
        """`softmax`, or `y = softmax` where the variable is known."""
        return f"{self.variable} = {self.operator}" if self.operator and self.variable else self.operator


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall:
    """A call at program point `point`, and the variables of the memory that it may read or write."""

    point: int
    operator: str
    touches: frozenset[ir.Var] = frozenset()


NO_ORIGIN = TensorOrigin()
NO_CALL = OperatorCall(point=-1, operator="")


def operator_calls(analysis: FunctionAnalysis) -> Iterator[OperatorCall]:
    """Yield the calls of a function that compute something, in the order of the text."""
    points_to = analysis.points_to
    for point, instruction in analysis.cfg.instructions:
        name = callee_of(instruction)
        if name is not None:
            roots = points_to.roots(analysis.effects[point].touched)
            touches = frozenset(points_to.regions[root].var for root in roots)
            yield OperatorCall(point=point, operator=name, touches=touches)


def tensor_origins(
    analysis: FunctionAnalysis, sources: Mapping[ir.Var, str] = {}
) -> Mapping[ir.Var, TensorOrigin]:
    """Return the origin of each storage and tensor that the function allocates or that a call in it makes.

    That of a storage is its first tensor's.  `sources` are the places of what variables are bound to.
    """
    points_to = analysis.points_to
    writers: dict[ir.Var, str] = {}
    for point, instruction in analysis.cfg.instructions:
        name, effect = callee_of(instruction), analysis.effects[point]
        if name is None:
            continue
        for number in members(points_to.resolve(effect.written)):
            region = points_to.regions[number]
            writers.setdefault(region.var, name)
            writers.setdefault(points_to.regions[region.root].var, name)
    names = {var: others[0] for var, others in analysis.cfg.function.names.items()}
    return {
        var: TensorOrigin(
            operator=writers.get(var, ""), variable=names.get(var, ""), source=sources.get(var, "")
        )
        for var in dict.fromkeys((*writers, *names, *sources))
    }
