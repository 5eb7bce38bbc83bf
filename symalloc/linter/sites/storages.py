"""Sites of sizes and places: tensors on storages, views, byte offsets, layouts, what a call may hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from symalloc.analysis.call_expansion import arguments_of, bind_kernel
from symalloc.analysis.kernels.coverage import Passes
from symalloc.analysis.misuses import is_read_besides
from symalloc.analysis.regions import Region, RegionKind
from symalloc.analysis.register_machine import Step
from symalloc.analysis.sets import RegionSet, contains
from symalloc.analysis.timeline import Timeline
from symalloc.linter.sites.kernels import argument_name, argument_site
from symalloc.linter.sites.site import (
    FunctionContext,
    ProgramContext,
    Site,
    caller_name,
    function_sites,
    instruction_sites,
    name_of,
    places_of,
    shape_text,
)
from symalloc.program import ir
from symalloc.program.control_flow import (
    ControlFlowGraph,
    PathCondition,
    PointKind,
    ProgramPoint,
    functions_as_values,
)
from symalloc.program.operands import extent_pairs, tensor_type
from symalloc.program.types import ScalarType, TensorType, byte_count
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum, select, undominated
from symalloc.size.condition import Condition, Relation, le
from symalloc.size.expr import ONE, ZERO, Expr, constant, evaluated, product, round_up, symbol

_TYPICAL = 1024  # the value of every symbol where moments are compared to point at one
_MOST_SUMS = 64  # of a formula that the prover is asked about
_LONG = 102  # characters of a formula that is not shown


class HeldMoment(NamedTuple):
    """The `size` bytes that a call holds once the instruction at `point` has taken its memory.

    `path`: the branches on which that is so.  `inner` are conditions that hold in the functions called then,
    in symbols of the caller.
    """

    size: Expr
    point: int
    path: PathCondition
    inner: frozenset[Condition]

    @property
    def typical(self) -> int:
        """The bytes at shapes that are neither small nor large."""
        return evaluated(self.size, dict.fromkeys(self.size.symbols, _TYPICAL)) or 0


def _moments(context: FunctionContext, timeline: Timeline) -> Iterator[HeldMoment]:
    """Yield the moments at which a call takes memory."""
    for number, size in timeline.formulas():
        step = timeline.steps[number]
        outer, inner = step.outermost, frozenset(_inner(step, context.shared))
        yield HeldMoment(size, context.analysis.cfg.starts[outer.var], outer.path, inner)


def _inner(step: Step, shared: ProgramContext) -> Iterator[Condition]:
    """Yield the conditions that hold in the functions called at a step, as the caller can tell them."""
    while step.frame.caller is not None:
        values = step.frame.values
        held = shared.holding(step.frame.name, step.path, step.var)
        told = (condition.substitute(values) for condition in held if condition.symbols <= values.keys())
        yield from (condition for condition in told if condition.as_bool is None)
        step = step.frame.caller


@function_sites("held-memory")
def held_memory(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Compare what a call holds with the budget: a site for each set of facts, the largest first."""
    limit, shared = context.shared.budget, context.shared
    if limit is None or not _reserves_memory(shared) or _counts_in_callers(context):
        return
    timeline = Timeline.of(context.program, context.function.name, kills="stock")
    groups: defaultdict[object, list[HeldMoment]] = defaultdict(list)
    for moment in () if timeline.problem else dict.fromkeys(_moments(context, timeline.known)):
        groups[context.facts.before[moment.point].guards, moment.path, moment.inner].append(moment)
    for group in sorted(groups.values(), key=lambda group: -max(moment.typical for moment in group)):
        yield min(moment.point for moment in group), _site(context, limit, group, timeline.doubt)
    if timeline.not_known is not None:  # what is known may be too much by itself
        yield 0, _undecided(context, limit, timeline.not_known)


def _reserves_memory(shared: ProgramContext) -> bool:
    """False for a module that takes no memory yet: TVM's passes put that in."""
    calls = (call for cfg in shared.graphs for _, call in cfg.of_type(ir.CallPacked))
    made = (ir.AllocStorage, ir.AllocFresh)
    return any(cfg.of_type(*made) for cfg in shared.graphs) or any(
        one.contract.takes == "state" for one in calls
    )


