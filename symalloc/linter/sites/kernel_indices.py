"""Sites of kinds `kernel-store` and `kernel-load`: indices in the body of a kernel, at a call of it.

Where a kernel's own text proves that an index is inside its buffer, no call is asked.  Otherwise each call
is, with the extents and scalars that it gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from symalloc.analysis.argument_binding import arguments_of, bind_kernel, kernel_facts
from symalloc.analysis.kernel_bounds import IndexBound
from symalloc.linter.sites.comparisons import argument_name
from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Passes, Site
from symalloc.program.ir import CallKernel, CallTIR, Kernel, NotUnderstood, Operand
from symalloc.program.slot_fault import SlotFault
from symalloc.size.expr import Expr, constant, symbol


@instruction_sites("kernel-store", CallKernel, CallTIR)
def kernel_stores(context: FunctionContext, call: CallKernel | CallTIR) -> Iterator[Site]:
    """The indices of stores that the kernel's own text does not prove to be inside."""
    return _sites(context, call, "store")


@instruction_sites("kernel-load", CallKernel, CallTIR)
def kernel_loads(context: FunctionContext, call: CallKernel | CallTIR) -> Iterator[Site]:
    """The indices of loads that the kernel's own text does not prove to be inside."""
    return _sites(context, call, "load")


@instruction_sites("kernel-store", NotUnderstood)
def slot_stores(context: FunctionContext, call: NotUnderstood) -> Iterator[Site]:
    """A slot that is stored, and that the shape heap does not have."""
    if call.fault is not None and call.fault.stored:
        yield from _slot_sites(call, call.fault)


@instruction_sites("kernel-load", NotUnderstood)
def slot_loads(context: FunctionContext, call: NotUnderstood) -> Iterator[Site]:
    """A slot that is loaded, and that the shape heap does not have."""
    if call.fault is not None and not call.fault.stored:
        yield from _slot_sites(call, call.fault)


def _slot_sites(call: NotUnderstood, fault: SlotFault) -> Iterator[Site]:
    if fault.size is None:
        return
    slot = constant(fault.slot)
    yield ConstraintSite(
        kind="kernel-store" if fault.stored else "kernel-load",
        instruction=call,
        quantities={"least": slot, "greatest": slot, "extent": constant(fault.size)},
        texts={
            "kernel": fault.builtin,
            "buffer": "slots",
            "argument": "the shape heap",
            "axis": "0",
            "reach": f"is {fault.slot}",
        },
    )


def _sites(context: FunctionContext, call: CallKernel | CallTIR, kind: str) -> Iterator[Site]:
    bounds = [b for b in context.indices.of(call.kernel) if b.access.kind == kind] if context.indices else []
    if not bounds:
        return
    kernel, arguments = context.program.kernels[call.kernel], arguments_of(call)
    if len(arguments) == len(kernel.parameters):
        at_call = _AtCall(context, kernel, arguments)
        for bound in bounds:
            position = bound.access.parameter
            own = position >= len(arguments)
            yield _site(
                call, bound, at_call, bound.buffer.name if own else argument_name(call, arguments[position])
            )


class _AtCall:
    """The symbols of a kernel at one call, in symbols of the caller."""

    def __init__(self, context: FunctionContext, kernel: Kernel, arguments: tuple[Operand, ...]) -> None:
        self.taken = frozenset(context.function.symbols)
        self.bound = bind_kernel(kernel, arguments)
        self.facts = kernel_facts(kernel, arguments)

    def renaming(self, names: frozenset[str]) -> Mapping[str, Expr]:
        """The values of the kernel's symbols `names`; those that nothing binds keep free names."""
        found: dict[str, Expr] = {}
        used = set(self.taken)
        for name in sorted(names):
            value = self.bound.get(name)
            if value is None:
                free = name
                while free in used:
                    free += "_"
                used.add(free)
                value = symbol(free)
            found[name] = value
        return found


def _site(call: CallKernel | CallTIR, bound: IndexBound, at_call: _AtCall, argument: str) -> Site:
    least, greatest = bound.certain_range
    names = at_call.renaming(_symbols(bound))
    where = [condition.substitute(names) for condition in bound.range.where]
    passes = {loop.symbol: loop.passes for loop in bound.access.loops}
    counters = tuple(
        (names[c].as_symbol or c, _at(passes[c], names)) for c in bound.range.counters if c in names
    )
    extent = bound.extent.substitute(names)
    return ConstraintSite(
        kind=f"kernel-{bound.access.kind}",
        instruction=call,
        quantities={
            "least": least.substitute(names),
            "greatest": greatest.substitute(names),
            "extent": extent,
        },
        texts={
            "kernel": call.kernel,
            "buffer": bound.buffer.name,
            "argument": argument,
            "axis": str(bound.axis),
            "reach": _reach(bound, names),
        },
        passes=Passes((*at_call.facts, *where), counters, bound.access.exact),
        uncertainty=_uncertainty(bound),
        dedup_key=(
            call.kernel,
            bound.access.parameter,
            bound.axis,
            bound.index,
            (least.substitute(names), greatest.substitute(names), extent, *where),
        ),
    )


def _symbols(bound: IndexBound) -> frozenset[str]:
    """The symbols of the kernel that a question about `bound` is over."""
    passes = (loop.passes for loop in bound.access.loops if loop.passes is not None)
    exprs = (bound.index, bound.extent, bound.range.least, bound.range.greatest, *passes)
    spoken = (e.symbols for e in exprs), (c.symbols for c in bound.range.where), (bound.range.counters,)
    return frozenset(chain.from_iterable(chain(*spoken)))


def _at(expr: Expr | None, names: Mapping[str, Expr]) -> Expr | None:
    return None if expr is None else expr.substitute(names)


def _uncertainty(bound: IndexBound) -> str | None:
    if not bound.access.exact:
        return "it may not be executed: what it hangs on depends on data"
    return "it is another element of the same buffer" if bound.in_memory else None


def _reach(bound: IndexBound, names: Mapping[str, Expr]) -> str:
    """The values of an index, in words."""
    least, greatest = (e.substitute(names) for e in (bound.range.least, bound.range.greatest))
    index = bound.index.substitute(names)
    if bound.range.counters or least == greatest:
        return f"is {index}"
    return f"is {index}, from {least} to {greatest}"
