"""Buffers of a kernel's own that lie in others, which are not stored to before they are dead."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from symalloc.relax.ir_types import VarNode, elements, same_extent, with_parameters, with_variables
from symalloc.relax.shrink.kernel_stages import Stage, alike, stages_of, without_buffers


def share_buffers(kernel: tirx.PrimFunc) -> tuple[tirx.PrimFunc, dict[str, str]]:
    """`kernel` with buffers of its own in its outputs, or in each other, and why others stay, by their names.

    A buffer lies in another one of the same type and shape where the last stage that uses it comes before the
    first that stores to the other, or is that one, and loads each element just where it stores.
    """
    stages = stages_of(kernel) or ()
    groups = [[param] for param in elements(kernel.params) if _is_output(stages, param)]
    pairs: list[tuple[VarNode, VarNode]] = []
    left: dict[str, str] = {}
    own = sorted(
        elements(kernel.body.block.alloc_buffers), key=lambda one: _uses(stages, one)[:1], reverse=True
    )
    for buffer in own:
        fitting = [group for group in groups if alike(buffer, group[0])]
        home = next((g for g in fitting if all(_dead_before(stages, buffer, one) for one in g)), None)
        if home is not None:
            home.append(buffer)
            pairs.append((buffer, home[0]))
            continue
        left[buffer.name] = "it is in use when they are written" if fitting else "it is as large as no output"
        groups += [[buffer]] if _is_full(stages, buffer) else []
    return _merged(kernel, pairs), left


def _uses(stages: Sequence[Stage], buffer: VarNode) -> list[int]:
    """The numbers of the stages that store to a buffer, or load of it."""
    return [n for n, one in enumerate(stages) if one.target.same_as(buffer) or one.loads(buffer)]


def _is_full(stages: Sequence[Stage], buffer: VarNode) -> bool:
    return all(stage.is_full for stage in stages if stage.target.same_as(buffer))


def _is_output(stages: Sequence[Stage], param: VarNode) -> bool:
    """Return whether a kernel stores to all of a parameter, before it loads anything of it."""
    used = _uses(stages, param)
    if not used or not _is_full(stages, param):
        return False
    first = stages[used[0]]
    return bool(first.target.same_as(param)) and (first.reduces or not first.loads(param))


def _dead_before(stages: Sequence[Stage], buffer: VarNode, other: VarNode) -> bool:
    """Return whether nothing uses an element of `buffer` once that of `other` is stored."""
    last = max(_uses(stages, buffer), default=-1)
    first = min(n for n, stage in enumerate(stages) if stage.target.same_as(other))
    if last != first:
        return last < first
    meeting = stages[last]
    places = (elements(load.indices) for load in meeting.loads(buffer))
    return not meeting.reduces and all(all(map(same_extent, at, meeting.place)) for at in places)


def _merged(kernel: tirx.PrimFunc, pairs: Sequence[tuple[VarNode, VarNode]]) -> tirx.PrimFunc:
    """`kernel` with the second buffer of each pair for the first."""
    if not pairs:
        return kernel
    gone = {old.__chandle__() for old, _ in pairs}
    body = with_variables(without_buffers(kernel.body, gone), pairs)
    return with_parameters(kernel, elements(kernel.params), body)
