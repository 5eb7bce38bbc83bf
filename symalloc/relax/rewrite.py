"""Rewriting Relax functions binding by binding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeAlias

import tvm
from tvm import relax
from tvm.ir import GlobalVar
from tvm.relax.utils import copy_with_new_vars

from symalloc.errors import UsageError
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import Instruction
from symalloc.program.operands import instructions_of
from symalloc.relax.ir_types import BindingNode, Node, bound, elements, free_name, of_type


def map_functions(
    module: tvm.IRModule, rewrite: Callable[[str, relax.Function], relax.Function | None]
) -> tvm.IRModule:
    """`module` with each Relax function replaced by what `rewrite` makes of it; None leaves it as it is."""
    changed: dict[GlobalVar, relax.Function] = {}
    for variable, function in module.functions_items():
        made = rewrite(variable.name_hint, function) if isinstance(function, relax.Function) else None
        if made is not None:
            changed[variable] = made
    return with_functions(module, changed)


def with_functions(module: tvm.IRModule, functions: Mapping[GlobalVar, Node]) -> tvm.IRModule:
    """`module` with these functions in it; the same object where there are none."""
    if not functions:
        return module
    changed = module.clone()
    for variable, function in functions.items():
        changed.update_func(variable, function)
    return changed


def with_body(
    function: relax.Function, body: relax.SeqExpr, arguments: Sequence[relax.Var] = ()
) -> relax.Function:
    """`function` with another body, and with further parameters behind its own."""
    return relax.Function(
        [*elements(function.params), *arguments],
        body,
        function.ret_ty,
        is_pure=function.is_pure,
        attrs=function.attrs,
        span=function.span,
    )


def forced_pure(function: relax.Function) -> relax.Function:
    """`function`, marked as pure where it was: TVM takes calls of packed functions in it for impure."""
    return function.with_attr("relax.force_pure", True) if function.is_pure else function


def copied(function: relax.Function) -> relax.Function | None:
    """`function` with variables of its own; None where TVM cannot copy it: where a type holds a call, such as
    `if_then_else`.
    """
    try:
        return copy_with_new_vars(function)
    except tvm.error.InternalError:
        return None


def referenced(functions: Iterable[Node]) -> frozenset[str]:
    """The names that the Relax functions among `functions` refer to."""
    some = (f for f in functions if isinstance(f, relax.Function))
    return frozenset(v.name_hint for f in some for v in relax.analysis.all_global_vars(f))


def without(module: tvm.IRModule, names: Collection[str]) -> tvm.IRModule:
    """`module` less the functions of these names."""
    kept = {v: f for v, f in module.functions_items() if v.name_hint not in names}
    return tvm.IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)


class ModuleDraft:
    """A module under way; `functions` take the place of others, or are new."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.module = module
        self.functions: dict[GlobalVar, Node] = {}
        self._taken = {v.name_hint for v in module.get_global_vars()}

    def add(self, wanted: str, function: Node, *, public: bool = False) -> GlobalVar:
        """Add a function called `wanted`, or with a number behind it; only the module itself calls it, unless
        it is `public`.
        """
        return self.add_exactly(free_name(wanted, self._taken), function, public=public)

    def add_exactly(self, name: str, function: Node, *, public: bool = True) -> GlobalVar:
        """Add a function of this name; raises UsageError where the module has another one."""
        if name in self._taken:
            raise UsageError(f"the module has a function `{name}` already: rename it")
        self._taken.add(name)
        attribute = "global_symbol"
        named = function.with_attr(attribute, name) if public else function.without_attr(attribute)
        # a builder gives the variable its type; one that held the module would look through all of it
        variable = relax.BlockBuilder().add_func(named, name)
        self.functions[variable] = named
        return variable

    def finished(self) -> tvm.IRModule:
        """The module with these functions."""
        return with_functions(self.module, self.functions)

    def without_unused(self) -> tvm.IRModule:
        """The module with these functions, less the private ones that nothing calls any more."""
        if not self.functions:
            return self.module
        written, private = self.finished(), referenced(self.module.functions.values())
        private -= {v.name_hint for v, f in written.functions_items() if "global_symbol" in (f.attrs or {})}
        while gone := private - referenced(written.functions.values()):
            written, private = without(written, gone), private - gone
        return written


