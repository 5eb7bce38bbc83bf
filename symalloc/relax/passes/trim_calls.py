"""TrimCalls: leaves out calls that repeat others, and kills that free nothing.

Stands behind VMShapeLower.  There every shape and every scalar is a call that reads the function's shape
heap, whose cells are written once: a second call with the same cells gives the same value.  Handles of
tensors are dropped one by one, although their memory goes only with the last of them; where nothing is
allocated between that moment and the end of the function, the end drops them just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import is_

import tvm
from tvm import relax, tirx
from tvm.ir import Call, Op

from symalloc.program.tvm_functions import packed_function
from symalloc.relax.extract.shape_heap import MATCH_STORE
from symalloc.relax.ir_types import BindingNode, Node, VarNode, bindings_in, bound, elements, with_arguments
from symalloc.relax.rewrite import BindingRewriter, map_functions

_ALLOC_STORAGE = "relax.vm.alloc_storage"
_ALLOC_TENSOR = "relax.vm.alloc_tensor"
_KILL = "relax.vm.kill_object"
_MATCH = "vm.builtin.match_prim_value"  # (value, heap, what to do, cell, message)
_MAKE = "vm.builtin.make_prim_value"
_MAKE_SHAPE = "vm.builtin.make_shape"  # (heap, extents, a code and a cell or number for each)
_READS = frozenset({_MAKE_SHAPE, _MAKE})


@tvm.transform.module_pass(opt_level=0, name="TrimCalls")
class TrimCalls:
    """Makes each shape and scalar once, where it is first wanted, and leaves out kills that free nothing."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with fewer calls; what it computes, and the most it holds, is the same."""
        return map_functions(module, lambda _, f: _Trimmer(lasting=_lasting_storages(f)).rewritten(f))


def _called(value: Node) -> str:
    """The operator or packed function that a value calls; "" for anything else."""
    if type(value) is not Call:
        return ""
    op = value.op
    if type(op) is relax.ExternFunc:
        return str(op.global_symbol)
    return str(op.name) if type(op) is Op else ""


def _may_allocate(value: Node) -> bool:
    """Return whether a value is a call that may take memory; a kernel may, for its scratch."""
    if type(value) is not Call:
        return False
    name = _called(value)
    if isinstance(value.op, relax.ExternFunc):
        return packed_function(name).allocates
    return name not in (_ALLOC_TENSOR, _KILL)


# -- kills ---------------------------------------------------------------------------------------------------


def _lasting_storages(function: relax.Function) -> set[int]:
    """The storages, by address, of which a handle is dropped where nothing that could allocate is called any
    more: no other of their kills frees anything before that.

    None of a function that branches: there KillOnPaths leaves those that count.
    """
    written = [*bindings_in(function.body)]
    values = [binding.value for binding in written]
    if relax.If in map(type, values):
        return set()
    behind = takewhile(lambda value: not _may_allocate(value), reversed(values))
    killed = [elements(value.args)[0] for value in behind if _called(value) == _KILL]
    addresses = {var.__chandle__() for var in killed}
    found = set[int]()
    for binding, value in zip(written, values, strict=True) if killed else ():
        var = binding.var.__chandle__()
        name = _called(value) if var in addresses else ""
        if name == _ALLOC_STORAGE:
            found.add(var)
        elif name == _ALLOC_TENSOR:
            found.add(elements(value.args)[0].__chandle__())
    return found


# -- shapes and scalars --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Trimmer(BindingRewriter):
    """`lasting` are the storages whose kills go, and the tensors on them.  `made` holds, by builtin and
    arguments, the variable of each value made so far on this path; `instead` what stands for a variable that
    is bound no more.
    """

    lasting: set[int]
    made: dict[tuple[object, ...], VarNode] = field(default_factory=dict)
    instead: dict[int, VarNode] = field(default_factory=dict)

    def value(self, value: Node) -> Node:
        """The value with what stands now for the variables in it; the same object where that is the same."""
        kind: type = type(value)
        if kind is relax.Tuple:
            fields = elements(value.fields)
            renewed = list(map(self.value, fields))
            return value if all(map(is_, renewed, fields)) else relax.Tuple(renewed)
        if kind is relax.TupleGetItem:
            given = value.tuple_value
            taken = self.value(given)
            return value if taken is given else relax.TupleGetItem(taken, value.index)
        return self.instead.get(value.__chandle__(), value)

    def branch(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """One side of an If: what is made there is not known behind it."""
        outside = self.made
        self.made = dict(outside)
        written = self.sequence(seq)
        self.made = outside
        return written

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is relax.If:
            return [self.branches(binding)]
        name, arguments = _called(value), elements(value.args) if type(value) is Call else []
        if name == _KILL:
            return [] if arguments[0].__chandle__() in self.lasting else [binding]
        if name in _READS and self.is_made(name, binding.var, arguments):
            return []
        if name == _ALLOC_TENSOR and arguments[0].__chandle__() in self.lasting:
            self.lasting.add(binding.var.__chandle__())
        if name == _MATCH:
            self.note(arguments)
        if type(value) is Call:
            given = list(map(self.value, arguments))
            renewed = value if all(map(is_, given, arguments)) else with_arguments(value, given)
        else:
            renewed = self.value(value)
        if renewed is value:
            return [binding]
        if isinstance(binding, relax.MatchCast):
            return [relax.MatchCast(binding.var, renewed, binding.ty)]
        return [bound(binding.var, renewed)]

    def is_made(self, name: str, var: VarNode, arguments: Sequence[Node]) -> bool:
        """Return whether the value of a call that reads the heap was made before; the known one then stands
        for it.
        """
        made = self.made.setdefault((name, *map(_cell, arguments)), var)
        if made is not var:
            self.instead[var.__chandle__()] = made
        return made is not var

    def note(self, match: Sequence[Node]) -> None:
        """A scalar that is put into a cell of the heap need not be read from it."""
        value, heap, code, cell, *_ = match
        if code.value == MATCH_STORE:
            self.made.setdefault((_MAKE, *map(_cell, (heap, code, cell))), self.value(value))


def _cell(argument: Node) -> int:
    """An argument of a call that reads the heap: the heap itself, or an integer literal."""
    return int(argument.value) if type(argument) is tirx.IntImm else int(argument.__chandle__())
