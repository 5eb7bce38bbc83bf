"""FoldChecks: what a function checks at its entry becomes part of the function that computes its shapes.

A kernel of its own takes each symbol from the shape heap as a scalar, by a call each.  Stands behind
VMShapeLower and in front of TrimCalls, while those scalars serve one call each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, TupleType

from symalloc.relax.extract.buffer_accesses import buffer_accesses
from symalloc.relax.extract.host_functions import CHECKS
from symalloc.relax.extract.shape_heap import ALLOCATES, MAKE_SLOT, MATCH_STORE
from symalloc.relax.ir_types import (
    BindingNode,
    CallNode,
    Node,
    VarNode,
    bindings_in,
    elements,
    of_type,
    with_parameters,
    with_variables,
)
from symalloc.relax.rewrite import free_name, with_body

_MAKE = "vm.builtin.make_prim_value"  # (heap, code, cell)
_MATCH_SHAPE = "vm.builtin.match_shape"  # (value, heap, number of extents, a code and a cell for each, text)
_PASSED_OVER = frozenset({"vm.builtin.check_tensor_info", "vm.builtin.check_shape_info"})


@tvm.transform.module_pass(opt_level=0, name="FoldChecks")
class FoldChecks:
    """Moves the checks that stand behind the match_shapes of parameters into the function of shapes there, in
    front of what it stores; where there is none, they read the shape heap themselves.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with fewer calls; it accepts the same shapes, and says the same of others."""
        functions = [(v, f) for v, f in module.functions_items() if isinstance(f, relax.Function)]
        entries = [(v, f, entry) for v, f in functions if (entry := _entry(module, f)).checks]
        if not entries:
            return module
        folded = module.clone()
        bodies = [f.body for _, f in functions]
        calls = Counter(getattr(b.value, "op", b).__chandle__() for body in bodies for b in bindings_in(body))
        for variable, function, entry in entries:
            kernel = _kernel(module, entry)
            for replaced in (binding.value.op for binding in entry.replaced):
                if calls[replaced.__chandle__()] == 1:
                    del folded[replaced]
            folded.update_func(variable, _folded(folded, function, entry, kernel))
        return folded


@dataclass(slots=True)
class _Entry:
    """A function's first bindings.  Its `heap` has `size` cells.  `stored` are those that its parameters gave
    values, `loads` the scalars made of cells, by address: the binding and the cell.
    """

    heap: VarNode | None = None
    size: int = 0
    stored: set[int] = field(default_factory=set)
    shapes: BindingNode | None = None
    checks: list[BindingNode] = field(default_factory=list)
    loads: dict[int, tuple[BindingNode, int]] = field(default_factory=dict)

    @property
    def replaced(self) -> Sequence[BindingNode]:
        """The calls in place of which there will be one."""
        return [*([] if self.shapes is None else [self.shapes]), *self.checks]

    def cell(self, scalar: Node) -> int | None:
        """The cell that an argument was made of, where a parameter gave it its value."""
        _, cell = self.loads.get(scalar.__chandle__(), (None, None))
        return cell if cell in self.stored else None


def _entry(module: tvm.IRModule, function: relax.Function) -> _Entry:
    """The entry of a function, up to its first call that does anything else, or stores what is checked."""
    entry = _Entry()
    body = function.body
    blocks = elements(body.blocks) if isinstance(body, relax.SeqExpr) else []
    for binding in elements(blocks[0].bindings) if blocks else ():
        if not _belongs(module, entry, binding):
            break
    return entry


def _belongs(module: tvm.IRModule, entry: _Entry, binding: BindingNode) -> bool:
    """Return whether `binding` belongs to the entry, which notes it."""
    call = binding.value
    if type(call) is not Call:
        return False
    arguments = elements(call.args)
    if type(call.op) is GlobalVar:
        return _belongs_as_kernel(module, entry, binding, arguments)
    if type(call.op) is not relax.ExternFunc:
        if entry.heap is not None or ALLOCATES not in [getattr(a, "global_symbol", None) for a in arguments]:
            return False
        entry.heap, entry.size = binding.var, int(arguments[1].fields[0].value)
        return True
    name = str(call.op.global_symbol)
    if name == _MATCH_SHAPE and entry.shapes is None and not entry.checks:
        codes = [int(a.value) for a in arguments[3:-1]]
        entry.stored.update(c for code, c in zip(codes[::2], codes[1::2], strict=True) if code == MATCH_STORE)
        return True
    if name == _MAKE and arguments[1].value == MAKE_SLOT:
        entry.loads[binding.var.__chandle__()] = binding, int(arguments[2].value)
        return True
    return name in _PASSED_OVER


def _belongs_as_kernel(
    module: tvm.IRModule, entry: _Entry, binding: BindingNode, arguments: Sequence[Node]
) -> bool:
    kernel = module[binding.value.op]
    heap = entry.heap
    if not isinstance(kernel, tirx.PrimFunc) or heap is None:
        return False
    if entry.shapes is None and not entry.checks and len(arguments) == 1 and arguments[0].same_as(heap):
        entry.shapes = binding
        return True
    if not _checks(kernel) or None in map(entry.cell, arguments):
        return False
    entry.checks.append(binding)
    return True


def _checks(kernel: tirx.PrimFunc) -> bool:
    """Return whether `kernel` is one of TVM's or ours that gets numbers, and does nothing but check them."""
    attributes = kernel.attrs
    if attributes is None or not attributes.get("tirx.is_host_func") or "global_symbol" in attributes:
        return False
    numbers = all(type(p.ty) is tvm.ir.PrimType for p in elements(kernel.params))
    checking = all(type(s) in CHECKS for s in _statements(kernel))
    return numbers and checking and not buffer_accesses(kernel.body).leaves_early


