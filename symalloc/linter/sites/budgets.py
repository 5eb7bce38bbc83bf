"""Sites of kind `held-memory`: what a call of a function holds at once, beside the budget that is given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from symalloc.analysis.paths import PathCondition
from symalloc.analysis.register_machine import Step
from symalloc.analysis.timeline import Timeline
from symalloc.linter.function_prover import Passes
from symalloc.linter.sites.site import FunctionContext, ProgramContext, Site, function_sites
from symalloc.program.control_flow import functions_as_values
from symalloc.program.ir import AllocFresh, AllocStorage, CallFunction, Origin
from symalloc.size.choice import maximum
from symalloc.size.condition import Condition
from symalloc.size.evaluation import evaluated
from symalloc.size.expr import ZERO, Expr, constant
from symalloc.size.sign import undominated

_TYPICAL = 1024  # the value of every symbol where moments are compared to point at one
_MOST_SUMS = 64  # of a formula that the prover is asked about
_LONG = 102  # characters of a formula that is not shown


class HeldMoment(NamedTuple):
    """The `size` bytes that a call holds once the instruction at `point` has taken its memory.

    `path`: the branches on which that is so.  `inner` are conditions that hold in the functions called then,
    in symbols of the caller.
    """

    size: Expr
    point: int
    path: PathCondition
    inner: frozenset[Condition]

    @property
    def typical(self) -> int:
        """The bytes at shapes that are neither small nor large."""
        return evaluated(self.size, dict.fromkeys(self.size.symbols, _TYPICAL)) or 0


def _moments(context: FunctionContext, timeline: Timeline) -> Iterator[HeldMoment]:
    """Yield the moments at which a call takes memory."""
    for number, size in timeline.formulas():
        step = timeline.steps[number]
        outer, inner = step.outermost, frozenset(_inner(step, context.shared))
        yield HeldMoment(size, context.analysis.cfg.starts[outer.var], outer.path, inner)


def _inner(step: Step, shared: ProgramContext) -> Iterator[Condition]:
    """Yield the conditions that hold in the functions called at a step, as the caller can tell them."""
    while step.frame.caller is not None:
        values = step.frame.values
        held = shared.holding(step.frame.name, step.path, step.var)
        told = (condition.substitute(values) for condition in held if condition.symbols <= values.keys())
        yield from (condition for condition in told if condition.as_bool is None)
        step = step.frame.caller


@function_sites("held-memory")
def held_memory(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Compare what a call holds with the budget: a site for each set of facts, the largest first."""
    limit, shared = context.shared.budget, context.shared
    if limit is None or not _reserves_memory(shared) or _counts_in_callers(context):
        return
    timeline = Timeline.of(context.program, context.function.name, kills="stock")
    groups: defaultdict[object, list[HeldMoment]] = defaultdict(list)
    for moment in () if timeline.problem else dict.fromkeys(_moments(context, timeline.known)):
        groups[context.facts.before[moment.point].guards, moment.path, moment.inner].append(moment)
    for group in sorted(groups.values(), key=lambda group: -max(moment.typical for moment in group)):
        yield min(moment.point for moment in group), _site(context, limit, group, timeline.doubt)
    if timeline.not_known is not None:  # what is known may be too much by itself
        yield 0, _undecided(context, limit, timeline.not_known)


def _reserves_memory(shared: ProgramContext) -> bool:
    """False for a module that reserves no memory yet: TVM's passes put that in."""
    return any(cfg.of_type(AllocStorage, AllocFresh) for cfg in shared.graphs)


def _counts_in_callers(context: FunctionContext) -> bool:
    """True where only other functions of the program call a function: it counts with them."""
    name, graphs = context.function.name, context.shared.graphs
    called = {call.name for cfg in graphs for _, call in cfg.of_type(CallFunction)}
    return context.function.private and name in called and name not in functions_as_values(graphs)


def _site(context: FunctionContext, limit: int, group: Sequence[HeldMoment], doubt: str | None) -> Site:
    """The site of moments at which the same is known; `doubt` says why the call may hold less."""
    signed = {name for name, origin in context.function.symbols.items() if origin is Origin.SCALAR}
    sums = undominated((moment.size for moment in group), signed)
    if len(sums) > _MOST_SUMS:
        return _undecided(context, limit, f"{len(sums)} sums are more than are compared")
    largest = max(group, key=lambda moment: moment.typical)
    held = maximum(*sums) if sums else ZERO
    text = f"{held} B"
    return Site(
        kind="held-memory",
        instruction=context.instruction(largest.point),
        quantities={"held": held, "budget": constant(limit)},
        texts={
            "what": "memory",
            "amount": text if len(text) <= _LONG else f"the largest of {len(sums)} sums",
        },
        path=largest.path,
        uncertainty=doubt,
        passes=Passes(conditions=tuple(sorted(largest.inner, key=str))) if largest.inner else None,
        dedup_key="decided",
        several=True,
    )


def _undecided(context: FunctionContext, limit: int, why: str) -> Site:
    return Site(
        kind="held-memory",
        span=context.function.span,
        quantities={"budget": constant(limit)},
        texts={"what": "memory"},
        unknown=why,
        dedup_key="undecided",
        several=True,
    )