def _counts_in_callers(context: FunctionContext) -> bool:
    """True where only other functions of the program call a function: it counts with them."""
    name, graphs = context.function.name, context.shared.graphs
    called = {call.name for cfg in graphs for _, call in cfg.of_type(ir.CallFunction)}
    return context.function.private and name in called and name not in functions_as_values(graphs)


def _site(context: FunctionContext, limit: int, group: Sequence[HeldMoment], doubt: str | None) -> Site:
    """The site of moments at which the same is known; `doubt` says why the call may hold less."""
    signed = {name for name, origin in context.function.symbols.items() if origin is ir.Origin.SCALAR}
    sums = undominated((moment.size for moment in group), signed)
    if len(sums) > _MOST_SUMS:
        return _undecided(context, limit, f"{len(sums)} sums are more than are compared")
    largest = max(group, key=lambda moment: moment.typical)
    held = maximum(*sums) if sums else ZERO
    text = f"{held} B"
    return Site(
        kind="held-memory",
        instruction=context.instruction(largest.point),
        quantities={"held": held, "budget": constant(limit)},
        texts={
            "what": "memory",
            "amount": text if len(text) <= _LONG else f"the largest of {len(sums)} sums",
        },
        path=largest.path,
        uncertainty=doubt,
        passes=Passes(conditions=tuple(sorted(largest.inner, key=str))) if largest.inner else None,
        dedup_key="decided",
        several=True,
    )


def _undecided(context: FunctionContext, limit: int, why: str) -> Site:
    return Site(
        kind="held-memory",
        span=context.function.span,
        quantities={"budget": constant(limit)},
        texts={"what": "memory"},
        unknown=why,
        dedup_key="undecided",
        several=True,
    )


ALIGNMENT = constant(64)
"""Bytes that TVM's kernels expect a tensor's address to be a multiple of."""
PAGE = 4096
"""Bytes that TVM's allocators round a storage up to."""


def storages_of(context: FunctionContext, alloc: ir.AllocTensor) -> tuple[Region, ...]:
    """The storages that the tensor may lie on."""
    points_to = context.points_to
    alone = points_to.only_region(points_to.value_of(alloc.var))
    if alone is not None:
        return () if alone.parent is None else (points_to.regions[alone.parent],)
    return tuple(dict.fromkeys([storage for storage, _ in _placed(context, alloc)]))


def _placed(context: FunctionContext, alloc: ir.AllocTensor) -> Iterator[tuple[Region, PathCondition]]:
    """The storages that the tensor may lie on, each with the branches on which it does."""
    points_to = context.points_to
    found = [(points_to.regions[t.region].parent, t.path) for t in points_to.targets_of(alloc.var)]
    for parent, path in dict.fromkeys(found):
        if parent is not None:
            yield points_to.regions[parent], path


@instruction_sites(ir.AllocTensor)
def tensor_on_storage(context: FunctionContext, alloc: ir.AllocTensor) -> Iterator[Site]:
    """The sites of one alloc_tensor."""
    for storage, path in _placed(context, alloc):
        made = storage.instruction if isinstance(storage.instruction, ir.AllocStorage) else None
        size = storage.nbytes if storage.kind is RegionKind.STORAGE else None
        quantities = {"offset": alloc.offset, "alignment": ALIGNMENT}
        quantities["itemsize"] = constant(alloc.dtype.itemsize)
        if alloc.shape is not None:
            quantities["numel"] = product(alloc.shape)
            quantities["nbytes"] = product(alloc.shape) * alloc.dtype.itemsize
        if size is not None:
            quantities["storage.size"] = size
        known = size is not None or context.is_known_elsewhere(storage)
        texts = {
            "tensor": alloc.var.name,
            "storage": storage.name,
            "shape": shape_text(alloc.shape),
            "dtype": alloc.dtype.name,
            "device": str(alloc.device),
        }
        if made is not None:
            texts["storage.device"] = str(made.device)
            texts["storage.dtype"] = made.dtype.name if made.dtype is not None else "none"
        site = Site(
            kind="tensor-on-storage",
            quantities=quantities,
            unknown=None if known else f"the size of storage `{storage.name}` is not known here",
            doubt=made is not None,
            texts=texts,
            lazy_texts=partial(_noticed, quantities),
            places=places_of(storage=made),
            path=path,
        )
        yield site
        if made is not None and made.device != alloc.device:
            difference = f"device {alloc.device} against device {made.device}"
            yield replace(site, relation="placement-differs", texts={**texts, "difference": difference})


