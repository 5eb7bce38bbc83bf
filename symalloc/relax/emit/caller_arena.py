"""The arena that a caller gives: the parameter, its check at entry, and the function that tells its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import tvm
from tvm import relax, tirx
from tvm.ir import PrimType, StringImm

from symalloc.planner.memory_plan import Plan
from symalloc.planner.planner_options import GuardKind
from symalloc.program import ir
from symalloc.program.types import ALIGNMENT
from symalloc.relax.emit.guard_calls import NOTHING, GuardWriter
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.ir_types import Node, VarNode, bound, elements, typed_call, typed_var
from symalloc.relax.rewrite import ModuleDraft
from symalloc.size.choice import select
from symalloc.size.condition import conjunction
from symalloc.size.expr import ZERO, Expr

_BYTES = PrimType("int64")
_DATA, _OFFSET, _VALUE = 1, 8, 15  # of TVM's TVMStructFieldKind
_MISPLACED = f"does not begin at a multiple of {ALIGNMENT}, with a byte_offset of 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenArena:
    """A parameter `var` for an arena of `size` bytes; as many as `extent` says are given."""

    size: Expr
    var: VarNode
    extent: VarNode


@dataclass(slots=True, kw_only=True)
class CallerArenas:
    """The arenas that the caller of one function gives, by device and scope; at least one, be it empty."""

    module: tvm.IRModule
    plan: Plan
    seen: ir.Function
    places: Mapping[tuple[int, str], GivenArena] = field(init=False)

    def __post_init__(self) -> None:
        sizes = {(a.device, a.scope): a.size for a in self.plan.arenas if a.given} or {(0, "global"): ZERO}
        devices = elements(self.module.global_infos.get("vdevice", ()))
        found, taken = {}, {p.name for p in self.seen.params}
        for index, (place, size) in enumerate(sizes.items()):
            names = (f"arena{_suffix(index)}{'_' * tail}" for tail in count())
            name = next(name for name in names if name not in taken)
            extent = tirx.Var(f"{name}_bytes", "int64")
            device = devices[place[0]] if place[0] < len(devices) else None
            kind = relax.TensorType(relax.ShapeExpr([extent]), "uint8", device)
            found[place] = GivenArena(size=size, var=typed_var(name, kind), extent=extent)
        self.places = found

    @property
    def params(self) -> Sequence[VarNode]:
        """The parameters."""
        return [one.var for one in self.places.values()]

    def checks(self, guards: GuardWriter, draft: ModuleDraft) -> Iterator[relax.Binding]:
        """The checks that each of them is large enough, and begins at a multiple of ALIGNMENT."""
        for one in self.places.values():
            if one.size != ZERO:
                yield bound(typed_var("guard", NOTHING), guards.arena(one.size, one.extent))
                yield bound(typed_var("guard", NOTHING), self.aligned(draft, one))

    def aligned(self, draft: ModuleDraft, one: GivenArena) -> Node:
        """The call that raises unless an arena begins at a multiple of ALIGNMENT."""
        kernel = _alignment_check(f"{self.plan.function}: `{one.var.name}` {_MISPLACED}")
        added = draft.add(f"{self.plan.function}_aligned", kernel, public=True)
        return typed_call(relax.ExternFunc(added.name_hint), [one.var, one.extent], NOTHING, [NOTHING])

    def tell_bytes(self, draft: ModuleDraft, kind: GuardKind, function: relax.Function) -> None:
        """Add the functions that tell their bytes, for the symbols in the order in which the parameters of
        `function` name them first; they raise at shapes at which it does.
        """
        name, entry = self.plan.function, [g for g in self.plan.guards if g.defined_by is None]
        for index, one in enumerate(self.places.values()):
            symbols = {s: tirx.Var(s, "int64") for s in symbols_named(function, self.seen)}
            size = one.size
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


def symbols_named(function: relax.Function, seen: ir.Function) -> Sequence[str]:
    """The symbols that the parameters of a function bind, in the order in which they are named first."""
    known: dict[int, str] = {v.__chandle__(): name for name, v in seen.variables.items()}
    named = (v for p in elements(function.params) for v in (p, *relax.analysis.tir_vars_in_type(p.ty)))
    return list(dict.fromkeys(known[v.__chandle__()] for v in named if v.__chandle__() in known))


def _alignment_check(complaint: str) -> tirx.PrimFunc:
    """The kernel that raises unless a tensor of some bytes begins at a multiple of ALIGNMENT, at offset 0.

    A pointer is no number for TVM's compiler: it goes through a slot for arguments, which may hold either.
    """
    tensor, slot, nbytes = tirx.Var("tensor", "handle"), tirx.Var("slot", "handle"), tirx.Var("n", "int64")

    def get(source: VarNode, kind: int, dtype: str) -> Node:
        return tirx.call_intrin(dtype, "tirx.tvm_struct_get", source, 0, kind)

    set_slot = tirx.call_intrin("int32", "tirx.tvm_struct_set", slot, 0, _VALUE, get(tensor, _DATA, "handle"))
    offset = tirx.Cast("int64", get(tensor, _OFFSET, "uint64"))  # kernels of TVM take none but 0
    aligned = tirx.FloorMod(get(slot, _VALUE, "int64"), tirx.IntImm("int64", ALIGNMENT)) == 0
    holds = tirx.Or(nbytes == 0, tirx.And(aligned, offset == 0))
    body = tirx.SeqStmt(
        [
            tirx.Bind(slot, tirx.call_intrin("handle", "tirx.tvm_stack_alloca", "tvm_ffi_any", 1)),
            tirx.Evaluate(set_slot),
            tirx.AssertStmt(holds, StringImm("ValueError"), [StringImm(complaint)]),
        ]
    )
    return tirx.PrimFunc([tensor, nbytes], body).with_attr("tirx.is_host_func", True)
