"""How much RewriteCUDAGraph captures of a plan with reserved bounds, and what is reserved, beside TVM's plan.

Every symbol of an imported model is declared to be at most `--bound`, and may be captured.  Both planners get
the same lowered module.  The pass needs no GPU, and nothing is run.  Columns: captured regions and kernels
called in them, ours and TVM's; bytes of storages at the bound, ours, TVM's and their ratio; ours over the
floor of the planned tensors there.

    python -m benchmarks.plan_graphs [MODEL ...] [--bound 128] [--target llvm] [--json]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import tvm
from tvm import relax

from benchmarks.harness import json_option, print_table
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.function_report import floors
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.size.expr import highest
from tests.models.imported import load_imported

MODELS = (
    *("torch_llama", "torch_decode_step", "torch_gpt2", "torch_bert", "torch_t5_encoder", "torch_gru"),
    *("torch_resnet", "torch_convnext", "torch_unet", "torch_vit"),
)
COLUMNS = {
    "model": "<24",
    "regions": ">8",
    "TVM's": ">7",
    "kernels": ">9",
    "of TVM's": ">10",
    "reserved": ">12",
    "by TVM": ">12",
    "ratio": ">7.3f",
    "over floor": ">11.3f",
}


def declared(module: tvm.IRModule, bound: int) -> tvm.IRModule:
    """`module` with every symbol of its public functions bounded, and free to be captured."""
    found = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and function.attrs and "global_symbol" in function.attrs:
            names = sorted({str(v.name) for v in relax.analysis.defined_symbolic_vars(function)})
            function = function.with_attr("tir_var_upper_bound", dict.fromkeys(names, bound))
            function = function.with_attr("relax.rewrite_cuda_graph.capture_symbolic_vars", names)
            found.update_func(variable, function)
    return found


def captured(module: tvm.IRModule) -> tuple[int, int]:
    """The captured regions, and the calls of kernels in them."""
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        rewritten = relax.transform.RewriteCUDAGraph()(module)
    functions = rewritten.functions_items()
    kernels = {v.name_hint for v, f in functions if isinstance(f, tvm.tirx.PrimFunc)}
    regions = [f for v, f in functions if "cuda_graph_capture" in v.name_hint]
    return len(regions), sum(call.op.name_hint in kernels for region in regions for call in _calls(region))


def _calls(function: relax.Function) -> Iterator[Any]:
    found: list[Any] = []
    relax.analysis.post_order_visit(function, found.append)
    return (e for e in found if isinstance(e, tvm.ir.Call) and isinstance(e.op, tvm.ir.GlobalVar))


def reserved(module: tvm.IRModule) -> int:
    """The bytes of all storages of constant size that the functions of `module` reserve."""
    sizes: list[int] = []

    def note(value: Any) -> None:
        if isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == "relax.memory.alloc_storage":
            extent = value.args[0].values[0]
            sizes.extend([int(extent)] if isinstance(extent, tvm.tirx.IntImm) else [])

    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, note)
    return sum(sizes)


def row(name: str, bound: int, target: str) -> dict[str, Any]:
    """One model's line."""
    lowered = lower(declared(load_imported(name), bound), target)
    planned = plan_lowered(lowered, options=PlanOptions(bounds="auto"), keeps_reshapes=True)
    theirs = relax.transform.StaticPlanBlockMemory()(lowered)
    (regions, kernels), (their_regions, their_kernels) = captured(planned.module), captured(theirs)
    ours, tvm_bytes = reserved(planned.module), reserved(theirs)
    floor = sum(highest(f.sums, {}) or 0 for plan in planned.plans.values() for f in floors(plan))
    return {
        "model": name,
        "regions": regions,
        "TVM's": their_regions,
        "kernels": kernels,
        "of TVM's": their_kernels,
        "reserved": ours,
        "by TVM": tvm_bytes,
        "ratio": ours / max(tvm_bytes, 1),
        "over floor": ours / max(floor, 1),
    }


@click.command()
@click.argument("models", nargs=-1)
@click.option("--bound", default=128, show_default=True, help="The declared upper bound of every symbol.")
@click.option("--target", default="llvm", show_default=True, help="The TVM target to lower for.")
@json_option
def main(models: tuple[str, ...], bound: int, target: str, as_json: bool) -> None:
    """Print the table."""
    rows = (row(name, bound, target) for name in models or MODELS)
    if as_json:
        print(json.dumps(list(rows), indent=2))
    else:
        print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
