"""PlanMemory: the pass that stands where TVM's StaticPlanBlockMemory stands."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call
from tvm.target import Target
from tvm_ffi import DLDeviceType

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.timeline import Timeline
from symalloc.errors import RunError, UsageError, shown
from symalloc.planner.buffers.candidates import known_symbols, least_held
from symalloc.planner.check.plan_certificate import write_certificate
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.interference import peaks_beside
from symalloc.planner.memory_plan import Flavour, Plan, PlanOptions
from symalloc.planner.memory_report.deployment import FunctionFit, ModuleReport
from symalloc.planner.memory_report.function_report import MemorySample
from symalloc.planner.memory_report.non_arena import PAGE
from symalloc.planner.plan_functions import all_proved, certify, plan_program
from symalloc.planner.planned_program import planned_program
from symalloc.program.ir import Program, Var
from symalloc.program.types import no_collections
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import donate
from symalloc.relax.donation.results import COPIED, take_results
from symalloc.relax.emit.emit_module import allocated, emit_module, function_texts
from symalloc.relax.emit.kernel_offsets import offset_kernels, offset_uses
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import BindingNode, bound, effect, elements, typed_var
from symalloc.relax.passes.inline_calls import apart_from_callers, inline_calls
from symalloc.relax.passes.sizes_and_guards import lower_guards
from symalloc.relax.passes.stages import captures_graphs
from symalloc.relax.rewrite import map_bindings
from symalloc.relax.shrink.capacity import with_capacity
from symalloc.relax.shrink.chunks import MOST_PIECES, SHARE, GroupSearch, RowGroup, write_in_pieces
from symalloc.relax.shrink.kernel_parts import PartsProof, write_in_parts
from symalloc.relax.shrink.shrink_kernels import ShrunkModule, plan_workspaces, shrink_kernels
from symalloc.relax.shrink.written_over import WrittenOver, order_for_memory, write_over
from symalloc.shown import counted
from symalloc.size.condition import le
from symalloc.size.expr import ZERO, Expr, evaluated

_ADDRESSES = frozenset({DLDeviceType.kDLCPU, DLDeviceType.kDLCUDA, DLDeviceType.kDLCUDAHost})
_LOG = logging.getLogger("symalloc")
GRAPHS = "CUDA graphs are captured"
_BINDS_WHOLE = frozenset({DLDeviceType.kDLWebGPU})


class DeviceMemoryError(RunError):
    """A plan that the target's kernels could not run: its flavour, or the memory that it is for."""


