"""The target of a plan, where that is no CPU: how kernels take its tensors, and what nobody has run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from symalloc.planner.memory_plan import Arena
from symalloc.size.evaluation import evaluated

PAGE = 4096  # bytes that TVM's pooled allocator rounds sizes up to


class TargetReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts about the target of a plan that a report tells.

    `name` is TVM's.  `present`: this machine has a device of it.  `generated`: this build of TVM makes code
    for it.  `flavour`: what the tensors lie in; `shared`: a kernel can read and write tensors of one storage.
    `kernels` counts those that the function calls, `offset_kernels` those among them that take a tensor at an
    offset, `grounded` the tensors that start a storage because more than kernels looks at them.  `kept` are
    the `kept_bytes` of a call at each sample.
    """

    name: str
    present: bool
    generated: bool
    flavour: str
    shared: bool
    kernels: int
    offset_kernels: int
    grounded: int
    kept: int | None = None


def kept_bytes(arenas: Iterable[Arena], bindings: Sequence[Mapping[str, int]]) -> int | None:
    """The bytes that TVM's pooled allocator holds for `arenas` behind a call at each of `bindings`.

    Follows apache-tvm 0.27's PooledAllocator: it keeps blocks by their size in whole pages, and gives one out
    for that size only.  None where all calls ask for the same, or a size is not known.
    """
    sizes = [arena.size for arena in arenas if arena.placements and arena.result is None]
    if len(bindings) < 2 or all(size.as_constant is not None for size in sizes):
        return None
    kept: Counter[int] = Counter()
    for at in bindings:
        found = [evaluated(size, at) for size in sizes]
        known = [size for size in found if size is not None]
        if len(known) < len(found):
            return None
        kept |= Counter(-(-size // PAGE) * PAGE for size in known)
    return sum(size * count for size, count in kept.items())
