"""Sites of kind `held-memory`: what a call of a function holds at once, beside the budget that is given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from symalloc.analysis.paths import PathCondition
from symalloc.analysis.register_machine import Step
from symalloc.analysis.timeline import Timeline
from symalloc.linter.function_prover import Passes
from symalloc.linter.sites.site import FunctionContext, ProgramContext, Site, function_sites
from symalloc.program.control_flow import functions_as_values
from symalloc.program.ir import AllocFresh, AllocStorage, CallFunction, Origin, Var
from symalloc.size.choice import maximum
from symalloc.size.condition import Condition
from symalloc.size.evaluation import evaluated
from symalloc.size.expr import ZERO, Expr, constant
from symalloc.size.sign import undominated

_TYPICAL = 1024  # the value of every symbol where moments are compared to point at one
_MOST_SUMS = 64  # of a formula that the prover is asked about
_LONG = 100  # characters of a formula that is not shown

_Group: TypeAlias = tuple[tuple[Condition, ...], PathCondition, frozenset[Condition], str | None]


class HeldMoment(NamedTuple):
    """The `size` bytes that a call holds once the instruction that binds `bound` has taken its memory.

    `path`: the branches on which that is so.  `inner` are conditions that hold in the functions called then,
    in symbols of the caller.  `doubt` says why the call may hold less.
    """

    size: Expr
    bound: Var
    path: PathCondition
    inner: frozenset[Condition]
    doubt: str | None


def _moments(timeline: Timeline, shared: ProgramContext) -> list[HeldMoment]:
    """Return the moments at which a call takes memory."""
    found = []
    for number, size in timeline.formulas():
        step = timeline.steps[number]
        outer, inner = step.outermost, frozenset(_inner(step, shared))
        found.append(HeldMoment(size, outer.var, outer.path, inner, timeline.doubt))
    return list(dict.fromkeys(found))


def _inner(step: Step, shared: ProgramContext) -> Iterator[Condition]:
    """Yield the conditions that hold in the functions called at a step, as the caller can tell them."""
    while step.frame.caller is not None:
        values = step.frame.values
        for condition in shared.holding(step.frame.name, step.path, step.var):
            if condition.symbols <= values.keys():
                told = condition.substitute(values)
                if told.as_bool is None:
                    yield told
        step = step.frame.caller


@function_sites("held-memory")
def held_memory(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Compare what a call holds with the budget: a site for each set of facts, the largest first."""
    limit, shared = context.shared.budget, context.shared
    if limit is None or not _reserves_memory(shared) or _counts_in_callers(context):
        return
    timeline = Timeline.of(context.program, context.function.name, kills="stock")
    moments = [] if timeline.problem else _moments(timeline.known, shared)
    groups: defaultdict[_Group, list[HeldMoment]] = defaultdict(list)
    for moment in moments:
        groups[_group(context, moment)].append(moment)
    for group in sorted(groups.values(), key=lambda group: -max(map(_typical, group))):
        yield _grouped(context, limit, group)
    if timeline.not_known is not None:  # what is known may be too much by itself
        yield 0, _site(context, {"budget": constant(limit)}, unknown=timeline.not_known)


def _reserves_memory(shared: ProgramContext) -> bool:
    """False for a module that reserves no memory yet: TVM's passes put that in."""
    return any(cfg.of_type(AllocStorage, AllocFresh) for cfg in shared.graphs)


def _counts_in_callers(context: FunctionContext) -> bool:
    """True where only other functions of the program call a function: it counts with them."""
    name, graphs = context.function.name, context.shared.graphs
    called = {call.name for cfg in graphs for _, call in cfg.of_type(CallFunction)}
    return context.function.private and name in called and name not in functions_as_values(graphs)


def _group(context: FunctionContext, moment: HeldMoment) -> _Group:
    point = _point(context, moment)
    return context.facts.before[point].guards, moment.path, moment.inner, moment.doubt


def _grouped(context: FunctionContext, limit: int, group: Sequence[HeldMoment]) -> tuple[int, Site]:
    """Return the site of moments at which the same is known, with the first of their points."""
    signed = {name for name, origin in context.function.symbols.items() if origin is Origin.SCALAR}
    sums = undominated((moment.size for moment in group), signed)
    budget = {"budget": constant(limit)}
    point = min(_point(context, moment) for moment in group)
    if len(sums) > _MOST_SUMS:
        return point, _site(context, budget, unknown=f"{len(sums)} sums are more than are compared")
    largest, inner = max(group, key=_typical), group[0].inner
    site = _site(
        context,
        {"held": maximum(*sums) if sums else ZERO, **budget},
        amount=_amount(sums),
        at=largest,
        passes=Passes(conditions=tuple(sorted(inner, key=str))) if inner else None,
        uncertainty=largest.doubt,
    )
    return point, site


def _site(
    context: FunctionContext,
    quantities: Mapping[str, Expr],
    *,
    amount: str = "",
    at: HeldMoment | None = None,
    unknown: str | None = None,
    passes: Passes | None = None,
    uncertainty: str | None = None,
) -> Site:
    instruction = None if at is None else context.instruction(_point(context, at))
    return Site(
        kind="held-memory",
        instruction=instruction,
        span=context.function.span if instruction is None else None,
        quantities=quantities,
        texts={"what": "memory", "amount": amount} if amount else {"what": "memory"},
        path=frozenset() if at is None else at.path,
        unknown=unknown,
        uncertainty=uncertainty,
        passes=passes,
        dedup_key=(context.function.name, unknown is None),
        several=True,
    )


def _point(context: FunctionContext, moment: HeldMoment) -> int:
    return context.analysis.cfg.starts[moment.bound]


def _typical(moment: HeldMoment) -> int:
    return evaluated(moment.size, dict.fromkeys(moment.size.symbols, _TYPICAL)) or 0


def _amount(sums: Sequence[Expr]) -> str:
    text = str(maximum(*sums)) if sums else "0"
    return f"{text} B" if len(text) <= _LONG else f"the largest of {len(sums)} sums"
