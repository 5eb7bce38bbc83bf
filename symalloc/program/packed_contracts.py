"""The contracts of packed functions: what each does to memory.  The one place that says so.

A function that is not listed here is judged by its declared result: it may return, capture, and (unless it is
pure) write whatever it is given, and take any memory.  Each row names the line of TVM (below its `src` or its
Python package) that defines the function.  Users state contracts of their own, in pyproject.toml and by
`symalloc.packed_function`; these go first.  A function that is an operation of the program itself (a view, a
tuple, a storage) is translated in `symalloc.relax.extract.calls`, whatever stands here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

from symalloc.arguments import require_choice, require_text, require_whole, shown
from symalloc.errors import UsageError, meant, nearest

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
    """

    returns: Returned = "any"
    keeps: frozenset[int] | None = None
    reads: frozenset[int] | None = None
    writes: frozenset[int] | None = None
    defines: frozenset[int] = frozenset()
    takes: Taken = "unknown"
    byte_offset: ByteOffsetUse = "unknown"
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
        if named and max(named) >= given:
            return f"speaks of argument {max(named)}, and there are {given}"
        if returned and len(returned) != (1 if results is None else results):
            return f"returns {len(returned)} arguments, and its result is {_counted_fields(results)}"
        return ""

    def reads_argument(self, index: int) -> bool:
        """True if it reads the argument number `index`."""
        return index not in self.defines if self.reads is None else index in self.reads


def _counted_fields(results: int | None) -> str:
    return "no tuple" if results is None else f"a tuple of {results}"


def packed_contract(name: str) -> PackedContract:
    """The contract of the packed function `name`."""
    found = _STATED.get(name) or _OF_TVM.get(name)
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
    `byte_offset` ("respected", "ignored", "unknown") and `source`.  Raises UsageError for a value that makes
    no sense.
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
    "source": require_text,
}

# -- the functions of TVM ------------------------------------------------------------------------------------

UNKNOWN = PackedContract()


def _contract(
    returns: Returned = "new",
    *,
    takes: Taken = "nothing",
    keeps: tuple[int, ...] = (),
    reads: tuple[int, ...] | None = None,
    writes: tuple[int, ...] = (),
    defines: tuple[int, ...] = (),
    byte_offset: ByteOffsetUse = "unknown",
) -> PackedContract:
    return PackedContract(
        returns=returns,
        keeps=frozenset(keeps),
        reads=None if reads is None else frozenset(reads),
        writes=frozenset(writes),
        defines=frozenset(defines),
        takes=takes,
        byte_offset=byte_offset,
    )


def _creates(kept: int) -> PackedContract:
    """An object with memory of its own that holds on to one argument, and looks at types of others."""
    return _contract(takes="state", keeps=(kept,), reads=(kept,))


_READS = _contract()
_LOOKS = _contract(reads=(), byte_offset="respected")
_MAKES = _contract(takes="result", byte_offset="respected")
_APPENDS = _contract((0,), takes="state")  # the cache doubles where it is full
_OF_OBJECT = _contract((0,))  # memory of an object that is given
_SAMPLES = _contract(takes="unknown")  # it sorts in memory of its own, and copies to the CPU
_SORTS = _contract(defines=(1,), takes="unknown", byte_offset="ignored")
_BLAS = _contract(defines=(2,), takes="unknown")  # a library has a workspace of its own
_LAST_OF_FOUR = _contract(defines=(3,), takes="unknown")

