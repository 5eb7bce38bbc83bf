"""Memory that a caller gives: parameters for arenas, checks at entry, and functions that tell their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tvm
from tvm import relax, tirx
from tvm.ir import PrimType, StringImm

from symalloc.planner.memory_plan import Plan
from symalloc.planner.planner_options import GuardKind
from symalloc.program import ir
from symalloc.program.types import ALIGNMENT, TensorType, type_leaves
from symalloc.relax.emit.prim_builder import GuardWriter, PrimBuilder
from symalloc.relax.ir_types import Node, VarNode, bound, effect, elements, free_name, typed_var
from symalloc.relax.rewrite import ModuleDraft
from symalloc.size.choice import select
from symalloc.size.condition import conjunction
from symalloc.size.expr import ONE, ZERO, Expr

_BYTES = PrimType("int64")
_DATA, _OFFSET, _VALUE = 1, 8, 15  # of TVM's TVMStructFieldKind
_MISPLACED = f"does not begin at a multiple of {ALIGNMENT}, with a byte_offset of 0"
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenArena:
    """A parameter `var` for an arena of `size` bytes; as many as `extent` says are given."""

    size: Expr
    var: VarNode
    extent: VarNode


class _HandedOver(NamedTuple):
    """Memory that a caller hands over, and its bytes: 1 where they are not known."""

    name: str
    value: Node
    nbytes: Expr
    device: int


@dataclass(slots=True, kw_only=True)
class CallerMemory:
    """The memory that the caller of one function gives: arenas by device and scope, at least one where it
    `takes_arenas`, be it empty; and its last parameters, as many as `results` says.
    """

    module: tvm.IRModule
    plan: Plan
    seen: ir.Function
    takes_arenas: bool
    results: int
    places: Mapping[tuple[int, str], GivenArena] = field(init=False)

    def __post_init__(self) -> None:
        sizes = {(a.device, a.scope): a.size for a in self.plan.arenas if a.given}
        if self.takes_arenas and not sizes:
            sizes = {(0, "global"): ZERO}
        devices = elements(self.module.global_infos.get("vdevice", ()))
        found, taken = {}, {p.name for p in self.seen.params}
        for index, (place, size) in enumerate(sizes.items()):
            name = free_name(f"arena{_suffix(index)}", taken, lambda n: "_" * n)
            extent = tirx.Var(f"{name}_bytes", "int64")
            device = devices[place[0]] if place[0] < len(devices) else None
            kind = relax.TensorType(relax.ShapeExpr([extent]), "uint8", device)
            found[place] = GivenArena(size=size, var=typed_var(name, kind), extent=extent)
        self.places = found

    @property
    def params(self) -> Sequence[VarNode]:
        """The parameters."""
        return [one.var for one in self.places.values()]

    def checks(
        self, guards: GuardWriter, draft: ModuleDraft, function: relax.Function
    ) -> Iterator[relax.Binding]:
        """The checks that arenas are large enough, that what is given begins at a multiple of ALIGNMENT, and
        that it overlaps nothing else that a caller hands over.
        """
        used = {place: one for place, one in self.places.items() if one.size != ZERO}
        for one in used.values():
            yield guards.arena(one.size, one.extent)
        count = len(self.seen.params) - self.results
        given, _ = self.stretches(guards, function, range(count, len(self.seen.params)))
        for place, one in used.items():
            given.append(_HandedOver(one.var.name, one.var, one.size, place[0]))
        if not given:
            return
        inputs, fields = self.stretches(guards, function, range(count))
        yield from fields
        for device in dict.fromkeys(one.device for one in given):
            here, others = ([one for one in some if one.device == device] for some in (given, inputs))
            symbols = sorted(frozenset().union(*(one.nbytes.symbols for one in (*here, *others))))
            kernel = _memory_check(self.plan.function, here, others, symbols)
            added = draft.add(f"{self.plan.function}_memory", kernel, public=True)
            arguments = [one.value for one in (*here, *others)]
            arguments += [guards.prims.variables[name] for name in symbols]
            yield effect(relax.ExternFunc(added.name_hint), arguments, "guard")

    def stretches(
        self, guards: GuardWriter, function: relax.Function, numbers: Iterable[int]
    ) -> tuple[list[_HandedOver], list[relax.Binding]]:
        """The tensors in some parameters, and bindings that take them out of tuples."""
        found, bindings = list[_HandedOver](), list[relax.Binding]()
        for number in numbers:
            seen, param = self.seen.params[number], function.params[number]
            for path, kind in type_leaves(seen.type):
                if not isinstance(kind, TensorType):
                    continue
                value, ty = param, param.ty
                for index in path:
                    ty = ty.fields[index]
                    part = typed_var("part", ty)
                    bindings.append(bound(part, relax.TupleGetItem(value, index)))
                    value = part
                nbytes = ONE if kind.nbytes is None else kind.nbytes
                nbytes = nbytes if nbytes.symbols <= guards.prims.variables.keys() else ONE
                found.append(_HandedOver(seen.name, value, nbytes, kind.device))
        return found, bindings

    def tell_bytes(self, draft: ModuleDraft, kind: GuardKind, function: relax.Function) -> None:
        """Add the functions that tell their bytes, for the symbols in the order in which the parameters of
        `function` name them first; they raise at shapes at which it does.
        """
        name, entry = self.plan.function, [g for g in self.plan.guards if g.defined_by is None]
        known: dict[int, str] = {v.__chandle__(): symbol for symbol, v in self.seen.variables.items()}
        params = elements(function.params)
        named = (v.__chandle__() for p in params for v in (p, *relax.analysis.tir_vars_in_type(p.ty)))
        names = list(dict.fromkeys(known[handle] for handle in named if handle in known))
        for index, one in enumerate(self.places.values()):
            symbols, size = {name: tirx.Var(name, "int64") for name in names}, one.size
            prims = PrimBuilder(symbols)
            guards = GuardWriter(kind=kind, function=name, prims=prims)
            checks = [] if kind == "fallback" else list(guards.each(entry))
            if kind == "fallback":
                size = select(conjunction(g.check for g in entry), size, ZERO)
            told = typed_var("nbytes", _BYTES)
            block = relax.BindingBlock([*checks, bound(told, prims(size))])
            shape = typed_var("symbols", relax.ShapeType(list(symbols.values())))
            body = relax.BlockBuilder().normalize(relax.SeqExpr([block], told))
            made = relax.Function([shape], body, _BYTES, is_pure=True).with_attr("relax.force_pure", True)
            draft.add_exactly(f"{name}_bytes{_suffix(index)}", made)


def _suffix(index: int) -> str:
    return f"_{index}" if index else ""


def _memory_check(
    function: str, given: Sequence[_HandedOver], inputs: Sequence[_HandedOver], symbols: Sequence[str]
) -> tirx.PrimFunc:
    """The kernel that raises unless each tensor that is `given`, and has bytes, begins at a multiple of
    ALIGNMENT, at offset 0, and shares no byte with another.

    It fills a table: where each tensor begins, then its bytes, -1 if it overlaps one that is given before.  A
    pointer is no number for TVM's compiler, but a slot for arguments may hold either.
    """
    tensors = [*given, *inputs]
    count, scalars = len(tensors), {name: tirx.Var(name, "int64") for name in symbols}
    prims, handles = PrimBuilder(scalars), [tirx.Var(f"tensor{i}", "handle") for i in range(count)]
    table, tensor = tirx.Var("table", "handle"), tirx.Var("tensor", "handle")
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")

    def get(source: VarNode, index: Any, kind: int, dtype: str) -> Any:
        return tirx.call_intrin(dtype, "tirx.tvm_struct_get", source, index, kind)

    def put(index: Any, value: Node) -> Node:
        return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_struct_set", table, index, _VALUE, value))

    def begin(index: Any) -> Any:
        return get(table, index, _VALUE, "int64")

    def nbytes(index: Any) -> Any:
        return begin(count + index)

    def claim(holds: Node, complaint: str) -> Node:
        return tirx.AssertStmt(holds, StringImm("ValueError"), [StringImm(f"{function}: {complaint}")])

    def each(index: VarNode, end: Any, body: Node) -> Node:
        return tirx.For(index, 0, end, tirx.ForKind.SERIAL, body)

    body = [tirx.Bind(table, tirx.call_intrin("handle", "tirx.tvm_stack_alloca", "tvm_ffi_any", 2 * count))]
    for number, one in enumerate(tensors):
        body += put(number, handles[number]), put(count + number, prims(one.nbytes))
    offset = tirx.Cast("int64", get(tensor, 0, _OFFSET, "uint64"))
    taken = tirx.Bind(tensor, get(table, k, _VALUE, "handle"))
    address = put(k, get(tensor, 0, _DATA, "handle")), put(k, begin(k) + offset)
    body.append(each(k, count, tirx.SeqStmt([taken, *address])))
    empty = tirx.Or(nbytes(i) == 0, nbytes(j) == 0)
    apart = tirx.Or(begin(i) + nbytes(i) <= begin(j), begin(j) + nbytes(j) <= begin(i))
    mark = tirx.IfThenElse(tirx.Not(tirx.Or(empty, apart)), put(count + i, tirx.IntImm("int64", -1)), None)
    body.append(each(i, count, each(j, tirx.min(i, len(given)), mark)))
    for number, one in enumerate(given):
        in_place = get(handles[number], 0, _OFFSET, "uint64") == tirx.IntImm("uint64", 0)
        aligned = tirx.FloorMod(begin(number), tirx.IntImm("int64", ALIGNMENT)) == 0
        holds = tirx.Or(nbytes(number) == 0, tirx.And(aligned, in_place))
        body.append(claim(holds, f"`{one.name}` {_MISPLACED}"))
    for number, one in enumerate(tensors[1:], start=1):
        names = [f"`{other.name}`" for other in given[:number]]
        what = " or ".join(names) if len(names) <= _MOST_NAMES else "what is given for results"
        body.append(claim(nbytes(number) >= 0, f"`{one.name}` overlaps {what}"))
    params = [*handles, *scalars.values()]
    return tirx.PrimFunc(params, tirx.SeqStmt(body)).with_attr("tirx.is_host_func", True)
