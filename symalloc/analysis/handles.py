"""Variables as handles: the ones that are killed, out of scope, never used, or written through.

A kill drops the handle that a variable holds; the memory goes with the last handle.  So what is asked
here is asked of variables, never of what they point to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.analysis.conflicts import FeasiblePaths
from symalloc.analysis.effects import Effect
from symalloc.analysis.regions import PointsTo, RegionKind, pointees_of
from symalloc.analysis.sets import members
from symalloc.program import ir
from symalloc.program.control_flow import EVERY_PATH, ControlFlowGraph, PathCondition, PointKind
from symalloc.program.operands import other_names


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleFault:
    """At `point` `var` is used or killed although `earlier` (a Kill, or what binds it) forbids it.

    So it is on paths that take the branches `path`.
    """

    var: ir.Var
    point: int
    earlier: ir.Instruction | None
    kind: str
    path: PathCondition = EVERY_PATH


def uses_after_kill(paths: FeasiblePaths) -> Iterator[HandleFault]:
    """Uses (`use-after-kill`) and kills (`double-kill`) of variables that are killed on some path to them."""
    kills: dict[ir.Var, list[int]] = {}
    cfg = paths.cfg
    for index, point in enumerate(cfg.points):
        made = point.instruction
        if kills and not kills.keys().isdisjoint(point.uses):
            kind = "double-kill" if type(made) is ir.Kill else "use-after-kill"
            for var in dict.fromkeys(point.uses):
                earlier = next((kill for kill in kills.get(var, ()) if paths.reaches(kill, index)), None)
                if earlier is not None:
                    yield HandleFault(
                        var=var,
                        point=index,
                        earlier=cfg.points[earlier].instruction,
                        kind=kind,
                        path=paths.at[earlier] | paths.at[index],
                    )
        if type(made) is ir.Kill and isinstance(made.target, ir.Var):
            kills.setdefault(made.target, []).append(index)


def out_of_scope(paths: FeasiblePaths) -> Iterator[HandleFault]:
    """The first use of each variable that some path gets to without what binds it."""
    cfg, starts, ends, at = paths.cfg, paths.cfg.starts, paths.cfg.ends, paths.at
    reported = set(cfg.function.params)
    for index, point in enumerate(cfg.points):
        for var in point.uses:
            if var in reported:
                continue
            binding = [at[starts[var]]] if var in starts and ends[var] < index else []
            if binding and binding[0] <= at[index]:
                continue
            around = paths.uncovered(at[index], binding, index).path
            if around is not None:
                reported.add(var)
                earlier = cfg.definitions.get(var)
                yield HandleFault(var=var, point=index, earlier=earlier, kind="not-dominated", path=around)


def used_variables(cfg: ControlFlowGraph) -> set[ir.Var]:
    """The variables that something uses other than a kill, or a binding that is itself not used."""
    used: set[ir.Var] = set()
    for point in reversed(cfg.points):
        made = point.instruction
        if type(made) is not ir.Kill and (type(made) is not ir.Alias or made.var in used):
            used.update(point.uses)
    return used


def killed_variables(cfg: ControlFlowGraph) -> set[ir.Var]:
    """The variables that some kill names."""
    return {var for index, _ in cfg.of_type(ir.Kill) for var in cfg.points[index].uses}


def written_zero_offset_views(
    points_to: PointsTo, effects: Sequence[Effect]
) -> Mapping[ir.Var, ir.Instruction]:
    """The results of ensure_zero_offset that are written, under whatever name, with the first that does so.

    Names are followed through bindings, casts, reshapes and tuples; what an If yields counts as not written,
    unless both sides yield one, or it is a copy for sure.
    """
    names = _names(points_to.cfg)
    copies = {var: points_to.regions_of(var) for var in names if _is_a_copy(points_to, var)}
    written: dict[ir.Var, ir.Instruction] = {}
    for point, effect in zip(points_to.cfg.points, effects, strict=True) if names else ():
        touched = effect.changes
        if not touched or point.instruction is None:
            continue
        for var in point.uses:
            must, may = pointees_of(points_to.value_of(var))
            if var in names and touched & (must | may):
                written.setdefault(names[var], point.instruction)
        for var, memory in copies.items():
            if touched & memory:
                written.setdefault(var, point.instruction)
    return written


def _is_a_copy(points_to: PointsTo, var: ir.Var) -> bool:
    """True if the ensure_zero_offset that binds `var` makes memory of its own for sure."""
    made = points_to.only_region(points_to.value_of(var))
    return made is not None and made.kind is RegionKind.FRESH and made.var is var


def is_read_besides(points_to: PointsTo, effects: Sequence[Effect], view: ir.View) -> bool:
    """True if something behind an ensure_zero_offset reads the memory that it was given under another name.

    That is by a handle of this memory, of a part of it or of what it is part of, or by the result of another
    ensure_zero_offset of it, which may be a copy.  Memory of the caller is read by the caller, and what a
    packed function may have kept, by that.
    """
    cfg, family = points_to.cfg, points_to.family(points_to.regions_of(view.source))
    if any(points_to.regions[number].external for number in members(family)):
        return True
    if any(effect.captures & family for effect in effects):
        return True
    names = _names(cfg)
    sources = {made.var: points_to.regions_of(made.source) for _, made in cfg.of_type(ir.View)}
    for index in range(cfg.ends[view.var] + 1, len(cfg.points)):
        point, read = cfg.points[index], points_to.resolve(effects[index].reads | effects[index].may_reads)
        if not read or isinstance(point.instruction, ir.View):
            continue
        for var in point.uses:
            name, held = names.get(var), points_to.regions_of(var)
            behind = held if name is None else held | sources[name]
            content = points_to.content_of_storages(held)
            if name is not view.var and behind & family and read & (held | content):
                return True
    return False


def _names(cfg: ControlFlowGraph) -> dict[ir.Var, ir.Var]:
    """For each name of a zero-offset view the variable that ensure_zero_offset bound."""
    names = {made.var: made.var for _, made in cfg.of_type(ir.View) if made.kind == "ensure_zero_offset"}

    def bound(operand: ir.Operand) -> ir.Var | None:
        known = other_names(operand, cfg.definitions, views=True)
        return next(
            (names[one] for one, path in known if isinstance(one, ir.Var) and one in names and not path), None
        )

    for _, made in cfg.at(PointKind.INSTRUCTION, PointKind.JOIN) if names else ():
        values = (made.then.result, made.otherwise.result) if isinstance(made, ir.If) else (made.var,)
        found, *others = {bound(value) for value in values}
        if found is not None and not others:
            names[made.var] = found
    return names
