"""Sites of kinds `storage`, `extent`, `byte-count` and `divisor`: what is reserved or allocated, and how that
is computed.
"""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.analysis.region_maker import byte_count
from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site, shape_text
from symalloc.program.ir import AllocFresh, AllocStorage, AllocTensor, CallTIR, Instruction, View
from symalloc.size.expr import Expr


@instruction_sites("storage", AllocStorage)
def storages(context: FunctionContext, storage: AllocStorage) -> Iterator[Site]:
    """The site of one storage."""
    if storage.size is not None:
        texts = {"storage": storage.var.name}
        sizes = {"size": storage.size}
        yield ConstraintSite(kind="storage", instruction=storage, quantities=sizes, texts=texts)


@instruction_sites("extent", AllocTensor, AllocFresh, View, CallTIR)
def extents(context: FunctionContext, made: AllocTensor | AllocFresh | View | CallTIR) -> Iterator[Site]:
    """One site for each extent of what is allocated or viewed; constants that are not negative are left
    out.
    """
    for shape in _shapes(made):
        for index, extent in enumerate(shape):
            if (extent.as_constant or 0) >= 0 and extent.as_constant is not None:
                continue
            yield ConstraintSite(
                kind="extent",
                instruction=made,
                quantities={"extent": extent},
                texts={"tensor": made.var.name, "index": str(index), "shape": shape_text(shape)},
                dedup_key=extent,
            )


@instruction_sites("byte-count", AllocStorage, AllocTensor, AllocFresh, CallTIR)
def byte_counts(
    context: FunctionContext, made: AllocStorage | AllocTensor | AllocFresh | CallTIR
) -> Iterator[Site]:
    """The sizes and ends that TVM computes in 64 bits."""
    for what, nbytes in _sizes(made):
        if nbytes.as_constant is not None and 0 <= nbytes.as_constant < 2**63:
            continue
        yield ConstraintSite(
            kind="byte-count",
            instruction=made,
            quantities={"nbytes": nbytes},
            texts={"what": what},
            sized=True,
            dedup_key=(type(made), nbytes),
        )


def divisor_site(divisor: Expr, user: ConstraintSite) -> ConstraintSite:
    """The site of a divisor in a quantity of the site `user`."""
    made = user.instruction
    return ConstraintSite(
        kind="divisor",
        instruction=made,
        span=user.span,
        quantities={"divisor": divisor},
        texts={"variable": made.var.name if made is not None else "the result"},
        dedup_key=("divisor", divisor),
    )


def _shapes(made: Instruction) -> Iterator[tuple[Expr, ...]]:
    if isinstance(made, CallTIR):
        yield from (t.shape for t in made.outputs if t.shape is not None)
    elif isinstance(made, AllocTensor | AllocFresh | View) and made.shape is not None:
        yield made.shape


def _sizes(made: Instruction) -> Iterator[tuple[str, Expr]]:
    name = made.var.name
    match made:
        case AllocStorage(size=size) if size is not None:
            yield f"the size of storage `{name}`", size
        case AllocTensor(offset=offset, shape=shape, dtype=dtype) if shape is not None:
            yield f"the end of tensor `{name}`", offset + byte_count(shape, dtype)
        case AllocFresh(shape=shape, dtype=dtype) if shape is not None:
            yield f"the size of tensor `{name}`", byte_count(shape, dtype)
        case CallTIR(outputs=outputs):
            for output in outputs:
                if output.nbytes is not None:
                    yield f"the size of tensor `{name}`", output.nbytes
