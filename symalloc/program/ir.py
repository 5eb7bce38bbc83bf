"""The intermediate representation (IR): functions of blocks of instructions over variables.

Invariant: a `Var` is bound by exactly one instruction (or parameter) of one function and compared by
identity; names serve display only and may repeat.  Offsets and sizes are bytes, extents elements.  Symbols
are named per function; two different symbolic variables of one function have different names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

from symalloc.program.packed_contracts import PackedContract, packed_contract
from symalloc.program.span import PrintedScript, Source, Span
from symalloc.program.types import DType, ScalarType, TensorType, Type, record, type_leaves
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import Expr, symbol


@record(eq=False, kw_only=False)
class Var:
    """A variable; equal only to itself."""

    name: str
    type: Type


# -- operands: what an instruction refers to -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConstantTensor:
    """A tensor held by the executable (weights, literals); never planned, never written.

    `values` holds the elements of small integer constants (at most 64), flattened; None otherwise.
    """

    type: TensorType
    values: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShapeValue:
    """A shape literal, `R.shape([n, 64])`."""

    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar expression; `value` is None for one that is no size (a float)."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class TupleValue:
    """A tuple literal in argument position."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class TextLiteral:
    """A string, data type or attribute literal: it holds no memory."""

    text: str


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A reference to a function of the module as a value."""

    name: str


Operand: TypeAlias = Var | ConstantTensor | ShapeValue | Scalar | TupleValue | TextLiteral | FunctionRef


# -- instructions ----------------------------------------------------------------------------------


@record()
class Instruction:
    """One binding: `var` receives the result.

    `handle` is the binding that the instruction was read from, opaque here: whoever rewrites the module looks
    it up instead of walking in step.
    """

    var: Var
    span: Span | None = None
    handle: object | None = field(default=None, compare=False, repr=False)


@record()
class AllocStorage(Instruction):
    """R.memory.alloc_storage, R.vm.alloc_storage: reserves `size` bytes (dialects already told apart).

    `size` is None where it cannot be expressed; `dtype` is what the operator was given.
    """

    size: Expr | None
    device: int = 0
    scope: str = "global"
    dtype: DType | None = None
    dialect: Literal["memory", "vm"] = "memory"


@record()
class AllocTensor(Instruction):
    """R.memory.alloc_tensor, R.vm.alloc_tensor: a tensor at `offset` bytes of `storage`."""

    storage: Operand
    offset: Expr
    shape: tuple[Expr, ...] | None
    dtype: DType
    device: int = 0


@record()
class AllocFresh(Instruction):
    """R.builtin.alloc_tensor: a tensor with memory of its own; `inexact` says why it has no exact shape.

    `giver`: the function that gives the memory in its place; no plan moves the tensor.
    """

    shape: tuple[Expr, ...] | None
    dtype: DType
    device: int = 0
    scope: str = "global"
    inexact: str = ""
    giver: str = ""


@record()
class Alias(Instruction):
    """`var = source`."""

    source: Operand


@record()
class MatchCast(Instruction):
    """`var = R.match_cast(source, target)`: the same value; checked at run time; may define symbols of
    `target`.

    `defines` names the symbols that this cast binds.  One that does not return is vm.builtin.match_shape.
    """

    source: Operand
    target: Type
    defines: frozenset[str] = frozenset()
    returns: bool = True


@record()
class View(Instruction):
    """`var` shares the memory of `source`, at `offset` bytes from its start.

    kind: `reshape` (vm.builtin.reshape; offset 0, same element count), `view` (R.memory.view),
    `ensure_zero_offset` (the same bytes where the absolute offset is a multiple of 64, otherwise a copy).
    """

    source: Operand
    shape: tuple[Expr, ...] | None
    dtype: DType | None
    offset: Expr | None
    kind: Literal["reshape", "view", "ensure_zero_offset"]


@record()
class MakeTuple(Instruction):
    """`var = (fields…)`."""

    fields: tuple[Operand, ...]


@record()
class TakeField(Instruction):
    """`var = source[index]`."""

    source: Operand
    index: int


@record()
class CallKernel(Instruction):
    """A PrimFunc called with its outputs among the arguments (also R.vm.call_tir_dyn, its shape argument
    spread).  `followed`: accesses of the kernel at indices that the contents of arguments tell.  `by_symbol`:
    as a packed function is called, which TVM never drops.
    """

    kernel: str
    arguments: tuple[Operand, ...]
    by_symbol: bool = False
    followed: tuple[KernelAccess, ...] = ()


@record()
class CallTIR(Instruction):
    """R.call_tir, R.call_tir_inplace: the result is fresh, but field i aliases input `inplace[i]` where
    not None.
    """

    kernel: str
    inputs: tuple[Operand, ...]
    outputs: tuple[TensorType, ...] = ()
    inplace: tuple[int | None, ...] = ()
    followed: tuple[KernelAccess, ...] = ()


class Ownership(Enum):
    """The owner of the memory of a packed function's result."""

    FRESH = "fresh"  # known to allocate, or to return no tensor
    ARGUMENT = "argument"  # known to return (a view of) one of its arguments
    UNKNOWN = "unknown"  # may be any of its arguments


