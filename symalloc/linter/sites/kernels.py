"""Sites at calls: what kernels, casts and operators need of their operands, memory that is handed over twice,
indices in the bodies of kernels.

A call of a PrimFunc compares what it brings with what the buffers declare, R.match_cast compares extents.

A kernel is compiled under the promise that its pointers do not alias (tirx.noalias).  One that writes each
element of its result over the very element that it has just read still gives the right numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice
from typing import NamedTuple

from symalloc.analysis.call_expansion import arguments_of, bind_kernel, comparisons, kernel_facts
from symalloc.analysis.conflicts import stale_uses
from symalloc.analysis.kernels.coverage import Passes, points_of
from symalloc.analysis.kernels.index_bounds import IndexBound
from symalloc.analysis.kernels.overlap import Conditions, KernelArgument, clashes, is_known, symbol_values
from symalloc.analysis.regions import Region, Target
from symalloc.linter.function_prover import unproved_among
from symalloc.linter.sites.site import (
    FunctionContext,
    Site,
    caller_name,
    function_sites,
    instruction_sites,
    name_of,
    not_verified,
    places_in_memory,
    places_of,
)
from symalloc.program import ir
from symalloc.program.control_flow import PathCondition
from symalloc.program.operands import inplace_operands, operands_of, read_cast, tensor_type, type_of
from symalloc.program.packed_contracts import NEEDS_ELEMENTS
from symalloc.program.types import ScalarType, TensorType
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import ONE, ZERO, Expr, constant, mod, product, symbol


@instruction_sites(ir.CallKernel, ir.CallTIR)
def call_arguments(context: FunctionContext, call: ir.CallKernel | ir.CallTIR) -> Iterator[Site]:
    """The sites of one call of a PrimFunc: number of arguments, dtype, number of dimensions, extents,
    byte offset.
    """
    kernel = context.program.kernels.get(call.kernel)
    if kernel is None:
        return
    arguments = arguments_of(call)
    if len(arguments) != len(kernel.parameters):
        given, wanted = constant(len(arguments)), constant(len(kernel.parameters))
        texts = {"subject": "number of arguments", "declarer": f"`{call.kernel}` takes"}
        yield argument_site(call, "the call", "", "number of arguments", given, wanted, texts)
        return
    for position, argument in enumerate(arguments):
        parameter = kernel.parameters[position]
        if isinstance(parameter, ir.KernelBuffer):
            yield from _properties(context, call, parameter, argument)
    for found in comparisons(kernel, arguments):
        if found.actual == found.expected and found.actual.symbols:
            continue
        buffer, argument = kernel.parameters[found.position], arguments[found.position]
        what = f"extent {found.axis}"
        yield argument_site(
            call, argument_name(call, argument), buffer.name, what, found.actual, found.expected
        )


@instruction_sites(ir.MatchCast)
def match_casts(context: FunctionContext, cast: ir.MatchCast) -> Iterator[Site]:
    """The sites of one cast; extents that bind a symbol are compared with nothing."""
    reading = read_cast(cast)
    for index, source, target in reading.compared:
        defined = target.as_symbol in context.facts.definitions  # by a cast, with which TVM compares this one
        yield Site(
            kind="unchecked-cast" if index in reading.unchecked and not defined else "match-cast",
            quantities={"source.extent": source, "extent": target},
            texts={"value": cast.var.name, "source": name_of(cast.source), "index": str(index)},
            checked=None if index in reading.unchecked else eq(source, target),
        )


def _properties(
    context: FunctionContext, call: ir.CallKernel | ir.CallTIR, buffer: ir.KernelBuffer, argument: ir.Operand
) -> Iterator[Site]:
    """The properties of an argument that must be equal whatever the shapes are."""
    kind = tensor_type(argument)
    if kind is None:
        return
    name = argument_name(call, argument)
    if buffer.dtype is not None and kind.dtype is not None and buffer.dtype.name != kind.dtype.name:
        texts = {"actual": kind.dtype.name, "expected": buffer.dtype.name}
        yield argument_site(call, name, buffer.name, "dtype", ONE, ZERO, texts)
    dimensions = len(kind.shape) if kind.shape is not None else kind.ndim
    if buffer.shape is not None and dimensions is not None and dimensions != len(buffer.shape):
        declared = constant(len(buffer.shape))
        yield argument_site(call, name, buffer.name, "number of dimensions", constant(dimensions), declared)
    if buffer.dtype is None or (buffer.layout is not None and buffer.layout.elem_offset):
        return
    for offset in dict.fromkeys(context.points_to.offsets(argument)):
        if not offset.terms:
            continue
        if buffer.offset_factor is None:
            yield argument_site(call, name, buffer.name, "byte offset", offset, ZERO)
        else:
            point = buffer.offset_factor * buffer.dtype.itemsize
            yield argument_site(
                call, name, buffer.name, f"byte offset modulo {point}", mod(offset, point), ZERO
            )


def argument_site(
    call: ir.CallKernel | ir.CallTIR,
    argument: str,
    parameter: str,
    what: str,
    actual: Expr,
    expected: Expr,
    texts: dict[str, str] | None = None,
    kind: str = "call-argument",
) -> Site:
    """A site of `kind`, at which a property of an argument must be what a parameter declares."""
    named = {"kernel": call.kernel, "parameter": parameter, "argument": argument, "property": what}
    named |= {"subject": f"{what} of `{argument}`", "declarer": f"`{call.kernel}` declares for `{parameter}`"}
    return Site(
        kind=kind,
        quantities={"actual": actual, "expected": expected},
        texts={**named, **(texts or {})},
        checked=eq(actual, expected),
    )


def argument_name(call: ir.CallKernel | ir.CallTIR, argument: ir.Operand) -> str:
    """The name of an argument: that of the result where the call allocates it."""
    fresh = (
        isinstance(call, ir.CallTIR)
        and isinstance(argument, ir.ConstantTensor)
        and argument not in call.inputs
    )
    return call.var.name if fresh else name_of(argument)


@function_sites("constant-write", expanded=True)
def constant_writes(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the calls that write a constant; each with its program point."""
    points_to = context.points_to
    for access in context.conflicts.writes_to(points_to.constants):
        call = context.instruction(access.point)
        found = [o for o in _written(context, call) if points_to.regions_of(o) & points_to.constants]
        named = next((f"`{o.name}`, a constant" for o in found if isinstance(o, ir.Var)), "a constant")
        outlined = isinstance(call, ir.CallFunction)
        doubt = "what the function does is known in outline only" if outlined else None
        site = Site(
            kind="constant-write",
            relation="constant-written",
            texts={"writer": caller_name(call), "constant": named},
            uncertainty=doubt if access.certain else "an alias is not certain",
            path=access.path,
            dedup_key=access.point,
        )
        if found:
            yield access.point, site


