"""TVM's compilation pipelines with the memory planner of one's choice in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, Op, PrimType, TupleType
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.relax.transform import ComputePrimValue
from tvm.target import Target

from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.packed_contracts import packed_contract
from symalloc.program.reading import PipelineName
from symalloc.relax.ir_types import (
    NOTHING,
    BindingNode,
    Node,
    TypeNode,
    VarNode,
    bound,
    effect,
    elements,
    of_type,
    typed_call,
    typed_var,
)
from symalloc.relax.passes.canonical_kernels import (
    NAMED_STORAGE,
    NAMED_TENSOR,
    WITH_MACHINE,
    NameTensors,
    canonical_kernels,
)
from symalloc.relax.passes.plan_pass import PlanMemory
from symalloc.relax.passes.sizes_and_guards import GatherSizes, LowerGuards
from symalloc.relax.passes.stages import (
    KILLS,
    OPAQUE,
    PLANNER,
    STORAGES_MADE,
    captures_graphs,
    opened,
    passes_run_by,
    passes_run_everywhere_by,
    run_pass,
    tvm_pipeline,
)
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body, with_functions
from symalloc.relax.source_spans import Places

_COPY = "vm.builtin.copy"  # gives what it is given, copied or not
_PROMISE = "tirx.noalias"
_NO_READERS = frozenset({"RewriteCUDAGraph", "LowerGPUIPCAllocStorage"})


class NoPlannerError(Exception):
    """A pipeline runs no pass that plans memory: there is no place for ours."""


tvm_ffi.register_error(NoPlannerError)  # or it leaves TVM's pass runner as a RuntimeError


def pipeline(
    target: str | Target | None = None,
    *,
    pipeline: PipelineName | Pass = "default",
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    names: bool = False,
) -> Pass:
    """A pipeline for `relax.build(mod, target, relax_pipeline=…)` that plans memory with PlanMemory.

    `pipeline`: one with StaticPlanBlockMemory in it, or the name of one, as for `tvm_pipeline`.  Without
    `target` it is built for the target that is current when it runs.  `names`: with NameTensors.
    """
    return _run_with(lambda: _Passes(options=options, names=names, places=names), target, pipeline)


def lower(
    module: tvm.IRModule, target: str | Target, *, pipeline: PipelineName | Pass = "default"
) -> tvm.IRModule:
    """`module` as it is where memory is planned: behind CallTIRRewrite, with the places of its calls."""
    return _run_with(lambda: _Passes(part="front", places=True), target, pipeline)(module)


def finishing_pipeline(
    target: str | Target, *, pipeline: PipelineName | Pass = "default", names: bool = False
) -> Pass:
    """The passes behind memory planning: what no planner has placed gets a storage each.

    `names`: with NameTensors.
    """
    return _run_with(lambda: _Passes(part="behind", names=names, places=names), target, pipeline)


@contextmanager
def replace_planner(options: PlanOptions, *, names: bool = False) -> Iterator[Mapping[str, str]]:
    """Within, pipelines that this thread runs plan with PlanMemory where TVM's planner stands.

    Gives what bounds="auto" stood for in each function so far.
    """
    passes = _Passes(options=options, names=names)
    with passes_run_by(passes.each):
        yield passes.picked


def replace_planner_everywhere(options: PlanOptions) -> None:
    """Let all threads do so from now on, except where `replace_planner` says otherwise."""
    passes_run_everywhere_by(_Passes(options=options).each)


def _run_with(
    passes: Callable[[], _Passes], target: str | Target | None, pipeline: PipelineName | Pass
) -> Pass:
    """`pipeline` as one pass, whose own passes are run by what `passes` makes."""
    fixed = None if target is None else Target(target)

    @tvm.transform.module_pass(opt_level=0, name="symalloc")  # type: ignore[untyped-decorator]
    def run(module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        now = fixed or Target.current(allow_none=True) or Target("llvm")
        whole = pipeline if isinstance(pipeline, Pass) else tvm_pipeline(now, pipeline)
        ours = passes()
        ours.given = frozenset(v.name_hint for v in module.get_global_vars())
        with now, passes_run_by(ours):
            behind: tvm.IRModule = (ours if isinstance(whole, Sequential) else run_pass)(whole, module)
        if PLANNER not in ours.met:
            ran = ", ".join(ours.met) or "nothing"
            raise NoPlannerError(f"the pipeline has no {PLANNER}, whose place is ours; it runs {ran}")
        return behind

    return run


@dataclass(slots=True, kw_only=True)
class _Passes:
    """Runs the passes that a pipeline calls, and ours beside them.

    PlanMemory with `options` stands where TVM's planner stands, and says what it has `picked`.  `part`: what
    stands on the other side of the planner is left out.
    `names`: tensors are named as soon as every storage is explicit.  `places`: up to there, what is allocated
    keeps the place that it comes from.  `given` are the names of the functions that the module had at first,
    `met` those of TVM's passes so far.
    """

    options: PlanOptions | None = None
    picked: dict[str, str] = field(default_factory=dict)
    part: Literal["whole", "front", "behind"] = "whole"
    names: bool = False
    places: bool = False
    given: frozenset[str] = frozenset()
    met: dict[str, None] = field(default_factory=dict)
    _places: Places | None = None

    def each(self, called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        """The same of a module of its own: what it holds now was given."""
        ours = replace(self, given=frozenset(v.name_hint for v in module.get_global_vars()), met={})
        with passes_run_by(ours):
            return ours(called, module)

    def __call__(self, called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        """`module` behind the pass or the sequence `called`."""
        before, passes = "", list(opened(called))
        for number, one in enumerate(passes, 1):
            for step in self._beside(one, before, passes[number:]):
                module = self._run(step, module)
            before = str(one.info.name)
        return module

    def _run(self, one: Pass, module: tvm.IRModule) -> tvm.IRModule:
        if self.places and self._places is None:
            self._places = Places()
            self._places.note(module)
        behind = run_pass(Sequential([one]), module)
        if one.info.name == "NameTensors":
            self.places, self._places = False, None
        return behind if self._places is None else self._places.restored(module, behind)

    def _beside(self, one: Pass, before: str, rest: Sequence[Pass]) -> Iterator[Pass]:
        """`one`, which stands between the pass `before` and the `rest`, and ours that belong to it.

        Not every pipeline has ComputePrimValue: none of TVM's plans has offsets to compute.
        """
        name, behind = str(one.info.name), PLANNER in self.met
        if name == OPAQUE:  # its own passes come here by themselves
            yield one
            return
        self.met.setdefault(name)
        if name == PLANNER:
            yield from self._planning(rest)
            return
        if self.part != "whole" and behind is (self.part == "front"):
            return
        if name == "RewriteCUDAGraph" and captures_graphs():
            yield KeepConditions()
        if name == "ComputePrimValue":
            yield from (LowerGuards(), GatherSizes())
        elif name == "VMShapeLower" and before != "ComputePrimValue":
            yield from (LowerGuards(), GatherSizes(), ComputePrimValue())
        if name != KILLS:  # KillOnPaths makes them
            yield one
        if name == "VMShapeLower":
            yield from (KillOnPaths(), PromiseNoAlias())
        if self.names and name == STORAGES_MADE:
            yield NameTensors()

    def _planning(self, rest: Sequence[Pass]) -> Iterator[Pass]:
        """Yield the passes in the place of TVM's planner."""
        if self.part != "behind":
            wrap = tvm.transform.module_pass(opt_level=0, name="CanonicalKernels")
            yield wrap(lambda module, _: canonical_kernels(module, self.given))
        if self.options is not None:
            options = self.options
            if options.bounds == "auto":
                options = replace(options, read_by=_reader(rest))
            yield PlanMemory(options, self.picked)


