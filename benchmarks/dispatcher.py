"""Runs a planned function on several threads: each dispatch once those are over that it waits for.

It shows that a plan holds in any order that its dependency graph and its fences permit; it is no scheduler.

Kernels are those that the virtual machine calls, on tensors at the places that the plan has for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import numpy as np
import tvm
from tvm import relax

from symalloc.analysis.dependencies import DependencyGraph
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.errors import RunError
from symalloc.planner.buffers.sizing import known_symbols
from symalloc.planner.check.concurrency import fenced_graph
from symalloc.planner.memory_plan import Plan
from symalloc.planner.planned_program import planned_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.program import ir
from symalloc.program.types import DType, ScalarType, ShapeType, TensorType, Type, type_leaves
from symalloc.prover.prover import Prover
from symalloc.relax.ir_types import Node, elements
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.size.expr import ZERO, Expr

_VIEW = tvm.get_global_func("runtime.TVMTensorCreateView")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """One function of a machine, run on `workers` threads; `machine` has its kernels, and other functions.

    `graph` has the fences of `plan`; `result` is what the function returns, in TVM's terms.  An exception of
    a kernel ends a call, once the kernels under way are over.
    """

    analysis: FunctionAnalysis
    plan: Plan
    graph: DependencyGraph
    machine: relax.VirtualMachine
    result: Node
    workers: int
    pool: InstrumentedPool | None = None
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function, or another one of the machine."""
        return self if name == self.plan.function else self.machine[name]

    def __call__(self, *arguments: Any) -> Any:
        """The result of a call.  Raises RunError for what only the machine can run."""
        function, given = self.analysis.cfg.function, [i for i, a in enumerate(self.plan.arenas) if a.given]
        call = _Call(self)
        for var, value in zip(function.params, arguments, strict=False):
            call.values[var] = value
            call.learn(var.type, value)
        call.arenas = dict(zip(given, map(np.from_dlpack, arguments[len(function.params) :]), strict=False))
        for guard in self.plan.refusing(call.sizes):
            raise RunError(f"`{self.plan.function}` needs {guard.condition}")
        run_in_order(self.graph, lambda n: call.run(self.graph.nodes[n].instruction), self.workers)
        return call.value(function.body.result, self.result)

    def function(self, name: str) -> Callable[..., Any]:
        """A kernel of the module, or else a function that is known by its name everywhere."""
        if name not in self.functions:
            kernels = self.machine.module.imports[0]
            found = kernels[name] if kernels.implements_function(name) else tvm.get_global_func(name)
            self.functions[name] = found
        return self.functions[name]


def run_in_order(graph: DependencyGraph, start: Callable[[int], object], workers: int) -> None:
    """Start each dispatch on one of `workers` threads once those are over that it waits for.

    The first exception is raised when all that run are over; what has not begun does not begin.
    """
    left = [len(waits) for waits in graph.predecessors]
    ready = [number for number, count in enumerate(left) if not count]
    running: dict[Future[object], int] = {}
    future: Future[object] | None
    with ThreadPoolExecutor(workers) as threads:
        try:
            while ready or running:
                running.update((threads.submit(start, number), number) for number in ready)
                ready = []
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    future.result()
                    over = running.pop(future)
                    for number, waits in enumerate(graph.predecessors):
                        left[number] -= over in waits
                        ready += [number] * (over in waits and not left[number])
        finally:
            threads.shutdown(cancel_futures=True)
            running, future = {}, None  # an exception and this frame would keep each other, and all tensors


def _node(one: ir.Instruction) -> Any:
    """The value that TVM binds."""
    binding: Any = one.handle
    return binding.value


