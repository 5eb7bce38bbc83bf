"""The contracts of packed functions: what each does to memory; and the effects of Relax operators that are
not lowered: what is not said of one makes new memory.

Those of TVM are in tvm_functions.toml.  Users state contracts of their own in the same words, in their
pyproject.toml and by `symalloc.packed_function`; these go first.  A function without one is judged by its
declared result: it may return, capture, and (unless it is pure) write whatever it is given, and take any
memory.  A function that is an operation of the program itself (a view, a tuple, a storage) is translated in
`symalloc.relax.extract.calls`, whatever stands here.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from importlib import resources
from typing import Any, Literal, TypeAlias, get_args

from symalloc.errors import UsageError, meant, nearest, require_choice, require_text, require_whole, shown

_LOG = logging.getLogger("symalloc")

Returned: TypeAlias = Literal["new", "any"] | tuple[int, ...]
Taken: TypeAlias = Literal["nothing", "result", "state", "unknown"]
ByteOffsetUse: TypeAlias = Literal["respected", "ignored", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedContract:
    """The known effects of one packed function on memory, with arguments by their indices.

    `returns`: new memory, or none; or the argument that its result is, or those that its fields are, in order
    (the memory that an object holds counts as the object); or any of them, for all that is known.
    `keeps`: those that it may hold on to when it is over.  `reads`: those whose elements it reads, else it
    looks at shapes and types only.  `writes`: those that it changes, `defines`: those that it writes whatever
    was there, which it does not read.  None stands for all that it is given.
    `takes`: the memory that it takes, which its result has, or an object that it makes or lets grow.
    `byte_offset`: it adds the byte offset of a tensor to its pointer (or looks at no element).
    `counts`: the argument that has at least so many elements as the last extent of its result says, where
    all others are constants above 0.
    """

    returns: Returned = "any"
    keeps: frozenset[int] | None = None
    reads: frozenset[int] | None = None
    writes: frozenset[int] | None = None
    defines: frozenset[int] = frozenset()
    takes: Taken = "unknown"
    byte_offset: ByteOffsetUse = "unknown"
    counts: int | None = None
    source: str = ""

    @property
    def allocates(self) -> bool:
        """True if it may take memory of the virtual machine."""
        return self.takes != "nothing"

    @property
    def written(self) -> frozenset[int] | None:
        """All that it writes; None where that may be anything."""
        return None if self.writes is None else self.writes | self.defines

    def misfit(self, given: int, results: int | None) -> str:
        """Say what of it is about arguments or results that a call does not have: one with so many `given`,
        and so many fields of its result (None: it is no tuple).  Empty if it fits.
        """
        returned = self.returns if isinstance(self.returns, tuple) else ()
        named = {*returned, *(self.keeps or ()), *(self.reads or ()), *(self.writes or ()), *self.defines}
        named |= set() if self.counts is None else {self.counts}
        if named and max(named) >= given:
            return f"speaks of argument {max(named)}, and there are {given}"
        if returned and len(returned) != (1 if results is None else results):
            result = "no tuple" if results is None else f"a tuple of {results}"
            return f"returns {len(returned)} arguments, and its result is {result}"
        return ""

    def reads_argument(self, index: int) -> bool:
        """True if it reads the argument number `index`."""
        return index not in self.defines if self.reads is None else index in self.reads


def packed_contract(name: str) -> PackedContract:
    """The contract of the packed function `name`."""
    found = _STATED.get(name) or contracts_of_tvm().get(name)
    if found is None:
        found = next((row for prefix, row in _FAMILIES.items() if name.startswith(prefix)), UNKNOWN)
        if _STATED:
            _ask_for_contract(name, frozenset(_STATED))
    return found


# -- contracts that users state ------------------------------------------------------------------------------

_STATED: dict[str, PackedContract] = {}
_BUILTINS = (
    *("alloc_shape_heap", "alloc_storage", "alloc_tensor", "copy", "cuda_graph.get_cached_alloc"),
    *("cuda_graph.run_or_capture", "ensure_zero_offset", "invoke_closure", "make_closure", "make_shape"),
    *("make_tuple", "match_prim_value", "match_shape", "reshape", "tuple_getitem"),
)
OPERATIONS = frozenset(
    ("relax.run.assert_op", "runtime.TVMTensorCreateView", *(f"vm.builtin.{name}" for name in _BUILTINS))
).union(f"symalloc.pool.alloc_{what}" for what in ("storage", "tensor"))
"""The packed functions that are operations of a program: whatever a contract says, these are followed."""


def packed_function(name: str, **contract: Any) -> None:
    """State the contract of a packed function, for all that this process reads from now on.

        symalloc.packed_function("mylib.sort", defines=[1], takes="nothing")

    The keywords are `returns` ("new", "any", "nothing", the number of an argument, or a list of them for a
    tuple), `keeps`, `writes` and `defines` (lists of numbers of arguments; none if left out), `reads` (the
    same; all but those that it defines), `takes` ("nothing", "result", "state", "unknown"; its result),
    `byte_offset` ("respected", "ignored", "unknown"), `counts` (the number of an argument) and `source`.
    Raises UsageError for a value that makes no sense.
    """
    state(stated_contracts("the contract", {require_text("name", name): contract}))


def state(stated: Mapping[str, PackedContract]) -> None:
    """From now on functions have these contracts first."""
    _STATED.update(stated)


def stated_contract(name: str) -> PackedContract | None:
    """The contract of the packed function `name`, if somebody stated it."""
    return _STATED.get(name)


def stated_contracts(place: str = "", value: object = {}) -> Mapping[str, PackedContract]:
    """All contracts that were stated, and those of a table in a file, by names; raises UsageError, whose text
    begins with the `place`.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"{place} is {shown(value)}; it must be a table of tables, by names of functions")
    for name in OPERATIONS & value.keys():
        raise UsageError(f"{place} of `{name}` would have no effect: symalloc follows that operation itself")
    made = {
        name: one if isinstance(one, PackedContract) else contract_of(f"{place} of `{name}`", one)
        for name, one in value.items()
    }
    return _STATED | made


