"""One module from a file, loaded, lowered and planned: whatever TVM raises becomes one readable error."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.target import Target
from tvm_ffi import DLDeviceType

from symalloc.errors import RunError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.function_report import TargetReport
from symalloc.program.created_state import DeviceKind
from symalloc.program.ir import CallKernel
from symalloc.program.operands import instructions_of
from symalloc.program.packed_contracts import state
from symalloc.program.reading import PipelineName, UnreadableError
from symalloc.program.span import Source, Span
from symalloc.prover.prover import Prover
from symalloc.relax.emit.kernel_offsets import offset_parameters
from symalloc.relax.extract import extract
from symalloc.relax.files.requests import PlanRequest
from symalloc.relax.ir_types import CallNode, Node, VarNode, relax_functions, run_error
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.passes.stages import has_memory_operations
from symalloc.relax.read.open_model import ModelFile, ModuleEntry, open_model
from symalloc.relax.source_spans import map_places, place_span

_LOG = logging.getLogger("symalloc")


def target_report(planned: PlannedModule, function: str, target: str | Target) -> TargetReport | None:
    """The report on the target of one function's plan; None where it runs on the CPU."""
    chosen = Target(target)
    if runs_on_cpu(chosen):
        return None
    body = planned.program.functions[function].body
    kernels = {i.kernel for i in instructions_of(body) if isinstance(i, CallKernel)}
    placed = (p.buffer for arena in planned.plans[function].arenas for p in arena.placements)
    return TargetReport(
        name=str(chosen.kind.name),
        present=has_device(chosen),
        generated=generates_code(chosen),
        flavour=planned.flavour,
        shared=planned.memory.shared,
        kernels=len(kernels),
        offset_kernels=sum(bool(offset_parameters(planned.module[kernel])) for kernel in kernels),
        grounded=0 if planned.flavour == "storages" else sum(buffer.grounded for buffer in placed),
    )


def why_not_run(target: Target) -> str | None:
    """The reason why nothing can be run for `target` here; None for a CPU."""
    name = target.kind.name
    if not generates_code(target):
        return f"this build of TVM generates no code for {name}"
    if runs_on_cpu(target):
        return None
    if not has_device(target):
        return f"it needs a device, and this machine has none of {name}"
    return f"it needs a device of {name}, and `symalloc run` runs on the CPU only"


def runs_on_cpu(target: Target) -> bool:
    """Return whether code for `target` runs on the host."""
    return int(target.get_target_device_type()) == DLDeviceType.kDLCPU


def target_of(module: Node, asked: str) -> str:
    """The target of a device that kernels of `module` are bound to, else the one that is `asked` for."""
    kernels = (f.attrs or {} for _, f in module.functions_items() if isinstance(f, tirx.PrimFunc))
    bound = (attributes["target"] for attributes in kernels if "target" in attributes)
    own = next((str(target) for target in bound if not runs_on_cpu(target)), asked)
    with run_error(f"TVM cannot lower the module for the target {asked!r}"):
        return own if own == asked or runs_on_cpu(Target(asked)) else asked


def device_kind(target: str | Target) -> DeviceKind:
    """The kind of device that code for `target` runs on, as far as TVM's runtime takes other memory there."""
    kinds: dict[int, DeviceKind] = {int(DLDeviceType.kDLCPU): "cpu", int(DLDeviceType.kDLCUDA): "cuda"}
    return kinds.get(int(Target(target).get_target_device_type()), "other")


def has_device(target: Target) -> bool:
    """Return whether TVM finds a device of `target` on this machine."""
    kind = int(target.get_target_device_type())
    return bool(tvm.runtime.Device(kind, 0).exist) if kind in set(DLDeviceType) else False


def generates_code(target: Target) -> bool:
    """Return whether this build of TVM has a code generator for `target`."""
    return tvm.get_global_func(f"target.build.{target.kind.name}", allow_missing=True) is not None


