"""Random arguments for a Relax function at one binding of its symbols, as NumPy arrays and plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import lt
from typing import Any, TypeAlias, Union

import ml_dtypes  # noqa: F401 - tells NumPy of bfloat16
import numpy as np
import tvm

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
    type_leaves,
)
from symalloc.size.expr import Expr

PAGE = 16  # positions
_GIVEN = (Origin.DIMENSION, Origin.SCALAR, Origin.FLAG)


Maker: TypeAlias = tuple[Function, tuple[int, ...]]
"""The function that makes an object, and the place of the object in its result."""


def makers_of(function: Function, functions: Mapping[str, Function]) -> list[Maker]:
    """A public function that makes it, for each object in the parameters of `function`, in order.

    That is one that takes no object and hands back nothing else: all of them in a tuple, or one.  Of several
    that hand back one it is that in whose name the parameter's name stands.  Raises RunError where there is
    none, or several.
    """
    wanted = [param for param in function.params for _ in _objects(param.type)]
    makers = [other for other in functions.values() if _makes_objects(other)] if wanted else []
    together = [m for m in makers if len(_objects(m.result_type)) == len(wanted)]
    if len(makers) == len(together) == 1:
        return [(makers[0], path) for path in _objects(makers[0].result_type)]
    return [(_maker_of(param, makers), ()) for param in wanted]


def _maker_of(param: Var, makers: Sequence[Function]) -> Function:
    """The one of `makers` that hands back the object `param`; raises RunError."""
    alone = [m for m in makers if isinstance(m.result_type, OpaqueType)]
    called = [m for m in alone if param.name.strip("._") in m.name]
    for found in (alone, called):
        if len(found) == 1:
            return found[0]
    there = "none does"
    if makers:
        there = f"several do, or not as many: {', '.join(f'`{m.name}`' for m in makers)}"
    raise RunError(
        f"no argument can be made up for the parameter `{param.name}`, an object: one public function of the "
        f"module has to make it, and {there}"
    )


def _makes_objects(function: Function) -> bool:
    made = 0 < len(_objects(function.result_type)) == len(list(type_leaves(function.result_type)))
    return made and not function.private and not any(_objects(param.type) for param in function.params)


def _objects(kind: Type) -> list[tuple[int, ...]]:
    """The parts of a type that say nothing of what they are, by the indices that lead to them."""
    return [path for path, leaf in type_leaves(kind) if isinstance(leaf, OpaqueType)]


def symbols_of(function: Function) -> list[str]:
    """The symbols that the arguments of `function` give values to."""
    return sorted(name for name, origin in function.symbols.items() if origin in _GIVEN)


def sequence_lengths(function: Function, binding: Mapping[str, int]) -> tuple[int, ...]:
    """New positions for each sequence of a call: b times n where the first tensor is (b, n) or (b, n, …)."""
    for param in function.params:
        kind = param.type
        if isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) in (2, 3):
            batch, length = (extent.evaluate(binding) for extent in kind.shape[:2])
            return (length,) * batch
    return ()


def sizes_of_cache(maker: Function, lengths: Sequence[int], binding: Mapping[str, int]) -> dict[str, int]:
    """A value for each symbol of `maker`: from `binding`, else what such a call needs, by TVM's own names.

    Raises RunError for a symbol that is neither.
    """
    page = max(1, next((value for name, value in binding.items() if _plain(name) == "page_size"), PAGE))
    needed = {
        "max_batch_size": max(1, len(lengths)),
        "max_total_seq_len": max(1, sum(-(-length // page) * page for length in lengths)),
        "prefill_chunk_size": max(1, sum(lengths)),
        "max_history": 1,
        "page_size": page,
        "support_sliding_window": 0,
    }
    found: dict[str, int] = {}
    for name in symbols_of(maker):
        value = binding.get(name, needed.get(_plain(name)))
        if value is None:
            raise RunError(f"no value for `{name}`, which `{maker.name}` takes; add --bind {name}=128")
        found[name] = value
    return found


def _plain(name: str) -> str:
    """`name` less what makes it unique in a module: page_size_ and page_size_1 are page_size."""
    return name.rstrip("_0123456789")


def with_sequences(made: Any, lengths: Sequence[int]) -> Any:
    """`made`, which holds a sequence for each of `lengths` where it is a state of TVM's."""
    if _is_state(made):
        for number in range(len(lengths)):
            _builtin("add_sequence")(made, number)
    return made


