"""The tensors of a function that become buffers of a plan; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.liveness import LiveRange
from symalloc.analysis.register_machine import Reservation
from symalloc.analysis.timeline import Timeline
from symalloc.planner.buffers.sizing import Sized, Sizes
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.planner.planned_program import written_function
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import AllocFresh, Block, If, Instruction, Program, Var
from symalloc.program.types import DType
from symalloc.size.expr import ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The memory of a function that may be planned, as buffers numbered in the order of devices and of the
    text; and what stays as it is (`left`).

    `timeline` is that of a call without a plan, in which an If is a step, too; `points` are the program
    points of its steps.
    """

    buffers: Sequence[Buffer] = ()
    left: Sequence[Unplanned] = ()
    cfg: ControlFlowGraph
    timeline: Timeline = field(default_factory=Timeline)
    points: Sequence[int] = ()


def find_candidates(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    name: str,
    sizes: Sizes,
    *,
    storages: bool = False,
    grounded: Collection[Var] = (),
) -> Candidates:
    """Return what may be planned of the function `name`, with its timeline: all that no choice changes.

    The functions that it calls are in `program` as they are planned.  `grounded` are the allocations that
    must start a storage, all of them with `storages`.
    """
    analysis = analyses[name]
    if analysis.recursive:
        return Candidates(left=tuple(_unplanned_by_recursion(analysis)), cfg=analysis.cfg)
    ranges = analysis.live_ranges(made.number for made in analysis.allocations.values())
    found: list[tuple[AllocFresh, int, Sized, LiveRange, bool]] = []
    left: list[Unplanned] = []
    for point, made in analysis.cfg.of_type(AllocFresh):
        number, nbytes, reason = analysis.allocations[made.var]
        returned = reason == RETURNED
        sized = sizes.of(nbytes) if reason is None or returned else reason
        time = ranges.of.get(number)
        if made.giver:
            sized = f"`{made.giver}` gives its memory"
        if not isinstance(sized, Sized):
            why = RETURNED if returned else sized
            if nbytes is None and made.inexact and reason is None:
                why = f"its shape is not known: {made.inexact}"
            left.append(Unplanned(name=made.var.name, reason=why, nbytes=nbytes, var=made.var))
        elif time is None:
            why = RETURNED if returned else "nothing uses it"
            left.append(Unplanned(name=made.var.name, reason=why, nbytes=sized.nbytes, var=made.var))
        else:
            if returned:  # from its first use to the end
                time = LiveRange(((time.live[0][0], len(ranges.points)),), time.first, ranges.points[-1])
            found.append((made, point, sized, time, returned))
    found.sort(key=lambda one: (one[0].device, one[0].scope))
    timeline, points = _timeline(program, analyses, name)
    return Candidates(
        buffers=[
            _buffer(number, *one, grounded=storages or one[0].var in grounded)
            for number, one in enumerate(found)
        ],
        left=left,
        cfg=analysis.cfg,
        timeline=timeline,
        points=points,
    )


def _buffer(
    number: int,
    made: AllocFresh,
    point: int,
    sized: Sized,
    time: LiveRange,
    returned: bool,
    *,
    grounded: bool,
) -> Buffer:
    definition = sized.definition
    return Buffer(
        id=number,
        name=made.var.name,
        size=sized.size,
        live=time.live,
        nbytes=sized.nbytes,
        device=made.device,
        scope=made.scope,
        var=made.var,
        defined_by=None if definition is None else definition.var,
        steps=(time.first, time.last),
        grounded=grounded and not returned,  # in whose own memory it starts
        returned=returned,
        made=point,
        known=-1 if definition is None else definition.step,
    )


def left_alone(results: Iterable[Buffer]) -> Iterator[Unplanned]:
    """Yield results, which keep memory of their own."""
    return (Unplanned(name=r.name, reason=RETURNED, nbytes=r.nbytes, var=r.var) for r in results)


def _unplanned_by_recursion(analysis: FunctionAnalysis) -> Iterator[Unplanned]:
    """Yield every allocation of a function that calls itself."""
    reason = "its function calls itself: an arena would be held for every call under way"
    for var, made in analysis.allocations.items():
        yield Unplanned(name=var.name, reason=reason, nbytes=made.nbytes, var=var)


# -- the timeline of a call --------------------------------------------------------------------------------


def _timeline(
    program: Program, analyses: Mapping[str, FunctionAnalysis], name: str
) -> tuple[Timeline, Sequence[int]]:
    """The timeline of a call, with the program point of each step.

    It leaves out functions that call themselves, and all that are called where there are too many steps.
    """
    cfg, steps = analyses[name].cfg, dict[Var, int]()
    function = written_function(Plan(function=name), cfg)
    if cfg.joins:
        function = replace(function, body=_with_steps(function.body, cfg, steps))
    others = {other: f for other, f in program.functions.items() if not analyses[other].recursive}
    timeline = Timeline.of(replace(program, functions={**others, name: function}), name, same=True)
    if timeline.problem is not None:
        timeline = Timeline.of(replace(program, functions={name: function}), name, same=True)
    outermost = (step.outermost.var for step in timeline.steps)
    return timeline, [steps[var] if var in steps else cfg.starts[var] for var in outermost]


def least_held(program: Program, analyses: Mapping[str, FunctionAnalysis], name: str) -> Timeline | None:
    """Return what a call of the function `name` holds at each program point with any plan: what is live
    there, and what no plan places.  None where it branches or calls functions.
    """
    cfg, timeline = analyses[name].cfg, Timeline()
    if not (cfg.joins or analyses[name].recursive):
        timeline, points = _timeline(program, analyses, name)
    if not timeline.steps or any(step.frame.caller is not None for step in timeline.steps):
        return None
    allocations = analyses[name].allocations
    ranges = analyses[name].live_ranges(made.number for made in allocations.values()).of
    edges, found = [*points, len(cfg.points)], list[Reservation]()
    for one in timeline.reservations:
        begin, end = edges[one.begin], edges[one.end]
        if one.var in allocations:
            time = ranges.get(allocations[one.var].number)
            if time is None or len(time.live) > 1:
                continue
            begin, end = max(begin, time.first), min(end, time.last + 1)
        found.append(replace(one, begin=begin, end=max(begin, end)))
    steps = [timeline.steps[0]] * len(cfg.points)  # which they are makes no difference to a peak
    return replace(timeline, steps=steps, reservations=found)


def _with_steps(block: Block, cfg: ControlFlowGraph, steps: dict[Var, int]) -> Block:
    """`block` with an empty tensor in front of each If, whose program points go to `steps`: what one side
    needs is held until then, and arenas for both sides are reserved before.
    """
    written: list[Instruction] = []
    for one in block.instructions:
        if isinstance(one, If):
            step = AllocFresh(var=Var("step", one.var.type), shape=(ZERO,), dtype=DType("uint8", 8))
            steps[step.var] = cfg.starts[one.var]
            sides = (_with_steps(side, cfg, steps) for side in (one.then, one.otherwise))
            then, otherwise = sides
            written += [step, replace(one, then=then, otherwise=otherwise)]
        else:
            written.append(one)
    return replace(block, instructions=tuple(written))
