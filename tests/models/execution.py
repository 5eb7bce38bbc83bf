"""Running a module of the zoo on TVM's virtual machine with random inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tests.models.zoo import Model


def public_function(mod: tvm.IRModule) -> str:
    """The name of the first function that can be called from outside."""
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {}):
            return str(name.name_hint)
    raise ValueError("the module has no public Relax function")


def _value(ty: Any, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    if isinstance(ty, relax.TupleType):
        return tuple(_value(field, sizes, rng) for field in ty.fields)
    if isinstance(ty, relax.ShapeType):
        return tvm_ffi.Shape([_extent(e, sizes) for e in ty.values])
    if isinstance(ty, relax.TensorType):
        shape = [_extent(e, sizes) for e in ty.shape.values]
        dtype = str(ty.dtype.dtype)
        if dtype == "bool":
            return tvm.runtime.tensor(np.zeros(shape, dtype=np.bool_))
        if dtype.startswith("int"):
            return tvm.runtime.tensor(rng.integers(0, 2, shape).astype(dtype))
        return tvm.runtime.tensor(rng.standard_normal(shape).astype(dtype))
    return None


def _extent(extent: Any, sizes: Mapping[str, int]) -> int:
    analyzer = tvm.sym.Analyzer()
    for var in tvm.tirx.analysis.undefined_vars(extent):
        analyzer.bind(var, tvm.tirx.const(sizes.get(var.name, 3), "int64"))
    return int(analyzer.simplify(extent))


def random_inputs(
    function: relax.Function, sizes: Mapping[str, int], seed: int = 0, path: Mapping[str, bool] | None = None
) -> list[Any]:
    """Arguments: random floats, indices 0 or 1, conditions as `path` says or false, symbols bound by `sizes`
    or to 3.
    """
    rng, found = np.random.default_rng(seed), []
    for param in function.params:
        value = _value(param.ty, sizes, rng)
        value = sizes.get(param.name, 3) if value is None else value
        chosen = (path or {}).get(param.name)
        found.append(value if chosen is None else tvm.runtime.tensor(np.array(chosen)))
    return found


def is_condition(ty: Any) -> bool:
    """Whether a parameter of this type is a condition."""
    return isinstance(ty, relax.TensorType) and ty.ndim == 0 and str(ty.dtype.dtype) == "bool"


def paths_of(conditions: Sequence[str]) -> Iterator[Mapping[str, bool]]:
    """Every combination of conditions."""
    for values in product((False, True), repeat=len(conditions)):
        yield dict(zip(conditions, values, strict=True))


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in a value, depth first."""
    if isinstance(value, tvm.runtime.Tensor):
        yield value
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | tvm.runtime.ShapeTuple):
        for item in value:
            yield from tensors_in(item)


def run(model: Model) -> Any:
    """Build `model` with TVM's default pipeline and run its first public function once."""
    mod = model.build()
    machine = relax.VirtualMachine(relax.build(mod, target="llvm"), tvm.cpu())
    name = public_function(mod)
    return machine[name](*random_inputs(mod[name], model.sizes)) if model.runs else None
