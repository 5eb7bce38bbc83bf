"""What a function needs besides its arenas: the tensors it returns, and its kernels' own workspace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from symalloc.plan.aliases import Aliases, Value, aliases, tokens
from symalloc.plan.live import allocations
from symalloc.plan.workspace import Scratch, Take
from symalloc.program.casts import extent_pairs
from symalloc.program.kernel_call import bind_kernel
from symalloc.program.model import (
    AllocFresh,
    Block,
    CallFunction,
    CallKernel,
    CallPacked,
    ConstantTensor,
    Function,
    If,
    Operand,
    Program,
    TupleValue,
    Var,
)
from symalloc.program.operands import type_of
from symalloc.program.types import TensorType, TupleType, Type
from symalloc.size.expr import Expr, symbol
from symalloc.size.operations import maximum

__all__ = ["KernelUse", "Outside", "Returned", "outside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A tensor that the function allocates and returns; `nbytes` is None where its size is not known.

    `allocations` are the variables that it may have been allocated as.
    """

    nbytes: Expr | None
    allocations: frozenset[Var]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """A kernel that takes workspace (`scratch`, over the function's symbols), and how often it is called."""

    kernel: str
    scratch: Scratch
    calls: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Memory of one call of a function that lies in no arena, in bytes over the function's symbols.

    `calls` holds what each kernel call takes from the pool, in order, both sides of an If one after the
    other; `kernels` the same once for each kernel and size.  `packed` names the packed functions that are
    called: what those take is not known.
    """

    returned: tuple[Returned, ...] = ()
    calls: tuple[Scratch, ...] = ()
    kernels: tuple[KernelUse, ...] = ()
    packed: tuple[str, ...] = ()


def outside(function: Function, program: Program, scratch: Mapping[str, Scratch]) -> Outside:
    """What `function` needs outside its arenas; `scratch` holds the workspace of the kernels by name.

    The kernels of the functions that it calls count as its own; recursion is not followed.
    """
    known = aliases(function, program)
    walk = _Walk(program=program, scratch=scratch)
    found = list(walk.block(function.body, {}, (function.name,)))
    return Outside(
        returned=tuple(_returned(function, known)),
        calls=tuple(use.scratch for use in found),
        kernels=_distinct(found),
        packed=tuple(sorted(walk.packed)),
    )


# -- workspace ---------------------------------------------------------------------------------------------


class _Walk:
    """Follows the calls of a function in the order of the text."""

    def __init__(self, *, program: Program, scratch: Mapping[str, Scratch]) -> None:
        self.program = program
        self.scratch = scratch
        self.packed: set[str] = set()

    def block(self, block: Block, bound: Mapping[str, Expr], callers: tuple[str, ...]) -> Iterator[KernelUse]:
        """The kernel calls of `block`; `bound` gives its symbols in those of the outermost function."""
        for instruction in block.instructions:
            match instruction:
                case CallKernel(kernel=kernel, arguments=arguments):
                    taken = self.scratch.get(kernel, Scratch())
                    if taken or taken.problem is not None:
                        values = _composed(bind_kernel(self.program.kernels[kernel], arguments), bound)
                        yield KernelUse(kernel=kernel, scratch=_in_symbols_of_caller(taken, values))
                case CallPacked(name=name):
                    self.packed.add(name)
                case If(then=then, otherwise=otherwise):
                    yield from self.block(then, bound, callers)
                    yield from self.block(otherwise, bound, callers)
                case CallFunction(name=name) if name in self.program.functions and name not in callers:
                    callee = self.program.functions[name]
                    values = _composed(_arguments(callee, instruction), bound)
                    yield from self.block(callee.body, values, (*callers, name))


def _in_symbols_of_caller(taken: Scratch, values: Mapping[str, Expr]) -> Scratch:
    open_ = frozenset().union(*(step.size.symbols for step in taken.steps if isinstance(step, Take)))
    if open_ <= values.keys():
        return taken.substitute(values)
    return Scratch(problem="its workspace depends on extents that the call leaves open")


def _arguments(callee: Function, call: CallFunction) -> dict[str, Expr]:
    """The values of the callee's symbols; those that it defines itself are called `callee.symbol`."""
    found: dict[str, Expr] = {}
    for param, argument in zip(callee.params, call.arguments, strict=False):
        for actual, declared in extent_pairs(type_of(argument), param.type):
            if declared.as_symbol is not None:
                found.setdefault(declared.as_symbol, actual)
    return {name: found.get(name, symbol(f"{callee.name}.{name}")) for name in callee.symbols}


def _composed(values: Mapping[str, Expr], bound: Mapping[str, Expr]) -> dict[str, Expr]:
    return {name: value.substitute(bound) for name, value in values.items()}


def _distinct(uses: list[KernelUse]) -> tuple[KernelUse, ...]:
    """Equal uses once, with the number of calls, in the order of the first."""
    found: dict[tuple[str, Scratch], KernelUse] = {}
    for use in uses:
        key = (use.kernel, use.scratch)
        found[key] = replace(use, calls=found[key].calls + 1) if key in found else use
    return tuple(found.values())


# -- results -----------------------------------------------------------------------------------------------


def _returned(function: Function, known: Aliases) -> Iterator[Returned]:
    """Each tensor in the result once, without parameters and constants handed on."""
    owned = {a.var: a for a in allocations(function.body)}
    params = frozenset(function.params)
    seen: set[frozenset[Var]] = set()
    for kind, found in _leaves(function.body.result, known):
        if found in seen or (found and found <= params):
            continue
        if found:
            seen.add(found)
        mine = frozenset(found & owned.keys())
        nbytes = _largest([owned[var] for var in mine]) if kind.nbytes is None else kind.nbytes
        yield Returned(nbytes=nbytes, allocations=mine)


def _leaves(result: Operand, known: Aliases) -> Iterator[tuple[TensorType, frozenset[Var]]]:
    """The tensors of a result, and the allocations and parameters that each may be."""
    if isinstance(result, TupleValue):
        for item in result.items:
            yield from _leaves(item, known)
    elif not isinstance(result, ConstantTensor):
        value = known.values.get(result, frozenset()) if isinstance(result, Var) else frozenset()
        yield from _typed(type_of(result), value)


def _typed(kind: Type, value: Value) -> Iterator[tuple[TensorType, frozenset[Var]]]:
    if isinstance(kind, TensorType):
        yield kind, tokens(value)
    elif isinstance(kind, TupleType):
        for index, field in enumerate(kind.fields):
            whole = isinstance(value, tuple) and len(value) == len(kind.fields)
            yield from _typed(field, value[index] if whole and isinstance(value, tuple) else tokens(value))


def _largest(allocated: Iterable[AllocFresh]) -> Expr | None:
    sizes = [TensorType(shape=a.shape, dtype=a.dtype).nbytes for a in allocated]
    known = [size for size in sizes if size is not None]
    return maximum(*known) if known and len(known) == len(sizes) else None
