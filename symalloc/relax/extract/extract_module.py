"""A whole module at one stage of compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tvm import ir, relax, tirx

from symalloc.analysis.argument_binding import bind_parameters
from symalloc.program.ir import Function, Kernel, Operand, Program, Var
from symalloc.program.source_map import NO_SPANS, NumberedSpans, PrintedScript, ScriptText, SourceMap, Step
from symalloc.program.span import Source
from symalloc.program.types import OpaqueType, Type, substituted
from symalloc.relax.extract.calls import MEMORY_OPERATORS
from symalloc.relax.extract.context import Context, ModuleFacts
from symalloc.relax.extract.extract_function import extract_function
from symalloc.relax.extract.kernel_body import extract_kernel
from symalloc.relax.ir_types import Node, bindings_in


def extract(
    mod: ir.IRModule,
    *,
    name: str,
    stage: str = "as-is",
    source: Source | None = None,
    line: int | None = None,
    handles: bool = False,
    open_shapes: bool = False,
) -> Program:
    """The memory program of `mod`.

    `name` is the module's name in its file; `stage` says after which pass it was read.  With `source`, the
    text it was parsed from, instructions have spans; without it none has.  `line` is where in the
    text the module's `class` or `def` stands; without it the class of that name is taken.

    With `handles` each instruction carries the binding that it comes from; such a program does not pickle.
    With `open_shapes` a tensor may be placed whose extents are not known, as behind VMShapeLower.
    """
    text = None if source is None else ScriptText(source, line or name, trust_spans=source.origin is None)
    maps: Callable[[str], SourceMap] = text.map if text else lambda _: NO_SPANS
    found = _program(mod, name, stage, maps, handles=handles, open_shapes=open_shapes)
    return replace(found, source=source)


def extract_numbered(mod: ir.IRModule, *, name: str, stage: str, file: str, pickles: bool = False) -> Program:
    """The memory program of `mod`, its spans numbers of bindings: its `source` finds them in the script of
    `mod` when it is asked.

    `file` is the file that the module came from.  The program holds `mod`, unless it `pickles`: then the
    script is printed at once.
    """
    steps: dict[str, list[Step]] = {}

    def numbers(function: str) -> NumberedSpans:
        made = NumberedSpans(function)
        steps[function] = made.steps
        return made

    def script() -> str:
        return str(mod.script(show_meta=False))

    program = _program(mod, name, stage, numbers)
    text = script() if pickles else script
    return replace(program, source=PrintedScript(script=text, file=file, origin=stage, steps=steps))


def _program(
    mod: ir.IRModule,
    name: str,
    stage: str,
    maps: Callable[[str], SourceMap],
    *,
    handles: bool = False,
    open_shapes: bool = False,
) -> Program:
    kinds = {variable.name_hint: function for variable, function in mod.functions.items()}
    kernels = {n: extract_kernel(n, f) for n, f in kinds.items() if isinstance(f, tirx.PrimFunc)}
    relax_functions = {n: f for n, f in kinds.items() if isinstance(f, relax.Function)}
    module = ModuleFacts(
        kernels=kernels,
        functions=frozenset(relax_functions),
        externs={n: str(f.global_symbol) for n, f in kinds.items() if isinstance(f, relax.ExternFunc)},
        symbols={_symbol(f): n for n, f in kinds.items() if n in kernels and _symbol(f)},
        lowered=any(_is_lowered(f.body, kernels) for f in relax_functions.values()),
        devices=_devices(mod),
        handles=handles,
        open_shapes=open_shapes,
        host={n: kinds[n] for n in kernels},
    )
    facts = replace(module, result_of=_result_types(relax_functions, module))
    devices = tuple(str(device.target.kind.name) for device in facts.devices)
    functions: dict[str, Function] = {}
    for function_name, function in relax_functions.items():
        functions[function_name] = extract_function(function_name, function, facts, maps(function_name))
    return Program(name=name, functions=functions, kernels=kernels, stage=stage, devices=devices)


def _result_types(
    functions: Mapping[str, Node], module: ModuleFacts
) -> Callable[[str, Sequence[Operand]], Type]:
    """The type of what a function returns for arguments, over the caller's symbols: VMShapeLower drops the
    shapes of what a call returns.
    """

    @cache
    def signature(name: str) -> tuple[tuple[Var, ...], Type]:
        context = Context(module)
        params = context.declare_parameters(functions[name].params)
        return params, context.types.of(functions[name].ret_ty)

    def result_of(name: str, arguments: Sequence[Operand]) -> Type:
        if name not in functions:
            return OpaqueType()
        params, result = signature(name)
        return substituted(result, bind_parameters([param.type for param in params], arguments))

    return result_of


def _symbol(function: Node) -> str:
    """The symbol that a kernel is exported as; empty for a private one."""
    return str((function.attrs or {}).get("global_symbol", ""))


def _devices(mod: ir.IRModule) -> tuple[Node, ...]:
    return tuple(mod.global_infos["vdevice"]) if "vdevice" in mod.global_infos else ()


def _is_lowered(body: Node, kernels: Mapping[str, Kernel]) -> bool:
    """Return whether a function holds memory operators or direct kernel calls."""
    for binding in bindings_in(body):
        value = binding.value
        if type(value) is not ir.Call:
            continue
        op = value.op
        if type(op) is ir.Op and op.name in MEMORY_OPERATORS:
            return True
        if type(op) is ir.GlobalVar and op.name_hint in kernels:
            return True
    return False
