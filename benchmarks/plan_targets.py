"""Plans for targets that this machine has no device of: each model planned, linted at every stage, and built.

Every pipeline is the one that `relax.build` runs for the target, with our planner in it.  Nothing of this is
run: the code is generated, on a machine without the devices.  Each model and target has a process of its own.

    planned     tensors in arenas, of those that the module allocates
    flavour     what the tensors lie in, chosen for the target
    arenas      how many there are
    lint        errors and warnings that a pass brings into the module, over all passes from CallTIRRewrite on
    built       code was generated: by our pipeline / by TVM's own
    offsets     kernels that take a tensor at an offset, of all
    added       calls a tensor that our plan needs and TVM's does not: ensure_zero_offset, views
    graphs      on CUDA: regions that RewriteCUDAGraph captures behind our planner / behind TVM's

Exit status 1 where a model cannot be planned, linted clean or built where TVM builds it.

    python -m benchmarks.plan_targets [MODEL ...] [--target cuda ...] [--json]
    python -m benchmarks.plan_targets --source torch_vit --target opencl   # code of a kernel
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import tvm
from tvm import relax

import symalloc
from benchmarks.harness import json_option
from benchmarks.zoo_models import GROUPS, case_named
from symalloc.relax.emit.kernel_offsets import offset_parameters
from symalloc.relax.ir_types import error_text
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered

TARGETS = ("llvm", "c", "cuda", "opencl", "metal", "webgpu", "rocm", "vulkan")
SHOWN = (
    "torch_vit",
    "torch_llama",
    "torch_resnet",
    "torch_t5_encoder",
    "torch_whisper_encoder",
    "torch_mixture_of_experts",
)
_TENSOR_CALLS = ("vm.builtin.ensure_zero_offset", "runtime.TVMTensorCreateView", "vm.builtin.reshape")
_GRAPHS = "relax.backend.use_cuda_graph"


def examine(model: str, target: str, source: bool = False) -> dict[str, Any]:
    """One row: what planning, linting and building gave."""
    chosen = tvm.target.Target(target)
    module = case_named(model).build()
    row: dict[str, Any] = {"model": model, "target": target}

    def part(name: str, action: Callable[[], Any]) -> None:
        try:
            row[name] = action()
        except Exception as error:  # TVM raises whatever it raises
            row[name] = {"problem": error_text(error, most=1)}

    part("plan", lambda: _plan(module, chosen))
    part("lint", lambda: _lint(module, chosen))
    part("built", lambda: _build(module, chosen, symalloc.pipeline(chosen)))
    part("theirs", lambda: _build(module, chosen, "default"))
    if target == "cuda":
        part("graphs", lambda: [_regions(module, chosen, p) for p in (symalloc.pipeline(chosen), "default")])
    if source:
        part("source", lambda: _kernel(module, chosen))
    return row


def _plan(module: tvm.IRModule, target: tvm.target.Target) -> dict[str, Any]:
    planned = plan_lowered(lower(module, target), target=target)
    arenas = [a for plan in planned.plans.values() for a in plan.arenas]
    placed = [p for a in arenas for p in a.placements]
    unplanned = [u for plan in planned.plans.values() for u in plan.unplanned]
    kernels = [f for f in planned.module.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    alone = [p for p in placed if p.buffer.grounded and planned.flavour != "storages"]
    return {
        "tensors": len(placed),
        "allocated": len(placed) + len(unplanned),
        "arenas": len(arenas),
        "flavour": "arena" if any(p.offset.as_constant != 0 for p in placed) else "storages",
        "grounded": len(alone),
        "kernels": len(kernels),
        "offsets": sum(bool(offset_parameters(kernel)) for kernel in kernels),
    }


def _lint(module: tvm.IRModule, target: tvm.target.Target) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with tvm.transform.PassContext(instruments=[symalloc.VerifyMemory(mode="warn")]):
            symalloc.pipeline(target)(module)
    found = [w for w in told if issubclass(w.category, UserWarning) and "memory fault" in str(w.message)]
    return [str(w.message) for w in found]


def _build(module: tvm.IRModule, target: tvm.target.Target, pipeline: Any) -> dict[str, int]:
    built = relax.build(module, target, relax_pipeline=pipeline)
    text = built.as_text()
    return {name: len(re.findall(rf"{re.escape(name)}\b", text)) for name in _TENSOR_CALLS}


def _regions(module: tvm.IRModule, target: tvm.target.Target, pipeline: Any) -> int:
    with tvm.transform.PassContext(config={_GRAPHS: True}):
        text = relax.build(module, target, relax_pipeline=pipeline).as_text()
    return len(re.findall(r"vm\.builtin\.cuda_graph\.run_or_capture\b", text))


def _kernel(module: tvm.IRModule, target: tvm.target.Target) -> str:
    """The code of the shortest kernel that takes a tensor at an offset, on the host and on the device."""
    planned = plan_lowered(lower(module, target), target=target).module
    kernels = {
        v.name_hint: f.with_attr("global_symbol", v.name_hint)
        for v, f in planned.functions_items()
        if isinstance(f, tvm.tirx.PrimFunc) and offset_parameters(f)
    }
    built = {n: tvm.tirx.build(tvm.IRModule({n: f}), target=target) for n, f in kernels.items()}
    codes = {n: "\n".join(i.inspect_source() for i in m.imports) for n, m in built.items()}
    name = min(codes, key=lambda n: len(codes[n]))
    host = tvm.tirx.build(tvm.IRModule({name: kernels[name]}), target=target.with_host("c"))
    return f"// host, {name}\n{_signature(host.inspect_source())}\n// device\n{codes[name]}"


def _signature(host: str) -> str:
    """The lines of a host function that are about offsets and that call the kernel."""
    return "\n".join(line for line in host.splitlines() if "offset" in line or "kernel" in line)


# -- the table -----------------------------------------------------------------------------------------------


def measured(model: str, target: str, source: bool) -> dict[str, Any]:
    """`examine` in a process of its own, as TVM may crash."""
    code = "import json, sys; from benchmarks.plan_targets import examine; "
    code += f"print(json.dumps(examine({model!r}, {target!r}, {source!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        problem = {"problem": f"the process ended with {done.returncode}"}
        return {
            "model": model,
            "target": target,
            **dict.fromkeys(("plan", "lint", "built", "theirs"), problem),
        }
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(row: dict[str, Any]) -> str:
    """One row of the table, and a line for each problem."""
    plan, lint = row["plan"], row["lint"]
    ok = "problem" not in plan
    text = f"{row['model']:28}{row['target']:8}"
    text += f"{plan['tensors']}/{plan['allocated']}".rjust(9) if ok else "-".rjust(9)
    text += f"{plan['flavour']:>10}{plan['arenas']:>7}" if ok else f"{'-':>10}{'-':>7}"
    text += f"{'clean' if lint == [] else len(lint) if isinstance(lint, list) else 'failed':>8}"
    text += f"{_yes(row['built'])}/{_yes(row['theirs'])}".rjust(10)
    text += (f"{plan['offsets']}/{plan['kernels']}" if ok else "-").rjust(9)
    text += f"{added(row):>8}" + (_graphs(row["graphs"]).rjust(8) if "graphs" in row else "")
    more = [f"    {n}: {p}" for n in ("plan", "lint", "built", "theirs", "graphs") for p in _problem(row, n)]
    more += [f"    lint: {fault.splitlines()[0]}" for fault in lint] if isinstance(lint, list) else []
    return "\n".join([text, *more, *([row["source"]] if isinstance(row.get("source"), str) else [])])


def _problem(row: dict[str, Any], name: str) -> Iterator[str]:
    found = row.get(name)
    if isinstance(found, dict) and "problem" in found:
        yield found["problem"]


def _yes(built: dict[str, Any]) -> str:
    return "no" if "problem" in built else "yes"


def _graphs(found: Any) -> str:
    return "-" if isinstance(found, dict) else "/".join(map(str, found))


def added(row: dict[str, Any]) -> str:
    """Calls that bring tensors to their place, ours less TVM's, over the tensors planned."""
    ours, theirs, plan = row["built"], row["theirs"], row["plan"]
    if any("problem" in part for part in (ours, theirs, plan)) or not plan["tensors"]:
        return "-"
    more = sum(ours[name] - theirs[name] for name in _TENSOR_CALLS)
    return f"{more / plan['tensors']:.2f}"