@record()
class CallPacked(Instruction):
    """R.call_packed, R.call_pure_packed, R.call_dps_packed, a call of an ExternFunc.

    `writes` holds the indices of the arguments that the callee is known to write; without that knowledge
    every tensor argument counts as read, and as read and written where `pure` is False.  `may_capture`: the
    callee may hold on to its arguments.  `returned` are the arguments that its result is, or those that its
    fields are, where that is known.  `inplace`, of a R.call_inplace_packed, is that of CallTIR.  `stated` is
    what a user says of the callee.
    """

    name: str
    arguments: tuple[Operand, ...]
    ownership: Ownership
    pure: bool
    writes: frozenset[int] = frozenset()
    may_capture: bool = False
    returned: tuple[int, ...] = ()
    inplace: tuple[int | None, ...] = ()
    stated: PackedContract | None = None

    @property
    def contract(self) -> PackedContract:
        """All that is known of the callee."""
        return packed_contract(self.name) if self.stated is None else self.stated


@record()
class CallFunction(Instruction):
    """A call of another Relax function of the module.

    `kept`: it is called once only, and its result kept for later calls of the function it stands in (what a
    CUDA graph allocates).
    """

    name: str
    arguments: tuple[Operand, ...]
    kept: bool = False


@record()
class CallOperator(Instruction):
    """A Relax operator not yet lowered (`relax.add`): reads its arguments, its result is fresh.

    `attributes` holds those that rules ask for, as text (`{"mode": "fast", "axis": "1"}`).
    """

    name: str
    arguments: tuple[Operand, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)


@record()
class Kill(Instruction):
    """kill_tensor, kill_storage, kill_object: drops the handle `target`."""

    target: Operand
    kind: Literal["tensor", "storage", "object"]


@record()
class Assert(Instruction):
    """R.assert_op, a guard of ours: behind it `condition` holds (None: not understood); it takes `reads`."""

    condition: Condition | None
    reads: tuple[Operand, ...] = ()


@record()
class If(Instruction):
    """`var = then.result if condition else otherwise.result`; `condition` is None if not on sizes."""

    condition: Condition | None
    test: Operand
    then: Block
    otherwise: Block


