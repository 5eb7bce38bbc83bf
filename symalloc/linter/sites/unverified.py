"""Sites of kinds `symbol` and `construct`: what cannot be verified, and is said so."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import FunctionContext, RelationSite, Site
from symalloc.program.ir import Instruction, NotUnderstood, Origin
from symalloc.program.operands import operands_of, type_of
from symalloc.program.types import extents_of
from symalloc.size.expr import Expr


@function_sites("symbol")
def symbols(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The symbols of the function that nothing defines."""
    for name, origin in context.function.symbols.items():
        if origin is Origin.UNDEFINED:
            first = _first_use(context, name)
            found = context.analysis.cfg.points[first].instruction if first is not None else None
            span = found.span if found is not None and found.span is not None else context.function.span
            site = RelationSite(kind="symbol", span=span, relation="defined-nowhere", texts={"symbol": name})
            yield first or 0, site


def _first_use(context: FunctionContext, name: str) -> int | None:
    """The first point that has `name` in an extent, a size or an offset."""
    for index, point in enumerate(context.analysis.cfg.points):
        found = point.instruction
        if found is not None and any(name in expr.symbols for expr in _expressions(found)):
            return index
    return None


def _expressions(instruction: Instruction) -> Iterator[Expr]:
    yield from extents_of(instruction.var.type)
    for operand in operands_of(instruction):
        yield from extents_of(type_of(operand))
    for name in ("size", "offset"):
        value = getattr(instruction, name, None)
        if value is not None:
            yield value
    yield from getattr(instruction, "shape", None) or ()


@function_sites("construct")
def constructs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The constructs of the function that were not understood, once a kind; not what follows from another."""
    for index, found in context.analysis.cfg.of_type(NotUnderstood):
        if found.fault is not None:  # that is an error
            continue
        if not any(isinstance(context.definition(read), NotUnderstood) for read in found.reads):
            site = RelationSite(
                kind="construct",
                instruction=found,
                relation="not-understood",
                texts={"what": found.what},
                dedup_key=found.what,
            )
            yield index, site