_BY_FILE: Mapping[str, Mapping[str, tuple[int, PackedContract]]] = {
    "src/runtime/vm/builtin.cc": {
        "vm.builtin.alloc_shape_heap": (71, _contract(takes="result")),
        "vm.builtin.match_prim_value": (115, _READS),
        "vm.builtin.match_shape": (172, _LOOKS),
        "vm.builtin.make_prim_value": (199, _READS),
        "vm.builtin.make_shape": (233, _READS),
        "vm.builtin.check_tensor_info": (276, _LOOKS),
        "vm.builtin.check_shape_info": (298, _LOOKS),
        "vm.builtin.check_prim_value_info": (330, _LOOKS),
        "vm.builtin.check_string_info": (331, _LOOKS),
        "vm.builtin.check_tuple_info": (356, _LOOKS),
        "vm.builtin.check_func_info": (373, _LOOKS),
        "vm.builtin.shape_of": (535, _LOOKS),
        "vm.builtin.reshape": (549, _contract((0,), reads=())),
        "vm.builtin.null_value": (568, _contract(byte_offset="respected")),
        "vm.builtin.to_device": (569, _MAKES),
        "vm.builtin.read_if_cond": (629, _contract(byte_offset="ignored")),
        "vm.builtin.tuple_reset_item": (672, _LOOKS),
        "vm.builtin.tensor_to_shape": (684, _contract(byte_offset="ignored")),
    },
    "src/runtime/vm/kv_state.cc": {
        "vm.builtin.kv_state_clear": (36, _READS),
        "vm.builtin.kv_state_add_sequence": (37, _READS),
        "vm.builtin.kv_state_remove_sequence": (38, _READS),
        "vm.builtin.kv_state_fork_sequence": (39, _READS),
        "vm.builtin.kv_state_popn": (40, _READS),
        "vm.builtin.kv_state_begin_forward": (41, _READS),
        "vm.builtin.kv_state_end_forward": (54, _READS),
        "vm.builtin.attention_kv_cache_enable_sliding_window_for_seq": (64, _READS),
        "vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes": (66, _READS),
        "vm.builtin.attention_kv_cache_empty": (68, _READS),
        "vm.builtin.attention_kv_cache_get_num_available_pages": (69, _READS),
        "vm.builtin.attention_kv_cache_get_total_sequence_length": (71, _READS),
        "vm.builtin.attention_kv_cache_get_query_positions": (86, _OF_OBJECT),
        "vm.builtin.attention_kv_cache_debug_get_kv": (88, _contract(defines=(4, 5))),
        "vm.builtin.attention_kv_cache_debug_get_kv_mla": (89, _contract(defines=(4,))),
        "vm.builtin.attention_kv_cache_attention_with_fused_qkv": (91, _contract(defines=(4,))),
        "vm.builtin.attention_kv_cache_self_attention": (97, _contract(defines=(6, 7))),
        "vm.builtin.attention_kv_cache_cross_attention": (104, _contract(defines=(4, 5))),
        "vm.builtin.attention_kv_cache_attention_with_shared_kv": (110, _contract(defines=(6,))),
        "vm.builtin.attention_kv_cache_append_mla_kv": (117, _OF_OBJECT),
        "vm.builtin.attention_kv_cache_merge_attn_output_inplace": (122, _contract((1, 2), writes=(1, 2))),
        "vm.builtin.rnn_state_get": (135, _contract(defines=(3,))),
        "vm.builtin.rnn_state_set": (136, _OF_OBJECT),
        "vm.builtin.rnn_state_debug_get": (141, _MAKES),
    },
    "src/runtime/vm/paged_kv_cache.cc": {
        "vm.builtin.paged_attention_kv_cache_create": (3227, _creates(11)),
    },
    "src/runtime/vm/rnn_state.cc": {
        "vm.builtin.rnn_state_create": (471, _creates(5)),
    },
    "src/runtime/vm/lm_support.cc": {
        "vm.builtin.attention_kv_cache_create": (266, _contract(takes="state")),
        "vm.builtin.attention_kv_cache_update": (276, _OF_OBJECT),
        "vm.builtin.attention_kv_cache_append": (286, _APPENDS),
        "vm.builtin.attention_kv_cache_window_override": (297, _APPENDS),
        "vm.builtin.attention_kv_cache_window_override_with_sinks": (310, _APPENDS),
        "vm.builtin.attention_kv_cache_view": (321, _OF_OBJECT),
        "vm.builtin.attention_kv_cache_array_popn": (348, _READS),
        "vm.builtin.attention_kv_cache_array_clear": (359, _READS),
        "vm.builtin.sample_top_p_from_logits": (426, _SAMPLES),
        "vm.builtin.sample_top_p_from_prob": (525, _SAMPLES),
        "vm.builtin.multinomial_from_uniform": (566, _SAMPLES),
        "vm.builtin.apply_repetition_penalty": (593, _contract(writes=(0,))),
        "vm.builtin.apply_presence_and_frequency_penalty": (633, _contract(writes=(0,))),
        "vm.builtin.apply_softmax_with_temperature": (662, _contract(writes=(0,))),
    },
    "src/runtime/vm/tensor_cache_support.cc": {
        "vm.builtin.tensor_cache.get": (259, _contract("any")),
        "vm.builtin.tensor_cache.update": (260, _contract(takes="state", keeps=(1,), reads=(1,))),
    },
    "src/runtime/module.cc": {"runtime.RuntimeEnabled": (88, _READS)},
    "src/runtime/tensor.cc": {
        "runtime.TVMTensorAllocWithScope": (292, _MAKES),
        "runtime.TVMTensorCopyFromTo": (298, _contract(defines=(1,))),
    },
    "src/runtime/extra/contrib/sort/sort.cc": {
        "tvm.contrib.sort.argsort_nms": (85, replace(_SORTS, defines=frozenset({2}))),
        "tvm.contrib.sort.argsort": (226, _SORTS),
        "tvm.contrib.sort.sort": (324, _SORTS),
        "tvm.contrib.sort.topk": (456, replace(_SORTS, defines=frozenset({1, 2}))),
    },
    "src/runtime/extra/contrib/random/random.cc": {
        "tvm.contrib.random.randint": (123, _contract(defines=(2,))),
        "tvm.contrib.random.random_fill": (207, _contract(defines=(0,))),
    },
    "src/runtime/extra/contrib/cblas/cblas.cc": {
        "tvm.contrib.cblas.matmul": (130, _BLAS),
        "tvm.contrib.cblas.batch_matmul": (141, _BLAS),
    },
    "src/runtime/extra/contrib/cublas/cublas.cc": {
        "tvm.contrib.cublas.matmul": (532, _BLAS),
        "tvm.contrib.cublas.batch_matmul": (582, _BLAS),
    },
    "src/runtime/extra/disco/builtin.cc": {
        "runtime.disco.allreduce": (147, _LAST_OF_FOUR),
    },
    "runtime/vm.py": {
        "vm.builtin.debug_print": (475, _contract(byte_offset="respected")),
    },
    "relax/op/base.py": {
        "relax.run.shape_to_tensor": (438, _contract(takes="result")),
        "relax.run.print": (451, _contract(byte_offset="respected")),
        "relax.run.assert_op": (499, _READS),
    },
    "relax/op/set.py": {
        "relax.run.unique": (87, _MAKES),
        "relax.run.nonzero": (213, _MAKES),
    },
}
_OF_TVM: Mapping[str, PackedContract] = {
    name: replace(contract, source=f"{file}:{line}")
    for file, rows in _BY_FILE.items()
    for name, (line, contract) in rows.items()
}
# by the beginning of their names
_FAMILIES: Mapping[str, PackedContract] = {
    "tvm.contrib.sort.": replace(UNKNOWN, byte_offset="ignored"),
}
