"""Kernels that no function of the module calls, checked as if each were called with tensors that fit it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from symalloc.linter.unproved_indices import UnprovedIndices
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import (
    Block,
    CallKernel,
    CallTIR,
    Function,
    Kernel,
    KernelBuffer,
    KernelScalar,
    Origin,
    Program,
    TupleValue,
    Var,
)
from symalloc.program.types import ScalarType, TensorType, TupleType
from symalloc.size.expr import symbol

SITES = ("kernel-store", "kernel-load")
"""The kinds of sites that are asked about there."""


def lone_kernels(
    program: Program, graphs: Iterable[ControlFlowGraph], indices: UnprovedIndices
) -> Program | None:
    """A program of functions that each call one kernel which nothing calls; None where none needs a look.

    `graphs` are those of the functions of `program`.
    """
    called: set[str] = set()
    for cfg in graphs:
        calls: Sequence[tuple[int, CallKernel | CallTIR]] = cfg.of_type(CallKernel, CallTIR)
        called.update(call.kernel for _, call in calls)
    functions = {
        name: _caller(kernel)
        for name, kernel in program.kernels.items()
        if name not in called and name not in program.functions and indices.of(name)
    }
    if not functions:
        return None
    return Program(name=program.name, functions=functions, kernels=program.kernels, stage=program.stage)


def _caller(kernel: Kernel) -> Function:
    """A function with the parameters of `kernel`, which it hands on."""
    params = tuple(map(_param, kernel.parameters))
    nothing = TupleType(fields=())
    call = CallKernel(var=Var("_", nothing), kernel=kernel.name, arguments=params)
    symbols = {name: Origin.DIMENSION for param in params for name in _extents(param)}
    scalars = {p.name: Origin.SCALAR for p in kernel.parameters if isinstance(p, KernelScalar)}
    return Function(
        name=kernel.name,
        params=params,
        body=Block(instructions=(call,), result=TupleValue(())),
        result_type=nothing,
        symbols=scalars | symbols,
    )


def _param(parameter: KernelBuffer | KernelScalar) -> Var:
    if isinstance(parameter, KernelScalar):
        return Var(parameter.name, ScalarType(value=symbol(parameter.name), dtype=None))
    return Var(parameter.name, TensorType(shape=parameter.shape, dtype=parameter.dtype))


def _extents(param: Var) -> Iterator[str]:
    if isinstance(param.type, TensorType):
        yield from (name for extent in param.type.shape or () for name in extent.symbols)
