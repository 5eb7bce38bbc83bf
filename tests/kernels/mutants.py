"""Kernels with one planted fault: an index that is off, or a loop that runs too far."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

__all__ = ["mutants", "replaced"]


def mutants(function: Any, draw: random.Random, count: int) -> Iterator[tuple[str, Any]]:
    """Up to `count` mutants of a PrimFunc, each with a word on what was changed."""
    params = {param.__chandle__() for param in function.params}
    accesses, loops = _places(function.body, params)
    for _ in range(count):
        amount = draw.choice((1, 1, -1, 2, 16))
        if accesses and (not loops or draw.random() < 0.7):
            node = draw.choice(accesses)
            axis = draw.randrange(len(node.indices))
            yield (
                f"index {axis} of {_buffer(node).name} by {amount}",
                _with(function, _moved(node, axis, amount), node),
            )
        elif loops:
            node = draw.choice(loops)
            yield f"loop {node.loop_var.name} by {amount}", _with(function, _longer(node, amount), node)


def _places(body: Any, params: set[int]) -> tuple[list[Any], list[Any]]:
    accesses: list[Any] = []
    loops: list[Any] = []

    def access(node: Any) -> None:
        if _buffer(node).__chandle__() in params and len(node.indices):
            accesses.append(node)

    callbacks = ((tirx.BufferStore, access), (ir.TensorLoad, access), (tirx.For, loops.append))
    tvm_ffi.structural_walk(body, callbacks, order="pre")
    return accesses, loops


def _buffer(node: Any) -> Any:
    return node.buffer if type(node) is tirx.BufferStore else node.source


def _moved(node: Any, axis: int, amount: int) -> Any:
    indices = [index + amount if i == axis else index for i, index in enumerate(node.indices)]
    if type(node) is tirx.BufferStore:
        return tirx.BufferStore(node.buffer, node.value, indices)
    return tirx.BufferLoad(node.source, indices)


def _longer(node: Any, amount: int) -> Any:
    return tirx.For(
        node.loop_var,
        node.min,
        node.extent + amount,
        node.kind,
        node.body,
        node.thread_binding,
        node.annotations,
        node.step,
    )


def _with(function: Any, changed: Any, node: Any) -> Any:
    """The function with one of its nodes replaced."""

    def renewed(found: Any) -> Any:
        return changed if found.same_as(node) else found

    body = tvm_ffi.structural_map(function.body, (type(node), renewed))
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def replaced(module: tvm.IRModule, name: str, function: Any) -> tvm.IRModule:
    """`module` with another function under `name`."""
    changed = tvm.IRModule(dict(module.functions))
    changed[name] = function
    return changed
