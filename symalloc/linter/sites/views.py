"""Sites of kinds `view` and `reshape`: tensors that share the memory of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from symalloc.analysis.handles import is_read_besides
from symalloc.analysis.region_maker import byte_count
from symalloc.analysis.regions import RegionKind
from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import (
    ConstraintSite,
    FunctionContext,
    Site,
    caller_name,
    name_of,
    places_of,
    shape_text,
)
from symalloc.linter.sites.tensor_on_storage import ALIGNMENT
from symalloc.program.ir import CallOperator, Operand, View
from symalloc.program.operands import tensor_type
from symalloc.program.types import TensorType
from symalloc.size.expr import ZERO, Expr, product

_RESHAPES = frozenset({"relax.reshape"})


@instruction_sites("view", View)
def views(context: FunctionContext, view: View) -> Iterator[Site]:
    """The site of a R.memory.view (does it lie in its source?) or of an ensure_zero_offset whose result is
    only read (is it no copy?).
    """
    source = tensor_type(view.source)
    if view.kind == "reshape" or source is None:
        return
    quantities = {"alignment": ALIGNMENT}
    offset = ZERO if view.kind == "ensure_zero_offset" else view.offset
    nbytes = _bytes(view, source)
    absolute = ZERO if view.var in context.written_views else absolute_offset(context, view)
    known = {"offset": offset, "nbytes": nbytes, "source.nbytes": source.nbytes, "absolute_offset": absolute}
    quantities.update({name: value for name, value in known.items() if value is not None})
    yield ConstraintSite(
        kind="view",
        instruction=view,
        quantities=quantities,
        unknown="the offset or the extents of the view are not known here",
        texts={"tensor": view.var.name, "source": name_of(view.source), "kind": view.kind},
        places=places_of(source=context.definition(view.source)),
    )


@instruction_sites("written-view", View)
def written_views(context: FunctionContext, view: View) -> Iterator[Site]:
    """The site of an ensure_zero_offset whose result something writes (is it no copy?)."""
    writer = context.written_views.get(view.var)
    if writer is None:
        return
    absolute = absolute_offset(context, view)
    yield ConstraintSite(
        kind="written-view",
        instruction=view,
        quantities={"alignment": ALIGNMENT} | ({} if absolute is None else {"absolute_offset": absolute}),
        unknown="the offset of the view is not known here",
        texts={"tensor": view.var.name, "source": name_of(view.source), "writer": caller_name(writer)},
        places=places_of(writer=writer),
        resolve=partial(_unless_read_alone, context, view),
    )


def _unless_read_alone(
    context: FunctionContext, view: View, site: ConstraintSite
) -> Iterator[ConstraintSite]:
    """The site; no fault where all that is written there is read from the copy itself."""
    if is_read_besides(context.points_to, context.analysis.effects, view):
        yield site
    else:
        yield replace(site, uncertainty=f"nothing reads it but by the name of the copy, `{view.var.name}`")


def absolute_offset(context: FunctionContext, view: View) -> Expr | None:
    """Bytes from the start of the root to where a handle that is folded into its pointer begins.

    Only ensure_zero_offset folds; what another view's offset is matters to no one before that.  Where a
    tensor lies on its storage is asked where it is placed, not here again.
    """
    if view.kind != "ensure_zero_offset":
        return ZERO
    points_to = context.points_to
    regions = [points_to.regions[target.region] for target in points_to.targets_of(view.source)]
    offsets = {region.offset if region.kind is RegionKind.VIEW else ZERO for region in regions}
    return offsets.pop() if len(offsets) == 1 else None


@instruction_sites("reshape", View)
def reshapes(context: FunctionContext, view: View) -> Iterator[Site]:
    """The site of a vm.builtin.reshape."""
    if view.kind == "reshape":
        yield from _reshape(context, view, view.source, view.shape)


@instruction_sites("reshape", CallOperator)
def operator_reshapes(context: FunctionContext, call: CallOperator) -> Iterator[Site]:
    """The site of a R.reshape that is not lowered yet."""
    target = tensor_type(call.var)
    if call.name in _RESHAPES and call.arguments and target is not None:
        yield from _reshape(context, call, call.arguments[0], target.shape)


def _reshape(
    context: FunctionContext, made: View | CallOperator, source: Operand, shape: tuple[Expr, ...] | None
) -> Iterator[Site]:
    kind = tensor_type(source)
    if kind is None or kind.shape is None or shape is None:
        return
    yield ConstraintSite(
        kind="reshape",
        instruction=made,
        quantities={"numel": product(shape), "source.numel": product(kind.shape)},
        texts={
            "tensor": made.var.name,
            "source": name_of(source),
            "shape": shape_text(shape),
            "source.shape": shape_text(kind.shape),
        },
        places=places_of(source=context.definition(source)),
    )


def _bytes(view: View, source: TensorType) -> Expr | None:
    if view.kind == "ensure_zero_offset":
        return source.nbytes
    shape = source.shape if view.shape is None else view.shape  # a scalar's shape is empty, not absent
    dtype = view.dtype or source.dtype
    return None if shape is None or dtype is None else byte_count(shape, dtype)