def _reader(behind: Iterable[Pass]) -> str:
    """Return that a pass of somebody else stands where storages can be counted, as LLM compilers do; "" where
    none does.
    """
    for one in behind:
        if one.info.name == STORAGES_MADE:
            return ""
        if one.info.name not in _NO_READERS:
            return f"{one.info.name} may count storages"
    return "passes that may count storages can follow"


# -- small passes ------------------------------------------------------------------------------------------


@tvm.transform.module_pass(opt_level=0, name="KeepConditions")
class KeepConditions:
    """Lets each If depend on a variable that is bound outside of every region that can be captured.

    TVM 0.27's RewriteCUDAGraph, in front of which it stands, takes no notice of the condition of an If: what
    computes it is captured, and the condition itself is left undefined.  It captures no packed function that
    is called vm.builtin, and knows what such a call uses.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with one call more for each If."""
        return map_functions(module, lambda _, function: _ConditionKeeper().rewritten(function))


class _ConditionKeeper(BindingRewriter):
    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is not relax.If:
            return [binding]
        copy = Call(relax.ExternFunc(_COPY), [value.cond], ty_args=[value.cond.ty])
        condition = self.bind("condition", copy)
        sides = (self.branch(value.true_branch), self.branch(value.false_branch))
        chosen = self.builder.normalize(relax.If(condition.var, *sides, value.span))
        return [condition, relax.VarBinding(binding.var, chosen)]