@record()
class NotUnderstood(Instruction):
    """A construct that is not verified; `what` says which, `reads` what it may touch (and may return)."""

    what: str
    reads: tuple[Operand, ...] = ()
    fault: SlotFault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Instructions in order, and the value that the block yields."""

    instructions: tuple[Instruction, ...]
    result: Operand


# -- functions, kernels, the program ---------------------------------------------------------------


class Origin(Enum):
    """The place at which a symbol of a function gets its value."""

    DIMENSION = "dimension"  # an extent of a parameter tensor or of a R.Shape parameter: >= 0
    CAST = "cast"  # bound by a match_cast against a tensor or shape: >= 0
    SCALAR = "scalar"  # an R.Prim parameter or cast: any int64
    FLAG = "flag"  # a boolean R.Prim: 0 or 1
    LOOP = "loop"  # counts the passes of a loop inside a kernel: >= 0
    UNDEFINED = "undefined"  # used, but defined nowhere (SYM903)


PLAN_CONDITION = "symalloc.plan_condition"
"""The attribute of a planned function that says, as text, what it checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One Relax function.

    `declared_upper` / `declared_lower` are the attributes tir_var_upper_bound / tir_var_lower_bound: not
    enforced. `private` functions are called only from within the module.  `span` is where the `def`
    stands and `result_span` what it returns; None without source.  `bounded_results` is the attribute
    relax.memory_plan_dynamic_func_output: where memory is reserved for bounds, that of results is, too.
    `required` is the attribute PLAN_CONDITION: what the function checks, for its plan rests on it.
    `variables` are TVM's for the symbols that something defines, where instructions have handles: there no
    instruction binds a tensor that is known to another name, but `names` has these in order.
    """

    name: str
    params: tuple[Var, ...]
    body: Block
    result_type: Type
    symbols: Mapping[str, Origin]
    private: bool = False
    declared_upper: Mapping[str, int] = field(default_factory=dict)
    declared_lower: Mapping[str, int] = field(default_factory=dict)
    span: Span | None = None
    result_span: Span | None = None
    bounded_results: bool = False
    required: tuple[Condition, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[Var, Sequence[str]] = field(default_factory=dict)

    def names_of(self, var: Var) -> tuple[str, ...]:
        """All names of a variable, its own last."""
        return (*reversed(self.names.get(var, ())), var.name)

    @property
    def takes_memory(self) -> bool:
        """True where a caller may give it memory: it is public, and takes or returns a tensor."""
        types = [
            leaf for v in (*(p.type for p in self.params), self.result_type) for _, leaf in type_leaves(v)
        ]
        return not self.private and any(type(leaf) is TensorType for leaf in types)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBuffer:
    """A buffer of a PrimFunc: extents over the kernel's own symbols, and what the body does to it.

    `shape` is None where the extents have no exact form; both `shape` and `dtype` are None for a bare
    pointer. `offset_factor`: None where the kernel demands byte_offset == 0; otherwise the element count
    that its offset must be a multiple of.  `must_def`: every element is written, whatever was there, and
    none is read; False where that is not plain to see.  `layout` is None for row-major from offset 0 on.
    `loops`: so many are around its allocation, each pass of which has its own.
    `shared`: memory that the threads of a block share, each statement finds it as the last has left it.
    """

    name: str
    shape: tuple[Expr, ...] | None
    dtype: DType | None
    reads: bool = True
    writes: bool = True
    offset_factor: int | None = None
    must_def: bool = False
    layout: BufferLayout | None = None
    shared: bool = False
    loops: int = 0

    @property
    def type(self) -> TensorType:
        """The type of the tensor that is given."""
        return TensorType(shape=self.shape, dtype=self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScalar:
    """A scalar parameter of a PrimFunc; `name` is a symbol of the kernel."""

    name: str

    @property
    def type(self) -> ScalarType:
        """The type of the scalar that is given."""
        return ScalarType(value=symbol(self.name), dtype=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A PrimFunc, seen from outside, and what its body does to its parameters.

    `asserts` are conditions over its symbols that it stops at where they do not hold.  `accesses`
    are in the order of the body; a parameter whose pointer is handed on is loaded and stored there at indices
    that are not known.  `own_buffers` are those that the body allocates, numbered behind the parameters.
    `unread` are words for what of the body has no exact form although it hangs on no data.  All three may be
    read from the body when they are first asked for.  `others` names the
    functions that it calls and that are not seen.  `narrow` are its symbols of less than 32 bits, with the
    numbers that those hold: TVM keeps the low bits of what they are given, and compares no others.
    """

    name: str
    parameters: tuple[KernelBuffer | KernelScalar, ...]
    asserts: tuple[Condition, ...] = ()
    accesses: Sequence[KernelAccess] = ()
    own_buffers: Sequence[KernelBuffer] = ()
    unread: Sequence[str] = ()
    negates: tuple[int, int] | None = None  # it does nothing but store the negation of a flag in another
    others: tuple[str, ...] = ()
    narrow: Mapping[str, range] = field(default_factory=dict)

    @property
    def takers(self) -> list[str]:
        """The functions that it calls and that may take memory."""
        return [name for name in self.others if packed_contract(name).takes != "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One Relax module at one stage of compilation; `devices`: the kinds (`llvm`) of its virtual devices.

    `stage`: `as-is`, or the TVM pass after which it was read.  `name`: that of its class, or its file's stem.
    `in_place`: what in-place calls name in it, or named before it was lowered.
    """

    name: str
    functions: Mapping[str, Function]
    kernels: Mapping[str, Kernel]
    stage: str = "as-is"
    source: Source | PrintedScript | None = None
    devices: tuple[str, ...] = ()
    in_place: frozenset[str] = frozenset()


# -- bodies of kernels -------------------------------------------------------------------------------------


class BufferLayout(NamedTuple):
    """The place of a buffer's elements in memory, where it is declared: the first one lies `elem_offset`
    elements behind the pointer (None: the caller says where), and `strides` are in elements, over the
    kernel's symbols (None: row-major; a stride that is None, or a symbol of its own, is the caller's).
    """

    elem_offset: int | None
    strides: tuple[Expr | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoop:
    """A loop of a kernel's body: `symbol` counts its passes, from 0 up to `passes` (not included).

    Each loop of a kernel has a symbol of its own.  `passes` is None where it is not understood.  `parallel`:
    the passes run side by side (threads, lanes of a vector), in no order; `lanes`: each statement is executed
    in all passes before the next.
    """

    symbol: str
    passes: Expr | None
    parallel: bool = False
    lanes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAccess:
    """A load or a store of the body of a PrimFunc, to its parameter, or its own buffer, number `parameter`.

    `indices` are in elements, one for each dimension of the parameter, over the symbols of the kernel and of
    `loops`, the loops around it from the outside in; None stands for an index that depends on data or was not
    understood.  `domain` holds at each pass that gets there: the ranges of the loops, and the guards that
    were understood.  `exact`: it is executed at every point of the domain (provided that no assertion stops
    the kernel).  `handed`: it is what a callee does that was handed the pointer.  `copies`, of a store: loads
    whose value it stores, each where its own domain holds.  Two accesses follow each other within each pass
    of the loops that they share, which is where their `loops` begin alike.  `part`: the number of the part of
    its element that it is at, and of how many; None for all of it.  `unread`: what is not known of it has no
    exact form, but hangs on no data.  A touch is a load whose value matters on a condition only.
    """

    parameter: int
    kind: Literal["load", "store", "touch"]
    indices: tuple[Expr | None, ...]
    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()
    handed: bool = False
    copies: tuple[KernelAccess, ...] = ()
    part: tuple[Expr, int] | None = None
    unread: bool = False

    def substitute(self, values: Mapping[str, Expr]) -> KernelAccess:
        """The access with symbols replaced, those of its loops, too."""
        indices = tuple(None if index is None else index.substitute(values) for index in self.indices)
        part = self.part and (self.part[0].substitute(values), self.part[1])
        return replace(
            self, indices=indices, domain=tuple(c.substitute(values) for c in self.domain), part=part
        )


# -- wrong uses of the shape heap --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFault:
    """A slot of a shape heap that is loaded although nothing has written it; with `size`, one that is loaded
    or `stored` although the heap has so few slots.
    """

    slot: int
    builtin: str = ""  # that uses it
    size: int | None = None
    stored: bool = False


# -- bounds that a function declares, and that nothing checks when it runs ---------------------------------


class DeclaredBound(NamedTuple):
    """One side of what a function declares about a symbol."""

    symbol: str
    value: int
    is_upper: bool

    @property
    def condition(self) -> Condition:
        """The bound as a condition."""
        compare = le if self.is_upper else ge
        return compare(symbol(self.symbol), self.value)

    @property
    def text(self) -> str:
        """The bound in words."""
        return f"at {'most' if self.is_upper else 'least'} {self.value}"


def declared_bounds(function: Function) -> tuple[DeclaredBound, ...]:
    """The bounds that a function declares, upper ones first."""
    upper = (DeclaredBound(name, value, True) for name, value in function.declared_upper.items())
    lower = (DeclaredBound(name, value, False) for name, value in function.declared_lower.items())
    return (*upper, *lower)
