"""A concrete interpreter of planned Relax modules: whether one can go wrong, and how.

It walks TVM's own tree at one binding of the symbols and one choice of branches, shares no code with the
linter, and follows what TVM 0.27's virtual machine does: registers that kills clear, kernels that check
shape, element type and byte offset of their arguments, tensors that must lie inside their storage.  It adds
what the machine does not notice: bytes that somebody else wrote in between.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from mutation.arithmetic import UndefinedError, evaluate
from mutation.kernels import Parameter, parameters
from mutation.memory import Region, Stamp, Storage, Tensor

__all__ = ["Fault", "NotModelledError", "bindings", "examine", "faults"]

SIZES = (0, 1, 2, 3, 5, 8, 17, 64, 1000, 65536)
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a module goes wrong, and where it was seen."""

    kind: str
    what: str
    binding: tuple[tuple[str, int], ...] = ()
    branches: tuple[bool, ...] = ()


class NotModelledError(Exception):
    """The module holds something whose effect on memory the interpreter does not know."""


class _StopError(Exception):
    """The call ends here with an error that somebody sees: an assertion, a match_cast."""


class _FailedError(Exception):
    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind, self.what = kind, what


class _Killed:
    """What is in a register after a kill."""


_KILLED = _Killed()


@dataclass(slots=True)
class _Machine:
    mod: tvm.IRModule
    branches: Iterator[bool]
    taken: list[bool] = field(default_factory=list)
    kernels: dict[str, tuple[Parameter, ...]] = field(default_factory=dict)
    depth: int = 0
    noted: list[_FailedError] = field(default_factory=list)


def examine(mod: tvm.IRModule, *, seed: int = 0, limit: int = 60) -> list[Fault]:
    """All kinds of fault of `mod`, each once, over many bindings and all choices of branches."""
    found: dict[str, Fault] = {}
    kernels = {
        g.name_hint: parameters(f) for g, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)
    }
    for name, function in _public(mod):
        for binding in bindings(function, seed=seed, limit=limit):
            for fault in faults(mod, name, binding, kernels):
                found.setdefault(fault.kind, fault)
    return list(found.values())


def _public(mod: tvm.IRModule) -> list[tuple[str, relax.Function]]:
    functions = [(g.name_hint, f) for g, f in mod.functions_items() if isinstance(f, relax.Function)]
    public = [(n, f) for n, f in functions if f.attrs and "global_symbol" in f.attrs]
    return public or functions


def bindings(function: relax.Function, *, seed: int, limit: int) -> list[dict[str, int]]:
    """Values for the function's symbols: every combination of SIZES, or `limit` of them drawn at random."""
    names = sorted(
        {v.name for v in relax.analysis.defined_symbolic_vars(function)} & _parameter_symbols(function)
    )
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(SIZES, repeat=len(names))]
    if len(every) <= limit:
        return every
    drawn = random.Random(seed).sample(every, limit)
    alike = [dict.fromkeys(names, value) for value in SIZES]
    return alike + drawn


def _parameter_symbols(function: relax.Function) -> set[str]:
    symbols = {v.name for p in function.params for v in relax.analysis.tir_vars_in_type(p.ty)}
    return symbols | {p.name for p in function.params if type(p.ty).__name__ == "PrimType"}


def faults(
    mod: tvm.IRModule, name: str, binding: Mapping[str, int], kernels: dict[str, tuple[Parameter, ...]]
) -> list[Fault]:
    """What goes wrong in `name` at `binding`, over the choices of branches."""
    found = []
    pending: list[tuple[bool, ...]] = [()]
    while pending:
        prefix = pending.pop()
        machine = _Machine(mod=mod, branches=itertools.chain(prefix, itertools.repeat(True)), kernels=kernels)
        failures = _call_from_outside(machine, name, binding)
        where = {"binding": tuple(sorted(binding.items())), "branches": tuple(machine.taken)}
        found += [Fault(kind=f.kind, what=f.what, **where) for f in failures]
        pending += [(*machine.taken[:i], False) for i in range(len(prefix), len(machine.taken))]
    return found


