"""One module from a file, loaded, lowered and planned: whatever TVM raises becomes one readable error."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax

from symalloc.errors import RunError
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.reading import PipelineName, UnreadableError
from symalloc.program.span import Span
from symalloc.prover.prover import Prover
from symalloc.relax.ir_types import Node
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.read.json import load_module
from symalloc.relax.read.script import ScriptReader
from symalloc.relax.read.script_file import Script, ScriptModule, parse_script, read_bytes
from symalloc.relax.tvm_error import run_error


def load_one(path: Path, *, trust: bool = False, module: str | None = None) -> Node:
    """The IRModule in the file `path`: the one called `module` where there are several.  Raises RunError."""
    try:
        data = read_bytes(path)
        if path.suffix == ".py":
            found = from_script(str(path), data, trust=trust, module=module)
        elif module is None:
            found = load_module(data, trust=trust)
        else:
            raise RunError(f"{path} is JSON, in which modules have no names: leave out --module {module}")
    except UnreadableError as error:
        raise RunError(f"{path}{_at(error.span)} cannot be read: {error}{_hint(error.hint)}") from None
    with run_error(f"the module in {path} is ill-formed", most=2):
        relax.analysis.well_formed(found)
    if not any(isinstance(each, relax.Function) for each in found.functions.values()):
        raise RunError(f"the module in {path} holds no Relax function")
    return found


def from_script(file: str, data: bytes, *, trust: bool = False, module: str | None = None) -> Node:
    """The module called `module`, or the only one, of a TVMScript file.

    Raises RunError and UnreadableError.
    """
    script = parse_script(file, data)
    read = ScriptReader(script, trust=trust).read(_chosen(script, module))
    if read.mod is not None:
        return read.mod
    problem = read.problems[0]
    raise RunError(f"{file}{_at(problem.span)}: {problem.message}{_hint(problem.hint)}")


def _at(span: Span | None) -> str:
    return f":{span.line}:{span.column}" if span else ""


def _hint(text: str | None) -> str:
    return f"; {text}" if text else ""


def _chosen(script: Script, name: str | None) -> ScriptModule:
    found = {module.name: module for module in script.modules}
    names = ", ".join(found)
    if not found:
        raise RunError(f"{script.file} holds no Relax module")
    if name is None and len(found) > 1:
        raise RunError(f"{script.file} holds {len(found)} modules; choose one with --module: {names}")
    if name is not None and name not in found:
        raise RunError(f"{script.file} holds no module `{name}`; it holds {names}")
    return found[name] if name is not None else next(iter(found.values()))


def lower_or_refuse(module: tvm.IRModule, target: str, pipeline: PipelineName) -> tvm.IRModule:
    """`module` behind CallTIRRewrite; raises RunError."""
    with run_error(f"TVM cannot lower the module for the target {target!r}"):
        return lower(module, target, pipeline=pipeline)


def plan_or_refuse(
    lowered: tvm.IRModule, target: str, options: PlanOptions, prover: Prover | None = None
) -> PlannedModule:
    """`lowered` planned; raises RunError where a plan cannot be proved, or its proof not be written."""
    try:
        return plan_lowered(lowered, prover, options=options, target=tvm.target.Target(target))
    except PlanRefusedError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"cannot write certificates: {error.strerror}") from None
