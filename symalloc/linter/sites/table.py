"""Which file makes the sites of which kind: of single instructions, and of whole functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeAlias

from symalloc.linter.sites.call_arguments import call_arguments
from symalloc.linter.sites.casts import match_casts
from symalloc.linter.sites.donated import overwritten_inputs
from symalloc.linter.sites.handed_over import handed_over
from symalloc.linter.sites.indices import constant_indices
from symalloc.linter.sites.lifetimes import live_pairs, unfreed, unruly, unsafe_results
from symalloc.linter.sites.site import Scene, Site
from symalloc.linter.sites.sizes import byte_counts, extents, storages
from symalloc.linter.sites.tensor_on_storage import storages_of, tensor_on_storage
from symalloc.linter.sites.unverified import constructs, symbols
from symalloc.linter.sites.views import absolute_offset, operator_reshapes, reshapes, views, written_views
from symalloc.program.model import (
    AllocFresh,
    AllocStorage,
    AllocTensor,
    CallKernel,
    CallOperator,
    CallTIR,
    MatchCast,
    Operand,
    Var,
    View,
)
from symalloc.program.operands import type_of

__all__ = ["IN_FUNCTIONS", "IN_INSTRUCTIONS", "KEYS"]

InInstruction: TypeAlias = tuple[str, Callable[[Scene, Any], Iterator[Site]]]
InFunction: TypeAlias = tuple[frozenset[str], Callable[[Scene], Iterator[tuple[int, Site]]]]

IN_INSTRUCTIONS: Mapping[type, tuple[InInstruction, ...]] = {
    AllocStorage: (("storage", storages), ("byte-count", byte_counts)),
    AllocTensor: (
        ("tensor-on-storage", tensor_on_storage),
        ("extent", extents),
        ("byte-count", byte_counts),
    ),
    AllocFresh: (("extent", extents), ("byte-count", byte_counts)),
    View: (("view", views), ("written-view", written_views), ("reshape", reshapes), ("extent", extents)),
    CallKernel: (("call-argument", call_arguments),),
    CallTIR: (("call-argument", call_arguments), ("extent", extents), ("byte-count", byte_counts)),
    CallOperator: (("reshape", operator_reshapes), ("index", constant_indices)),
    MatchCast: (("match-cast", match_casts),),
}
"""By type of instruction: kinds of sites, and what makes them."""

IN_FUNCTIONS: tuple[InFunction, ...] = (
    (frozenset(("live-pair",)), live_pairs),
    (frozenset(("donated-input",)), overwritten_inputs),
    (frozenset(("handed-over",)), handed_over),
    (frozenset(("use", "kill")), unruly),
    (frozenset(("allocation",)), unfreed),
    (frozenset(("result",)), unsafe_results),
    (frozenset(("symbol",)), symbols),
    (frozenset(("construct",)), constructs),
)
"""Kinds of sites that take the whole function to find, and what makes them."""


def _alloc_tensor(scene: Scene, alloc: AllocTensor) -> Hashable:
    made = tuple([(r.nbytes, getattr(r.instruction, "device", 0)) for r in storages_of(scene, alloc)])
    return scene.numbers.of(alloc.var), alloc.offset, alloc.shape, alloc.dtype, alloc.device, made


def _argument(scene: Scene, operand: Operand) -> Hashable:
    if not isinstance(operand, Var):
        return operand
    return scene.numbers.of(operand), tuple(scene.points_to.offsets(operand))


def _call_kernel(scene: Scene, call: CallKernel) -> Hashable:
    return call.kernel, *[_argument(scene, argument) for argument in call.arguments]


def _call_tir(scene: Scene, call: CallTIR) -> Hashable:
    inputs = tuple(_argument(scene, argument) for argument in call.inputs)
    return call.kernel, inputs, call.outputs, call.scalars, call.inplace


def _view(scene: Scene, view: View) -> Hashable:
    folded = absolute_offset(scene, view)
    written = view.var in scene.written_views
    return view.kind, view.offset, view.shape, view.dtype, type_of(view.source), folded, written


KEYS: Mapping[type, Callable[[Scene, Any], Hashable]] = {
    AllocStorage: lambda _, i: i.size,
    AllocTensor: _alloc_tensor,
    AllocFresh: lambda _, i: (i.shape, i.dtype),
    View: _view,
    CallKernel: _call_kernel,
    CallTIR: _call_tir,
}
"""What the sites of an instruction depend on, names aside: equal keys, equal verdicts."""