def _call_from_outside(machine: _Machine, name: str, binding: Mapping[str, int]) -> list[_FailedError]:
    function = machine.mod[name]
    try:
        arguments = [_argument(p, p.ty, binding) for p in function.params]
    except UndefinedError:
        return []  # an extent of a parameter that no call can give it
    try:
        result = _Frame(machine, function, arguments, dict(binding)).run()
        for tensor in _tensors(result):
            _check_content(tensor, "the caller", "the result")
        if any(part is _KILLED for part in _parts(result)):
            raise _FailedError("use-after-kill", "the result was killed")
    except _FailedError as failure:
        return [*machine.noted, failure]
    except _StopError:
        pass
    return machine.noted


def _argument(param: Any, ty: Any, binding: Mapping[str, int]) -> Any:
    kind = type(ty).__name__
    if kind == "TensorType":
        shape = tuple(evaluate(e, binding) for e in ty.shape.values)
        if any(extent < 0 for extent in shape):
            raise UndefinedError("no tensor has a negative extent")
        tensor = _fresh(shape, str(ty.dtype.dtype))
        tensor.write()
        return tensor
    if kind == "TupleType":
        return tuple(_argument(param, field, binding) for field in ty.fields)
    if kind == "ShapeType":
        return tuple(evaluate(e, binding) for e in ty.values)
    if kind == "PrimType":
        return binding[param.name]
    raise NotModelledError(f"a parameter of type {kind}")


def _fresh(shape: tuple[int, ...], dtype: str) -> Tensor:
    tensor = Tensor(Region(0), 0, shape, dtype, _itemsize(dtype), Stamp())
    tensor.region.size = tensor.nbytes
    return tensor


def _itemsize(dtype: str) -> int:
    kind = tvm.DataType(dtype)
    return (kind.bits * kind.lanes + 7) // 8


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _tensors(value: Any) -> Iterator[Tensor]:
    return (part for part in _parts(value) if isinstance(part, Tensor))


def _check_content(tensor: Tensor, reader: str, name: str) -> None:
    """Reading `tensor` must give what was written to it."""
    if tensor.region.strangers(tensor.offset, tensor.end, tensor.stamp):
        kind = "overwritten" if tensor.stamp.ever_written() else "unwritten"
        raise _FailedError(kind, f"{reader} reads {name}, which somebody else wrote")
    if tensor.region.holes(tensor.offset, tensor.end):
        raise _FailedError("unwritten", f"{reader} reads {name}, which nobody wrote")


def _check_at_pointer(tensor: Tensor, reader: str) -> None:
    """What is read at the pointer alone must begin there, and hold what was written to it."""
    if tensor.shift:
        raise _FailedError("offset-overlooked", f"{reader} overlooks an offset of {tensor.shift}")
    _check_content(tensor, reader, "its condition")


