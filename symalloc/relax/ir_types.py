"""TVM's objects as this room sees them.

TVM carries no types for mypy: its classes serve `isinstance` and `match`, the types below serve annotations.
A `Node` has whatever fields TVM gives it, and never passes for a structure of ours, a number or a text.

What is made or read by the thousand goes to TVM's functions directly: its Python classes look up modules and
convert arguments at every call.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, Protocol, TypeAlias

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.prim import expr as prim

from symalloc.errors import RunError
from symalloc.native.native_functions import array_functions
from symalloc.program.span import Span

_call = tvm_ffi.get_global_func("ir.Call")
_var = tvm_ffi.get_global_func("ir.Var")
_buffer = tvm_ffi.get_global_func("tirx.BufferType")
_binding = tvm_ffi.get_global_func("relax.VarBinding")
_kernel = tvm_ffi.get_global_func("tirx.PrimFunc")
_set_type = tvm_ffi.get_global_func("relax.UpdateType")
_walk = tvm_ffi.get_global_func("ffi.StructuralWalk")
_mutate = tvm_ffi.get_global_func("ffi.StructuralMutate")
_PREORDER = int(tvm_ffi.WalkOrder.PREORDER)


class Node(Protocol):
    """Any object of TVM's IR: an expression, a type, a statement, an array, attributes."""

    name: str
    name_hint: str

    def __hash__(self) -> int:
        """The same for the same object."""

    def __getattr__(self, name: str, /) -> Any:
        """A field or a method: TVM checks the name when it runs."""

    def __getitem__(self, index: int | slice | str, /) -> Node:
        """An element of an array, or a value of a map."""

    def __iter__(self) -> Iterator[Node]:
        """The elements of an array."""

    def __len__(self) -> int:
        """The number of elements of an array."""

    def __add__(self, other: Node | int, /) -> Node:
        """The sum of two scalar expressions."""

    def __sub__(self, other: Node | int, /) -> Node:
        """The difference of two scalar expressions."""

    def __mul__(self, other: Node, /) -> Node:
        """The product of two scalar expressions."""

    def __le__(self, other: Node, /) -> Node:
        """The comparison of two scalar expressions."""


CallNode: TypeAlias = Node
"""A call: `op`, `args`, `attrs`, `ty_args`."""
BindingNode: TypeAlias = Node
"""A VarBinding or a MatchCast: `var` is bound to `value`."""
VarNode: TypeAlias = Node
"""A variable of Relax, a parameter of a kernel, or a symbolic extent; all are one class in TVM."""
PrimNode: TypeAlias = Node
"""A scalar expression."""
TypeNode: TypeAlias = Node
"""The type of an expression, such as `relax.TensorType`."""


def free_name(wanted: str, taken: Container[str], tail: Callable[[int], str] = lambda n: f"_{n}") -> str:
    """`wanted` where it is not taken, else with the first of the tails 1, 2, … that makes it free."""
    names = (f"{wanted}{tail(number)}" if number else wanted for number in count())
    return next(name for name in names if name not in taken)


def elements(array: Node) -> tuple[Any, ...]:
    """The elements of an array: TVM's Python classes ask for one by one, which takes ten times as long."""
    array_functions.unpack(_take, array)
    found: tuple[Any, ...] = _unpacked.elements
    del _unpacked.elements
    return found


def _keep(*elements: Any) -> None:
    _unpacked.elements = elements


_unpacked, _take = threading.local(), tvm_ffi.convert(_keep)  # to make a function of tvm-ffi's takes longest
array_functions.unpack.release_gil = False  # it does nothing but call Python


def typed_call(
    op: Node,
    arguments: Sequence[Node],
    type_: TypeNode,
    ty_args: Sequence[TypeNode] = (),
    span: Node | None = None,
    attrs: Node | None = None,
) -> Node:
    """The call of `op` whose type is known: a builder has nothing to infer from it."""
    return _call(type_, op, arguments, attrs, ty_args, span)


def with_arguments(call: CallNode, arguments: Sequence[Node], callee: Node | None = None) -> CallNode:
    """`call` with other arguments, of the same types or of another `callee` that gives the same type."""
    return typed_call(callee or call.op, arguments, call.ty, call.ty_args, call.span, call.attrs)


def typed_var(name: str, type_: TypeNode) -> VarNode:
    """A new variable."""
    return _var(name, type_, None)


def bound(var: VarNode, value: Node) -> BindingNode:
    """The binding of `value`, whose type is known, to `var`."""
    return _binding(var, value, None)


NOTHING = tvm.ir.TupleType([])
"""The type of what a call returns that is made for what it does."""


def effect(callee: Node, arguments: Sequence[Node], name: str = "_") -> BindingNode:
    """The binding of a call of a packed function that returns nothing."""
    return bound(typed_var(name, NOTHING), typed_call(callee, arguments, NOTHING, [NOTHING]))


def of_type(expression: Node, type_: TypeNode) -> Node:
    """A new expression, said to have a type that a builder would infer for it."""
    _set_type(expression, type_)
    return expression


def at_offset(type_: TypeNode, offset: VarNode, factor: int) -> TypeNode:
    """The type of a buffer with another element offset, a multiple of `factor`."""
    shape, strides, address = type_.shape, type_.strides, type_.allocated_addr
    scope, alignment = type_.storage_scope, type_.data_alignment
    return _buffer(scope, type_.dtype, shape, strides, offset, alignment, factor, type_.layout, address, None)


