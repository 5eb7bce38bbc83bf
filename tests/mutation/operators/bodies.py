"""Faults in the bodies of kernels: indices, loops and guards that are off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tests.mutation.editable import EditableFunction, Step
from tests.mutation.kernels import nodes

__all__ = [
    "ON_DATA",
    "SCRATCH",
    "extend_loop",
    "loosen_guard",
    "shift_load",
    "shift_store",
    "swap_indices",
    "swap_loops",
]

SCRATCH = "on the kernel's own buffer"  # said of changes that no caller's memory need show
ON_DATA = "of a tensor's element"  # said of changes of an index, or of a condition, that depends on data
_LOAD = tvm.ir.expr.TensorLoad
_SHIFTS = (1, 16, -1, 1 << 36)  # the last lies beyond all memory of a process


def shift_store(function: EditableFunction, random: Random) -> str | None:
    """Add to an index of a store: 1, 16, -1, or much."""
    return _edit(function, random, tirx.BufferStore, lambda node: _shifted(node, random))


def shift_load(function: EditableFunction, random: Random) -> str | None:
    """Add to an index of a load: 1, 16, -1, or much."""
    return _edit(function, random, _LOAD, lambda node: _shifted(node, random))


def swap_indices(function: EditableFunction, random: Random) -> str | None:
    """Exchange two indices of a load or a store."""

    def swapped(node: Any) -> tuple[Any, str] | None:
        if len(node.indices) < 2:
            return None
        indices = list(node.indices)
        a, b = random.sample(range(len(indices)), 2)
        data = any(map(_loads, (indices[a], indices[b])))
        indices[a], indices[b] = indices[b], indices[a]
        return _with_indices(node, indices), f"indices {a} and {b} exchanged{_on_data(data)}"

    return _edit(function, random, random.choice([tirx.BufferStore, _LOAD]), swapped)


def extend_loop(function: EditableFunction, random: Random) -> str | None:
    """Run a loop once or 16 times more."""

    def longer(loop: Any) -> tuple[Any, str]:
        by = random.choice([1, 16])
        return _loop(loop, loop.extent + by, loop.body), f"extent of {loop.loop_var.name} {by:+}"

    return _edit(function, random, tirx.For, longer)


def swap_loops(function: EditableFunction, random: Random) -> str | None:
    """Exchange a loop with the one directly in it: the same iterations in another order."""

    def exchanged(loop: Any) -> tuple[Any, str] | None:
        inner = loop.body
        if type(inner) is not tirx.For:
            return None
        words = f"loops {loop.loop_var.name} and {inner.loop_var.name} exchanged"
        return _loop(inner, inner.extent, _loop(loop, loop.extent, inner.body)), words

    return _edit(function, random, tirx.For, exchanged)


def loosen_guard(function: EditableFunction, random: Random) -> str | None:
    """Let a comparison in a condition hold for one value more."""

    def looser(node: Any) -> tuple[Any, str]:
        one = tirx.const(1, str(node.b.ty.dtype))
        wider = node.b + one if type(node) in (tirx.LT, tirx.LE) else node.b - one
        return type(node)(node.a, wider), f"{node} one wider{_on_data(_loads(node))}"

    return _edit(function, random, random.choice([tirx.LT, tirx.LE, tirx.GE, tirx.GT]), looser)


def _edit(
    function: EditableFunction,
    random: Random,
    kind: type,
    change: Callable[[Any], tuple[Any, str] | None],
) -> str | None:
    """Replace one node of `kind` in one kernel that the function calls."""
    called = {s.steps[i].operator for s, i in function.find(Step.calls_global)}
    kernels = [(name, k) for name, k in sorted(function.kernels.items()) if name in called]
    places = [(name, k, place) for name, k in kernels for place in range(len(nodes(k.body, kind)))]
    if not places:
        return None
    name, kernel, place = random.choice(places)
    words: list[str] = []
    touched: list[Any] = []
    seen = iter(range(1 << 30))

    def replaced(node: Any) -> Any:
        if next(seen) != place:
            return node
        done = change(node)
        if done is None:
            return node
        words.append(done[1])
        touched.append(node)
        return done[0]

    body = tvm_ffi.structural_map(kernel.body, (kind, replaced))
    if not words:
        return None
    changed = tirx.PrimFunc(kernel.params, body, kernel.ret_type, kernel.attrs)
    if tvm_ffi.structural_equal(changed, kernel):
        return None
    function.changed[name] = changed
    where = f" {SCRATCH}" if _touches_scratch(kernel, touched[0]) else ""
    return f"{name}, {kind.__name__} {place}: {words[0]}{where}"


def _touches_scratch(kernel: Any, node: Any) -> bool:
    """Whether a buffer that is no parameter is loaded from or stored to in `node`."""
    buffers = [store.buffer for store in nodes(node, tirx.BufferStore)]
    buffers += [load.source for load in nodes(node, _LOAD)]
    return any(not any(buffer.same_as(param) for param in kernel.params) for buffer in buffers)


def _shifted(node: Any, random: Random) -> tuple[Any, str] | None:
    if not len(node.indices):
        return None
    axis, by = random.randrange(len(node.indices)), random.choice(_SHIFTS)
    indices = list(node.indices)
    old = indices[axis]
    indices[axis] = old + tirx.const(by, str(old.ty.dtype))
    return _with_indices(node, indices), f"index {axis} {by:+}{_on_data(_loads(old))}"


def _on_data(loads: bool) -> str:
    return f" {ON_DATA}" if loads else ""


def _loads(index: Any) -> bool:
    return bool(nodes(index, _LOAD))


def _with_indices(node: Any, indices: list[Any]) -> Any:
    if type(node) is tirx.BufferStore:
        return tirx.BufferStore(node.buffer, node.value, indices)
    return node.source[tuple(indices)]


def _loop(loop: Any, extent: Any, body: Any) -> Any:
    return tirx.For(loop.loop_var, loop.min, extent, loop.kind, body, annotations=loop.annotations)
