"""Tensors that R.memory.ensure_zero_offset hands out, and which of them something writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from symalloc.analysis.effects import Effect
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import pointees_of
from symalloc.program.model import Alias, Instruction, MatchCast, Var, View


def written_folds(points_to: PointsTo, effects: Sequence[Effect]) -> Mapping[Var, Instruction]:
    """The results of ensure_zero_offset that are written, under whatever name, with the first that does so.

    Names are followed through bindings, casts and reshapes; a tensor that is taken out of a tuple or out
    of an If counts as not written.
    """
    made = [step.instruction for step in points_to.cfg.points]
    if not any(i.kind == "ensure_zero_offset" for i in made if type(i) is View):
        return {}
    names = _names(made)
    written: dict[Var, Instruction] = {}
    for step, effect in zip(points_to.cfg.points, effects, strict=True):
        touched = effect.writes | effect.may_writes | effect.may_defs
        if not touched or step.instruction is None:
            continue
        for var in step.uses:
            leaves_of = names.get(var)
            if leaves_of is not None and touched & _bits(points_to, var):
                written.setdefault(leaves_of, step.instruction)
    return written


def _names(instructions: Iterable[Instruction | None]) -> dict[Var, Var]:
    """For each name of a folded tensor the variable that ensure_zero_offset bound."""
    names: dict[Var, Var] = {}
    for made in instructions:
        match made:
            case View(kind="ensure_zero_offset"):
                names[made.var] = made.var
            case Alias(source=Var() as source) | MatchCast(source=Var() as source) if source in names:
                names[made.var] = names[source]
            case View(kind="reshape", source=Var() as source) if source in names:
                names[made.var] = names[source]
    return names


def _bits(points_to: PointsTo, var: Var) -> int:
    must, may = pointees_of(points_to.value_of(var))
    return must | may
