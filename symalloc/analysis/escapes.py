"""Which memory of a function may be reached from outside when the function is over, and why.

Such memory cannot lie in an arena that the next call, or another function, uses again.
"""

from __future__ import annotations

from collections.abc import Mapping

from symalloc.analysis.regions import bits_of, indices
from symalloc.analysis.summaries import Analysis
from symalloc.program.model import CallFunction, CallOperator, CallPacked, Instruction, NotUnderstood

__all__ = ["escapes"]


def escapes(analysis: Analysis) -> Mapping[int, str]:
    """For each root that the function returns, or hands to something that may keep or return it, the
    reason.
    """
    points, found = analysis.points, dict[int, str]()
    for step, effect in zip(points.flow.steps, analysis.effects, strict=True):
        if effect.keeps and step.instruction is not None:
            reason = _reason(step.instruction)
            found.update((root, reason) for root in _roots(analysis, effect.keeps) if root not in found)
    sure, maybe = bits_of(points.result)
    found.update((root, "it is returned") for root in _roots(analysis, sure | maybe) if root not in found)
    return found


def _roots(analysis: Analysis, bits: int) -> set[int]:
    points = analysis.points
    return {points.regions[index].root for index in indices(points.real(bits))}


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
