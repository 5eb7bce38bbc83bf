"""Plans the module in a file, and reckons what there is to say about it: the job of `symalloc plan`."""

from __future__ import annotations

import logging
import re
from collections import ChainMap
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard

import msgspec
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.ir.transform import PassContext
from tvm.relax import transform

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.tensor_origin import TensorOrigin
from symalloc.analysis.timeline import Timeline, padded
from symalloc.errors import RunError
from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.check.validate import fenced_graph
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.call_moments import (
    FunctionGraph,
    GraphDocument,
    LanesRequest,
    function_graph,
    operators_of,
)
from symalloc.planner.memory_report.deployment import Deployment, ModuleReport, deployment_of
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    PlanOutcome,
    TvmComparison,
    check_sizes,
    check_wanted,
    function_report,
    needed_at_entry,
    plan_symbols,
    signed_symbols,
)
from symalloc.planner.memory_report.non_arena import (
    KernelWorkspace,
    NonArenaMemory,
    WorkspaceStep,
    non_arena_memory,
)
from symalloc.planner.plan_functions import certify
from symalloc.planner.planned_program import planned_program
from symalloc.program.ir import Program, Var
from symalloc.program.reading import ModuleOptions
from symalloc.prover.prover import Prover
from symalloc.relax.donation.results import with_alias
from symalloc.relax.emit.emit_module import function_texts
from symalloc.relax.extract import extract, extract_numbered
from symalloc.relax.extract.kernel_body import parameter_symbols
from symalloc.relax.extract.shape_heap import ALLOCATES
from symalloc.relax.extract.tir_to_expr import NotASizeError, Symbols, TirToExpr, to_dtype
from symalloc.relax.files.load import (
    device_kind,
    load_requested,
    lower_or_refuse,
    plan_or_refuse,
    read_one,
    runs_on_cpu,
    target_of,
    target_report,
)
from symalloc.relax.files.requests import PlannedFile, PlanRequest
from symalloc.relax.ir_types import (
    Node,
    elements,
    error_text,
    nodes_in,
    relax_functions,
    run_error,
    visit,
    with_parameters,
)
from symalloc.relax.passes.pipeline import finishing_pipeline
from symalloc.relax.passes.plan_pass import PlannedModule
from symalloc.relax.passes.stages import instrument, passes_run_by
from symalloc.relax.read.open_model import load_module
from symalloc.relax.rewrite import with_functions
from symalloc.relax.source_spans import origins_in
from symalloc.size.expr import Expr

ALLOC, FREE = "tirx.TVMBackendAllocWorkspace", "tirx.TVMBackendFreeWorkspace"
BOUNDS = ("tir_var_upper_bound", "tir_var_lower_bound")
STAGE = "PlanMemory"
_LOG = logging.getLogger("symalloc")
_COMMENTED_IMPORT = re.compile(r"^# (?=(?:from|import) )", re.MULTILINE)
_CALL = re.compile(r"\bcls\.\w+\(.*\)$", re.MULTILINE)
_NUMBER = re.compile(r"(?<=[ (])(?<!const\()\d+(?=[,)])")  # an argument that TVM prints, and does not read
Form: TypeAlias = Literal["json", "script"]


def compare_with_tvm(lowered: tvm.IRModule) -> dict[str, TvmComparison]:
    """TVM's plans by function, for a module as CallTIRRewrite leaves it."""
    declared = {n: f for n, f in relax_functions(lowered).items() if f.attrs and BOUNDS[0] in f.attrs}
    bare = {lowered.get_global_var(n): f.without_attr(BOUNDS[0]) for n, f in declared.items()}
    unbounded = _plans(with_functions(lowered, {v: f.without_attr(BOUNDS[1]) for v, f in bare.items()}))
    bounded = _plans(lowered) if declared else unbounded
    return {
        name: TvmComparison(
            bounded=bounded[name][0] if name in declared else None,
            unbounded=plan,
            origins={**bounded[name][1], **origins},
        )
        for name, (plan, origins) in unbounded.items()
    }