tvm_ffi.register_error(DeviceMemoryError)  # or it leaves TVM's pass runner as a RuntimeError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of the devices of one module.

    `addresses`: the host may add an offset to a data pointer, so that R.memory.ensure_zero_offset copies
    nothing at multiples of 64 B; where it may not, data is a handle and that operator copies the tensor.
    `shared`: one kernel may read and write tensors that lie in the same storage.
    """

    addresses: bool = True
    shared: bool = True

    def flavour(self, wanted: Flavour) -> Flavour:
        """The flavour that stands for "auto"; raises DeviceMemoryError where `wanted` cannot be run."""
        if not self.shared and wanted == "arena":
            raise DeviceMemoryError(
                "a kernel of this target cannot read and write tensors of the same storage, as those of one "
                "arena are: WebGPU binds whole buffers; choose the flavour storages, or auto"
            )
        if wanted == "auto":
            return "arena" if self.shared else "storages"
        return wanted


def device_memory(module: tvm.IRModule, target: Target | None) -> DeviceMemory:
    """The memory of `target` (the CPU where it is None) and of each device that `module` names.

    Raises DeviceMemoryError for textures: their rows are not as long as their extents say.
    """
    for device in module.global_infos.get("vdevice", ()):
        if "texture" in str(device.memory_scope):
            why = "a texture is no stretch of bytes; only TVM's own planner knows how much it takes"
            raise DeviceMemoryError(f"tensors in {device.memory_scope} cannot be planned: {why}")
    targets = [device.target for device in module.global_infos.get("vdevice", ())]
    targets += [] if target is None else [target]
    kinds = frozenset(int(each.get_target_device_type()) for each in targets)
    return DeviceMemory(addresses=kinds <= _ADDRESSES, shared=kinds.isdisjoint(_BINDS_WHOLE))


tvm_ffi.register_error(PlanRefusedError)  # or it leaves TVM's pass runner as a RuntimeError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModule:
    """A module with its plans written into it, the plans by function name, and what they were made from.

    `flavour` is that of the plans, `memory` that of the devices it was chosen for.  `given` is the program as
    it was before calls were written out in their callers and outputs `over` what kernels read last; it was
    extracted from `source`.  With `fallback` functions run as they were where a guard at entry fails.
    `shrunk` is the module with its kernels as they were planned.  `reporter` makes the `report`.
    """

    module: tvm.IRModule
    plans: Mapping[str, Plan]
    program: Program
    analyses: Mapping[str, FunctionAnalysis]
    flavour: Flavour
    memory: DeviceMemory
    given: Program
    source: tvm.IRModule
    over: Mapping[str, Sequence[WrittenOver]]
    shrunk: ShrunkModule
    fallback: bool = False
    reporter: Callable[[], ModuleReport] | None = None

    @property
    def unplanned(self) -> Mapping[str, FunctionAnalysis]:
        """The analyses of the functions as they were given."""
        return self.analyses if self.given is self.program else analyse(self.given)

    @property
    def in_place(self) -> Program:
        """The program that was given, with outputs written over what kernels read last."""
        return extract(write_over(self.source, self.given, self.unplanned)[0], name="module")

    def __repr__(self) -> str:
        return f"<PlannedModule: {', '.join(map(repr, self.plans.values()))}>"

    def __str__(self) -> str:
        """The report as `symalloc plan` prints it."""
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    @property
    def report(self) -> ModuleReport:
        """The report on the memory of each function, made when it is first asked for."""
        if self.reporter is None:
            raise RunError("only what symalloc.plan returns has a report")
        return self.reporter()

    @property
    def at(self) -> Callable[..., MemorySample]:
        """`plan.at(n=128)`: the bytes of a call at some sizes, see `ModuleReport.at`."""
        return self.report.at

    @property
    def fits(self) -> Callable[..., FunctionFit]:
        """`plan.fits("1GiB")`: the shapes at which memory takes so little, see `ModuleReport.fits`."""
        return self.report.fits

    def __tvm_ffi_object__(self) -> tvm.IRModule:
        """The module: TVM's functions take the plan in its place, `relax.build` among them."""
        return self.module