def failures(row: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a row."""
    where = f"{row['model']} for {row['target']}"
    if "problem" in row["plan"]:
        yield f"{where}: not planned"
    if row["lint"] != []:
        yield f"{where}: not clean"
    if "problem" in row["built"] and "problem" not in row["theirs"]:
        yield f"{where}: not built, and TVM builds it"
    if isinstance(row.get("graphs"), list) and row["graphs"][0] < row["graphs"][1]:
        yield f"{where}: {row['graphs'][0]} regions captured against {row['graphs'][1]} behind TVM's planner"


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--target", "targets", multiple=True, help="A target; may be repeated.")
@click.option("--source", is_flag=True, help="Show the code of a kernel that takes an offset.")
@json_option
def main(models: Sequence[str], targets: Sequence[str], source: bool, as_json: bool) -> None:
    """Exit with 1 where something fails that TVM's own build does not; 2 for a model that there is not."""
    known = [name for names in GROUPS.values() for name in names]
    unknown = [name for name in models if name not in known]
    if unknown:
        raise click.UsageError(f"no such model: {', '.join(unknown)}; there are {', '.join(known)}")
    if not as_json:
        print(
            f"{'model':28}{'target':8}{'planned':>9}{'flavour':>10}{'arenas':>7}{'lint':>8}{'built':>10}"
            f"{'offsets':>9}{'added':>8}{'graphs':>8}"
        )
    rows = []
    for model in models or SHOWN:
        for target in targets or TARGETS:
            rows.append(row := measured(model, target, source))
            if not as_json:
                print(line(row), flush=True)
    wrong = [text for row in rows for text in failures(row)]
    print(json.dumps({"rows": rows, "wrong": wrong}) if as_json else "\n".join(["", *wrong]).rstrip())
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
