"""mlc-llm's own pipeline with TVM's planner and with symalloc's in its place, CUDA graphs on and off.

FILES are modules of mlc-llm as they stand in front of its planner, as `tvm.ir.save_json` writes them, packed
by gzip or not; `--mlc` is the folder `python` of a checkout of mlc-llm, which is not installed.  Its pipeline
runs as it is from the planner to the passes that rewrite for CUDA graphs; nothing else is run, and no GPU is
needed.  A row is a module and a planner, and sums the functions of the module:

    inside, outside  calls of kernels in graphs that are captured, and in functions that launch them
    graphs           calls of graphs
    metadata         the most that `memory_usage` of mlc-llm's metadata says of a function: its engine leaves
                     room for that
    reserved         the most that the storages of a function come to at its declared bounds, as far as they
                     do not depend on symbols without one; so much of it a graph or the pool of TVM's machine
                     keeps, results with it
    in all           the same, of all functions together
    returned         functions whose result lies in the memory of a graph, in which the next call writes
    worse            functions of which fewer kernels are captured than behind TVM's planner (but for one
                     where its result is such), more is reserved, or the metadata does not say what is
                     reserved; and those of `returned`

Exit status 1 where some are worse without options.

    python -m benchmarks.take_over FILE ... --mlc mlc-llm/python [--json]
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import tvm
from tvm import relax, tirx
from tvm.ir.instrument import pass_instrument

import symalloc
from benchmarks.harness import json_option, print_table
from symalloc.analysis.interprocedural import analyse
from symalloc.program.ir import AllocFresh, AllocStorage
from symalloc.program.types import byte_count
from symalloc.relax.extract import extract

PLANNERS: Mapping[str, dict[str, Any] | None] = {
    "TVM": None,
    "symalloc": {},
}
"""The options of `replace_tvm_planner`, None for TVM's planner."""

OUTERMOST = ("_pipeline", "sequential")
PLANNED = ("StaticPlanBlockMemory", "PlanMemory")
REPLAY = "vm.builtin.cuda_graph.run_or_capture"
VIEWS = ("relax.reshape", "relax.memory.view", "relax.memory.alloc_tensor", "runtime.TVMTensorCreateView")
LAST = "AttachCUDAGraphAllocInitFunc"
COLUMNS = {
    "module": "<42",
    "graphs": "<7",
    "planner": "<10",
    "inside": ">7",
    "outside": ">8",
    "replays": ">8",
    "metadata": ">12,",
    "reserved": ">12,",
    "in all": ">14,",
    "returned": ">9",
    "worse": ">6",
}


@dataclass(slots=True, kw_only=True)
class Compiled:
    """The module behind the planner and behind the passes for graphs; `metadata` is mlc-llm's."""

    planned: tvm.IRModule | None = None
    graphs: tvm.IRModule | None = None
    metadata: dict[str, Any] = field(default_factory=lambda: {"pipeline_parallel_stages": 1})


def mlc_pipeline(folder: Path) -> Any:
    """The pipeline of mlc-llm, of which only the compiler's passes are imported.

    Names that TVM has elsewhere since are found there.
    """
    package = types.ModuleType("mlc_llm")
    package.__path__ = [str(folder / "mlc_llm")]
    sys.modules["mlc_llm"] = package
    relax.__getattr__ = _of_ir
    os.environ["SKIP_LOADING_MLCLLM_SO"] = "1"
    return import_module("mlc_llm.compiler_pass.pipeline")._mlc_llm_pipeline


def _of_ir(name: str) -> Any:
    if hasattr(tvm.ir, name):
        return getattr(tvm.ir, name)
    raise AttributeError(name)


def compiled(pipeline: Any, module: tvm.IRModule, target: str, graphs: bool, planner: str) -> Compiled:
    """`module` compiled from the planner on."""
    found, given = Compiled(), PLANNERS[planner]

    @pass_instrument
    class FromPlanner:
        """Leaves out the passes around those that are wanted."""

        def should_run(self, _: tvm.IRModule, info: Any) -> bool:
            begun = found.planned is not None or info.name in PLANNED
            return info.name in OUTERMOST or (begun and found.graphs is None)

        def run_after_pass(self, behind: tvm.IRModule, info: Any) -> None:
            if info.name in PLANNED:
                found.planned = behind
            elif info.name == LAST:
                found.graphs = behind

    ours = nullcontext() if given is None else symalloc.replace_tvm_planner(**given)
    context = tvm.transform.PassContext(
        config={"relax.backend.use_cuda_graph": graphs}, instruments=[FromPlanner()]
    )
    chosen = tvm.target.Target(target)
    with chosen, ours, context:
        pipeline(chosen, metadata=found.metadata, variable_bounds={"batch_size": 1})(module)
    return found


def functions(module: tvm.IRModule) -> Mapping[str, relax.Function]:
    """The Relax functions by name."""
    return {v.name_hint: f for v, f in module.functions_items() if isinstance(f, relax.Function)}


@dataclass(slots=True)
class Captured:
    """Kernels of one function that are called in graphs and outside, calls of graphs, and whether a result
    lies in the memory of a graph, in which the next call writes.
    """

    inside: int = 0
    outside: int = 0
    replays: int = 0
    returned: bool = False


