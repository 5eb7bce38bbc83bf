"""Runs a function on several threads: each dispatch once those are over that the graph of its plan names.

It shows that a plan holds in any order that its dependencies and fences permit; it is no scheduler.  TVM's
machines run all of it: each binding of the outermost block is a function of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from graphlib import TopologicalSorter
from queue import SimpleQueue
from time import sleep
from traceback import clear_frames
from typing import Any

import tvm
from tvm import relax

from symalloc.analysis.interprocedural import analyse
from symalloc.errors import RunError
from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.check.validate import fenced_graph
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import BindingNode, Node, VarNode, elements
from symalloc.relax.rewrite import ModuleDraft

_RESULT, _NOTHING = 0, 1  # no addresses of variables
_LOOKED_AGAIN = 0.001  # seconds


class Dispatcher:
    """The function `name` of a module, in which anybody has planned memory, or nobody, on several threads.

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