@no_collections(acyclic=True)
def plan_lowered(
    module: tvm.IRModule,
    prover: Prover | None = None,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    target: tvm.target.Target | None = None,
    keeps_reshapes: bool = False,
) -> PlannedModule:
    """Plans every Relax function of a module as CallTIRRewrite leaves it.

    `target` is what the module is built for, by default the one whose scope this is called in, else the
    CPU.  With `keeps_reshapes` R.reshape is left as it is, which no LegalizeOps may meet again.  Raises
    PlanRefusedError where a plan, or that an input can carry an output, cannot be proved, and
    DeviceMemoryError where the target cannot run the flavour asked for, or memory is no stretch of bytes.
    """
    prover = prover or Prover()
    target = target or tvm.target.Target.current(allow_none=True)
    memory = device_memory(module, target)
    kept = GRAPHS if captures_graphs() else ""
    caller = "caller" in (options.arena, options.results)
    if caller:
        _require_plain(memory, options, kept)
    options = replace(options, flavour=memory.flavour(options.flavour), kept=kept or options.kept)
    if caller:
        module = apart_from_callers(module)
    shrunk = plan_workspaces(shrink_kernels(module, options.shrink))
    given = module = with_planned_copies(shrunk.module)
    module = inline_calls(module, all_of_them=caller)
    program = _seen(module)
    if options.alias:
        roomy = with_capacity(module, program, options.alias, prover, options.guards)
        program = program if roomy is module else _seen(roomy)
        given = module = donate(roomy, program, options.alias, prover, guards=options.guards)
        program = _seen(module)
    results = dict[str, int]()
    if options.results == "caller":
        before, module = program, take_results(module, program, prover, options.guards)
        given, program = module, _seen(module)
        results = {n: len(f.params) - len(before.functions[n].params) for n, f in program.functions.items()}
    seen, before = program, program if given is module else extract(given, name="module", handles=True)
    anywhere = memory.addresses or options.flavour == "storages"

    def plan(lowered: tvm.IRModule, proved: bool = False) -> _Attempt:
        program = seen if lowered is module else _seen(lowered)
        analyses = analyse(program)
        grounded = frozenset[Var]() if anywhere else _grounded(lowered, analyses)
        planned = partial(plan_program, program, prover, options=options, analyses=analyses)
        planned = partial(planned, grounded=grounded, proved=proved)
        return _Attempt(module=lowered, program=program, analyses=analyses, planned=planned)

    def choose(plan: Planner) -> _Attempt:
        given = plan(module)
        if options.shrink == "none" or options.order != "total":
            return given
        return _in_pieces(plan, memory.shared, given, options, prover)

    chosen = choose(plan)
    if not all_proved(chosen.plans, chosen.analyses, prover):
        chosen = choose(partial(plan, proved=True))
    module, analyses, plans = chosen.module, chosen.analyses, chosen.plans
    planned = emit_module(
        module,
        analyses,
        plans,
        guards=options.guards,
        addresses=memory.addresses,
        keeps_reshapes=keeps_reshapes,
        given=options.arena == "caller",
        results=results,
    )
    if options.certificate is not None:
        texts = function_texts(planned, plans)
        write_certificate(options.certificate, certify(plans, analyses, prover, texts))
    return PlannedModule(
        module=lower_guards(planned, target),
        plans=plans,
        program=chosen.program,
        analyses=analyses,
        flavour=options.flavour,
        memory=memory,
        given=before,
        source=given,
        over=chosen.over,
        shrunk=shrunk,
        fallback=options.guards == "fallback",
    )


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """A module, with a plan for each function when it is first asked for, not written yet; outputs lie `over`
    what kernels read last.  Functions in pieces are looked at where they are `largest`, by name.
    """

    module: tvm.IRModule
    program: Program
    analyses: Mapping[str, FunctionAnalysis]
    planned: Callable[[], Mapping[str, Plan]]
    over: Mapping[str, Sequence[WrittenOver]] = field(default_factory=dict)
    largest: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def plans(self) -> Mapping[str, Plan]:
        """The plans by function name."""
        return self.planned()

    @cached_property
    def held(self) -> Callable[[str], Timeline]:
        """The memory that a call of a function holds with its plan, by name."""
        return cache(partial(Timeline.of, planned_program(self.program, self.plans).program))

    def arenas(self, name: str) -> Expr:
        """The bytes of the arenas of a function."""
        return sum((one.size for one in self.plans[name].arenas), ZERO)

    def domain(self, name: str) -> Domain:
        """The sizes of a function at which its plans are compared."""
        domain = known_symbols(self.analyses[name].cfg).domain
        at = self.largest.get(name, {})
        return replace(domain, lower={**domain.lower, **at}, upper={**domain.upper, **at})

    def larger(self, other: _Attempt, names: Iterable[str]) -> frozenset[str]:
        """The functions of these names that take more than in another attempt, or may.

        A page more at some sizes is none if it saves more at others.  The other attempt is planned only where
        more is taken than any plan of it must.
        """

        def may(name: str) -> bool:
            mine, domain = self.held(name), self.domain(name)
            least = None if "plans" in vars(other) else least_held(other.program, other.analyses, name)
            if least is not None and not _takes_more(peaks_beside(mine, least, domain)):
                return False
            return _takes_more(peaks_beside(mine, other.held(name), domain))

        return frozenset(filter(may, names))


def _takes_more(peaks: Sequence[tuple[int, int]]) -> bool:
    """Return whether the first bytes are more than the second, or not known."""
    changes = [mine - theirs for mine, theirs in peaks]
    return not changes or max(changes) > min(PAGE, max(-min(changes) - 1, 0))