class _Frame:
    """One activation of a Relax function."""

    def __init__(
        self, machine: _Machine, function: relax.Function, arguments: list[Any], symbols: dict[Any, int]
    ) -> None:
        self.machine, self.function, self.symbols = machine, function, symbols
        self.values: dict[Any, Any] = dict(zip(function.params, arguments, strict=True))

    def run(self) -> Any:
        return self.block(self.function.body)

    def block(self, body: Any) -> Any:
        if type(body).__name__ != "SeqExpr":
            return self.value(body)
        for block in body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = found = self.step(binding)
                if isinstance(found, int):
                    self.symbols[binding.var] = found
        return self.value(body.body)

    def step(self, binding: Any) -> Any:
        value = binding.value
        if type(binding).__name__ == "MatchCast":
            return self.match_cast(self.value(value), binding.ty)
        kind = type(value).__name__
        if kind == "If":
            condition = self.branch(value.cond)
            return self.block(value.true_branch if condition else value.false_branch)
        if kind == "Call":
            return self.call(value)
        return self.value(value)

    def branch(self, condition: Any) -> bool:
        """Both branches are walked, one after the other: a tensor's value is not known, and a condition on
        sizes may be otherwise for sizes that are too large to walk through.
        """
        test = self.use(condition, "an If") if type(condition).__name__ == "Var" else self.value(condition)
        if isinstance(test, Tensor):
            _check_at_pointer(test, "an If")
        taken = next(self.machine.branches)
        self.machine.taken.append(taken)
        return taken

    def value(self, expression: Any) -> Any:
        kind = type(expression).__name__
        if kind == "Var" and expression in self.values:
            return self.values[expression]
        if kind == "Var" and expression.name not in self.symbols:
            raise _FailedError("not-in-scope", f"{expression.name} is not defined on this path")
        if kind == "Tuple":
            return tuple(self.value(item) for item in expression.fields)
        if kind == "TupleGetItem":
            return self.use(expression.tuple_value, "a tuple field")[expression.index]
        if kind == "ShapeExpr":
            return tuple(evaluate(e, self.symbols) for e in expression.values)
        if kind == "GenericConst":
            return self.constant(expression)
        if kind in ("StringImm", "DataTypeImm", "GlobalVar", "ExternFunc"):
            return expression
        return evaluate(expression, self.symbols)

    def constant(self, expression: Any) -> Any:
        if type(expression.ty).__name__ != "TensorType":
            return expression
        tensor = _fresh(tuple(int(e) for e in expression.ty.shape.values), str(expression.ty.dtype.dtype))
        tensor.write()
        return tensor

    def use(self, expression: Any, user: str) -> Any:
        value = self.value(expression)
        if value is _KILLED:
            raise _FailedError("use-after-kill", f"{user} uses {expression.name}, which was killed")
        return value

    def match_cast(self, value: Any, ty: Any) -> Any:
        actual = value.shape if isinstance(value, Tensor) else value
        wanted = ty.shape.values if type(ty).__name__ == "TensorType" else ty.values
        for extent, expression in zip(actual, wanted, strict=True):
            if type(expression).__name__ == "Var" and expression.name not in self.symbols:
                self.symbols[expression.name] = extent
            elif evaluate(expression, self.symbols) != extent:
                raise _StopError
        return value

    # -- calls ---------------------------------------------------------------------------------------------

    def call(self, call: Any) -> Any:
        kind = type(call.op).__name__
        if kind == "GlobalVar":
            return self.call_global(call.op.name_hint, call.args)
        if kind == "ExternFunc":
            return self.call_extern(str(call.op.global_symbol), call)
        handler = _OPERATORS.get(call.op.name)
        if handler is None:
            raise NotModelledError(call.op.name)
        return handler(self, call)

    def call_global(self, name: str, operands: Any) -> Any:
        function = self.machine.mod[name]
        arguments = [self.use(a, name) for a in operands]
        if isinstance(function, relax.Function):
            return self.call_relax(function, arguments)
        return self.run_kernel(name, arguments)

    def call_relax(self, function: relax.Function, arguments: list[Any]) -> Any:
        if self.machine.depth >= 4:
            raise _StopError
        self.machine.depth += 1
        frame = _Frame(self.machine, function, arguments, {})
        for param, argument in zip(function.params, arguments, strict=True):
            frame.bind(param.ty, argument)
        result = frame.run()
        self.machine.depth -= 1
        return result

    def bind(self, ty: Any, value: Any) -> None:
        kind = type(ty).__name__
        if kind == "TupleType":
            for part_ty, part in zip(ty.fields, value, strict=True):
                self.bind(part_ty, part)
        elif kind in ("TensorType", "ShapeType"):
            self.match_cast(value, ty)

    def run_kernel(self, name: str, arguments: list[Any]) -> None:
        formal = self.machine.kernels[name]
        if len(formal) != len(arguments):
            raise _FailedError("kernel-argument", f"{name} takes {len(formal)} arguments")
        scope: dict[str, int] = {}
        for param, argument in zip(formal, arguments, strict=True):
            _admit(name, param, argument, scope)
        for param, argument in zip(formal, arguments, strict=True):
            _check_extents(name, param, argument, scope)
        pairs = [(p, a) for p, a in zip(formal, arguments, strict=True) if p.shape is not None]
        for param, tensor in pairs:
            if param.needs:
                _check_content(tensor, name, param.var.name)
        _check_disjoint(name, pairs)
        for param, tensor in pairs:
            if param.written:
                tensor.write()

    def call_extern(self, name: str, call: Any) -> Any:
        operands = call.args
        if name == "vm.builtin.reshape":
            source, shape = self.use(operands[0], name), self.value(operands[1])
            return self.reshape(source, shape)
        if name == "runtime.TVMTensorCreateView":
            return self.view(call)
        if name == "relax.run.assert_op":
            if not evaluate(operands[0], self.symbols):
                raise _StopError
            return None
        raise NotModelledError(name)

    def reshape(self, source: Tensor, shape: tuple[int, ...]) -> Tensor:
        view = Tensor(
            source.region, source.offset, shape, source.dtype, source.itemsize, source.stamp, source.shift
        )
        if view.nbytes != source.nbytes:
            raise _FailedError("reshape", "the number of elements changes")
        return view

    # -- memory operators ----------------------------------------------------------------------------------

    def alloc_storage(self, call: Any) -> Storage:
        size = self.value(call.args[0])
        nbytes = size[0] if isinstance(size, tuple) else size
        if nbytes < 0:
            raise _FailedError("negative-size", "a storage of negative size")
        return Storage(Region(nbytes))

    def alloc_tensor(self, call: Any) -> Tensor:
        storage, offset = self.use(call.args[0], "alloc_tensor"), self.value(call.args[1])
        return self.place(storage.region, offset, self.value(call.args[2]), _dtype(call.args[3]), offset)

    def place(self, region: Region, offset: int, shape: tuple[int, ...], dtype: str, shift: int) -> Tensor:
        if any(extent < 0 for extent in shape):
            raise _FailedError("negative-extent", f"an extent of {min(shape)}")
        tensor = Tensor(region, offset, shape, dtype, _itemsize(dtype), Stamp(), shift)
        if offset < 0:
            raise _FailedError("negative-offset", f"an offset of {offset}")
        if tensor.end > region.size:
            raise _FailedError("exceeds", f"{tensor.nbytes} B at {offset} of {region.size} B")
        return tensor

    def builtin_alloc(self, call: Any) -> Tensor:
        return _fresh(self.value(call.args[0]), _dtype(call.args[1]))

    def kill(self, call: Any) -> None:
        target = call.args[0]
        if self.value(target) is _KILLED:
            self.machine.noted.append(_FailedError("double-kill", f"{target.name} is killed twice"))
        self.values[target] = _KILLED

    def view(self, call: Any) -> Tensor:
        source = self.use(call.args[0], "view")
        given = [None if _is_void(a) else a for a in call.args[1:]]
        shape = source.shape if given[0] is None else self.value(given[0])
        dtype = source.dtype if given[1] is None else _dtype(given[1])
        offset = 0 if given[2] is None else self.value(given[2])
        if any(extent < 0 for extent in shape):
            raise _FailedError("negative-extent", f"an extent of {min(shape)}")
        start = source.offset + offset
        view = Tensor(
            source.region, start, shape, dtype, _itemsize(dtype), Stamp(source.stamp), source.shift + offset
        )
        if offset < 0:
            raise _FailedError("negative-offset", f"an offset of {offset}")
        if view.end > source.end:
            raise _FailedError("view-exceeds", f"{view.nbytes} B at {offset} of {source.nbytes} B")
        return view

    def ensure_zero_offset(self, call: Any) -> Tensor:
        source = self.use(call.args[0], "ensure_zero_offset")
        if source.shift % _ALIGNMENT == 0:
            return Tensor(
                source.region, source.offset, source.shape, source.dtype, source.itemsize, source.stamp, 0
            )
        self.machine.noted.append(
            _FailedError("misaligned", f"a copy, since {source.shift} is no multiple of 64")
        )
        copy = _fresh(source.shape, source.dtype)
        if source.stamp.ever_written():
            _check_content(source, "ensure_zero_offset", "its source")
            copy.write()
        return copy

    def relax_reshape(self, call: Any) -> Tensor:
        return self.reshape(self.use(call.args[0], "reshape"), self.value(call.args[1]))

    def null_value(self, call: Any) -> None:
        return None