@function_sites("tensor-on-storage", expanded=True)
def tensors_on_storages_of_others(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The sites of tensors that a function places on a storage which another function reserved."""
    expansion = context.expansion
    if expansion is None:
        return
    for point, made in context.analysis.cfg.of_type(ir.AllocTensor):
        here = expansion.calls_to(made)
        storages = storages_of(context, made)
        if any(expansion.calls_to(storage.instruction) != here for storage in storages):
            yield from ((point, site) for site in tensor_on_storage(context, made))


def _noticed(quantities: dict[str, Expr], prover: Prover, domain: Domain) -> dict[str, str]:
    """The smallest binding at which TVM's own check, against whole pages, fails.

    Empty if none is hidden, or the one found is not proved smallest.
    """
    size, nbytes = quantities.get("storage.size"), quantities.get("nbytes")
    if size is None or nbytes is None:
        return {}
    end = quantities["offset"] + nbytes
    seen = le(end, round_up(size, PAGE))
    proof = prover.prove(seen, domain) if seen.as_bool is None else None
    point = proof.counterexample if proof is not None and proof.smallest else None
    if not point or point == prover.prove(le(end, size), domain).counterexample:
        return {}
    return {"noticed_at": ", ".join(f"{n} = {v}" for n, v in point.items())}


@function_sites("ignored-offset")
def ignored_offsets(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each tensor that may begin behind byte 0 where that may be overlooked, with the point."""
    cfg = context.analysis.cfg
    calls = cfg.of_type(ir.CallPacked, ir.CallFunction)
    for index in sorted((*cfg.joins, *(call for call, _ in calls))):
        point = cfg.points[index]
        for operand, offset, uncertainty in _given(context, point):
            if offset.terms:
                yield index, _byte_offset_site(point, operand, offset, uncertainty)


def _given(context: FunctionContext, point: ProgramPoint) -> Iterator[tuple[ir.Operand, Expr, str | None]]:
    """The tensors whose byte offsets a point may overlook: operand, offset, why it may be no fault."""
    points_to, instruction = context.points_to, point.instruction
    match instruction:
        case ir.If(test=test) if point.kind is PointKind.BRANCH:
            yield from ((test, offset, None) for offset in points_to.offsets(test))
        case ir.CallPacked(name=name, arguments=arguments, contract=known):
            if known.byte_offset == "respected":
                return
            ignored = known.byte_offset == "ignored"
            uncertainty = None if ignored else f"`{name}` may add the offset to the pointer"
            for argument in arguments:
                yield from ((argument, offset, uncertainty) for offset in points_to.offsets(argument))
        case ir.CallFunction(name=name) as call if name in context.shared.summaries:
            callee, summary = context.program.functions[name], context.shared.summaries[name]
            for number, (argument, leaf) in enumerate(points_to.argument_leaves(call.arguments, callee)):
                if contains(summary.ignores_offset, number):
                    yield from ((argument, offset, None) for offset in points_to.offsets_of(leaf))


def _byte_offset_site(
    point: ProgramPoint, operand: ir.Operand, offset: Expr, uncertainty: str | None
) -> Site:
    receiver = "the test of an If" if point.kind is PointKind.BRANCH else caller_name(point.instruction)
    return Site(
        kind="ignored-offset",
        quantities={"offset": offset},
        texts={"tensor": name_of(operand), "receiver": receiver},
        uncertainty=uncertainty,
    )


_PLAIN = frozenset({"", "global"})
_IPC = "ipc_memory"  # TVM lowers it where several GPUs work together
_SCOPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("llvm", "c", "metal", "vulkan", "webgpu"), _PLAIN),
    **dict.fromkeys(("cuda", "rocm"), _PLAIN | {_IPC}),
    "hexagon": _PLAIN | {"global.vtcm"},
}
"""Scopes that the allocators of a kind of device know; those of the other kinds are their own affair."""