Planner: TypeAlias = Callable[[tvm.IRModule], _Attempt]


def _written_over(plan: Planner, tried: dict[object, bool], apart: _Attempt) -> _Attempt:
    """`apart` with outputs written over what calls read last, in functions that take more nowhere then.

    `tried` tells of each kernel whether it can; orders of calls have that in common.
    """
    tries, before = Counter[str](), dict[str, Sequence[WrittenOver]]()
    while True:
        module, over = write_over(apart.module, apart.program, apart.analyses, tries, tried)
        if not over:
            return _in_parts(plan, apart)
        found = replace(plan(module), over=over)
        again = frozenset(name for name, pairs in over.items() if pairs == before.get(name))
        larger = again or found.larger(apart, over)
        if not larger:
            return _in_parts(plan, found)
        tries.update(larger)
        before.update((name, over[name]) for name in larger)


def _in_parts(plan: Planner, apart: _Attempt, kept: frozenset[str] = frozenset()) -> _Attempt:
    """`apart` with tensors in larger ones, in functions that take less somewhere and more nowhere then."""
    module, parts = write_in_parts(apart.module, apart.analyses, kept)
    if not parts:
        return apart
    found = replace(plan(module), over=apart.over)
    worse = found.larger(apart, parts) or parts.keys() - apart.larger(found, parts)
    return _in_parts(plan, apart, kept | worse) if worse else found


def _ordered(plan: Planner, shared: bool, given: _Attempt) -> _Attempt:
    """The `given` attempt with outputs written over what calls read, where kernels can be given `shared`
    memory, and with calls in another order where functions take more nowhere then.
    """
    finished = partial(_written_over, plan, {}) if shared else lambda one: one
    usual, kept = finished(given), frozenset[str]()
    while True:
        module, names = order_for_memory(given.module, given.analyses, kept)
        if not names:
            return usual
        found = finished(plan(module))
        larger = found.larger(usual, names)
        if not larger:
            return found
        kept |= larger


