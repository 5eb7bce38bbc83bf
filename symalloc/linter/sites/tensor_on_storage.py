"""Sites of kind `tensor-on-storage`: each tensor on each storage that it may lie on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from symalloc.analysis.paths import PathCondition
from symalloc.analysis.region_maker import byte_count
from symalloc.analysis.regions import Region, RegionKind, only_region
from symalloc.linter.sites.registry import function_sites, instruction_sites
from symalloc.linter.sites.site import (
    ConstraintSite,
    FunctionContext,
    RelationSite,
    Site,
    places_of,
    shape_text,
)
from symalloc.program.ir import AllocStorage, AllocTensor
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import le
from symalloc.size.expr import Expr, constant, product, round_up

ALIGNMENT = constant(64)
"""Bytes that TVM's kernels expect a tensor's address to be a multiple of."""
PAGE = 4096
"""Bytes that TVM's allocators round a storage up to."""


def storages_of(context: FunctionContext, alloc: AllocTensor) -> tuple[Region, ...]:
    """The storages that the tensor may lie on."""
    points_to = context.points_to
    alone = only_region(points_to.regions, points_to.value_of(alloc.var))
    if alone is not None:
        return () if alone.parent is None else (points_to.regions[alone.parent],)
    return tuple(dict.fromkeys([storage for storage, _ in _placed(context, alloc)]))


def _placed(context: FunctionContext, alloc: AllocTensor) -> Iterator[tuple[Region, PathCondition]]:
    """The storages that the tensor may lie on, each with the branches on which it does."""
    points_to = context.points_to
    found = [(points_to.regions[t.region].parent, t.path) for t in points_to.targets_of(alloc.var)]
    for parent, path in dict.fromkeys(found):
        if parent is not None:
            yield points_to.regions[parent], path


@instruction_sites("tensor-on-storage", AllocTensor)
def tensor_on_storage(context: FunctionContext, alloc: AllocTensor) -> Iterator[Site]:
    """The sites of one alloc_tensor."""
    for storage, path in _placed(context, alloc):
        made = storage.instruction if isinstance(storage.instruction, AllocStorage) else None
        size = storage.nbytes if storage.kind is RegionKind.STORAGE else None
        quantities = {"offset": alloc.offset, "alignment": ALIGNMENT}
        quantities["itemsize"] = constant(alloc.dtype.itemsize)
        if alloc.shape is not None:
            quantities["numel"] = product(alloc.shape)
            quantities["nbytes"] = byte_count(alloc.shape, alloc.dtype)
        if size is not None:
            quantities["storage.size"] = size
        texts = {
            "tensor": alloc.var.name,
            "storage": storage.name,
            "shape": shape_text(alloc.shape),
            "dtype": alloc.dtype.name,
            "device": str(alloc.device),
        }
        if made is not None:
            texts["storage.device"] = str(made.device)
            texts["storage.dtype"] = made.dtype.name if made.dtype is not None else "none"
        yield ConstraintSite(
            kind="tensor-on-storage",
            instruction=alloc,
            quantities=quantities,
            unknown=_unknown(storage, context),
            texts=texts,
            lazy_texts=partial(_noticed, quantities),
            places=places_of(storage=made),
            path=path,
        )
        if made is not None and made.device != alloc.device:
            difference = f"device {alloc.device} against device {made.device}"
            yield RelationSite(
                kind="tensor-on-storage",
                instruction=alloc,
                relation="placement-differs",
                quantities=quantities,
                texts={**texts, "difference": difference},
                places=places_of(storage=made),
                path=path,
            )


def _unknown(storage: Region, context: FunctionContext) -> str | None:
    """Why the size of a storage is not among the quantities; None where it is, or is elsewhere."""
    if storage.kind is RegionKind.STORAGE and storage.nbytes is not None:
        return None
    if context.is_known_elsewhere(storage):
        return None
    return f"the size of storage `{storage.name}` is not known here"


@function_sites("tensor-on-storage", expanded=True)
def tensors_on_storages_of_others(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The sites of tensors that a function places on a storage which another function reserved."""
    expansion = context.expansion
    if expansion is None:
        return
    for point, made in context.analysis.cfg.of_type(AllocTensor):
        here = expansion.calls_to(made)
        storages = storages_of(context, made)
        if any(expansion.calls_to(storage.instruction) != here for storage in storages):
            yield from ((point, site) for site in tensor_on_storage(context, made))


def _noticed(quantities: dict[str, Expr], prover: Prover, domain: Domain) -> dict[str, str]:
    """The smallest binding at which TVM's own check, against whole pages, fails.

    Empty if none is hidden, or the one found is not proved smallest.
    """
    size, nbytes = quantities.get("storage.size"), quantities.get("nbytes")
    if size is None or nbytes is None:
        return {}
    end = quantities["offset"] + nbytes
    seen = le(end, round_up(size, PAGE))
    proof = prover.prove(seen, domain) if seen.as_bool is None else None
    point = proof.counterexample if proof is not None and proof.smallest else None
    if not point or point == prover.prove(le(end, size), domain).counterexample:
        return {}
    return {"noticed_at": ", ".join(f"{n} = {v}" for n, v in point.items())}
