"""Objects that a function takes and another one of its module makes: the key-value caches of decoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm

from symalloc.errors import RunError
from symalloc.program.ir import Function, Origin, Var
from symalloc.program.types import OpaqueType, TensorType, Type, type_leaves

PAGE = 16  # positions
_GIVEN = (Origin.DIMENSION, Origin.SCALAR, Origin.FLAG)


@dataclass(frozen=True, slots=True)
class Maker:
    """The origin of an object that a function takes: the part at `path` of the result of `function`."""

    function: Function
    path: tuple[int, ...]


def makers_of(function: Function, functions: Mapping[str, Function]) -> tuple[Maker, ...]:
    """A public function that makes it, for each object in the parameters of `function`, in order.

    That is one that takes no object and hands back nothing else: all of them in a tuple, or one.  Of several
    that hand back one it is that in whose name the parameter's name stands.  Raises RunError where there is
    none, or several.
    """
    wanted = [param for param in function.params for _ in _objects(param.type)]
    makers = [other for other in functions.values() if _makes_objects(other)] if wanted else []
    together = [m for m in makers if len(_objects(m.result_type)) == len(wanted)]
    if len(makers) == len(together) == 1:
        return tuple(Maker(makers[0], path) for path in _objects(makers[0].result_type))
    return tuple(Maker(_maker_of(param, makers), ()) for param in wanted)


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
    leaves = [kind for _, kind in type_leaves(function.result_type)]
    made = bool(leaves) and all(isinstance(kind, OpaqueType) for kind in leaves)
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
