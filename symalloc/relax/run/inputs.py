"""Random arguments for a Relax function at one binding of its symbols, as NumPy arrays and plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

import numpy as np

from symalloc.errors import RunError, nearest
from symalloc.program.ir import Function, Origin, Var
from symalloc.program.types import (
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)
from symalloc.relax.files.parameter_symbols import require_values
from symalloc.relax.run.cache_objects import makers_of, sequence_lengths, sizes_of_cache, symbols_of
from symalloc.size.expr import Expr

# np.ndarray for a tensor, a tuple of ints marked as ShapeArgument for a shape, int or float for a scalar
Argument: TypeAlias = Union[
    "np.ndarray", "ShapeArgument", "ObjectArgument", int, float, tuple["Argument", ...]
]

SMALL = 2  # integers are drawn from 0 and 1, in range as indices into anything with two rows


class ShapeArgument(tuple[int, ...]):
    """The extents of an R.Shape argument."""


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """An object that the function `maker` of the module makes of `arguments`, a new one for each call: the
    part at `path` of its result.

    A key-value cache takes `lengths` new positions in a call, a number for each sequence.
    """

    maker: str
    arguments: tuple[Argument, ...]
    lengths: tuple[int, ...]
    path: tuple[int, ...] = ()


def check_binding(
    function: Function, binding: Mapping[str, int], functions: Mapping[str, Function] | None = None
) -> None:
    """Raises RunError where `binding` misses a symbol of the parameters, names another one, or is
    negative.  Symbols of what makes its objects, among `functions`, are known, too.
    """
    wanted = symbols_of(function)
    makers = makers_of(function, functions or {})
    known = [*wanted, *(name for maker in makers for name in symbols_of(maker.function))]
    takes = (
        f"`{function.name}` takes {', '.join(wanted)}" if wanted else f"`{function.name}` takes no symbols"
    )
    for name in binding:
        if name not in known:
            close = nearest(name, known)
            hint = f"; did you mean `{close}`?" if close else ""
            raise RunError(f"`{name}` is no symbol of the parameters: {takes}{hint}")
    require_values(wanted, binding)
    for name, value in binding.items():
        if function.symbols.get(name) is Origin.DIMENSION and value < 0:
            raise RunError(f"`{name}` is an extent of a tensor and cannot be {value}")


def random_arguments(
    function: Function,
    binding: Mapping[str, int],
    seed: int,
    functions: Mapping[str, Function] | None = None,
) -> tuple[Argument, ...]:
    """Arguments for `function`: floats in [-1, 1), integers 0 and 1, the same for the same seed.

    What its type says nothing about is made by that one of `functions` that makes such objects.  Raises
    RunError for parameters that no arguments can be made up for.
    """
    check_binding(function, binding, functions)
    source = np.random.default_rng(seed)
    lengths = sequence_lengths(function, binding)
    makers = makers_of(function, functions or {})
    arguments = {m.function.name: _arguments_of(m.function, lengths, binding, source) for m in makers}
    objects = iter(
        [ObjectArgument(m.function.name, arguments[m.function.name], lengths, m.path) for m in makers]
    )
    return tuple(_argument(param.type, param, binding, source, objects) for param in function.params)


def _arguments_of(
    maker: Function, lengths: tuple[int, ...], binding: Mapping[str, int], source: np.random.Generator
) -> tuple[Argument, ...]:
    sizes = sizes_of_cache(maker, lengths, binding)
    return tuple(_argument(param.type, param, sizes, source, iter(())) for param in maker.params)


def _argument(
    kind: Type,
    param: Var,
    binding: Mapping[str, int],
    source: np.random.Generator,
    objects: Iterator[ObjectArgument],
) -> Argument:
    match kind:
        case OpaqueType():
            return next(objects)
        case TensorType(shape=shape, dtype=dtype) if shape is not None and dtype is not None:
            return _tensor(_extents(shape, param, binding), dtype, param, source)
        case ShapeType(values=values) if values is not None:
            return ShapeArgument(_extents(values, param, binding))
        case ScalarType(value=value, dtype=dtype) if value is not None:
            given = value.evaluate(binding)
            return bool(given) if dtype is not None and dtype.name == "bool" else given
        case ScalarType(dtype=dtype) if dtype is not None and dtype.name.startswith("float"):
            return float(source.random())
        case TupleType(fields=fields):
            return tuple(_argument(f, param, binding, source, objects) for f in fields)
    raise RunError(f"no argument can be made up for the parameter `{param.name}`: {_unknown(kind)}")


def _unknown(kind: Type) -> str:
    """The reason why no value of a type can be made up, in words."""
    match kind:
        case TensorType(shape=None) | ShapeType():
            return "its type leaves its shape open"
        case TensorType():
            return "its type leaves its element type open"
        case ScalarType():
            return "its type leaves its value open"
        case FunctionType():
            return "it is a function"
    return "it is memory that no tensor describes"


def _extents(shape: tuple[Expr, ...], param: Var, binding: Mapping[str, int]) -> tuple[int, ...]:
    try:
        extents = tuple(extent.evaluate(binding) for extent in shape)
    except KeyError as missing:
        raise RunError(
            f"the shape of `{param.name}` uses `{missing.args[0]}`, which is defined nowhere"
        ) from None
    except ZeroDivisionError:
        raise RunError(f"the shape of `{param.name}` divides by zero at this binding") from None
    if any(extent < 0 for extent in extents):
        raise RunError(f"the shape of `{param.name}` comes out as {extents} at this binding")
    return extents


def _tensor(extents: tuple[int, ...], dtype: DType, param: Var, source: np.random.Generator) -> np.ndarray:
    target = _numpy_dtype(dtype, param)
    drawn: object
    try:
        if dtype.name == "bool":
            drawn = source.integers(0, 2, extents)
        elif dtype.name.startswith(("int", "uint")):
            drawn = source.integers(0, SMALL, extents)
        else:
            drawn = source.random(extents, dtype=np.float32) * 2 - 1
        return np.asarray(drawn, dtype=target)  # without extents NumPy draws a scalar, which is no array
    except (MemoryError, ValueError):
        raise RunError(f"`{param.name}` with extents {extents} does not fit in memory") from None


def _numpy_dtype(dtype: DType, param: Var) -> np.dtype[np.generic]:
    if dtype.name == "bfloat16":
        return _bfloat16(param)
    try:
        return np.dtype(dtype.name)
    except TypeError:
        raise RunError(f"no random values of type {dtype.name} can be made for `{param.name}`") from None


def _bfloat16(param: Var) -> np.dtype[np.generic]:
    try:
        import ml_dtypes
    except ImportError:
        raise RunError(f"`{param.name}` is bfloat16, which needs the package ml_dtypes") from None
    found: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
    return found