def _in_pieces(
    plan: Planner, shared: bool, given: _Attempt, options: PlanOptions, prover: Prover
) -> _Attempt:
    """The `given` attempt in order, with what is large computed in as few pieces as bring the arenas of a
    function to what they may take; only said of functions where some would, if none are wanted.
    """
    usual, limit, counts = _ordered(plan, shared, given), options.max_arena, dict[str, int]()
    if limit is None:
        return usual
    groups = dict[str, Sequence[RowGroup]]()
    largest = {n: {**f.declared_upper, **options.sizes} for n, f in given.program.functions.items()}

    @cache
    def attempt(name: str, count: int) -> _Attempt:
        if count == 1:
            return usual
        wanted = {**counts, name: count}

        def planned(module: tvm.IRModule) -> _Attempt:
            return replace(plan(module), largest={name: largest[name] for name in wanted})

        pieces = ((group, count) for name, count in wanted.items() for group in groups[name])
        return _ordered(planned, shared, planned(write_in_pieces(given.module, pieces, prover)))

    def size(name: str, count: int) -> int:
        return evaluated(attempt(name, count).arenas(name), largest[name]) or 0

    def fits(name: str, count: int) -> bool:
        found = attempt(name, count)
        domain = known_symbols(found.analyses[name].cfg).domain
        domain = replace(domain, lower={**domain.lower, **options.sizes}, upper=largest[name])
        return prover.prove(le(found.arenas(name), limit), domain, explain=False).holds

    most, chosen = options.chunks if options.chunks > 1 else MOST_PIECES, usual
    for name in [one for one in usual.plans if not fits(one, 1)]:
        search = GroupSearch(PartsProof(given.module, given.analyses[name], reshaped=True), largest[name])
        groups[name] = [*search.groups(limit // SHARE)]
        count = _fewest(most, limit, partial(fits, name), partial(size, name)) if groups[name] else None
        if count is not None:
            counts[name], chosen = count, attempt(name, count) if options.chunks > 1 else usual
    plans = {**chosen.plans}
    for name, count in counts.items():
        written = counted(sum(bool(one.ends(count, prover)) for one in groups[name]), "group")
        said = f"{written} of kernels, {count} each: {size(name, count)} B for {size(name, 1)} B"
        pieces = said if options.chunks > 1 else f"--chunks {count} would have {said}"
        plans[name] = replace(plans[name], pieces=pieces)
    return replace(chosen, planned=lambda: plans)


def _fewest(most: int, limit: int, fits: Callable[[int], bool], size: Callable[[int], int]) -> int | None:
    """So many pieces that fit and one less do not; None if `most` do not, or none can as sizes fall."""
    few, many = 1, 2
    while not fits(many):
        if many == most or (few > 1 and 2 * size(many) - size(few) > limit):
            return None
        few, many = many, min(2 * many, most)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if fits(middle) else (middle, many)
    return many


def _require_plain(memory: DeviceMemory, options: PlanOptions, kept: str) -> None:
    """Raises DeviceMemoryError where no caller can give memory: tensors cannot lie anywhere in it, or its
    address is written into a graph.
    """
    if options.arena == "caller" and not (memory.addresses and memory.shared):
        raise DeviceMemoryError("a caller's memory needs a target whose tensors may begin anywhere in it")
    if kept:
        raise DeviceMemoryError("a caller's memory may be another in each call, and CUDA graphs are captured")


def _grounded(module: tvm.IRModule, analyses: Mapping[str, FunctionAnalysis]) -> frozenset[Var]:
    """The tensors that something other than a kernel looks at, or a kernel that can take no offset."""
    positions = offset_kernels(module)
    uses = (offset_uses(a, positions, [one.var for _, one in a.cfg.instructions]) for a in analyses.values())
    return frozenset(var for found in uses for var in found.needs_zero_offset)


def _seen(module: tvm.IRModule) -> Program:
    return extract(module, name="module", stage="CallTIRRewrite", handles=True)


@tvm.transform.module_pass(opt_level=0, name="PlanMemory")
class PlanMemory:
    """Plans memory: proved arenas for each function, device and scope.

    Stands in a pipeline in place of StaticPlanBlockMemory, behind CallTIRRewrite.  Raises
    PlanRefusedError where a plan cannot be proved; nothing unproved is emitted.  UsageError for options that
    are none.  `picked` receives what bounds="auto" stands for in each function.
    """

    def __init__(
        self,
        options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
        picked: dict[str, str] | None = None,
    ) -> None:
        given: object = options
        if not isinstance(given, PlanOptions):
            raise UsageError(f"options is {shown(given)}; symalloc.pipeline takes them one by one")
        self.options, self.picked = options, {} if picked is None else picked

    @no_collections(acyclic=True)  # what only the plan needs is gone before the collector looks at it
    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its plans written into it."""
        planned = plan_lowered(module, options=self.options, keeps_reshapes=True)
        for plan in planned.plans.values():
            for one in plan.too_large:
                said = "`%s`: `%s` can take more than %d B: %s B"
                _LOG.warning(said, plan.function, one.name, one.limit, one.size)
        self.picked.update((name, plan.picked) for name, plan in planned.plans.items() if plan.picked)
        return planned.module


def with_planned_copies(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, where R.to_vdevice allocates its result and copies there: TVM's
    own makes a tensor that no plan places.
    """
    devices = elements(module.global_infos.get("vdevice", ()))

    def moved(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value, type_ = binding.value, binding.var.ty
        moves = type(value) is Call and getattr(value.op, "name", None) == "relax.to_vdevice"
        if not moves or type_.shape is None or not isinstance(type_.shape, relax.ShapeExpr):
            return None
        source, target = value.args[0], type_.vdevice
        if target is None or source.ty.vdevice is None or tvm_ffi.structural_equal(source.ty.vdevice, target):
            return None
        var = typed_var("moved", type_)
        return [allocated(var, devices), effect(COPIED, [source, var], "copied"), bound(binding.var, var)]

    return map_bindings(module, moved) if devices else module