def _written(context: FunctionContext, call: ir.Instruction | None) -> Sequence[ir.Operand]:
    """The arguments that a call is known to write."""
    match call:
        case ir.CallKernel(kernel=name, arguments=arguments) if name in context.program.kernels:
            kernel = context.program.kernels[name]
            pairs = zip(range(len(kernel.parameters)), arguments, strict=False)
            return [argument for position, argument in pairs if is_known(kernel, position, "store")]
        case ir.CallTIR() | ir.CallPacked(inplace=(_, *_)):
            return inplace_operands(call)
        case ir.CallPacked(arguments=arguments, writes=writes):
            return [a for i, a in enumerate(arguments) if i in writes]
    return () if call is None else operands_of(call)


@function_sites("inplace-operand", expanded=True)
def inplace_operands_used_later(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the uses of what an in-place call has overwritten; each with its program point."""
    for use in stale_uses(context.program, context.points_to, context.shared.summaries, context.paths):
        writer, reader = context.instruction(use.writer), context.instruction(use.reader)
        user = "the function's result" if reader is None else caller_name(reader)
        if use.reader == use.writer:
            user = f"another result of {caller_name(writer)}"
        used = context.analysis.cfg.points[use.reader].uses
        through = [var for var in used if use.versions.regions_of(var) & use.regions]
        alias = f"`{through[0].name}`" if through and use.operand not in through else None
        site = Site(
            kind="inplace-operand",
            relation="used-later",
            texts={
                **({} if alias is None else {"alias": alias}),
                "operand": name_of(use.operand),
                "writer": caller_name(writer),
                "reader": user,
            },
            places=places_of(writer=writer),
            uncertainty=None if use.certain else "an alias is not certain",
            path=use.path,
            until=use.reader,
            dedup_key=(use.writer, use.operand),
        )
        yield use.reader, site


_UNCHECKED = {"relax.take": frozenset({"fast"})}
"""Operators that take indices, and the modes in which they use them as they are."""


@instruction_sites(ir.CallOperator)
def constant_indices(context: FunctionContext, call: ir.CallOperator) -> Iterator[Site]:
    """One site for each different constant index of `call`."""
    modes = _UNCHECKED.get(call.name)
    mode = call.attributes.get("mode", "fast")
    if modes is None or mode not in modes or len(call.arguments) < 2:
        return
    source = tensor_type(call.arguments[0])
    extent, axis = (None, "") if source is None else _extent(source, call.attributes.get("axis"))
    if extent is None:
        return
    for index in dict.fromkeys(_indices(call.arguments[1])):
        yield Site(
            kind="index",
            quantities={"index": index, "extent": extent},
            texts={"operator": call.name, "tensor": name_of(call.arguments[0]), "axis": axis, "mode": mode},
        )


def _indices(operand: ir.Operand) -> tuple[Expr, ...]:
    if isinstance(operand, ir.ConstantTensor):
        return tuple(map(constant, operand.values or ()))
    kind = type_of(operand)
    return (kind.value,) if isinstance(kind, ScalarType) and kind.value is not None else ()


def _extent(source: TensorType, axis: str | None) -> tuple[Expr | None, str]:
    """The extent that is indexed, and what to call its axis; without an axis, of the flattened tensor."""
    if source.shape is None:
        return None, ""
    if not axis or axis == "None":
        return product(source.shape), "flattened"
    number = int(axis)
    inside = -len(source.shape) <= number < len(source.shape)
    return (source.shape[number], str(number % len(source.shape))) if inside else (None, "")


_SIZES = (1, 2, 3, 8, 17, 64, 1000)
"""The values tried for the symbols of a function where it is not decided for all at once."""
_MOST_CLASHES = 256


class _Handed(NamedTuple):
    """A tensor that a kernel gets as its parameter number `position`, and one memory that it may be."""

    position: int
    parameter: ir.KernelBuffer
    operand: ir.Var
    target: Target
    region: Region


class _Pair(NamedTuple):
    """Two arguments of a call in one root: `second` is written."""

    call: ir.CallKernel | ir.CallTIR
    point: int
    first: _Handed
    second: _Handed
    path: PathCondition


@function_sites("kernel-arguments", expanded=True)
def overlapping_arguments(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find the calls of kernels with two arguments in one memory, one of them written; with their points."""
    calls: Sequence[tuple[int, ir.CallKernel | ir.CallTIR]]
    calls = context.analysis.cfg.of_type(ir.CallKernel, ir.CallTIR)
    for point, call in calls:
        kernel = context.program.kernels.get(call.kernel)
        if kernel is None:
            continue
        for one, other in combinations(_handed(context, call), 2):
            if one.position == other.position or one.region.root != other.region.root:
                continue
            first, second = (one, other) if is_known(kernel, other.position, "store") else (other, one)
            if is_known(kernel, second.position, "store"):
                path = context.paths.at[point] | first.target.path | second.target.path
                yield point, _site(context, _Pair(call, point, first, second, path))


def _handed(context: FunctionContext, call: ir.CallKernel | ir.CallTIR) -> Sequence[_Handed]:
    """The tensors among the arguments, each with all that it may be; none where no two are in one root."""
    points_to, kernel, arguments = context.points_to, context.program.kernels[call.kernel], arguments_of(call)
    alone = [points_to.only_region(points_to.values.get(a)) for a in arguments if type(a) is ir.Var]
    if None not in alone and len({region.root for region in alone if region}) == len(alone):
        return ()  # as nearly always
    pairs = zip(kernel.parameters, arguments, strict=False)
    return [
        _Handed(position, parameter, operand, target, points_to.regions[target.region])
        for position, (parameter, operand) in enumerate(pairs)
        if type(operand) is ir.Var and type(parameter) is ir.KernelBuffer
        if parameter.reads or parameter.writes
        for target in points_to.targets_of(operand)
    ]


def _site(context: FunctionContext, pair: _Pair) -> Site:
    first, second = pair.first.region, pair.second.region
    return Site(
        kind="kernel-arguments",
        quantities=places_in_memory(first, second),
        unknown="the place of one of the two arguments is not known here",
        doubt=True,
        texts={
            "kernel": caller_name(pair.call),
            "first": pair.first.operand.name,
            "second": pair.second.operand.name,
            "storage": context.points_to.regions[first.root].name,
            "use": "writes" if pair.first.parameter.writes else "reads",
            "first.parameter": pair.first.parameter.name,
            "second.parameter": pair.second.parameter.name,
        },
        path=pair.path,
        dedup_key=(pair.point, pair.first.position, pair.second.position),
        resolve=partial(_resolved, context, pair),
    )


def _resolved(context: FunctionContext, pair: _Pair, site: Site) -> Iterator[Site]:
    """The pair, with the reason for which it may be no fault; none where a call is in place on purpose."""
    if not (pair.first.target.certain and pair.second.target.certain):
        yield replace(site, uncertainty="an alias is not certain")
        return
    loses, called = _loses_content(context, pair), context.program.kernels[pair.call.kernel]
    updates = called.name in context.program.in_place or is_known(called, pair.second.position, "load")
    if loses is False and updates:  # what it is given
        return
    kernel, doubt = caller_name(pair.call), None
    if loses is False:
        doubt = f"{kernel} reads each element before it changes it, as TVM compiles it today"
    elif loses is None:
        doubt = f"whether {kernel} reads an element that it has overwritten is not decided"
    yield replace(site, uncertainty=doubt)


def _loses_content(context: FunctionContext, pair: _Pair) -> bool | None:
    """Return whether the kernel reads an element that it has overwritten, or writes one twice; None where
    that is not decided.
    """
    first, second = _argument(pair.first), _argument(pair.second)
    kernel, position = context.program.kernels[pair.call.kernel], pair.first.position
    uses = is_known(kernel, position, "load") or is_known(kernel, position, "store")
    if not uses or first is None or second is None:
        return None
    known = context.paths.conditions(context.paths.whole(pair.path, pair.point), pair.point)
    open_cases: list[Conditions] = []
    others = _placed_beside(context, pair)
    found = islice(clashes(kernel, symbol_values(kernel, pair.call), first, second, others), _MOST_CLASHES)
    for number, clash in enumerate(found, start=1):
        if number == _MOST_CLASHES:
            return None
        answer = context.paths.possible((*known, *clash))
        if answer:
            return True
        if answer is None:
            open_cases.append((*known, *clash))
    return _at_some_size(context, open_cases) if open_cases else False


def _placed_beside(context: FunctionContext, pair: _Pair) -> list[KernelArgument]:
    """The arguments of the call that surely lie in the same root, too."""
    handed = _handed(context, pair.call)
    times, root = Counter(one.position for one in handed), pair.first.region.root
    sure = (one for one in handed if times[one.position] == 1 and one.target.certain)
    found = (_argument(one) for one in sure if one.region.root == root)
    return [one for one in found if one is not None]


def _at_some_size(context: FunctionContext, cases: Sequence[Conditions]) -> bool | None:
    """True where one of `cases` can hold with all symbols of the function of one size that is tried."""
    for size in _SIZES:
        fixed = [eq(symbol(name), size) for name in context.function.symbols]
        if any(context.paths.possible((*case, *fixed)) for case in cases):
            return True
    return None


def _argument(handed: _Handed) -> KernelArgument | None:
    kind, offset = tensor_type(handed.operand), handed.region.offset
    if kind is None or kind.shape is None or kind.dtype is None or offset is None:
        return None
    return KernelArgument(
        position=handed.position, offset=offset, shape=kind.shape, itemsize=kind.dtype.itemsize
    )


@instruction_sites(ir.NotUnderstood)
def slots(_context: FunctionContext, call: ir.NotUnderstood) -> Iterator[Site]:
    """A slot that is stored or loaded, and that the shape heap does not have."""
    fault = call.fault
    if fault is None or fault.size is None:
        return
    slot = constant(fault.slot)
    yield Site(
        kind="kernel-store" if fault.stored else "kernel-load",
        quantities={"least": slot, "greatest": slot, "extent": constant(fault.size)},
        texts={
            "kernel": fault.builtin,
            "buffer": "slots",
            "argument": "the shape heap",
            "axis": "0",
            "reach": f"is {fault.slot}",
        },
    )


@instruction_sites(ir.CallKernel, ir.CallTIR)
def indices(context: FunctionContext, call: ir.CallKernel | ir.CallTIR) -> Iterator[Site]:
    """The indices of stores and loads that the kernel's own text does not prove to be inside."""
    kernel, arguments = context.program.kernels.get(call.kernel), arguments_of(call)
    if kernel is not None and len(arguments) == len(kernel.parameters):
        followed = unproved_among(context.shared.prover, kernel, call.followed)
        bounds = (*context.shared.kernels.unproved(kernel), *followed)
        for bound in bounds:
            if bound.access.unread and not bound.access.exact:
                continue  # the kernel is not verified as a whole
            position = bound.access.parameter
            own = position >= len(arguments)
            name = bound.buffer.name if own else argument_name(call, arguments[position])
            yield _index_site(context, call, bound, name)


@instruction_sites(ir.CallKernel, ir.CallTIR)
def own_buffers(context: FunctionContext, call: ir.CallKernel | ir.CallTIR) -> Iterator[Site]:
    """The loads of a kernel's own buffers that nothing has stored to."""
    kernel, arguments = context.program.kernels.get(call.kernel), arguments_of(call)
    if kernel is None or not kernel.own_buffers:
        return
    coverages, bound = context.analysis.coverages(call.kernel), bind_kernel(kernel, arguments)
    for position, buffer in enumerate(kernel.own_buffers, len(kernel.parameters)):
        for load in coverages[position].needed:
            points = points_of(load)
            if points is None or not load.exact or not points.symbols <= bound.keys():
                continue
            found = points.substitute(bound)
            yield Site(
                kind="read",
                quantities={"lacking": ONE if buffer.dtype is None else constant(buffer.dtype.itemsize)},
                texts={
                    "tensor": buffer.name,
                    "reader": f"`{call.kernel}`",
                    "what": "a buffer of its own, where nothing has written before",
                },
                passes=Passes((*kernel_facts(kernel, arguments), *found.conditions), found.counters),
                sized=True,
                shown_only=True,
                dedup_key=(call.kernel, position),
            )


@instruction_sites(ir.CallKernel, ir.CallTIR)
def kernels_not_verified(context: FunctionContext, call: ir.CallKernel | ir.CallTIR) -> Iterator[Site]:
    """The kernel, if some of it is not verified although no data is in it."""
    kernel = context.program.kernels.get(call.kernel)
    if kernel is None:
        return
    coverages = context.analysis.coverages(call.kernel)
    finds = (f"what it finds in `{c.parameter.name}`" for c in coverages.values() if c.fresh.undecided)
    given = (coverages[position] for position in coverages if position < len(kernel.parameters))
    fills = (f"what it stores in `{c.parameter.name}`" for c in given if c.unsure)
    why = next(chain(kernel.unread, finds, fills), None)
    if why is not None:
        what = f"`{call.kernel}`: {why} cannot be told from its counters"
        yield not_verified(call.kernel, what)


def undecided(site: Site) -> Site:
    """The note on a site of what kernels compute, which is harder than sizes, where it was not decided."""
    texts, kernel = site.texts, site.texts.get("kernel")
    tensor = texts.get("tensor") or texts.get("first", "")
    what = f"`{kernel}`: whether an index of `{texts.get('buffer')}` is inside is not decided"
    if kernel is None:
        what = f"whether {texts['reader']} reads of `{tensor}` only what is written is not decided"
    return not_verified(kernel or tensor, what, path=site.path, until=site.until)


def _renaming(taken: Iterable[str], bound: Mapping[str, Expr], names: frozenset[str]) -> Mapping[str, Expr]:
    """The values of a kernel's symbols `names` at a call; those that nothing binds keep names not `taken`."""
    found: dict[str, Expr] = {}
    used = set(taken)
    for name in sorted(names):
        free = name
        while name not in bound and free in used:
            free += "_"
        found[name] = bound.get(name, symbol(free))
        used.add(free)
    return found


def _index_site(
    context: FunctionContext, call: ir.CallKernel | ir.CallTIR, bound: IndexBound, argument: str
) -> Site:
    kernel, arguments = context.program.kernels[call.kernel], arguments_of(call)
    names = _renaming(context.function.symbols, bind_kernel(kernel, arguments), _symbols(bound))
    least, greatest, extent = (e.substitute(names) for e in (*bound.certain_range, bound.extent))
    where = [condition.substitute(names) for condition in bound.range.where]
    passes = {loop.symbol: loop.passes for loop in bound.access.loops}
    counters = tuple(
        (names[c].as_symbol or c, None if (run := passes[c]) is None else run.substitute(names))
        for c in bound.range.counters
        if c in names
    )
    ends = (least, greatest, extent, *where)
    doubt = "it is another element of the same buffer" if bound.in_memory else None
    if bound.access.kind == "touch":
        doubt = "the other side of `and` or `or` spares it where a target, unlike LLVM, does not compute both"
    if not bound.access.exact:
        doubt = "it may not be executed: what it hangs on depends on data"
    return Site(
        kind="kernel-store" if bound.access.kind == "store" else "kernel-load",
        quantities={"least": least, "greatest": greatest, "extent": extent},
        texts={
            "kernel": call.kernel,
            "buffer": bound.buffer.name,
            "argument": argument,
            "axis": str(bound.axis),
            "reach": _reach(bound, names),
            "index": str(bound.index),
        },
        passes=Passes((*kernel_facts(kernel, arguments), *where), counters, bound.access.exact),
        uncertainty=doubt,
        dedup_key=(call.kernel, bound.access.parameter, bound.axis, bound.index, ends),
    )


def _symbols(bound: IndexBound) -> frozenset[str]:
    """The symbols of the kernel that a question about `bound` is over."""
    passes = (loop.passes for loop in bound.access.loops if loop.passes is not None)
    sizes = (bound.index, bound.extent, bound.range.least, bound.range.greatest, *passes)
    exprs: tuple[Expr | Condition, ...] = (*sizes, *bound.range.where)
    return frozenset(bound.range.counters).union(*(spoken.symbols for spoken in exprs))


def _reach(bound: IndexBound, names: Mapping[str, Expr]) -> str:
    """The values of an index, in words."""
    least, greatest, index = (
        e.substitute(names) for e in (bound.range.least, bound.range.greatest, bound.index)
    )
    ends = "" if bound.range.counters or least == greatest else f", from {least} to {greatest}"
    return f"is {index}{ends}"


@instruction_sites(ir.CallOperator)
def needed_elements(_context: FunctionContext, call: ir.CallOperator) -> Iterator[Site]:
    """The elements that `call` goes over, beside those that it takes at least."""
    source = tensor_type(call.arguments[0]) if call.name in NEEDS_ELEMENTS and call.arguments else None
    if source is None or source.shape is None:
        return
    ndim, told = len(source.shape), re.findall(r"-?\d+", call.attributes.get("axis", ""))
    axes = {int(axis) % ndim for axis in told if ndim} or set(range(ndim))
    over = [extent for axis, extent in enumerate(source.shape) if axis in axes]
    others = [extent for axis, extent in enumerate(source.shape) if axis not in axes]
    wanted = int(call.attributes.get("k", 1))
    yield Site(
        kind="needed-elements",
        quantities={"needed": constant(wanted), "elements": product(over), "others": product(others)},
        texts={
            "operator": call.name,
            "tensor": name_of(call.arguments[0]),
            "axis": f"axis {', '.join(map(str, sorted(axes)))} of " if told else "",
        },
    )