def captured(module: tvm.IRModule) -> Mapping[str, Captured]:
    """The kernels of each function: those of a graph that is called twice count twice."""
    kernels = {v.name_hint for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    bodies = {
        name: [b for block in f.body.blocks for b in block.bindings] for name, f in functions(module).items()
    }
    own = {
        name: sum(isinstance(v := b.value, tvm.ir.Call) and _callee(v) in kernels for b in body)
        for name, body in bodies.items()
    }
    found = {}
    for name, body in bodies.items():
        replays = {b.var: b.value.args[1][0].name_hint for b in body if _is_builtin(b.value, REPLAY)}
        if "_cuda_graph_" not in name:
            inside = sum(own[graph] for graph in replays.values())
            returned = any(map(_of_graph, _leaves(module[name].body.body, {b.var: b.value for b in body})))
            found[name] = Captured(inside, own[name], len(replays), returned)
    return found


def _callee(call: Any) -> str:
    return str(call.op.name_hint) if isinstance(call.op, tvm.ir.GlobalVar) else ""


def _is_builtin(value: Any, name: str) -> bool:
    given = value.args[0] if isinstance(value, tvm.ir.Call) and value.args else None
    return isinstance(given, relax.ExternFunc) and str(given.global_symbol).startswith(name)


def _of_graph(value: Any) -> bool:
    """Whether it is memory that graphs keep, or what they write."""
    return _is_builtin(value, "vm.builtin.cuda_graph.")


def _leaves(value: Any, bound: Mapping[Any, Any]) -> Iterator[Any]:
    """The values that a result is made of, through tuples, views and other names; of a tensor its storage."""
    operator = getattr(value, "op", None)
    if getattr(operator, "name", getattr(operator, "global_symbol", "")) in VIEWS:
        yield from _leaves(value.args[0], bound)
    elif isinstance(value, relax.TupleGetItem):
        whole = list(_leaves(value.tuple_value, bound))
        yield from _leaves(whole[value.index], bound) if len(whole) > 1 else whole
    elif isinstance(value, relax.Tuple):
        for part in value.fields:
            yield from _leaves(part, bound)
    elif value in bound:
        yield from _leaves(bound[value], bound)
    else:
        yield value


def reserved(module: tvm.IRModule) -> Mapping[str, int]:
    """The bytes of all storages of each function at its declared bounds; one that depends on another symbol
    counts nothing.
    """
    found = {}
    for name, one in analyse(extract(module, name="module")).items():
        bounds = one.cfg.function.declared_upper
        made = [storage.size for _, storage in one.cfg.of_type(AllocStorage)]
        for _, tensor in one.cfg.of_type(AllocFresh):
            made.append(byte_count(tensor.shape, tensor.dtype))
        known = [size for size in made if size is not None and size.symbols <= bounds.keys()]
        found[name] = sum(size.evaluate(bounds) for size in known)
    return found


def rows(pipeline: Any, file: Path) -> Iterator[dict[str, Any]]:
    """The rows of one module."""
    data = file.read_bytes()
    module = tvm.ir.load_json((gzip.decompress(data) if file.suffix == ".gz" else data).decode())
    target = "llvm" if ".llvm." in file.name else "nvidia/nvidia-h100"
    for graphs in (True, False):
        theirs: tuple[Mapping[str, Captured], Mapping[str, int]] | None = None
        for planner in PLANNERS:
            made = compiled(pipeline, module, target, graphs, planner)
            kernels, said = captured(made.graphs), made.metadata["memory_usage"]
            held = {name: size for name, size in reserved(made.planned).items() if name in said}
            theirs = theirs or (kernels, held)
            worse = [
                name
                for name in held
                if kernels[name].inside < theirs[0][name].inside - theirs[0][name].returned
                or kernels[name].returned
                or held[name] > theirs[1][name]
                or said[name] != held[name]
            ]
            yield {
                "module": file.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pre"),
                "graphs": "on" if graphs else "off",
                "planner": planner,
                "inside": sum(k.inside for k in kernels.values()),
                "outside": sum(k.outside for k in kernels.values()),
                "replays": sum(k.replays for k in kernels.values()),
                "metadata": max(said.values()),
                "reserved": max(held.values()),
                "in all": sum(held.values()),
                "returned": sum(kernels[name].returned for name in held),
                "worse": len(worse),
                "functions": worse,
            }


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--mlc", required=True, type=click.Path(exists=True, path_type=Path), help="mlc-llm/python.")
@json_option
def main(files: tuple[Path, ...], mlc: Path, as_json: bool) -> None:
    """Print the table."""
    sys.path.insert(0, str(mlc))
    pipeline = mlc_pipeline(mlc)
    found = []

    def noted() -> Iterator[dict[str, Any]]:
        for file in files:
            for row in rows(pipeline, file):
                found.append(row)
                yield row

    if as_json:
        print(json.dumps(list(noted()), indent=2))
    else:
        print_table(COLUMNS, noted())
    sys.exit(any(row["worse"] for row in found if row["planner"] == "symalloc"))


if __name__ == "__main__":
    main()