@tvm.transform.module_pass(opt_level=0, name="PromiseNoAlias")
class PromiseNoAlias:
    """Promises for functions of at most one buffer, which no other can overlap, that buffers do not overlap.

    TVM 0.27 writes the kernels of a module one after the other, and whether the last by name has the promise
    decides for all of them.  Functions of shapes, guards and offsets have not, and stand behind kernels such
    as `conv2d`: without the promise these take up to three times as long.  Stands behind VMShapeLower.
    A module
    with a kernel of several buffers without that promise stays as it is: that could be compiled as if it had
    one.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with the promise in each of its kernels, or as it was."""
        kernels = [(v, f) for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
        without = [(v, f) for v, f in kernels if f.attrs is None or not f.attrs.get(_PROMISE)]
        for _, kernel in without:
            if sum(type(p.ty) is not tvm.ir.PrimType for p in elements(kernel.params)) > 1:
                return module
        return with_functions(module, {v: kernel.with_attr(_PROMISE, True) for v, kernel in without})


# -- memory goes on each path behind its last use there ----------------------------------------------------


_KILL = Op.get("relax.vm.kill_object")
_EMPTY = relax.ExternFunc("vm.builtin.tuple_reset_item")

_ALLOC_STORAGE, _ALLOC_TENSOR = "relax.vm.alloc_storage", "relax.vm.alloc_tensor"
_LIES_ON_FIRST = frozenset({_ALLOC_TENSOR, "vm.builtin.reshape", "runtime.TVMTensorCreateView"})


@tvm.transform.module_pass(opt_level=0, name="KillOnPaths")
class KillOnPaths:
    """Drops each handle behind its last use on each path, where that can free memory before more is taken.

    Stands behind VMShapeLower, in place of TVM's KillAfterLastUse.  That one drops nothing behind an If that
    was there before it, nor on the path that does not use a tensor, nor what a call returns and nothing uses;
    and the machine keeps what a branch yields in a register of the branch, which nothing outside can drop.
    So a branch whose value must go later yields it in a tuple, which is emptied behind the If.

    Nor does TVM's pass ask whether a kill frees anything.  Handles of tensors are dropped one by one,
    although their memory goes only with the last of them; where nothing is allocated between that moment and
    the end of the function, the end drops them just as well.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its kills made anew; what it computes is the same."""
        return map_functions(module, lambda _, function: _KillWriter().rewritten(function))


@dataclass(slots=True)
class _Ahead:
    """The part of a path that is ahead of a place, up to the end of the function.

    `live` are the variables, by address, that it uses; the memory of `lasting` storages stays to the end of
    each path from there, whatever is dropped.  `allocates`: it may take memory.
    """

    live: set[int]
    lasting: set[int]
    allocates: bool = False


@dataclass(slots=True, kw_only=True)
class _KillWriter(BindingRewriter):
    """Writes one function from its end to its start.

    `order` numbers its variables, by address, as they are bound.  `owned` are those whose registers may hold
    what no parameter holds; `storages` tells the storage that such a variable is, or lies on, where that is
    known.  `killed` are the variables that are dropped further on.
    """

    order: dict[int, int] = field(default_factory=dict)
    owned: dict[int, VarNode] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    changed: bool = False

    def rewritten(self, function: relax.Function) -> relax.Function | None:
        """`function` with its kills made anew; None where it has none and needs none."""
        body = function.body
        self.read(body, {param.__chandle__() for param in elements(function.params)})
        live = set(_addresses_in(body.body))
        ahead = _Ahead(live, {self.storages[one] for one in live if one in self.storages})
        block = relax.BindingBlock(self.bindings(body, ahead))
        if not self.changed:
            return None
        return with_body(function, of_type(relax.SeqExpr([block], body.body, body.span), body.ty))

    def read(self, seq: relax.SeqExpr, lent: set[int]) -> None:
        """Take up the bindings of a sequence; what `lent` variables hold something else holds as well."""
        for block in elements(seq.blocks):
            for binding in elements(block.bindings):
                address, value = binding.var.__chandle__(), binding.value
                self.order[address] = len(self.order)
                if type(value) is relax.If:
                    self.owned[address] = binding.var
                    self.read(value.true_branch, lent)
                    self.read(value.false_branch, lent)
                else:
                    self.read_value(binding.var, value, lent)

    def read_value(self, var: VarNode, value: Node, lent: set[int]) -> None:
        address, called = var.__chandle__(), _called(value)
        if called in _LIES_ON_FIRST or type(value) in (tvm.ir.Var, relax.TupleGetItem):
            under = next(iter(_addresses_in(value)), 0)  # a view may be of a constant
            if under in lent:
                lent.add(address)
                return
            if under in self.storages:
                self.storages[address] = self.storages[under]
        elif called == _ALLOC_STORAGE:
            self.storages[address] = address
        elif type(value) not in (Call, relax.Tuple):  # a constant has no register, which a kill could empty
            lent.add(address)
            return
        if called != WITH_MACHINE.name:
            self.owned[address] = var

    # -- from the end to the start ---------------------------------------------------------------------------

    def bindings(self, seq: relax.SeqExpr, ahead: _Ahead) -> list[relax.Binding]:
        """The bindings of a sequence with their kills; `ahead` is then what is ahead of the sequence."""
        turned: list[relax.Binding] = []
        for block in reversed(elements(seq.blocks)):
            for binding in reversed(elements(block.bindings)):
                turned += reversed(self.with_kills(binding, ahead))
        return turned[::-1]

    def with_kills(self, binding: BindingNode, ahead: _Ahead) -> list[relax.Binding]:
        """A binding with the kills behind it; those that are there already go."""
        address, value = binding.var.__chandle__(), binding.value
        called = _called(value)
        if called == _KILL.name:
            self.changed = True
            return []
        if type(value) is relax.If:
            behind = self.kills([address], ahead)
            return [*self.chosen(binding, ahead), *behind]
        used = _addresses_in(value)
        behind = self.kills((*used, address), ahead)
        ahead.live.update(used)
        if called is not None and called != _ALLOC_TENSOR:  # a kernel may allocate, for its scratch
            ahead.allocates = ahead.allocates or packed_contract(called).allocates
        return [binding, *behind]

    def kills(self, variables: Iterable[int], ahead: _Ahead) -> list[relax.Binding]:
        """The kills of those variables that nothing ahead uses; none where nothing is allocated there."""
        ended = [one for one in dict.fromkeys(variables) if one not in ahead.live]
        if not ahead.allocates:
            ahead.lasting.update(self.storages[one] for one in ended if one in self.storages)
            return []
        found = [one for one in ended if one in self.owned and self.storages.get(one) not in ahead.lasting]
        found = [one for one in found if _holds_memory(self.owned[one].ty)]
        self.killed.update(found)
        self.changed = self.changed or bool(found)
        return [_killed(self.owned[one]) for one in found]

    def chosen(self, binding: BindingNode, ahead: _Ahead) -> list[relax.Binding]:
        """An If, whose branches first drop what only the other one, or the condition, needs.

        They yield tuples where what they yield is dropped further on.
        """
        address, value = binding.var.__chandle__(), binding.value
        carries, given = address in self.killed, (value.true_branch, value.false_branch)
        paths = [replace(ahead, live=set(ahead.live), lasting=set(ahead.lasting)) for _ in given]
        ends = [self.side(seq, path, carries) for seq, path in zip(given, paths, strict=True)]
        ahead.live = paths[0].live.union(paths[1].live, _addresses_in(value.cond))
        # TVM's planner uses storages of a branch outside of it, too
        before = [one for one in ahead.live if self.order.get(one, len(self.order)) < self.order[address]]
        before.sort(key=self.order.__getitem__)
        starts = [self.kills(before, path) for path in paths]
        ahead.lasting = paths[0].lasting & paths[1].lasting
        ahead.allocates = paths[0].allocates or paths[1].allocates
        sides = [
            relax.SeqExpr([relax.BindingBlock([*start, *bindings])], result)
            for start, (bindings, result) in zip(starts, ends, strict=True)
        ]
        chosen = relax.If(value.cond, *map(self.builder.normalize, sides), value.span)
        if not carries:
            return [relax.VarBinding(binding.var, self.builder.normalize(chosen))]
        carried = self.bind(f"{binding.var.name}_carried", chosen)
        taken = relax.VarBinding(binding.var, self.builder.normalize(relax.TupleGetItem(carried.var, 0)))
        return [carried, taken, effect(_EMPTY, [carried.var, relax.prim_value(0)])]

    def side(self, seq: relax.SeqExpr, path: _Ahead, carries: bool) -> tuple[list[relax.Binding], relax.Expr]:
        """The bindings of a branch, and what it yields: a tuple with that where it `carries` it."""
        value, used = seq.body, _addresses_in(seq.body)
        dropped = self.kills(used, path) if carries else []
        path.live.update(used)
        bindings = self.bindings(seq, path)
        if not carries:
            return bindings, value
        if not isinstance(value, relax.Tuple):
            carried = self.bind("carried", relax.Tuple([value]))
            return [*bindings, carried, *dropped], carried.var
        fields = self.bind("yielded", value)  # within the other tuple its register would have no name
        carried = self.bind("carried", relax.Tuple([fields.var]))
        return [*bindings, fields, *dropped, carried, _killed(fields.var)], carried.var


def _killed(variable: VarNode) -> BindingNode:
    return bound(typed_var("_", NOTHING), typed_call(_KILL, [variable], NOTHING))


def _called(value: Node) -> str | None:
    """The operator or packed function that a value calls, "" for a function or a kernel; None for no call.

    What NameTensors has named is the same allocation.
    """
    if type(value) is not Call:
        return None
    op = value.op
    if type(op) is relax.ExternFunc:
        symbol = str(op.global_symbol)
        return _ALLOC_TENSOR if symbol == NAMED_TENSOR else symbol
    name = str(op.name) if type(op) is Op else ""
    named = name == WITH_MACHINE.name and value.args[0].global_symbol == NAMED_STORAGE.global_symbol
    return _ALLOC_STORAGE if named else name


def _addresses_in(value: Node) -> list[int]:
    """The addresses of the variables in a value that is no If."""
    kind: type = type(value)
    if kind is relax.Function:
        return [one.__chandle__() for one in relax.analysis.free_vars(value)]
    if kind is Call:
        parts: Sequence[Node] = [value.op, *elements(value.args)]
    elif kind is relax.Tuple:
        parts = elements(value.fields)
    else:
        parts = [value.tuple_value if kind is relax.TupleGetItem else value]
    found = [part.__chandle__() for part in parts if type(part) is tvm.ir.Var]
    return found + [one for part in parts if type(part) is relax.Tuple for one in _addresses_in(part)]


def _holds_memory(type_: TypeNode) -> bool:
    """Return whether a value of this type may hold a tensor."""
    if type(type_) is TupleType:
        return any(map(_holds_memory, elements(type_.fields)))
    return type(type_) not in (relax.ShapeType, PrimType)