def load_requested(request: PlanRequest, *, again: bool = False) -> Node:
    """The IRModule that is asked for, whose contracts hold as long as this process.  Raises RunError.

    Unless it is read `again`, it is said where it is planned already.
    """
    state(request.packed)
    _LOG.info("reading %s", request.path)
    found = load_one(request.path, trust=request.trust, module=request.module, data=request.data)
    if has_memory_operations(found) and not again:
        _LOG.warning(
            "note: %s is planned already: its own storages stay, and count in whole calls, not in arenas",
            request.path,
        )
    return found


def load_as_json(request: PlanRequest) -> str:
    """The IRModule that is asked for, as TVM's JSON, to be sent to another process.  Raises RunError."""
    return str(tvm.ir.save_json(load_requested(request)))


def load_one(
    path: Path,
    *,
    trust: bool = False,
    module: str | None = None,
    data: bytes | None = None,
    checked: bool = True,
) -> Node:
    """The IRModule in what `path` names: the one called `module` where there are several.

    `data` is the content, where that is not in a file.  Raises RunError, also where it is `checked` and
    ill-formed, or empty.
    """
    try:
        found = _chosen_module(str(path), open_model(path, trust=trust, data=data), module)
    except UnreadableError as error:
        raise RunError(_sentence(path, error)) from None
    with run_error(f"the module in {path} is ill-formed", most=2):
        if checked:
            relax.analysis.well_formed(found)
    if checked and not relax_functions(found):
        raise RunError(f"the module in {path} holds no Relax function")
    return found


read_one = partial(load_one, checked=False)
"""The same, well-formed or not."""


def _chosen_module(file: str, opened: ModelFile, module: str | None) -> Node:
    if opened.source is None and module is not None:
        raise RunError(f"{file} is one module, which has no name: leave out --module {module}")
    entries = {entry.name: entry for entry in opened.entries()}
    listed = ", ".join(entries)
    if module is None and len(entries) > 1:
        raise RunError(f"{file} holds {len(entries)} modules; choose one with --module: {listed}")
    if module is not None and module not in entries:
        raise RunError(f"{file} holds no module `{module}`; it holds {listed}")
    entry = entries[module or listed]
    read = entry.read()
    if isinstance(read, tuple):
        problem = read[0]
        raise RunError(f"{file}{_at(problem.span)}: {problem.message}{_hint(problem.hint)}")
    return read if opened.source is None else _with_places(read, opened.source, entry)


def _with_places(module: Node, source: Source, entry: ModuleEntry) -> Node:
    """`module`, which was parsed from `source`, with places for the calls that TVM's parser leaves without:
    those that other calls are written in.
    """
    program = extract(module, name=entry.name, source=source, line=entry.line, handles=True)
    lines: dict[int, int] = {}
    for made in (each for function in program.functions.values() for each in instructions_of(function.body)):
        binding: Any = made.handle
        if binding is not None and made.span is not None:
            lines[binding.var.__chandle__()] = made.span.line

    def missing(var: VarNode, _: CallNode) -> Node | None:
        line = lines.get(var.__chandle__())
        return None if line is None else place_span("", source.file, line)

    return map_places(module, missing)


def _sentence(path: Path, error: UnreadableError) -> str:
    """The problem with `path` as a sentence; a missing library is said without it."""
    place = f"{error.span.file}{_at(error.span)}" if error.span else f"{path}"
    subject = f"{place} " if error.said else ""
    return f"{subject}{error.sentence}{_hint(error.hint)}"


def _at(span: Span | None) -> str:
    return f":{span.line}:{span.column}" if span else ""


def _hint(text: str | None) -> str:
    return f"; {text}" if text else ""


def lower_or_refuse(module: tvm.IRModule, target: str, pipeline: PipelineName) -> tvm.IRModule:
    """`module` behind CallTIRRewrite; raises RunError."""
    _LOG.info("lowering for %s", target)
    with run_error(f"TVM cannot lower the module for the target {target!r}"):
        return lower(module, target, pipeline=pipeline)


def plan_or_refuse(
    lowered: tvm.IRModule, target: str, options: PlanOptions, prover: Prover | None = None
) -> PlannedModule:
    """`lowered` planned; raises RunError where a plan cannot be proved, or its proof not be written."""
    try:
        return plan_lowered(lowered, prover, options=options, target=tvm.target.Target(target))
    except OSError as error:
        raise RunError(f"cannot write certificates: {error.strerror}") from None
