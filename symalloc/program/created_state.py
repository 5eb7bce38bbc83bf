"""The memory of the state that TVM's runtime creates and a server keeps: KV caches and recurrent states.

The formulas follow the sources of apache-tvm 0.27.0.post1, which each `StatePart` names below src/runtime/vm;
`python -m benchmarks.kv_cache_bytes` holds them against the bytes that TVM takes on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from symalloc.program import ir
from symalloc.program.operands import function_references, leaves_in, tensor_type, type_of
from symalloc.program.types import ShapeType
from symalloc.size.choice import minimum
from symalloc.size.expr import ZERO, Expr, ceildiv, constant, round_up

Told = TypeVar("Told")
DeviceKind: TypeAlias = Literal["cpu", "cuda", "other"]
MHA, MLA, LINEAR, SLIDING = range(4)  # attn_utils.h:66
DEPTHS = 2  # attn_utils.h:50
TREE = 256  # attn_utils.h:52
INT_WORKSPACE, FLOAT_WORKSPACE = 8 << 20, 768 << 20  # attn_utils.h:54, 56
MERGED = 32 << 20  # elements, attn_utils.h:825
INDEX = 4  # bytes of an int32, paged_kv_cache.cc:181
ALIGNED = 4  # elements, attn_utils.h:1058
BACKENDS = slice(15, 23)  # arguments that are attention functions, paged_kv_cache.cc:3257
RAGGED = (15, 20, 21)  # those of them whose arguments of three dimensions are tokens, no pages
PAGED_CACHE = "vm.builtin.paged_attention_kv_cache_create"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """Some memory of a state, `source` the lines of TVM that take it; `host`: it lies on the host."""

    what: str
    nbytes: Expr
    source: str
    host: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedState:
    """The memory that a call takes for a state; `problem` says why there may be more."""

    parts: tuple[StatePart, ...] = ()
    problem: str | None = None


class _UnknownError(Exception):
    """An argument is not known where the call stands."""


def created_state(call: ir.CallPacked, device: DeviceKind) -> CreatedState | None:
    """The state that a packed function creates, on a `device` of a kind; None for one that creates none."""
    rule = _CREATORS.get(call.name)
    if rule is None:
        return None
    try:
        return rule(call.arguments, device)
    except _UnknownError as reason:
        return CreatedState(problem=f"{reason} of `{call.name}` is not known")


def handed_extents(call: ir.CallPacked, kernel: ir.Kernel) -> Mapping[str, Expr]:
    """The most rows with which a packed function calls a kernel that it is handed, by the kernel's symbols.

    A KV cache calls attention functions with the tokens of one chunk (paged_kv_cache.cc:1555).
    """
    sizes = type_of(call.arguments[0]) if call.name == PAGED_CACHE else None
    given = [call.arguments[index] for index in RAGGED if index < len(call.arguments)]
    if not isinstance(sizes, ShapeType) or not sizes.values or kernel.name not in function_references(given):
        return {}
    shapes = [one.shape or () for one in kernel.parameters if isinstance(one, ir.KernelBuffer)]
    rows = [shape[0].as_symbol for shape in shapes if len(shape) == 3]  # tokens, heads, features
    return {row: sizes.values[2] for row in rows if row is not None}


# -- arguments -----------------------------------------------------------------------------------------------


def _known(value: Told | None, what: str) -> Told:
    """The value of `what`; raises _UnknownError where there is none."""
    if value is None:
        raise _UnknownError(what)
    return value


def _argument(arguments: Sequence[ir.Operand], index: int) -> ir.Operand:
    if index >= len(arguments):
        raise _UnknownError(f"argument {index}")
    return arguments[index]


def _extents(arguments: Sequence[ir.Operand], index: int) -> tuple[Expr, ...]:
    found = type_of(_argument(arguments, index))
    return _known(found.values if isinstance(found, ShapeType) else None, f"argument {index}")


def _number(arguments: Sequence[ir.Operand], index: int) -> Expr:
    found = _argument(arguments, index)
    return _known(found.value if isinstance(found, ir.Scalar) else None, f"argument {index}")


def _nbytes(operand: ir.Operand) -> Expr:
    found = tensor_type(operand)
    return _known(None if found is None else found.nbytes, "a tensor")


# -- the paged KV cache --------------------------------------------------------------------------------------


def _paged_cache(arguments: Sequence[ir.Operand], device: DeviceKind) -> CreatedState:
    """vm.builtin.paged_attention_kv_cache_create."""
    given, groups = _extents(arguments, 0), _extents(arguments, 1)
    if len(given) not in (5, 6) or len(groups) < 2:
        raise _UnknownError("the configuration")
    seqs, tokens, chunk, page, sliding = given[:5]
    first = _known(groups[0].as_constant, "the first layer")
    layers = _known(groups[1].as_constant, "the number of layers") - first
    query, keys, width, value_width = (_number(arguments, index) for index in (2, 3, 4, 5))
    kinds = [_known(kind.as_constant, "a kind of attention") for kind in _extents(arguments, 6)]
    element = tensor_type(_argument(arguments, 12))
    size = _known(None if element is None else element.dtype, "the element type").itemsize
    pages = ceildiv(tokens, page) + 1 + 2 * minimum(sliding, 1) * seqs
    paged = pages * page * width * size
    of_a_layer = {
        MHA: paged * 2 * keys,
        SLIDING: paged * 2 * keys,
        MLA: paged,
        LINEAR: seqs * keys * width * value_width * size,
    }
    if not set(kinds) <= of_a_layer.keys() or len(kinds) < first + layers:
        raise _UnknownError("a kind of attention")
    temporary = 2 * chunk * query * INDEX + chunk * query * value_width * size
    if MHA in kinds:
        temporary += chunk * (query * width + keys * width + keys * value_width) * size
    shared = partial(StatePart, source="paged_kv_cache.cc:563")
    parts = [
        StatePart(
            what="pages",
            nbytes=sum((of_a_layer[kind] for kind in kinds[first : first + layers]), start=ZERO),
            source="paged_kv_cache.cc:469, 3307; attn_utils.h:74",
        ),
        shared(what="attention's inputs and outputs", nbytes=temporary),
        *_auxiliary(seqs, pages, chunk, device),
        *(_flash_infer() if _takes_flash_infer(arguments[BACKENDS]) else ()),
    ]
    return CreatedState(parts=tuple(parts), problem=_spread(arguments, len(groups)))


def _spread(arguments: Sequence[ir.Operand], groups: int) -> str | None:
    """The reason for which a device may take more, or less, than what one alone takes."""
    if groups > 2:
        return "the layers of the KV cache are spread over several groups of devices"
    if _known(_number(arguments, 7).as_constant, "argument 7"):
        return "NVSHMEM gives the pages of a KV cache that is transferred"
    return None


def _takes_flash_infer(backends: Sequence[ir.Operand]) -> bool:
    """paged_kv_cache.cc:2739: one of the attention functions is FlashInfer's."""
    leaves = [leaf for backend in backends for leaf in leaves_in(backend)]
    if any(isinstance(leaf, ir.Var) for leaf in leaves):
        raise _UnknownError("an attention function")
    return ir.TextLiteral("flashinfer") in leaves


