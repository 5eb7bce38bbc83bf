"""Virtual machines for a lowered module, and calls on them: what came out, as arrays, and how it differs; and
the dispatches of a function on several threads, each once those are over that the graph of its plan names.
"""

from __future__ import annotations

import ctypes
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, wraps
from graphlib import TopologicalSorter
from queue import SimpleQueue
from threading import RLock
from time import perf_counter, sleep
from traceback import clear_frames
from typing import Any, Literal

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call
from tvm.relax import transform

from symalloc.analysis.interprocedural import analyse
from symalloc.errors import RunError, shown
from symalloc.native.native_functions import pool_functions
from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.check.validate import fenced_graph
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.native_pool import NativePool
from symalloc.pool.pool_errors import PoolError, PoolUsageError
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import BindingNode, Node, VarNode, effect, elements, error_text, run_error
from symalloc.relax.passes.pipeline import finishing_pipeline
from symalloc.relax.passes.stages import passes_run_by
from symalloc.relax.rewrite import ModuleDraft, map_bindings
from symalloc.relax.run.inputs import Argument, ObjectArgument, ShapeArgument, forward, with_sequences


def machines(
    lowered: tvm.IRModule,
    memory: InstrumentedPool | str,
    *,
    target: str,
    pipeline: PipelineName,
    count: int = 1,
) -> list[relax.VirtualMachine]:
    """So many machines on `memory`, a pool or the name of an allocator of TVM's; raises RunError.

    `lowered` is as CallTIRRewrite, or a planner, leaves it.  For a pool, what is allocated is named.
    """
    given: str | dict[object, int] = memory if isinstance(memory, str) else memory_cfg(memory)
    finishing = finishing_pipeline(target, pipeline=pipeline, names=memory is not given)
    logging.getLogger("symalloc").info("building")
    with run_error("TVM cannot build the module"):
        built = relax.build(lowered, target, relax_pipeline=finishing)
        return [relax.VirtualMachine(built, tvm.cpu(), memory_cfg=given) for _ in range(count)]


def planned_by_tvm(lowered: tvm.IRModule) -> tvm.IRModule:
    """`lowered` behind StaticPlanBlockMemory; raises RunError."""
    with run_error("StaticPlanBlockMemory fails"), passes_run_by(None):
        planned = transform.StaticPlanBlockMemory()(lowered)
    with run_error("StaticPlanBlockMemory puts a tensor where another branch of an If makes memory"):
        relax.analysis.well_formed(planned, check_ty=False)
    return planned


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The outputs of a call, the arguments behind it, and how long it took."""

    outputs: tuple[np.ndarray, ...]
    arguments: tuple[np.ndarray, ...]
    seconds: float

    def arrays(self, but: Collection[int] = ()) -> dict[str, np.ndarray]:
        """The outputs, and the arguments less those at the positions `but`, by what they are called."""
        outputs = {f"output {index}": array for index, array in enumerate(self.outputs)}
        arguments = enumerate(self.arguments)
        return outputs | {f"argument {index}": array for index, array in arguments if index not in but}


def call(
    machine: relax.VirtualMachine,
    function: str,
    arguments: Sequence[Argument],
    around: AbstractContextManager[object] | None = None,
    memory: Sequence[object] = (),
) -> CallResult:
    """One call on fresh copies of `arguments`, which the function may write, and on `memory` that it takes
    behind them; it alone runs within `around`.

    Raises PoolError for what a pool refuses, RunError for all else that fails.
    """
    with run_error(f"TVM cannot take the arguments of `{function}`"):
        taking = _Taking(machine)
        passed = [taking(a) for a in arguments]
    try:
        with forward(taking.states), around or nullcontext():
            started = perf_counter()
            result = machine[function](*passed, *memory)
            seconds = perf_counter() - started
    except (RunError, PoolError):
        raise
    except Exception as error:  # a kernel, a guard, a packed function
        raise RunError(f"`{function}` fails when it runs: {error_text(error)}") from None
    return CallResult(outputs=tuple(_arrays(result)), arguments=tuple(_arrays(passed)), seconds=seconds)


@contextmanager
def clocked(machine: relax.VirtualMachine, seconds: dict[str, list[float]]) -> Iterator[None]:
    """Notes the seconds of each call that `machine` makes within, by name; not those of its own builtins."""
    begun: list[float] = []

    def note(_: object, name: str, before: bool, *__: object) -> int:
        now = perf_counter()
        if before:
            begun.append(now)
        elif begun and not name.startswith("vm.builtin."):
            seconds.setdefault(name, []).append(now - begun[-1])
        del begun[len(begun) - (not before) :]
        return 0  # TVM's VMInstrumentReturnKind: go on

    machine.set_instrument(note)
    try:
        yield
    finally:
        machine.set_instrument(lambda *_: 0)


# a class: an inner function that calls itself is a cycle, and would keep the machine until it is collected
class _Taking:
    """Makes values of TVM's of the arguments of one call; `states` are the objects among them.

    What hands back several objects at once is called once.
    """

    def __init__(self, machine: relax.VirtualMachine) -> None:
        self._machine = machine
        self._made: dict[str, object] = {}
        self.states: list[tuple[object, tuple[int, ...]]] = []

    def __call__(self, argument: Argument) -> object:
        if isinstance(argument, ShapeArgument):
            return tvm.runtime.ShapeTuple(argument)
        if isinstance(argument, ObjectArgument):
            found = with_sequences(self._object(argument), argument.lengths)
            self.states.append((found, argument.lengths))
            return found
        if isinstance(argument, tuple):
            return tuple(map(self, argument))
        return tvm.runtime.tensor(argument) if isinstance(argument, np.ndarray) else argument

    def _object(self, argument: ObjectArgument) -> object:
        made: Any = self._made.get(argument.maker) if argument.path else None
        if made is None:
            made = self._machine[argument.maker](*map(self, argument.arguments))
            self._made[argument.maker] = made
        for index in argument.path:
            made = made[index]
        return made


def _arrays(value: object) -> list[np.ndarray]:
    """The tensors (and shapes, as arrays) in a result, depth first."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    if isinstance(value, tvm.runtime.ShapeTuple):
        return [np.array(list(value), dtype="int64")]
    if isinstance(value, int | float):
        return [np.array(value)]
    try:
        items = list(value)  # type: ignore[call-overload]
    except TypeError:
        return []  # an object that holds no numbers
    return [array for item in items for array in _arrays(item)]