@instruction_sites(ir.AllocStorage, ir.AllocTensor, ir.AllocFresh)
def memory_places(
    context: FunctionContext, made: ir.AllocStorage | ir.AllocTensor | ir.AllocFresh
) -> Iterator[Site]:
    """The device of an allocation among those of the module, and its scope among those of the device."""
    for problem, doubt, found in _misplaced(made, context.program.devices):
        yield Site(
            kind="memory-place",
            quantities={"device": ZERO, "devices": ONE, "scopes": ONE, **found},
            texts={"variable": made.var.name, "problem": problem},
            uncertainty=doubt,
        )


def _misplaced(
    made: ir.AllocStorage | ir.AllocTensor | ir.AllocFresh, kinds: Sequence[str]
) -> Iterator[tuple[str, str | None, Mapping[str, Expr]]]:
    """The faults of a place in words, the reason for which it may be none, and the quantities that tell."""
    if made.device < 0 or (kinds and made.device >= len(kinds)):
        there = f"the module names {len(kinds)}" if kinds else "devices are counted from 0"
        doubt = "the machine may be given more devices than the module names" if made.device >= 0 else None
        told = {"device": constant(made.device), "devices": constant(len(kinds))}
        yield f"device {made.device}, and {there}", doubt, told
    if isinstance(made, ir.AllocTensor) or made.scope in _PLAIN or made.device < 0:
        return
    kind, scope = kinds[made.device] if made.device < len(kinds) else "", f"scope `{made.scope}`"
    if kind in _SCOPES and made.scope not in _SCOPES[kind]:
        yield f"{scope}, which devices of kind `{kind}` do not have", None, {"scopes": ZERO}
    elif not kind and not made.scope.startswith(("global.", _IPC)):
        doubt = "it depends on the device, which the module does not name"
        yield f"{scope}, which allocators do not have", doubt, {"scopes": ZERO}