@contextmanager
def forward(states: Sequence[tuple[Any, tuple[int, ...]]]) -> Iterator[None]:
    """Around a call: each state takes so many new positions for each of its sequences.

    Raises RunError where there are none: TVM's kernels crash on an empty cache.
    """
    begun = [(state, lengths) for state, lengths in states if _is_state(state)]
    if not all(map(all, (lengths or (0,) for _, lengths in begun))):
        raise RunError("a call without positions is nothing for a key-value cache")
    for state, lengths in begun:
        shape = tvm.runtime.ShapeTuple
        _builtin("begin_forward")(state, shape(range(len(lengths))), shape(lengths))
    yield
    for state, _ in begun:
        _builtin("end_forward")(state)


def _builtin(name: str) -> Any:
    return tvm.get_global_func(f"vm.builtin.kv_state_{name}")


def _is_state(made: Any) -> bool:
    info = getattr(type(made), "__tvm_ffi_type_info__", None)
    while info is not None and info.type_key != "relax.vm.KVState":
        info = info.parent_type_info
    return info is not None


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
    function: Function, binding: Mapping[str, int], functions: Mapping[str, Function] = {}
) -> None:
    """Raises RunError where `binding` misses a symbol of the parameters, names another one, or is
    negative.  Symbols of what makes its objects, among `functions`, are known, too.
    """
    wanted = symbols_of(function)
    known = [*wanted, *(name for maker, _ in makers_of(function, functions) for name in symbols_of(maker))]
    for name in (name for name in binding if name not in known):
        close = nearest(name, known)
        hint = f"; did you mean `{close}`?" if close else ""
        takes = f"`{function.name}` takes {', '.join(wanted) or 'no symbols'}"
        raise RunError(f"`{name}` is no symbol of the parameters: {takes}{hint}")
    missing = [name for name in wanted if name not in binding]
    if missing:
        lacking = ", ".join(f"`{name}`" for name in missing)
        example = " ".join(f"--bind {name}=128" for name in missing)
        in_python = ", ".join(f'"{name}": 128' for name in missing)
        raise RunError(f"no value for {lacking}; add {example} (in Python {{{in_python}}})")
    for name, value in binding.items():
        if function.symbols.get(name) is Origin.DIMENSION and value < 0:
            raise RunError(f"`{name}` is an extent of a tensor and cannot be {value}")


def random_arguments(
    function: Function, binding: Mapping[str, int], seed: int, functions: Mapping[str, Function] = {}
) -> tuple[Argument, ...]:
    """Arguments for `function`: floats in [-1, 1), integers 0 and 1, the same for the same seed.

    What its type says nothing about is made by that one of `functions` that makes such objects.  Raises
    RunError for parameters that no arguments can be made up for.
    """
    check_binding(function, binding, functions)
    source = np.random.default_rng(seed)
    lengths = sequence_lengths(function, binding)
    objects: list[Argument] = []
    for maker, path in makers_of(function, functions):
        sizes = sizes_of_cache(maker, lengths, binding)
        given = tuple(_argument(param.type, param, sizes, source, iter(())) for param in maker.params)
        objects.append(ObjectArgument(maker.name, given, lengths, path))
    left = iter(objects)
    return tuple(_argument(param.type, param, binding, source, left) for param in function.params)


def with_room(wide: Sequence[Argument], given: Sequence[Argument]) -> list[Argument]:
    """`given` at the start of what has room for more rows, and behind them the lengths that only `wide` has.

    Raises RunError where there are more rows than there is room for.
    """
    lengths = [one for one in wide[len(given) :] if isinstance(one, ShapeArgument)]
    return [*map(_filled, wide, given), *lengths]


def _filled(room: Argument, rows: Argument) -> Argument:
    if type(room) is tuple and type(rows) is tuple:
        return tuple(map(_filled, room, rows))
    if isinstance(room, np.ndarray) and isinstance(rows, np.ndarray):
        if any(map(lt, room.shape, rows.shape)):
            raise RunError(f"an argument is {rows.shape}, and there is room for {room.shape}")
        room[tuple(map(slice, rows.shape))] = rows
        return room
    return rows


def _argument(
    kind: Type,
    param: Var,
    binding: Mapping[str, int],
    source: np.random.Generator,
    objects: Iterator[Argument],
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
    drawn: object
    try:
        target = np.dtype(dtype.name)
    except TypeError:
        raise RunError(f"no random values of type {dtype.name} can be made for `{param.name}`") from None
    try:
        if dtype.name.startswith(("bool", "int", "uint")):
            drawn = source.integers(0, SMALL, extents)
        else:
            drawn = source.random(extents, dtype=np.float32) * 2 - 1
        return np.asarray(drawn, dtype=target)  # without extents NumPy draws a scalar, which is no array
    except (MemoryError, ValueError):
        raise RunError(f"`{param.name}` with extents {extents} does not fit in memory") from None
