"""Sites of kinds `symbol` and `construct`: what cannot be verified, and is said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symalloc.analysis.call_expansion import LeftCall
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, region_set
from symalloc.linter.sites.site import (
    FunctionContext,
    Site,
    function_sites,
    not_understood,
    places_of,
)
from symalloc.linter.sites.storages import storages_of
from symalloc.program import ir
from symalloc.program.ir import Instruction, NotUnderstood, Origin
from symalloc.program.operands import operands_of, type_of
from symalloc.program.types import extents_of
from symalloc.size.expr import Expr

_DEEP = "in calls of itself further down"


@function_sites("construct", expanded=True)
def calls_not_followed(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The calls not written out that write on storages in a way that none of those written out shows.

    They are given one storage twice, or one of a size that those around them were not given.
    """
    expansion = context.expansion
    for point, made in context.analysis.cfg.instructions if expansion is not None and expansion.left else ():
        if isinstance(made, ir.AllocTensor):
            yield from ((point, site) for site in _unknown_storages(context, made))
        elif expansion is not None and made.var in expansion.left:
            yield from ((point, site) for site in _written_storages(context, expansion.left[made.var]))


def _written_storages(context: FunctionContext, left: LeftCall) -> Iterator[Site]:
    """The sites of one call."""
    call, given = left.call, _storages(context, left.call, left.call.arguments)
    around = _storages(context, call, left.repeated) if left.repeated else ()
    summary = context.shared.summaries[call.name]
    for number, storages in enumerate(given):
        if not contains(summary.writes | summary.may_writes, number):
            continue
        others = NO_REGIONS
        for other in (*given[:number], *given[number + 1 :]):
            others |= other
        sized = region_set(n for n in members(storages) if context.points_to.regions[n].nbytes is not None)
        if storages & others:
            what = f"what `{call.name}` writes on {_names(context, storages & others)}, given twice"
            yield not_understood(what)
        elif sized and not (around and storages == around[number]):
            what = f"whether what `{call.name}` places on {_names(context, storages)} fits, {_DEEP}"
            yield not_understood(what)


def _storages(
    context: FunctionContext, call: ir.CallFunction, arguments: Sequence[ir.Operand]
) -> Sequence[RegionSet]:
    """The storages behind each leaf of the arguments."""
    points_to, callee = context.points_to, context.program.functions[call.name]
    leaves = (leaf for _, leaf in points_to.argument_leaves(arguments, callee))
    return [points_to.resolve(leaf.must | leaf.may) & points_to.storages for leaf in leaves]


def _names(context: FunctionContext, storages: RegionSet) -> str:
    names = (context.points_to.regions[number].name for number in members(storages))
    return " or ".join(f"`{name}`" for name in dict.fromkeys(names))


def _unknown_storages(context: FunctionContext, alloc: ir.AllocTensor) -> Iterator[Site]:
    """The sites of a tensor on a storage that comes out of a call which is not written out."""
    assert context.expansion is not None
    for storage in storages_of(context, alloc):
        made = storage.instruction
        if storage.nbytes is None and made is not None and made.var in context.expansion.left:
            what = f"whether `{alloc.var.name}` fits the storage that {_maker(made)} returns"
            yield not_understood(what, places=places_of(storage=made))


def _maker(made: ir.Instruction) -> str:
    return f"`{made.name}`" if isinstance(made, ir.CallFunction) else "a call"


@function_sites("symbol")
def symbols(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The symbols of the function that nothing defines."""
    for name, origin in context.function.symbols.items():
        if origin is Origin.UNDEFINED:
            first = _first_use(context, name)
            found = context.analysis.cfg.points[first].instruction if first is not None else None
            span = found.span if found is not None and found.span is not None else context.function.span
            site = Site(kind="symbol", span=span, relation="defined-nowhere", texts={"symbol": name})
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
            yield index, not_understood(found.what)