@function_sites("plan-condition")
def plan_conditions(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each condition that a plan rests on, where memory is used first and its symbols are known."""
    analysis, at, required = context.analysis, context.paths.at, context.function.required
    defined = _defined_later(analysis.cfg) if required else {}
    seen: set[tuple[Condition, tuple[Condition, ...]]] = set()
    for point, _ in analysis.cfg.instructions if required else ():
        known = context.facts.before[point].guards
        asked = [one for one in required if (one, known) not in seen]
        if not asked or not _uses_own_memory(context, analysis.effects[point].touched):
            continue
        for one in asked:
            late = (defined[name] for name in one.symbols & defined.keys())
            if all(binding < point and at[binding] <= at[point] for binding in late):
                seen.add((one, known))
                excess = select(one, ZERO, ONE)
                if isinstance(one, Relation) and one.operator == "<=":
                    excess = one.expr
                site = Site(
                    kind="plan-condition",
                    quantities={"excess": excess},
                    texts={"condition": str(one)},
                    promised=True,
                    dedup_key=("plan-condition", one),
                )
                yield point, site


def _uses_own_memory(context: FunctionContext, touched: RegionSet) -> bool:
    """True if some region lies in memory that the function reserves itself."""
    roots = (context.points_to.regions[root] for root in context.points_to.roots(touched))
    return any(isinstance(root.instruction, ir.AllocStorage | ir.AllocFresh) for root in roots)


def _defined_later(cfg: ControlFlowGraph) -> Mapping[str, int]:
    """The symbols that get their values behind the entry, with the points where they do."""
    given = {size for param in cfg.function.params for size, _ in extent_pairs(param.type, param.type)}
    found: dict[str, int] = {}
    for point, made in cfg.instructions:
        scalar = made.var.type.value if isinstance(made.var.type, ScalarType) else None
        names = made.defines if isinstance(made, ir.MatchCast) else {scalar.as_symbol if scalar else None}
        for name in names:
            if name is not None and symbol(name) not in given:
                found.setdefault(name, point)
    return found


@instruction_sites(ir.AllocStorage)
def storages(context: FunctionContext, storage: ir.AllocStorage) -> Iterator[Site]:
    """The site of one storage."""
    if storage.size is not None:
        yield Site(kind="storage", quantities={"size": storage.size}, texts={"storage": storage.var.name})


@instruction_sites(ir.AllocTensor, ir.AllocFresh, ir.View, ir.CallTIR)
def extents(
    context: FunctionContext, made: ir.AllocTensor | ir.AllocFresh | ir.View | ir.CallTIR
) -> Iterator[Site]:
    """One site for each extent of what is allocated or viewed; constants of at least 0 are left out."""
    for output in made.outputs if isinstance(made, ir.CallTIR) else (made,):
        shape = output.shape or ()
        for index, extent in enumerate(shape):
            if (extent.as_constant or 0) >= 0 and extent.as_constant is not None:
                continue
            yield Site(
                kind="extent",
                quantities={"extent": extent},
                texts={"tensor": made.var.name, "index": str(index), "shape": shape_text(shape)},
                dedup_key=extent,
            )


@instruction_sites(ir.AllocStorage, ir.AllocTensor, ir.AllocFresh, ir.CallTIR)
def byte_counts(
    context: FunctionContext, made: ir.AllocStorage | ir.AllocTensor | ir.AllocFresh | ir.CallTIR
) -> Iterator[Site]:
    """The sizes and ends that TVM computes in 64 bits."""
    for what, nbytes in _sizes(made):
        if nbytes.as_constant is not None and 0 <= nbytes.as_constant < 2**63:
            continue
        yield Site(
            kind="byte-count",
            quantities={"nbytes": nbytes},
            texts={"what": what},
            sized=True,
            dedup_key=(type(made), nbytes),
        )


def divisor_site(divisor: Expr, user: Site, made: ir.Instruction | None) -> Site:
    """The site of a divisor in a quantity of the site `user`, at the instruction `made`."""
    return Site(
        kind="divisor",
        instruction=user.instruction,
        span=user.span,
        quantities={"divisor": divisor},
        texts={"variable": made.var.name if made is not None else "the result"},
        dedup_key=("divisor", divisor),
    )


def _sizes(made: ir.Instruction) -> Iterator[tuple[str, Expr]]:
    name = made.var.name
    match made:
        case ir.AllocStorage(size=size) if size is not None:
            yield f"the size of storage `{name}`", size
        case ir.AllocTensor(offset=offset, shape=shape, dtype=dtype) if shape is not None:
            yield f"the end of tensor `{name}`", offset + product(shape) * dtype.itemsize
        case ir.AllocFresh(shape=shape, dtype=dtype) if shape is not None:
            yield f"the size of tensor `{name}`", product(shape) * dtype.itemsize
        case ir.CallTIR(outputs=outputs):
            for output in outputs:
                if output.nbytes is not None:
                    yield f"the size of tensor `{name}`", output.nbytes


@instruction_sites(ir.CallKernel, ir.CallTIR)
def buffer_layouts(context: FunctionContext, call: ir.CallKernel | ir.CallTIR) -> Iterator[Site]:
    """The sites of one call: what a buffer declares beside what its argument, which is row-major, has."""
    kernel = context.program.kernels.get(call.kernel)
    if kernel is None or not any(isinstance(p, ir.KernelBuffer) and p.layout for p in kernel.parameters):
        return
    for parameter, argument in zip(kernel.parameters, arguments_of(call), strict=False):
        if isinstance(parameter, ir.KernelBuffer):
            yield from _offset(context, call, parameter, argument)
            yield from _strides(context, call, parameter, argument)


def _offset(
    context: FunctionContext, call: ir.CallKernel | ir.CallTIR, buffer: ir.KernelBuffer, argument: ir.Operand
) -> Iterator[Site]:
    if buffer.layout is None or not buffer.layout.elem_offset or buffer.dtype is None:
        return
    expected = constant(buffer.layout.elem_offset * buffer.dtype.itemsize)
    name = argument_name(call, argument)
    for offset in dict.fromkeys(context.points_to.offsets(argument)) or (ZERO,):
        yield argument_site(call, name, buffer.name, "byte offset", offset, expected, kind="buffer-layout")


def _strides(
    context: FunctionContext, call: ir.CallKernel | ir.CallTIR, buffer: ir.KernelBuffer, argument: ir.Operand
) -> Iterator[Site]:
    kind, strides = tensor_type(argument), None if buffer.layout is None else buffer.layout.strides
    if strides is None or kind is None or kind.shape is None or len(kind.shape) != len(strides):
        return
    name = argument_name(call, argument)
    bound = bind_kernel(context.program.kernels[call.kernel], arguments_of(call))
    for axis, stride in enumerate(strides):
        if stride is not None and stride.symbols <= bound.keys():
            actual, expected = product(kind.shape[axis + 1 :]), stride.substitute(bound)
            if actual != expected:
                what = f"stride {axis}"
                yield argument_site(call, name, buffer.name, what, actual, expected, kind="buffer-layout")


@instruction_sites(ir.View)
def views(context: FunctionContext, view: ir.View) -> Iterator[Site]:
    """The site of a R.memory.view (does it lie in its source?) or of an ensure_zero_offset whose result is
    only read (is it no copy?).
    """
    source = tensor_type(view.source)
    if view.kind == "reshape" or source is None:
        return
    quantities = {"alignment": ALIGNMENT}
    offset = ZERO if view.kind == "ensure_zero_offset" else view.offset
    nbytes = _bytes(view, source)
    absolute = ZERO if view.var in context.written_views else absolute_offset(context, view)
    known = {"offset": offset, "nbytes": nbytes, "source.nbytes": source.nbytes, "absolute_offset": absolute}
    quantities.update({name: value for name, value in known.items() if value is not None})
    yield Site(
        kind="view",
        quantities=quantities,
        unknown="the offset or the extents of the view are not known here",
        texts={"tensor": view.var.name, "source": name_of(view.source), "kind": view.kind},
        places=places_of(source=context.definition(view.source)),
    )


@instruction_sites(ir.View)
def written_views(context: FunctionContext, view: ir.View) -> Iterator[Site]:
    """The site of an ensure_zero_offset whose result something writes (is it no copy?)."""
    writer = context.written_views.get(view.var)
    if writer is None:
        return
    absolute = absolute_offset(context, view)
    yield Site(
        kind="written-view",
        quantities={"alignment": ALIGNMENT} | ({} if absolute is None else {"absolute_offset": absolute}),
        unknown="the offset of the view is not known here",
        texts={"tensor": view.var.name, "source": name_of(view.source), "writer": caller_name(writer)},
        places=places_of(writer=writer),
        resolve=partial(_unless_read_alone, context, view),
    )


def _unless_read_alone(context: FunctionContext, view: ir.View, site: Site) -> Iterator[Site]:
    """The site; no fault where all that is written there is read from the copy itself."""
    if is_read_besides(context.points_to, context.analysis.effects, view):
        yield site
    else:
        yield replace(site, uncertainty=f"nothing reads it but by the name of the copy, `{view.var.name}`")


def absolute_offset(context: FunctionContext, view: ir.View) -> Expr | None:
    """Bytes from the start of the root to where a handle that is folded into its pointer begins.

    Only ensure_zero_offset folds; what another view's offset is matters to no one before that.  Where a
    tensor lies on its storage is asked where it is placed, not here again.
    """
    if view.kind != "ensure_zero_offset":
        return ZERO
    points_to = context.points_to
    regions = [points_to.regions[target.region] for target in points_to.targets_of(view.source)]
    offsets = {region.offset if region.kind is RegionKind.VIEW else ZERO for region in regions}
    return offsets.pop() if len(offsets) == 1 else None


@instruction_sites(ir.View, ir.CallOperator)
def reshapes(context: FunctionContext, made: ir.View | ir.CallOperator) -> Iterator[Site]:
    """The site of a vm.builtin.reshape, or of a R.reshape that is not lowered yet."""
    match made:
        case (
            ir.View(kind="reshape", source=source)
            | ir.CallOperator(name="relax.reshape", arguments=(source, *_))
        ):
            kind, target = tensor_type(source), made if isinstance(made, ir.View) else tensor_type(made.var)
        case _:
            return
    if kind is None or kind.shape is None or target is None or target.shape is None:
        return
    yield Site(
        kind="reshape",
        quantities={"numel": product(target.shape), "source.numel": product(kind.shape)},
        texts={
            "tensor": made.var.name,
            "source": name_of(source),
            "shape": shape_text(target.shape),
            "source.shape": shape_text(kind.shape),
        },
        places=places_of(source=context.definition(source)),
    )


def _bytes(view: ir.View, source: TensorType) -> Expr | None:
    if view.kind == "ensure_zero_offset":
        return source.nbytes
    shape = source.shape if view.shape is None else view.shape  # a scalar's shape is empty, not absent
    return byte_count(shape, view.dtype or source.dtype)