def _flash_infer() -> tuple[StatePart, ...]:
    at = partial(StatePart, source="paged_kv_cache.cc:535, 555")
    whole = (DEPTHS + 1) * INT_WORKSPACE
    return (
        at(what="FlashInfer's workspace", nbytes=constant(FLOAT_WORKSPACE + whole)),
        at(what="FlashInfer's workspace on the host", nbytes=constant(whole), host=True),
    )


def _auxiliary(seqs: Expr, pages: Expr, chunk: Expr, device: DeviceKind) -> tuple[StatePart, ...]:
    """The indices that the kernels read: in arrays merged into one, or each in an array of its own."""
    ends, copied = seqs + 1, 2 * minimum(TREE * seqs, chunk)
    merged = INDEX * (MERGED + round_up(ends, ALIGNED) + round_up(copied, ALIGNED))
    each = DEPTHS * (3 * ends + pages + (4 + TREE * TREE) * seqs) + 2 * ends + seqs + 6 * chunk + copied
    host = DEPTHS * (4 * ends + 2 * pages + (5 + 2 * TREE) * seqs) + 2 * ends + 2 * seqs + 7 * chunk + copied
    at = partial(StatePart, what="auxiliary arrays")
    of_host = partial(StatePart, what="auxiliary arrays on the host", host=True)
    if device in ("cpu", "cuda"):  # paged_kv_cache.cc:593
        return (
            at(nbytes=merged, source="attn_utils.h:825, 834"),
            of_host(nbytes=INDEX * host + merged, source="paged_kv_cache.cc:477; attn_utils.h:827, 836"),
        )
    return (
        at(nbytes=INDEX * each, source="attn_utils.h:563"),
        of_host(nbytes=INDEX * host, source="paged_kv_cache.cc:477"),
    )


# -- other states --------------------------------------------------------------------------------------------


def _recurrent(arguments: Sequence[ir.Operand], _: DeviceKind) -> CreatedState:
    """vm.builtin.rnn_state_create; it keeps the values that states begin with."""
    layers, seqs, history = (_number(arguments, index) for index in range(3))
    initial = [*leaves_in(_argument(arguments, 5))]
    sizes = [_nbytes(one) for one in initial]
    own = [size for one, size in zip(initial, sizes, strict=True) if not isinstance(one, ir.ConstantTensor)]
    states = layers * seqs * history * sum(sizes, start=ZERO)
    parts = (
        StatePart(what="states", nbytes=states, source="rnn_state.cc:174"),
        StatePart(what="slots of sequences", nbytes=2 * INDEX * seqs, source="rnn_state.cc:191"),
        StatePart(what="initial values", nbytes=sum(own, start=ZERO), source="rnn_state.cc:169"),
    )
    return CreatedState(parts=parts)


_CREATORS: Mapping[str, Callable[[Sequence[ir.Operand], DeviceKind], CreatedState]] = {
    PAGED_CACHE: _paged_cache,
    "vm.builtin.rnn_state_create": _recurrent,
}