def _admit(name: str, param: Parameter, argument: Any, scope: dict[str, int]) -> None:
    """What a compiled kernel checks first: kind, element type, rank, byte offset; binds its symbols."""
    if param.shape is None:
        if not isinstance(argument, int):
            raise _FailedError("kernel-argument", f"{name} expects a scalar")
        scope[param.var.name] = argument
        return
    if not isinstance(argument, Tensor):
        raise _FailedError("kernel-argument", f"{name} expects a tensor")
    if argument.dtype != param.dtype or len(argument.shape) != len(param.shape):
        raise _FailedError("kernel-argument", f"{name}: {argument.dtype} of rank {len(argument.shape)}")
    if argument.shift % param.step if param.step else argument.shift:
        wanted = f"a multiple of {param.step} as byte offset" if param.step else "no byte offset"
        raise _FailedError("byte-offset", f"{name} expects {wanted}, got {argument.shift}")
    for expression, extent in zip(param.shape, argument.shape, strict=True):
        if type(expression).__name__ == "Var":
            scope.setdefault(expression.name, extent)


def _check_extents(name: str, param: Parameter, argument: Any, scope: Mapping[str, int]) -> None:
    for expression, extent in zip(param.shape or (), getattr(argument, "shape", ()), strict=True):
        if evaluate(expression, scope) != extent:
            raise _FailedError("kernel-argument", f"{name} expects an extent {expression}, got {extent}")