def changed(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | str:
    """The elements that differ in bits, as a flat array of truth values for each array; for arrays that are
    not of the same kind what is different, in words.
    """
    if ours.keys() != theirs.keys():
        return f"{len(ours)} outputs and arguments against {len(theirs)} of the unplanned module"
    found: dict[str, np.ndarray] = {}
    for name, a in ours.items():
        b = theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {a.dtype}{a.shape}; the unplanned module gives {b.dtype}{b.shape}"
        shape = a.size, a.dtype.itemsize
        left, right = (np.frombuffer(x.tobytes(), dtype=np.uint8).reshape(shape) for x in (a, b))
        found[name] = (left != right).any(axis=1)
    return found


# -- memory that nothing has written -----------------------------------------------------------------------

# Two runs that differ only in what new tensors hold give other results where a kernel reads what nothing has
# written: a maximum over no elements, a result that is left unwritten in part.


_FUNCTION = "symalloc.run.fill"
_ALLOCATION = "relax.builtin.alloc_tensor"
_FLOATS = (0.75, -24.25)  # either sign, so that neither a maximum nor a rectifier hides them
_BYTES = (0x3F, 0xC1)  # of element types that NumPy has not: numbers as well


def filled(lowered: tvm.IRModule, filling: Literal[0, 1]) -> tvm.IRModule:
    """`lowered`, as CallTIRRewrite leaves it, with each new tensor filled with the same number at once."""
    tvm.register_global_func(_FUNCTION, _fill, override=True)

    def with_filling(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        if not isinstance(binding.value, Call) or getattr(binding.value.op, "name", None) != _ALLOCATION:
            return None
        return [binding, effect(relax.ExternFunc(_FUNCTION), [binding.var, relax.prim_value(filling)])]

    return map_bindings(lowered, with_filling)


def _fill(tensor: tvm.runtime.Tensor, filling: int) -> None:
    """Integers become 0 or 1, which are in range wherever they are indices."""
    dtype = str(tensor.dtype)
    kind = tvm.DataType(dtype)
    nbytes = tensor.numel() * ((kind.bits * kind.lanes + 7) // 8)
    if not nbytes:
        return
    memory = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    try:
        elements = np.frombuffer(memory, dtype=np.dtype(dtype))
    except TypeError:
        np.frombuffer(memory, dtype=np.uint8)[:] = _BYTES[filling]
        return
    elements[:] = _FLOATS[filling] if elements.dtype.kind in "fc" else filling


TRIED = 4096  # bytes
KNOWN = "0.27"  # the version whose layout is the one in native/bindings/vm_layout.h
_WAYS_IN = ("_get_output", "_invoke_closure", "_invoke_stateful", "_save_function", "_set_input")
LATER = "load the library that has registered `DeviceAllocator.` before the first symalloc.memory_cfg"


@tvm_ffi.register_error("HookError")
class HookError(RunError, RuntimeError):
    """This version of TVM does not take a foreign allocator."""


class MachineBusyError(RunError, RuntimeError):
    """A thread calls a machine that another thread is in."""


class PoolType(int):
    """The type of the allocators of one pool, which it keeps."""

    pool: NativePool


def memory_cfg(pool: NativePool) -> dict[object, int]:
    """The `memory_cfg` with which a `relax.VirtualMachine` takes its storages from `pool`.

        machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))

    Storages have the bytes that the program asks for and no more, at multiples of 64.  The pool serves
    cpu(0), and any number of virtual machines and threads.  The result keeps it, and so does each machine
    that `relax.VirtualMachine` makes with it; whoever makes a machine in another way keeps the pool.

    Raises HookError where this version of TVM is not known, takes no foreign allocator, or lays out its
    storages in another way.  What the pool refuses reaches the caller of the machine as OutOfMemoryError or
    BoundsError.  Raises PoolUsageError where `pool` is none.
    """
    if not isinstance(pool, NativePool):
        raise PoolUsageError(
            f"memory_cfg takes a pool, not {shown(pool)}: symalloc.memory_cfg(symalloc.Pool())"
        )
    if pool.closed:
        raise PoolUsageError("the pool is closed")
    _require_hook(str(tvm.__version__))
    _keep_pools()
    kind = PoolType(pool_functions.vm_type(pool.object))
    kind.pool = pool
    return {tvm.cpu(): kind}


@cache
def _keep_pools() -> None:
    """Have machines that are made from now on keep the pools they are given, of which TVM does not tell."""
    setup = relax.VirtualMachine._setup_device

    @wraps(setup)
    def keeping(self: relax.VirtualMachine, dev: object, memory_cfg: object) -> None:
        given = memory_cfg.values() if isinstance(memory_cfg, dict) else ()
        pools = [kind.pool for kind in given if isinstance(kind, PoolType)]
        try:
            setup(self, dev, memory_cfg)
        except Exception as error:
            if pools and "Unknown allocator type" in str(error):
                raise HookError(f"TVM no longer asks symalloc for allocators; {LATER}") from error
            raise
        for pool in pools:
            pool_functions.keep_pool(self.module, pool.object)
        self._symalloc_pools = pools  # with their callbacks
        self._symalloc_thread = RLock()
        for way in _WAYS_IN if pools else ():
            setattr(self, way, _by_one_thread(self._symalloc_thread, getattr(self, way)))

    def called(self: relax.VirtualMachine, name: str) -> Callable[..., object]:
        function = found(self, name)
        mine = getattr(self, "_symalloc_pools", ())
        return _by_one_thread(self._symalloc_thread, function) if mine else function

    found = relax.VirtualMachine.__getitem__
    relax.VirtualMachine._setup_device, relax.VirtualMachine.__getitem__ = keeping, called


def _by_one_thread(lock: Any, function: Callable[..., object]) -> Callable[..., object]:
    """`function` of a machine, which TVM's threads may not enter together: the second one gets an error."""

    def call(*arguments: object) -> object:
        if not lock.acquire(blocking=False):
            raise MachineBusyError("another thread is in this machine; make one for each thread")
        try:
            return function(*arguments)
        finally:
            lock.release()

    return call


def try_hook() -> str:
    """Try the hook of this TVM on a program; return what is wrong with it, "" where nothing is.

    Where storages are laid out in another way this may end the process.
    """
    pool = NativePool()
    try:
        number = pool_functions.vm_type(pool.object)
        machine, storage = _one_storage({tvm.cpu(): number})
    except Exception as error:  # TVM raises several kinds
        return f"takes no foreign allocator: {error_text(error)}"
    fault = pool_functions.storage_fault(storage, number, TRIED)
    if fault:
        return f"takes a foreign allocator, but {fault}"
    held = pool.statistics().live
    del storage, machine
    if (held, pool.statistics().live) != (TRIED, 0):
        return "takes a foreign allocator, but does not allocate from it, or does not free there"
    return ""


@cache
def _require_hook(version: str) -> None:
    fault = try_hook() if version.startswith(f"{KNOWN}.") else "may lay its objects out in another way"
    if fault:
        raise HookError(f"this TVM ({version}) {fault}; the pool works with {KNOWN}")


def reserved_by_tvm() -> int:
    """Bytes that TVM's own pooled allocator for cpu(0) has reserved in this process, a page for the question.

    It gives nothing back: they are its peak.  Raises HookError.
    """
    _require_hook(str(tvm.__version__))
    return pool_functions.reserved_for(_one_storage("pooled")[1])


def _one_storage(given: object) -> tuple[relax.VirtualMachine, object]:
    """A machine with the `memory_cfg` that is given, and a storage of TRIED bytes that it has made."""
    builder, nbytes = relax.BlockBuilder(), tvm.tirx.Var("nbytes", "int64")
    with builder.function("main", [relax.Var("shape", relax.ShapeType([nbytes]))]):
        storage = relax.op.memory.alloc_storage(relax.ShapeExpr([nbytes]), 0, "global", "uint8")
        builder.emit_func_output(builder.emit(storage))
    program = relax.build(builder.get(), target="llvm")
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=given)
    return machine, machine["main"](tvm.runtime.ShapeTuple([TRIED]))


# -- on several threads -------------------------------------------------------------------------------------

_RESULT, _NOTHING = 0, 1  # no addresses of variables
_LOOKED_AGAIN = 0.001  # seconds


class Dispatcher:
    """The function `name` of a module, in which anybody has planned memory, or nobody, on several threads.

    It shows that a plan holds in any order that its dependencies and fences permit; it is no scheduler.
    TVM's machines run all of it: each binding of the outermost block is a function of its own.

    `build` makes machines: the first makes what no dispatch makes (memory, views, sizes) once it is needed,
    each of the others runs one dispatch at a time.  A value goes when all that use it are over.
    """

    def __init__(
        self, module: tvm.IRModule, name: str, build: Callable[[tvm.IRModule], list[relax.VirtualMachine]]
    ) -> None:
        program, binding, bindings = extract(module, name=name, handles=True), None, dict[int, Any]()
        for one in reversed(program.functions[name].body.instructions):
            # a call whose result becomes a view has no binding but that of the view
            binding = bindings[id(one)] = one.handle or binding
        analysis, cutter = analyse(program)[name], _Cutter(module, name)
        graph = fenced_graph(analysis, known_symbols(analysis.cfg).domain)
        self.name, self._waits = name, dict(enumerate(graph.predecessors))
        self._dispatches = [bindings[id(one)].var.__chandle__() for one in graph.instructions]
        self._steps, self._params = cutter.steps, cutter.params
        self._uses = [self._used_by(address) for address in (*self._dispatches, _RESULT)]
        self._machines = build(cutter.draft.finished())

    def _used_by(self, address: int) -> frozenset[int]:
        """The values that a step takes, and those of which they are made where no dispatch makes them."""
        takes = self._steps[address][1]
        made = (one for one in takes if one in self._steps and one not in self._dispatches)
        return frozenset(takes).union(*map(self._used_by, made))

    def __getitem__(self, name: str) -> Any:
        """The function, or another one of the machine."""
        return self if name == self.name else self._machines[0][name]

    def __call__(self, *arguments: Any) -> Any:
        """The result.  An exception ends a call when the kernels under way are over; nothing is left."""
        params = (param.__chandle__() for param in self._params)
        values = dict(zip(params, arguments, strict=True))
        try:
            self._run(values)
            return self._value(_RESULT, values)
        except BaseException as error:
            clear_frames(error.__traceback__)
            raise
        finally:
            values.clear()
            for machine in self._machines:  # each holds what it has made last
                machine[self._steps[_NOTHING][0]]()

    def _run(self, values: dict[int, Any]) -> None:
        order, uses = TopologicalSorter(self._waits), Counter(one for some in self._uses for one in some)
        order.prepare()
        ready, idle = list[int](), self._machines[1:]
        running: dict[int, tuple[Future[Any], relax.VirtualMachine]] = {}
        over = SimpleQueue[int]()  # not of futures: their callbacks keep the queue, a cycle
        try:
            with ThreadPoolExecutor(len(idle)) as threads:
                while order.is_active():
                    ready += order.get_ready()
                    while ready and idle:
                        number, machine = ready.pop(0), idle.pop()
                        function, takes = self._steps[self._dispatches[number]]
                        taken = (self._value(one, values) for one in takes)
                        future = threads.submit(machine[function], *taken)
                        running[number] = future, machine
                        future.add_done_callback(lambda _, number=number: over.put(number))  # type: ignore[misc]
                    number = over.get()
                    future, machine = running.pop(number)
                    values[self._dispatches[number]] = future.result()
                    uses.subtract(self._uses[number])
                    for address in self._uses[number]:
                        if not uses[address]:
                            values.pop(address, None)
                    idle.append(machine)
                    order.done(number)
        finally:  # who keeps an error would keep the tensors of kernels
            for future in _ended([future for future, _ in running.values()]):
                if error := future.exception():
                    clear_frames(error.__traceback__)

    def _value(self, address: int, values: dict[int, Any]) -> Any:
        """A value that is there, or that no dispatch makes."""
        if address not in values:
            function, takes = self._steps[address]
            values[address] = self._machines[0][function](*(self._value(one, values) for one in takes))
        return values[address]


def _ended(running: Collection[Future[Any]]) -> Collection[Future[Any]]:
    """Kernels under way, when they are over: nothing ends them before, another interruption neither."""
    while True:
        with suppress(KeyboardInterrupt):
            while not all(future.done() for future in running):
                sleep(_LOOKED_AGAIN)
            return running


class _Cutter:
    """Makes functions of the bindings of a function, of the symbols that they define, and of the result.

    `steps` are known by the address of the variable or symbol that each makes: the name of a function in
    `draft`, and the values that it takes.
    """

    def __init__(self, module: tvm.IRModule, name: str) -> None:
        self.draft, self.name, body = ModuleDraft(module), name, module[name].body
        self.params, self.steps = elements(module[name].params), dict[int, tuple[str, tuple[int, ...]]]()
        self.known = {param.__chandle__() for param in self.params}
        self.symbols(self.params)
        for block in elements(body.blocks):
            for binding in elements(block.bindings):
                self.add(binding.var.__chandle__(), binding.var, [binding])
                if type(binding) is relax.MatchCast:
                    self.symbols([binding.var])
        self.add(_RESULT, body.body)
        self.add(_NOTHING, relax.Tuple([]))

    def symbols(self, given: Sequence[VarNode]) -> None:
        """Add the symbols that variables define first."""
        for symbol in _symbols_of(given):
            if symbol.__chandle__() not in self.known:
                self.add(symbol.__chandle__(), symbol, given=given)

    def add(
        self, address: int, result: Node, bindings: Sequence[BindingNode] = (), given: Sequence[VarNode] = ()
    ) -> None:
        """Add the step of a `result`, behind `bindings`, from what it uses, or what is `given`."""
        attrs = tvm.ir.make_node("ir.DictAttrs", **{"relax.force_pure": True})
        body = relax.SeqExpr([relax.BindingBlock(list(bindings))], result)

        def taking(params: Sequence[VarNode], body: Node) -> relax.Function:
            return relax.Function(params, body, relax.AnyType(), is_pure=False, attrs=attrs)

        used = given or relax.analysis.free_vars(body)
        for var in used:
            if var.__chandle__() not in self.known:
                raise RunError(
                    f"`{self.name}` cannot run in parts: `{var.name}` leaves the branch that makes it"
                )
        symbols = {one.__chandle__(): one for one in _symbols_of(used) if one.__chandle__() in self.known}
        takes = symbols | {var.__chandle__(): var for var in used}
        # TVM's passes remember a variable from one function to the next: each takes variables of its own
        own = {var: relax.Var(var.name, var.ty) for at, var in takes.items() if at not in symbols}
        bound = taking([*takes.values()], body).bind_params(own).body
        made = taking([*symbols.values(), *own.values()], bound)
        name = self.draft.add(f"{self.name}_step", made, public=True).name_hint
        self.steps[address] = name, tuple(takes)
        self.known.add(address)


def _symbols_of(variables: Sequence[VarNode]) -> Sequence[VarNode]:
    return [symbol for var in variables for symbol in relax.analysis.tir_vars_in_type(var.ty)]
