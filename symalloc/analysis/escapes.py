"""Which memory of a function may be reached from outside when the function is over, and why.

Such memory cannot lie in an arena that the next call, or another function, uses again.
"""

from __future__ import annotations

from collections.abc import Mapping

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import members, pointees_of
from symalloc.program.model import CallFunction, CallOperator, CallPacked, Instruction, NotUnderstood


def escapes(analysis: FunctionAnalysis) -> Mapping[int, str]:
    """For each root that the function returns, or hands to something that may keep or return it, the
    reason.
    """
    points_to, found = analysis.points_to, dict[int, str]()
    for step, effect in zip(points_to.cfg.points, analysis.effects, strict=True):
        if effect.captures and step.instruction is not None:
            reason = _reason(step.instruction)
            found.update((root, reason) for root in _roots(analysis, effect.captures) if root not in found)
    must, may = pointees_of(points_to.result)
    found.update((root, "it is returned") for root in _roots(analysis, must | may) if root not in found)
    return found


def _roots(analysis: FunctionAnalysis, bits: int) -> set[int]:
    points_to = analysis.points_to
    return {points_to.regions[index].root for index in members(points_to.resolve(bits))}


def _reason(keeper: Instruction) -> str:
    match keeper:
        case CallPacked(name=name):
            return f"the packed function `{name}` may keep or return it"
        case CallOperator(name=name):
            return f"the operator `{name}` is not lowered"
        case CallFunction(name=name):
            return f"the function `{name}` may keep it"
        case NotUnderstood(what=what):
            return f"it is handed to a construct that is not understood ({what})"
    return "something may keep it"