def _statements(kernel: tirx.PrimFunc) -> list[Node]:
    body = kernel.body
    return elements(body.seq) if type(body) is tirx.SeqStmt else [body]


def _folded(
    module: tvm.IRModule, function: relax.Function, entry: _Entry, kernel: tirx.PrimFunc
) -> relax.Function:
    """`function` with one call of `kernel`, which is added to `module`, for its shapes and checks."""
    taken = {v.name_hint for v in module.get_global_vars()}
    shapes = relax.BlockBuilder().add_func(kernel, free_name(entry.checks[0].value.op.name_hint, taken))
    module.update_func(shapes, kernel)
    call = relax.VarBinding(entry.replaced[0].var, Call(shapes, [entry.heap], ret_ty=TupleType([])))
    body = _without(function.body, entry, call, kept=frozenset())
    used = frozenset(var.__chandle__() for var in relax.analysis.free_vars(body))
    if not used.isdisjoint(entry.loads):  # the module's author gave a scalar a name
        body = _without(function.body, entry, call, kept=used)
    return with_body(function, body)


def _without(seq: relax.SeqExpr, entry: _Entry, call: BindingNode, kept: Collection[int]) -> relax.SeqExpr:
    """The body of a function with `call` for its shapes and checks; of their scalars those stay in `kept`."""
    given = {a.__chandle__() for check in entry.checks for a in check.value.args}.difference(kept)
    gone = {entry.loads[scalar][0].__chandle__() for scalar in given}
    gone.update(binding.__chandle__() for binding in entry.replaced[1:])
    first = entry.replaced[0]
    block, *blocks = elements(seq.blocks)
    bindings = [
        call if b.same_as(first) else b for b in elements(block.bindings) if b.__chandle__() not in gone
    ]
    return of_type(relax.SeqExpr([type(block)(bindings), *blocks], seq.body), seq.ty)


def _kernel(module: tvm.IRModule, entry: _Entry) -> tirx.PrimFunc:
    """The checks, then the stores of the function of shapes."""
    made = entry.checks[0] if entry.shapes is None else entry.shapes
    model = module[made.value.op]
    if entry.shapes is None:
        heap, stores = (
            tirx.decl_buffer([tirx.IntImm("int64", entry.size)], "int64", "H", layout=None),
            list[Node](),
        )
    else:
        heap, stores = model.params[0], _statements(model)
    checks = [s for check in entry.checks for s in _on_cells(module, entry, check.value, heap)]
    statements = [*checks, *stores]
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    return with_parameters(model, [heap], body)


def _on_cells(module: tvm.IRModule, entry: _Entry, call: CallNode, heap: VarNode) -> Iterator[Node]:
    """The statements of a check that read the cells of `heap` in place of its parameters."""
    kernel = module[call.op]
    cells = [tirx.BufferLoad(heap, [tirx.IntImm("int64", entry.cell(a))]) for a in elements(call.args)]
    for statement in _statements(kernel):
        yield with_variables(statement, list(zip(elements(kernel.params), cells, strict=True)))
