"""Calls of compiled kernels: what they check of their arguments, read and write."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.mutation.arithmetic import evaluate
from tests.mutation.kernels import Kernel, Parameter
from tests.mutation.machine import FailedError, StopError, check_content
from tests.mutation.memory import Tensor
from tests.mutation.truth import computed

__all__ = ["run_kernel"]


def run_kernel(name: str, kernel: Kernel, arguments: list[Any]) -> None:
    """Check what compiled code checks, then read and write the buffers of kernel `name`."""
    formal = kernel.parameters
    if len(formal) != len(arguments):
        raise FailedError("kernel-argument", f"{name} takes {len(formal)} arguments")
    scope: dict[str, int] = {}
    for param, argument in zip(formal, arguments, strict=True):
        _admit(name, param, argument, scope)
    for param, argument in zip(formal, arguments, strict=True):
        _check_extents(name, param, argument, scope)
    if not all(evaluate(condition, scope) for condition in kernel.asserted):
        raise StopError
    pairs = [(p, a) for p, a in zip(formal, arguments, strict=True) if p.shape is not None]
    for param, tensor in pairs:
        if param.needs:
            check_content(tensor, name, param.var.name)
    _check_disjoint(name, pairs)
    read = [tensor.stamp.truth for param, tensor in pairs if not param.written]
    for param, tensor in pairs:
        if param.written:
            tensor.write()
            tensor.stamp.truth = computed(name, read)


def _admit(name: str, param: Parameter, argument: Any, scope: dict[str, int]) -> None:
    """What a compiled kernel checks first: kind, element type, rank, byte offset; binds its symbols."""
    if param.shape is None:
        if not isinstance(argument, int):
            raise FailedError("kernel-argument", f"{name} expects a scalar")
        scope[param.var.name] = argument
        return
    if not isinstance(argument, Tensor):
        raise FailedError("kernel-argument", f"{name} expects a tensor")
    if argument.dtype != param.dtype or len(argument.shape) != len(param.shape):
        raise FailedError("kernel-argument", f"{name}: {argument.dtype} of rank {len(argument.shape)}")
    if argument.shift % param.step if param.step else argument.shift:
        wanted = f"a multiple of {param.step} as byte offset" if param.step else "no byte offset"
        raise FailedError("byte-offset", f"{name} expects {wanted}, got {argument.shift}")
    for expression, extent in zip(param.shape, argument.shape, strict=True):
        if type(expression).__name__ == "Var":
            scope.setdefault(expression.name, extent)


def _check_extents(name: str, param: Parameter, argument: Any, scope: Mapping[str, int]) -> None:
    for expression, extent in zip(param.shape or (), getattr(argument, "shape", ()), strict=True):
        if evaluate(expression, scope) != extent:
            raise FailedError("kernel-argument", f"{name} expects an extent {expression}, got {extent}")


def _check_disjoint(name: str, pairs: list[tuple[Parameter, Tensor]]) -> None:
    """Kernels are compiled under the assumption that what they write overlaps nothing else (tirx.noalias)."""
    for (one, a), (two, b) in itertools.combinations(pairs, 2):
        if not (one.written or two.written) or a.region is not b.region:
            continue
        if max(a.offset, b.offset) < min(a.end, b.end):
            raise FailedError("arguments-overlap", f"{name} writes what it also reads or writes")