def by_binding(cfg: ControlFlowGraph) -> dict[int, Instruction]:
    """The instructions of a function by the addresses of TVM's bindings."""
    handles: Iterable[tuple[Any, Instruction]] = ((i.handle, i) for i in instructions_of(cfg.function.body))
    return {handle.__chandle__(): instruction for handle, instruction in handles if handle is not None}


@dataclass(slots=True, kw_only=True)
class BindingRewriter:
    """Rebuilds sequences of bindings; a subclass says in `rewrite` what stands for a binding.

    The branches of an If are rebuilt as well.  What nothing changes in stays the same object.
    """

    _builder: relax.BlockBuilder | None = field(default=None, init=False)

    @property
    def builder(self) -> relax.BlockBuilder:
        """The builder that infers types of new values; made when it is first needed, which takes its time."""
        if self._builder is None:
            self._builder = relax.BlockBuilder()
        return self._builder

    def rewritten(self, function: relax.Function) -> relax.Function | None:
        """`function` with its body rebuilt; None where that changes nothing."""
        body = function.body
        written = self.sequence(body)
        return None if written is body else with_body(function, written)

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        """The bindings that stand for `binding`."""
        return [self.branches(binding) if type(binding.value) is relax.If else binding]

    def sequence(self, seq: relax.SeqExpr, entry: Sequence[relax.Binding] = ()) -> relax.SeqExpr:
        """`seq` rebuilt, behind the bindings `entry`, in normal form as these are."""
        given, result = elements(seq.blocks), seq.body
        blocks, value = list(map(self.block, given)), self.value(result)
        if not entry and value is result and all(map(is_, blocks, given)):
            return seq
        if entry:
            blocks.insert(0, relax.BindingBlock(list(entry)))
        return of_type(relax.SeqExpr(blocks, value, seq.span), seq.ty)

    def value(self, value: Node) -> Node:
        """The value that stands for a condition, or for what a sequence yields."""
        return value

    def block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        """A block rebuilt."""
        given = elements(block.bindings)
        written = [new for old in given for new in self.rewrite(old)]
        same = len(written) == len(given) and all(map(is_, written, given))
        return block if same else type(block)(written)

    def branch(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """One side of an If rebuilt."""
        return self.sequence(seq)

    def branches(self, binding: BindingNode) -> relax.VarBinding:
        """The binding of an If rebuilt."""
        value = binding.value
        given, condition = (value.true_branch, value.false_branch), value.cond
        sides, test = tuple(map(self.branch, given)), self.value(condition)
        if test is condition and all(map(is_, sides, given)):
            return binding
        chosen = relax.If(test, *sides, value.span)
        alike = all(
            side.ty is not None and side.ty.same_as(old.ty) for side, old in zip(sides, given, strict=True)
        )
        made = of_type(chosen, value.ty) if alike and value.ty is not None else self.builder.normalize(chosen)
        return bound(binding.var, made)

    def bind(self, name: str, value: Node) -> relax.VarBinding:
        """A binding of `value` to a new variable."""
        value = self.builder.normalize(value)
        return relax.VarBinding(relax.Var(name, value.ty), value)


StandIn: TypeAlias = Callable[[str, BindingNode], Sequence[relax.Binding] | None]
"""What stands for a binding in the function of a name; None leaves it as it is."""


def map_bindings(module: tvm.IRModule, stand_in: StandIn) -> tvm.IRModule:
    """`module` with what stands for the bindings of its functions, those of branches among them."""
    return map_functions(module, lambda name, f: _BindingMap(function=name, stand_in=stand_in).rewritten(f))


@dataclass(slots=True, kw_only=True)
class _BindingMap(BindingRewriter):
    function: str
    stand_in: StandIn

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        found = self.stand_in(self.function, binding)
        return BindingRewriter.rewrite(self, binding) if found is None else found