def _plans(lowered: tvm.IRModule) -> dict[str, tuple[Timeline, Mapping[Var, TensorOrigin]]]:
    names = relax_functions(lowered)
    try:
        with passes_run_by(None):
            planned = transform.StaticPlanBlockMemory()(lowered)
        program = extract(planned, name="planned by TVM", handles=True)
    except Exception as error:  # a pass raises whatever it raises
        failed = Timeline(problem=f"StaticPlanBlockMemory fails: {error_text(error, most=1)}")
        return dict.fromkeys(names, (failed, {}))
    found = analyse(program)
    return {name: (Timeline.of(program, name, kills="stock"), origins_in(found[name])) for name in names}


def plan_file(
    request: PlanRequest,
    *,
    form: Form | None,
    samples: Sequence[Mapping[str, int]],
    comparison: Mapping[str, TvmComparison] | str | None,
    partial: bool = False,
) -> PlannedFile:
    """Loads a module, lowers and plans it; raises RunError.

    `form`: how the planned module is to be written down, None for not at all.  The plan is shown at the
    bindings `samples`, or at standard ones, beside `comparison`: TVM's plans by function, why there are
    none, or None where nobody asked.  Certificates are returned, not written.
    """
    loaded = load_requested(request)
    target, lowered = _lowered(loaded, request)
    prover = Prover()
    planned = _planned(lowered, target, replace(request.plan, certificate=None), prover)
    certified = request.plan.certificate is not None
    texts = function_texts(planned.module, planned.plans) if certified else {}
    name = request.module or request.path.stem
    report = module_report(
        planned,
        target,
        samples=samples,
        partial=partial,
        comparison=_compared(comparison, planned),
        prover=prover,
        graphs=True,
    )
    return PlannedFile(
        text="" if form is None else written(planned.module, form),
        program=extract_numbered(
            planned.module, name=name, stage=STAGE, file=str(request.path), pickles=True
        ),
        original=extract(loaded, name=name),
        reports=report.reports,
        deployment=report.deployment,
        certificate=certify(planned.plans, planned.analyses, prover, texts) if certified else None,
    )


def graph_file(request: PlanRequest, *, wanted: LanesRequest | None) -> GraphDocument:
    """The dependency graphs of the module in a file, see `graph_in`; raises RunError."""
    return graph_in(load_requested(request), request, request.plan, wanted)


def graph_in(
    module: tvm.IRModule, how: ModuleOptions, options: PlanOptions, wanted: LanesRequest | None
) -> GraphDocument:
    """The dependency graphs of a module, planned, with the fences of its plans, and calls on several lanes,
    where `wanted`; raises RunError.
    """
    planned = plan_module(module, how, options)
    if wanted is not None:
        check_sizes(wanted.binding, planned.program.functions.values())
    return GraphDocument(functions=tuple(_graphs(planned, plan_outcomes(planned), wanted).values()))


def _graphs(
    planned: PlannedModule, outcomes: Mapping[str, PlanOutcome], lanes: LanesRequest | None = None
) -> dict[str, FunctionGraph]:
    """The graphs of functions with their plans."""
    found: dict[str, FunctionGraph] = {}
    for name, one in analyse(planned_program(planned.program, planned.plans).program).items():
        found[name] = function_graph(
            fenced_graph(one, known_symbols(one.cfg).domain),
            planned.analyses[name],
            planned.plans[name],
            outcomes[name].planned,
            outcomes[name].reserved,
            origins=origins_in(one),
            signed=signed_symbols(one.cfg.function),
            lanes=lanes,
        )
    return found


def compare_file(request: PlanRequest) -> dict[str, TvmComparison]:
    """TVM's own plans of a module, by function; raises RunError."""
    return compare_with_tvm(_lowered(load_requested(request, again=True), request)[1])


def deployment_file(request: PlanRequest) -> Deployment:
    """The memory that the functions of a module take on a device once they are planned; raises RunError."""
    return deployment_in(load_requested(request), request, request.plan)


