"""A site: one place of a program at which rules ask whether something holds; and what a generator of
sites may use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from symalloc.analysis.facts import FunctionFacts
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.points_to import PointsTo
from symalloc.program.model import (
    CallFunction,
    CallKernel,
    CallOperator,
    CallPacked,
    CallTIR,
    ConstantTensor,
    Function,
    FunctionRef,
    Instruction,
    Operand,
    Program,
    Scalar,
    Text,
    Var,
)
from symalloc.program.operands import TypeNumbering
from symalloc.program.span import Span
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

__all__ = ["Generator", "Later", "Scene", "Site", "caller_name", "name_of", "places_of", "shape_text"]

Later: TypeAlias = Callable[[Prover, Domain], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One place.

    `kind` says which rules ask here; for those with a constraint `quantities` are what it is over (one
    that is not known is left out, and `unknown` says why), for those with a relation `relation` names the
    one that is broken. `texts` stand in messages (they win over quantities of the same name), `later`
    gives further ones once there is something to report.  `places` are further spans to point at.

    `checked` is what the program itself checks at run time right here: a constraint that is no more than
    that stops the program before any fault.  `sized` sites ask only about inputs that are no larger than
    what a machine holds.  `doubt`: why the site may not be one at all.

    `once`: where set, of several findings of one rule with an equal value the first is kept.  `key`: where
    set, what the verdicts depend on; a site with a key that was clean is not asked again.  `settle`
    completes a site once there is something to report, or finds that it is none.
    """

    kind: str
    instruction: Instruction | None = None
    span: Span | None = None
    relation: str | None = None
    quantities: Mapping[str, Expr] = field(default_factory=dict)
    unknown: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    later: Later | None = None
    places: Mapping[str, Span] = field(default_factory=dict)
    checked: Condition | None = None
    sized: bool = False
    once: object = None
    key: Hashable | None = None
    settle: Callable[[Site], Site | None] | None = None
    doubt: str | None = None

    @property
    def where(self) -> Span | None:
        """The span to point at."""
        return self.span or (self.instruction.span if self.instruction is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One function as the generators see it.

    `written_views` are the results of ensure_zero_offset that are written, with what writes them; `heedless`
    are by callee the leaves of its parameters that must begin at byte 0.
    """

    program: Program
    function: Function
    analysis: FunctionAnalysis
    facts: FunctionFacts
    numbers: TypeNumbering
    written_views: Mapping[Var, Instruction] = field(default_factory=dict)
    heedless: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def points_to(self) -> PointsTo:
        """What the variables point to."""
        return self.analysis.points_to

    def binder(self, operand: Operand) -> Instruction | None:
        """The instruction that binds a variable; None for parameters and literals."""
        return self.analysis.cfg.definitions.get(operand) if isinstance(operand, Var) else None

    def span_of(self, operand: Operand) -> Span | None:
        """Where a variable is bound."""
        found = self.binder(operand)
        return None if found is None else found.span


Generator: TypeAlias = Callable[[Scene, Instruction], Iterator[Site]]


def name_of(operand: Operand) -> str:
    """What to call an operand in a message."""
    match operand:
        case Var(name=name) | FunctionRef(name=name):
            return name
        case ConstantTensor():
            return "a constant"
        case Scalar(value=value) if value is not None:
            return str(value)
        case Text(text=text):
            return text
    return "a literal"


def caller_name(instruction: Instruction | None) -> str:
    """What is called by an instruction, quoted."""
    match instruction:
        case CallKernel(kernel=name) | CallTIR(kernel=name):
            return f"`{name}`"
        case CallPacked(name=name) | CallFunction(name=name) | CallOperator(name=name):
            return f"`{name}`"
        case None:
            return "the caller"
    return f"`{instruction.var.name}`"


def shape_text(shape: tuple[Expr, ...] | None) -> str:
    """Extents as they stand in a shape, without brackets."""
    return "unknown" if shape is None else ", ".join(map(str, shape))


def places_of(**spans: Span | None) -> Mapping[str, Span]:
    """Those of `spans` that are known."""
    return {place: span for place, span in spans.items() if span is not None}
