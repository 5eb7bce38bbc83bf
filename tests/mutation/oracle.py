"""A concrete interpreter of planned Relax modules: whether one can go wrong, and how.

It walks TVM's own tree at one binding of the symbols and one choice of branches, shares no code with the
linter, and follows what TVM 0.27's virtual machine does: registers that kills clear, kernels that check
shape, element type and byte offset of their arguments, tensors that must lie inside their storage.  It adds
what the machine does not notice: bytes that somebody else wrote in between.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tests.mutation.arithmetic import UndefinedError, evaluate
from tests.mutation.frame import Frame
from tests.mutation.kernels import Kernel, read_off
from tests.mutation.machine import (
    KILLED,
    FailedError,
    Machine,
    NotModelledError,
    StopError,
    check_content,
    fresh,
    parts,
    tensors,
)

__all__ = ["Fault", "NotModelledError", "bindings", "examine", "faults"]

SIZES = (0, 1, 2, 3, 5, 8, 17, 64, 1000, 65536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a module goes wrong, and where it was seen."""

    kind: str
    what: str
    binding: tuple[tuple[str, int], ...] = ()
    branches: tuple[bool, ...] = ()


def examine(mod: tvm.IRModule, *, seed: int = 0, limit: int = 60) -> list[Fault]:
    """All kinds of fault of `mod`, each once, over many bindings and all choices of branches."""
    found: dict[str, Fault] = {}
    kernels = {g.name_hint: read_off(f) for g, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
    for name, function in _public(mod):
        for binding in bindings(function, seed=seed, limit=limit):
            for fault in faults(mod, name, binding, kernels):
                found.setdefault(fault.kind, fault)
    return list(found.values())


def _public(mod: tvm.IRModule) -> list[tuple[str, relax.Function]]:
    functions = [(g.name_hint, f) for g, f in mod.functions_items() if isinstance(f, relax.Function)]
    public = [(n, f) for n, f in functions if f.attrs and "global_symbol" in f.attrs]
    return public or functions


def bindings(function: relax.Function, *, seed: int, limit: int) -> list[dict[str, int]]:
    """Values for the function's symbols: every combination of SIZES, or `limit` of them drawn at random."""
    names = sorted(
        {v.name for v in relax.analysis.defined_symbolic_vars(function)} & _parameter_symbols(function)
    )
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(SIZES, repeat=len(names))]
    if len(every) <= limit:
        return every
    drawn = random.Random(seed).sample(every, limit)
    alike = [dict.fromkeys(names, value) for value in SIZES]
    return alike + drawn


def _parameter_symbols(function: relax.Function) -> set[str]:
    symbols = {v.name for p in function.params for v in relax.analysis.tir_vars_in_type(p.ty)}
    return symbols | {p.name for p in function.params if type(p.ty).__name__ == "PrimType"}


def faults(
    mod: tvm.IRModule, name: str, binding: Mapping[str, int], kernels: Mapping[str, Kernel]
) -> list[Fault]:
    """What goes wrong in `name` at `binding`, over the choices of branches."""
    found = []
    pending: list[tuple[bool, ...]] = [()]
    while pending:
        prefix = pending.pop()
        machine = Machine(mod=mod, branches=itertools.chain(prefix, itertools.repeat(True)), kernels=kernels)
        failures = _call_from_outside(machine, name, binding)
        where = {"binding": tuple(sorted(binding.items())), "branches": tuple(machine.taken)}
        found += [Fault(kind=f.kind, what=f.what, **where) for f in failures]
        pending += [(*machine.taken[:i], False) for i in range(len(prefix), len(machine.taken))]
    return found


def _call_from_outside(machine: Machine, name: str, binding: Mapping[str, int]) -> list[FailedError]:
    function = machine.mod[name]
    try:
        arguments = [_argument(p, p.ty, binding) for p in function.params]
    except UndefinedError:
        return []  # an extent of a parameter that no call can give it
    try:
        result = Frame(machine, function, arguments, dict(binding)).run()
        for tensor in tensors(result):
            check_content(tensor, "the caller", "the result")
        if any(part is KILLED for part in parts(result)):
            raise FailedError("use-after-kill", "the result was killed")
    except FailedError as failure:
        return [*machine.noted, failure]
    except StopError:
        pass
    return machine.noted


def _argument(param: Any, ty: Any, binding: Mapping[str, int]) -> Any:
    kind = type(ty).__name__
    if kind == "TensorType":
        shape = tuple(evaluate(e, binding) for e in ty.shape.values)
        if any(extent < 0 for extent in shape):
            raise UndefinedError("no tensor has a negative extent")
        tensor = fresh(shape, str(ty.dtype.dtype))
        tensor.write()
        return tensor
    if kind == "TupleType":
        return tuple(_argument(param, field, binding) for field in ty.fields)
    if kind == "ShapeType":
        return tuple(evaluate(e, binding) for e in ty.values)
    if kind == "PrimType":
        return binding[param.name]
    raise NotModelledError(f"a parameter of type {kind}")