def deployment_in(module: tvm.IRModule, how: ModuleOptions, options: PlanOptions) -> Deployment:
    """The same of a module."""
    target, lowered = _lowered(module, how)
    return module_report(_planned(lowered, target, options), target).deployment


def _constant_bytes(functions: Iterable[Node]) -> int:
    """The bytes of all constants in functions, each once."""
    found: dict[int, int] = {}
    for node in nodes_in((function.body for function in functions), ir.GenericConst):
        if isinstance(node.value, tvm.runtime.Tensor):
            dtype = to_dtype(node.value.dtype)
            size = prod(node.value.shape) * (0 if dtype is None else dtype.itemsize)
            found[node.value.__chandle__()] = padded(size) or 0
    return sum(found.values())


def plan_module(
    module: tvm.IRModule,
    how: ModuleOptions = ModuleOptions(),  # noqa: B008 - frozen
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> PlannedModule:
    """`module` lowered and planned, no tensor left for another planner; raises RunError."""
    target, lowered = _lowered(module, how)
    planned = _planned(lowered, target, options)
    return replace(planned, reporter=cache(partial(module_report, planned, target, graphs=True)))


def _lowered(module: tvm.IRModule, how: ModuleOptions) -> tuple[str, tvm.IRModule]:
    """The target of `module`, and it behind CallTIRRewrite; raises RunError."""
    target = target_of(module, how.target)
    return target, lower_or_refuse(module, target, how.pipeline)


def module_report(planned: PlannedModule, target: str, **shown: Any) -> ModuleReport:
    """The memory of `planned`, which is for `target`; `shown` is that of `memory_reports`."""
    reports = memory_reports(planned, target, **shown)
    functions = relax_functions(planned.shrunk.module)
    attributes = {name: function.attrs or {} for name, function in functions.items()}
    found = deployment_of(
        planned.program,
        reports,
        inputs={name: int(of["num_input"]) for name, of in attributes.items() if "num_input" in of},
        constants=_constant_bytes(functions.values()),
        device=device_kind(target),
    )
    return ModuleReport(reports=reports, deployment=found, functions=planned.program.functions)


def memory_reports(
    planned: PlannedModule,
    target: str,
    *,
    samples: Sequence[Mapping[str, int]] = (),
    partial: bool = False,
    comparison: Mapping[str, TvmComparison] = {},
    prover: Prover | None = None,
    graphs: bool = False,
) -> tuple[FunctionReport, ...]:
    """A report on each plan of `planned`, which is for `target`; `graphs`: with dependency graphs.

    With a `prover` it is tried what aliases and kernels in place would save.  Raises UsageError for a sample
    that does not fit.
    """
    _LOG.info("measuring the plan")
    program, given = planned.program, planned.shrunk.module
    scratch = kernel_scratch(planned.module, program.kernels, target)
    tables = tables_of_sizes(planned.module, target) if device_kind(target) == "cpu" else {}
    shrunk = planned.shrunk.kernels
    before, analyses = kernel_scratch(planned.shrunk.given, shrunk, target), planned.unplanned
    around: dict[str, NonArenaMemory] = {}
    for name in planned.plans:
        uses = non_arena_memory(planned.given, analyses[name], before).kernels
        less = (msgspec.structs.replace(shrunk[u.name], calls=u.calls, before=u.nbytes) for u in uses)
        found = non_arena_memory(program, planned.analyses[name], scratch, tables.get(name, 0))
        around[name] = replace(found, shrunk=tuple(less))
    outcomes = plan_outcomes(planned, None if prover is None else planned.in_place)
    graph_of = _graphs(planned, outcomes) if graphs else {}
    symbols = {name: plan_symbols(plan, around[name]) for name, plan in planned.plans.items()}
    needed = {name: needed_at_entry(of, program.functions[name]) for name, of in symbols.items()}
    later = frozenset().union(*symbols.values(), *(program.functions[name].symbols for name in needed))
    check_wanted(samples, needed, later, partial=partial)
    reports = (
        function_report(
            plan,
            program.functions[name],
            around[name],
            outcome=outcomes[name],
            comparison=comparison.get(name),
            target=target_report(planned, name, target),
            origins={**origins_in(analyses[name]), **origins_in(planned.analyses[name])},
            graph=graph_of.get(name),
            wanted=samples,
        )
        for name, plan in planned.plans.items()
    )
    return tuple(one if prover is None else _with_aliases(one, given, prover) for one in reports)


def _with_aliases(report: FunctionReport, given: tvm.IRModule, prover: Prover) -> FunctionReport:
    """A report whose remedies at samples that somebody asked for were tried."""
    if not report.asked:
        return report
    name, samples = report.plan.function, report.samples
    peaks = [s.peak and with_alias(s.peak, given, name, s.binding, prover) for s in samples]
    tried = (msgspec.structs.replace(s, peak=peak) for s, peak in zip(samples, peaks, strict=True))
    return replace(report, samples=tuple(tried))


def tables_of_sizes(planned: tvm.IRModule, target: str) -> Mapping[str, int]:
    """The bytes of the tables in which TVM's machine keeps sizes, by function, those of what it calls among
    them; raises RunError.
    """
    with run_error("TVM cannot lower the planned module"):
        behind = finishing_pipeline(target)(planned)
    own, called = dict[str, int](), dict[str, list[str]]()
    for variable, function in behind.functions_items():
        calls = nodes_in([function.body], ir.Call) if isinstance(function, relax.Function) else []
        given = [elements(one.args) for one in calls if _is_call(one, "relax.call_builtin_with_ctx")]
        slots = [int(fields.fields[0].value) for name, fields in given if name.global_symbol == ALLOCATES]
        own[variable.name_hint] = sum(padded(8 * count) or 0 for count in slots)
        called[variable.name_hint] = [one.op.name_hint for one in calls if isinstance(one.op, ir.GlobalVar)]

    def held(name: str, callers: tuple[str, ...] = ()) -> int:
        inner = dict.fromkeys(one for one in called.get(name, ()) if one not in (*callers, name))
        return own.get(name, 0) + max((held(one, (*callers, name)) for one in inner), default=0)

    return {name: held(name) for name in own}


def plan_outcomes(planned: PlannedModule, in_place: Program | None = None) -> dict[str, PlanOutcome]:
    """A call of each function with its plan, and without, also with outputs `in_place`."""
    ours = planned_program(planned.program, planned.plans, fallback=planned.fallback)
    own = frozenset(var for var, arena in ours.arenas.items() if arena.result is None)
    return {
        name: PlanOutcome(
            planned=Timeline.of(ours.program, name, decided=ours.checked),
            unplanned=Timeline.of(planned.given, name),
            in_place=None if in_place is None else Timeline.of(in_place, name),
            written=len(planned.over.get(name, ())),
            arenas=own,
            operators=operators_of(planned.unplanned[name]),
            fallback=planned.fallback and any(guard.defined_by is None for guard in plan.guards),
        )
        for name, plan in planned.plans.items()
    }


def _compared(
    found: Mapping[str, TvmComparison] | str | None, planned: PlannedModule
) -> Mapping[str, TvmComparison]:
    if isinstance(found, str):
        return dict.fromkeys(planned.plans, TvmComparison(bounded=None, unbounded=Timeline(problem=found)))
    return found or {}


def _planned(
    lowered: tvm.IRModule, target: str, options: PlanOptions, prover: Prover | None = None
) -> PlannedModule:
    """The rest gets a storage each at once: StaticPlanBlockMemory must find nothing to plan wrongly."""
    planned = plan_or_refuse(lowered, target, options, prover)
    with run_error("TVM cannot lower the planned module"):
        return replace(planned, module=transform.LowerAllocTensor()(planned.module))


# -- the planned module as a file ----------------------------------------------------------------------------


def written(module: tvm.IRModule, form: Form) -> str:
    """`module` as JSON, or as TVMScript that reads back as the same; raises RunError where it does not."""
    if form == "json":
        text = str(tvm.ir.save_json(module))
        again = load_module(text.encode())
    else:
        plain = module.script()
        text = module.script(show_meta=True) if "metadata[" in plain else plain  # constants travel there
        text = _CALL.sub(lambda call: _NUMBER.sub(r"T.int64(\g<0>)", call[0]), text)
        text = _COMMENTED_IMPORT.sub("", text) + "\n"
        try:
            again = read_one(Path("planned.py"), data=text.encode())
        except Exception as error:  # TVM prints what its own parser refuses in many ways
            problem = f"the planned module cannot be written as TVMScript, write JSON: {error}"
            raise RunError(problem) from None
    if not _are_equal(again, module):
        raise RunError(
            f"TVM writes this module as {form} that reads back as another one; choose the other form"
        )
    return text


def _are_equal(one: tvm.IRModule, other: tvm.IRModule) -> bool:
    """True for modules that say the same; scripts leave out widths of integers that decide nothing."""
    if tvm_ffi.structural_equal(one, other):
        return True
    same = one.script() == other.script()
    return same and tvm_ffi.structural_equal(_constants(one), _constants(other))


def _constants(module: tvm.IRModule) -> list[ir.Constant]:
    """The constants of a module's functions, in order."""
    return nodes_in((function.body for function in relax_functions(module).values()), ir.GenericConst)


# -- workspace of kernels ------------------------------------------------------------------------------------

# Which scratch buffers become TVMBackendAllocWorkspace, which go to the stack, and which share memory is
# decided deep in TVM's pipeline (CompactBufferAllocation, StorageRewrite, LowerTVMBuiltin).  So the kernels
# are lowered as relax.build lowers them, and the calls that are left are read.


def kernel_scratch(
    module: tvm.IRModule, kernels: Container[str], target: str | tvm.target.Target
) -> dict[str, KernelWorkspace]:
    """The scratch of each PrimFunc of `module` that is among `kernels`, over the symbols that those have.

    What cannot be lowered or read has a `problem`.
    """
    functions = {
        v: f.with_attr("global_symbol", v.name_hint)
        for v, f in module.functions.items()
        if v.name_hint in kernels and isinstance(f, tirx.PrimFunc)
    }
    chosen = tvm.target.Target(target)
    lowered = _lowered_kernels(functions, chosen) if functions else {}
    refused = [v for v in functions if isinstance(lowered.get(v.name_hint), str)]
    bare = {v.name_hint for v in refused if not runs_on_cpu(chosen) and _takes_no_global(functions[v])}
    names = [variable.name_hint for variable in functions]
    return {name: KernelWorkspace() if name in bare else _scratch(lowered.get(name)) for name in names}


def _takes_no_global(kernel: Node) -> bool:
    """Return whether all that a kernel allocates lies in the memory of a device's threads."""
    own = [one for block in nodes_in([kernel.body], s_tir.SBlock) for one in block.alloc_buffers]
    own += [node.buffer for node in nodes_in([kernel.body], tirx.AllocBuffer)]
    return all(buffer.scope() != "global" for buffer in own)


def _lowered_kernels(functions: Mapping[Node, Node], target: tvm.target.Target) -> dict[str, Node | str]:
    """The kernels by name, with calls for their scratch and the parameters that they were given; the text of
    the error for one that TVM fails on.
    """
    host = target.host or (target if target.kind.name == "llvm" else tvm.target.Target("llvm"))
    unpacked: dict[str, Node] = {}

    def keep(module: tvm.IRModule, info: Node) -> None:
        if info.name == "tirx.MakePackedAPI":
            unpacked.update((v.name_hint, f) for v, f in module.functions.items())

    lower, finish, _ = tirx.get_tir_pipeline("default")
    try:
        kept = instrument("Unpacked", run_before_pass=keep)
        with target, PassContext(config=dict(PassContext.current().config), instruments=[kept]):
            lower(tirx.transform.BindTarget(target.with_host(host))(tvm.IRModule(dict(functions))))
            named = (v.name_hint for v in functions if v.name_hint in unpacked)
            placed = dict[str, Node]()
            for name in named:
                kernel, body = unpacked[name], unpacked[name].body
                for key, value in (("device_type", int(target.get_target_device_type())), ("device_id", 0)):
                    body = tirx.AttrStmt(ir.StringImm("default"), key, value, body)
                placed[name] = with_parameters(kernel, elements(kernel.params), body).with_attr(
                    "target", host
                )
            finished = finish()(tvm.IRModule(placed))
    except Exception as error:  # a pass raises whatever it raises
        if len(functions) == 1:
            return {v.name_hint: error_text(error, most=1) for v in functions}
        return dict(ChainMap(*(_lowered_kernels({v: f}, target) for v, f in functions.items())))
    return {variable.name_hint: function for variable, function in finished.functions.items()}


def _scratch(lowered: Node | str | None) -> KernelWorkspace:
    """The scratch of one kernel; what stands in the way of reading it is its `problem`, whatever that is."""
    if lowered is None:
        return KernelWorkspace(problem="TVM's lowering leaves no function of its name")
    if isinstance(lowered, str):
        return KernelWorkspace(problem=f"TVM cannot lower it: {lowered}")
    reader = _Reader(symbols=parameter_symbols(elements(lowered.params)))
    try:
        visit(
            lowered.body,
            (tirx.Bind, reader.bind),
            (tirx.DeclBuffer, reader.declare),
            (ir.Call, reader.call),
            (tirx.For, reader.loop),
        )
    except NotASizeError as error:
        return KernelWorkspace(problem=str(error))
    except Exception as error:  # what TVM's passes leave may have any form
        return KernelWorkspace(problem=f"its lowered code is not understood: {error_text(error, most=1)}")
    return KernelWorkspace(steps=tuple(reader.steps), parallel=reader.parallel)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Follows a lowered kernel in the order of its text; `symbols` are those of its parameters, and what is
    bound to sizes.
    """

    symbols: Symbols
    slots: dict[int, int] = field(default_factory=dict)
    steps: list[WorkspaceStep] = field(default_factory=list)
    parallel: bool = False
    form: TirToExpr = field(init=False)

    def __post_init__(self) -> None:
        self.form = TirToExpr(self.resolve, nonnegative=self.symbols.is_size)

    def bind(self, node: Node) -> None:
        value = self.form.expr_or_none(node.value)
        if value is not None:
            self.symbols.bind(node.var, value)

    def loop(self, node: Node) -> None:
        inside = nodes_in([node.body], ir.Call) if node.kind == tirx.ForKind.PARALLEL else ()
        self.parallel = self.parallel or any(_is_call(call, ALLOC) for call in inside)

    def declare(self, node: Node) -> None:
        """`buffer = decl_buffer(…, data=TVMBackendAllocWorkspace(…))`."""
        if _is_call(node.data, ALLOC):
            slot = self.slots[node.buffer.__chandle__()] = len(self.slots)
            self.steps.append(WorkspaceStep(slot, self.size(node.data.args[2])))

    def call(self, node: Node) -> None:
        if not _is_call(node, FREE):
            return
        data = node.args[2]
        owner = data.args[0] if type(data) is ir.Call else data
        slot = self.slots.get(owner.__chandle__())
        if slot is not None:
            self.steps.append(WorkspaceStep(slot))

    def size(self, node: Node) -> Expr:
        """A byte count: a product in uint64 over what is computed in signed integers."""
        if type(node) is prim.Mul:
            return self.size(node.a) * self.size(node.b)
        if type(node) is prim.Cast:
            return self.size(node.value)
        return self.form.expr(node)

    def resolve(self, variable: Node) -> Expr:
        value = self.symbols.known(variable)
        if value is None:
            raise NotASizeError(f"its scratch depends on `{variable.name}`, which changes inside the kernel")
        return value


def _is_call(node: Node | None, name: str) -> TypeGuard[ir.Call]:
    return isinstance(node, ir.Call) and getattr(node.op, "name", None) == name