@dataclass(slots=True)
class _Call:
    """One call: values of variables, sizes by symbol, and arenas by index."""

    of: Dispatcher
    values: dict[ir.Var, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    arenas: dict[int, Any] = field(default_factory=dict)
    lock: Any = field(default_factory=RLock)

    def learn(self, kind: Type, given: Any) -> None:
        """Take the sizes that a value tells of the symbols of its type; raises RunError for other sizes."""
        for path, leaf in type_leaves(kind):
            value, pairs = given, list[tuple[Expr, Any]]()
            for index in path:
                value = value[index]
            match leaf:
                case TensorType(shape=extents) if extents is not None:
                    pairs = list(zip(extents, value.shape, strict=True))
                case ShapeType(values=extents) if extents is not None:
                    pairs = list(zip(extents, value, strict=True))
                case ScalarType(value=scalar) if scalar is not None:
                    pairs = [(scalar, value)]
            for extent, number in pairs:
                if extent.as_symbol is not None:
                    self.sizes.setdefault(extent.as_symbol, int(number))
                if extent.symbols <= self.sizes.keys() and extent.evaluate(self.sizes) != int(number):
                    raise RunError(f"`{self.of.plan.function}` is given {number} for {extent}")

    def value(self, operand: ir.Operand, node: Node | None = None) -> Any:
        """The value of an operand; `node` is TVM's, which has the elements of constants."""
        match operand:
            case ir.Var():
                with self.lock:
                    if operand not in self.values:
                        self.run(self.of.analysis.cfg.definitions[operand])
                    return self.values[operand]
            case ir.TupleValue(items=items) if node is not None:
                return tuple(map(self.value, items, elements(node.fields)))
            case ir.ShapeValue(values=extents):
                return tvm.runtime.ShapeTuple(self.extents(extents))
            case ir.Scalar(value=size) if size is not None:
                return size.evaluate(self.sizes)
        if node is None:
            raise RunError(f"`{self.of.plan.function}` can only be run by TVM's machine: {operand}")
        return node.value

    def extents(self, shape: Iterable[Expr]) -> list[int]:
        return [extent.evaluate(self.sizes) for extent in shape]

    def tensor(self, var: ir.Var, shape: Sequence[Expr], dtype: DType) -> Any:
        """New memory for a tensor: at its place in the plan, or its own."""
        placed = self.of.plan.placements.get(var)
        if placed is None:
            return self.memory(self.extents(shape), dtype.name)
        arena, place = placed
        index = self.of.plan.arenas.index(arena)
        with self.lock:
            if index not in self.arenas:
                self.arenas[index] = np.from_dlpack(self.memory(self.extents([arena.size]), "uint8"))
        begin, nbytes = self.extents([place.offset, place.buffer.nbytes])
        source = tvm.runtime.from_dlpack(self.arenas[index][begin : begin + nbytes])
        return _VIEW(source, tvm.runtime.ShapeTuple(self.extents(shape)), tvm.DataType(dtype.name), 0)

    def memory(self, extents: Sequence[int], dtype: str) -> Any:
        pool = self.of.pool
        return tvm.runtime.empty(extents, dtype) if pool is None else pool.empty(extents, dtype)

    def run(self, one: ir.Instruction) -> None:
        """Run an instruction, those in an If one after the other."""
        self.values[one.var] = self.result(one)

    def result(self, one: ir.Instruction) -> Any:
        match one:
            case ir.AllocFresh(shape=shape, dtype=dtype, giver="") if shape is not None:
                return self.tensor(one.var, shape, dtype)
            case ir.AllocTensor(shape=shape, dtype=dtype) if shape is not None:
                return self.tensor(one.var, shape, dtype)
            case ir.AllocStorage():
                return None  # an arena, which is made when something lies in it
            case ir.Alias(source=source):
                return self.value(source, _node(one))
            case ir.MatchCast(source=source):
                self.learn(one.target, self.value(source))
                return self.value(source)
            case ir.MakeTuple(fields=items):
                return tuple(map(self.value, items, elements(_node(one).fields)))
            case ir.TakeField(source=source, index=index):
                return self.value(source)[index]
            case ir.View(kind="reshape" | "view", shape=shape) if shape is not None:
                source, (begin,) = self.value(one.source), self.extents([one.offset or ZERO])
                kind = source.dtype if one.dtype is None else tvm.DataType(one.dtype.name)
                return _VIEW(source, tvm.runtime.ShapeTuple(self.extents(shape)), kind, begin)
            case ir.CallKernel(kernel=name) | ir.CallPacked(name=name):
                return self.of.function(name)(*map(self.value, one.arguments, elements(_node(one).args)))
            case ir.If(test=test):
                side = one.then if self.value(test).numpy() else one.otherwise
                for inner in side.instructions:
                    self.run(inner)
                return self.value(side.result)
        raise RunError(f"`{self.of.plan.function}` can only be run by TVM's machine: {type(one).__name__}")


def on_threads(
    module: tvm.IRModule,
    workers: int,
    *,
    function: str = "main",
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    pool: InstrumentedPool | None = None,
) -> tuple[Dispatcher, relax.VirtualMachine]:
    """`function` of a module, planned, on threads; and the machine for the same plan."""
    found = plan_lowered(lower(module, "llvm"), options=options)
    written = analyse(planned_program(found.program, found.plans).program)[function]
    built = relax.build(found.module, "llvm", relax_pipeline=finishing_pipeline("llvm"))
    machine = relax.VirtualMachine(built, tvm.cpu())
    return Dispatcher(
        analysis=found.analyses[function],
        plan=found.plans[function],
        graph=fenced_graph(written, known_symbols(written.cfg).domain, Prover()),
        machine=machine,
        result=found.module[function].body.body,
        workers=workers,
        pool=pool,
    ), machine