def with_shape(type_: TypeNode, shape: Sequence[Node]) -> TypeNode:
    """The type of a buffer with other extents, its rows one behind the other in memory."""
    scope, alignment, factor = type_.storage_scope, type_.data_alignment, type_.offset_factor
    address = type_.allocated_addr
    return _buffer(scope, type_.dtype, shape, [], type_.elem_offset, alignment, factor, None, address, None)


def with_parameters(kernel: Node, parameters: Sequence[VarNode], body: Node) -> Node:
    """The PrimFunc `kernel` with other parameters and another body."""
    return _kernel(parameters, body, kernel.ret_type, kernel.attrs, kernel.span)


def with_variables(body: Node, replaced: Sequence[tuple[VarNode, VarNode]]) -> Node:
    """`body` with the second variable of each pair wherever the first was used."""

    def at_root(node: Node, mutator: Node) -> Node:
        for old, new in replaced:
            mutator.var_remap_set(old, new)
        return mutator.default_mutate(node)

    return _mutate(body, [(_index_of(type(body)), at_root, False)])


def visit(root: Node, *callbacks: tuple[type, Callable[[Node], object]]) -> None:
    """Call the function of each class for all of its nodes in `root`, a node before what is in it.

    What the functions return counts for nothing, but for TVM's own VisitInterrupt.
    """
    _walk(root, [(_index_of(kind), function) for kind, function in callbacks], [], _PREORDER)


def nodes_in(roots: Iterable[Node], *kinds: type) -> list[Any]:
    """The nodes of some classes in `roots`, a node before what is in it."""
    found: list[Any] = []
    for root in roots:
        visit(root, *((kind, found.append) for kind in kinds))
    return found


def may_divide_by_zero(root: Node) -> bool:
    """Return whether something in `root` divides by other than a positive constant, or a maximum with one."""
    divisors = (one.b for one in nodes_in([root], prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod))
    sides = ((one.a, one.b) if type(one) is prim.Max else (one,) for one in divisors)
    return not all(any(type(one) is prim.IntImm and one.value > 0 for one in side) for side in sides)


@cache
def _index_of(kind: type) -> int:
    """The number of a class of TVM's, by which it tells callbacks what they are for."""
    return int(tvm_ffi.core.TypeSchema.from_annotation(kind).origin_type_index)


def span_given(value: Node) -> Span | None:
    """The span that TVM has for `value`; None where it has none.  Its `file` is not said."""
    span = getattr(value, "span", None)
    return None if span is None else Span("", span.line, span.column, span.end_line, span.end_column)


def bindings_in(body: Node) -> Iterator[BindingNode]:
    """All bindings of a function's body, those of branches and local functions behind the others."""
    pending = [body]
    while pending:
        seq = pending.pop()
        for block in elements(seq.blocks) if type(seq) is relax.SeqExpr else ():
            for binding in elements(block.bindings):
                yield binding
                value = binding.value
                if type(value) is relax.If:
                    pending += (value.true_branch, value.false_branch)
                elif type(value) is relax.Function:
                    pending.append(value.body)


def relax_functions(module: Node) -> dict[str, relax.Function]:
    """The Relax functions of a module by name, in that order; none of what is no module."""
    every = module.functions_items() if isinstance(module, tvm.IRModule) else ()
    return {v.name_hint: f for v, f in every if isinstance(f, relax.Function)}


def calls_of(module: Node, operators: Collection[str]) -> Iterator[tuple[BindingNode, Sequence[Node]]]:
    """The bindings of calls of `operators` in a module, with the arguments of each."""
    wanted = {tvm.ir.Op.get(name).__chandle__() for name in operators}
    for function in relax_functions(module).values():
        for binding in bindings_in(function.body):
            value = binding.value
            if type(value) is tvm.ir.Call and value.op.__chandle__() in wanted:
                yield binding, elements(value.args)


def constant_extent(value: Node) -> int | None:
    """The value of an integer literal."""
    return int(value.value) if type(value) is prim.IntImm else None


def same_extent(left: Node, right: Node) -> bool:
    """Return whether two scalar expressions are written alike."""
    number = constant_extent(left)
    if number is not None:
        return number == constant_extent(right)
    return bool(tvm_ffi.structural_equal(left, right))


# -- TVM's error texts, fit for a person: without stacks, addresses and dumps of its own objects -----------


_STACK = ("File ", "at ", "Traceback", "Stack trace", "During handling")
_CHECK = re.compile(r"Check failed: (?:\(.*?\) is false: |.*? : )", re.DOTALL)
_ADDRESS = re.compile(r" 0x[0-9a-f]{6,}")
_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)', re.DOTALL)
_MOST_CHARACTERS = 600


def error_text(error: BaseException, most: int = 4) -> str:
    """The first `most` lines of the message of `error` that say something, else the name of its type.

    The check that failed is left out where TVM says in words what it means.
    """
    text = _ADDRESS.sub("", _OPERATOR.sub(r"\1", str(error)))
    said = _lines(_CHECK.sub("", text), most) or _lines(text, most)
    if len(said) > _MOST_CHARACTERS:
        said = said[:_MOST_CHARACTERS] + " …"
    return said or type(error).__name__


@contextmanager
def run_error(what: str, most: int = 4) -> Iterator[None]:
    """Raise whatever TVM raises within as RunError: `what`, and the first `most` lines of TVM's message."""
    try:
        yield
    except Exception as error:  # passes, code generators, kernels: all raise whatever they raise
        raise RunError(f"{what}: {error_text(error, most)}") from None


def _lines(text: str, most: int) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join([line for line in lines if line and not line.startswith(_STACK)][:most])