def _check_disjoint(name: str, pairs: list[tuple[Parameter, Tensor]]) -> None:
    """Kernels are compiled under the assumption that what they write overlaps nothing else (tirx.noalias)."""
    for (one, a), (two, b) in itertools.combinations(pairs, 2):
        if not (one.written or two.written) or a.region is not b.region:
            continue
        if max(a.offset, b.offset) < min(a.end, b.end):
            same = a.stamp.related(b.stamp) and a.offset == b.offset
            raise _FailedError(
                "same-argument" if same else "overwritten", f"{name} writes what it also reads or writes"
            )


def _dtype(operand: Any) -> str:
    return str(operand.value)


def _is_void(operand: Any) -> bool:
    return (type(operand).__name__ == "Tuple" and not operand.fields) or (
        type(operand).__name__ == "Call" and operand.op.name == "relax.null_value"
    )


_OPERATORS = {
    "relax.memory.alloc_storage": _Frame.alloc_storage,
    "relax.memory.alloc_tensor": _Frame.alloc_tensor,
    "relax.builtin.alloc_tensor": _Frame.builtin_alloc,
    "relax.memory.kill_storage": _Frame.kill,
    "relax.memory.kill_tensor": _Frame.kill,
    "relax.vm.kill_object": _Frame.kill,
    "relax.memory.view": _Frame.view,
    "relax.memory.ensure_zero_offset": _Frame.ensure_zero_offset,
    "relax.null_value": _Frame.null_value,
    "relax.reshape": _Frame.relax_reshape,
}