@cache
def _ask_for_contract(name: str, stated: frozenset[str]) -> None:
    """Say, once, that a contract may be meant for `name` that is stated for a function called nearly so."""
    last = name.rpartition(".")[2]
    meant_for = nearest(name, [*stated]) or next((n for n in stated if n.rpartition(".")[2] == last), None)
    if meant_for is not None:
        _LOG.warning("note: `%s` has no contract; is that of `%s` meant for it?", name, meant_for)


@contextmanager
def contracts(stated: Mapping[str, PackedContract]) -> Iterator[None]:
    """Within it, functions have these contracts first."""
    before = dict(_STATED)
    state(stated)
    try:
        yield
    finally:
        _STATED.clear()
        _STATED.update(before)


def contract_of(place: str, value: object) -> PackedContract:
    """The contract that a table says; raises UsageError, whose text begins with the `place`."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{place} is {shown(value)}; it must be a table")
    known = [field.name for field in fields(PackedContract)]
    read: dict[str, Any] = {"returns": "new", "keeps": frozenset(), "writes": frozenset(), "takes": "result"}
    for key, one in value.items():
        name, here = str(key).replace("-", "_"), f"`{key}` in {place}"
        if name not in known:
            raise UsageError(f"unknown key {here}{meant(name, known) or '; known are ' + ', '.join(known)}")
        read[name] = _READERS[name](here, one)
    made = PackedContract(**read)
    lost = made.defines & ((made.reads or frozenset()) | (made.writes or frozenset()))
    if lost:
        raise UsageError(f"{place} both defines argument {min(lost)} and reads it: then it only `writes` it")
    return made


def _indices(name: str, value: object) -> frozenset[int]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise UsageError(f"{name} is {shown(value)}; it must be a list of numbers of arguments, from 0 on")
    return frozenset(require_whole(name, one, least=0) for one in value)


def _returned(name: str, value: object) -> Returned:
    if isinstance(value, list | tuple) and value:
        return tuple(require_whole(name, one, least=0) for one in value)
    if isinstance(value, int):
        return (require_whole(name, value, least=0),)
    return "any" if require_choice(name, value, choices=("new", "any", "nothing")) == "any" else "new"


def _word(words: Any) -> Any:
    return lambda name, value: require_choice(name, value, choices=get_args(words))


_READERS: Mapping[str, Any] = {
    "returns": _returned,
    **dict.fromkeys(("keeps", "reads", "writes", "defines"), _indices),
    "takes": _word(Taken),
    "byte_offset": _word(ByteOffsetUse),
    "counts": partial(require_whole, least=0),
    "source": require_text,
}

# -- the functions of TVM ------------------------------------------------------------------------------------

UNKNOWN = PackedContract()
# by the beginning of their names
_FAMILIES: Mapping[str, PackedContract] = {"tvm.contrib.sort.": replace(UNKNOWN, byte_offset="ignored")}


@cache
def contracts_of_tvm() -> Mapping[str, PackedContract]:
    """The contracts of TVM's packed functions, by name; `source` is the line that defines one."""
    table = resources.files("symalloc.program") / "tvm_functions.toml"
    files: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(table.read_text(encoding="utf-8"))
    return {
        name: contract_of(name, {"source": f"{file}:{row.pop('line')}", **row})
        for file, rows in files.items()
        for name, row in rows.items()
    }


# operators that are there still where memory is planned: they look at shapes, or copy to another device
OPERATORS_THAT_CAPTURE_NOTHING = frozenset(
    {"relax.shape_of", "relax.shape_to_tensor", "relax.size", "relax.tensor_to_shape", "relax.to_vdevice"}
)

# the arguments of operators that are looked at for their shape and type alone
SHAPE_ARGUMENTS: Mapping[str, frozenset[int]] = {
    "relax.collapse_sum_like": frozenset({1}),
    **dict.fromkeys(
        (
            *(f"relax.{name}_like" for name in ("eye", "full", "ones", "zeros")),
            *(f"relax.inspect.tensor_{name}" for name in ("byte_offset", "elem_offset", "ndim", "shape_i")),
            *(f"relax.inspect.tensor_{name}" for name in ("dtype_bits", "dtype_code", "dtype_lanes")),
            *("relax.inspect.tensor_stride_i", "relax.shape_of", "relax.size"),
        ),
        frozenset({0}),
    ),
}

# operators that may read only some elements of their operands: which ones is not known here
READS_SOME = frozenset(
    (
        *(
            f"relax.{name}"
            for name in ("dynamic_strided_slice", "gather_elements", "gather_nd", "index_tensor")
        ),
        *(f"relax.{name}" for name in ("strided_slice", "take", "tril", "triu", "where")),
        *(f"relax.image.{name}" for name in ("grid_sample", "resize2d", "resize3d")),
        *(f"relax.nn.{name}{n}d" for name in ("avg_pool", "conv", "max_pool") for n in (1, 2, 3)),
        "relax.vision.roi_pool",
    )
)

# operators whose results TVM leaves as it found the memory where an axis has too few elements
NEEDS_ELEMENTS = frozenset(
    f"relax.{name}" for name in ("argmax", "argmin", "max", "mean", "median", "min", "prod", "sum", "topk")
)
