"""A whole module at one stage of compilation."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import ir, relax, tirx

from symalloc.program.ir import Function, Kernel, Program
from symalloc.program.span import Source
from symalloc.relax.extract.context import ModuleFacts
from symalloc.relax.extract.extract_function import extract_function
from symalloc.relax.extract.extract_kernel import extract_kernel
from symalloc.relax.extract.memory_operators import MEMORY_OPERATORS
from symalloc.relax.extract.signatures import with_signatures
from symalloc.relax.extract.spans import NO_PLACES, ScriptText
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
    text it was parsed from, instructions have spans and texts; without it none has.  `line` is where in the
    text the module's `class` or `def` stands; without it the class of that name is taken.

    With `handles` each instruction carries the binding that it comes from; such a program does not pickle.
    With `open_shapes` a tensor may be placed whose extents are not known, as behind VMShapeLower.
    """
    text = None if source is None else ScriptText(source, line or name, trust_spans=source.origin is None)
    return _program(mod, name, stage, source, text, handles=handles, open_shapes=open_shapes)


def locate(mod: ir.IRModule, *, name: str, stage: str, file: str) -> Program:
    """The same program, its spans pointing into the script that TVM prints for `mod`.

    `file` is the file that the module came from: it names the text, whose `origin` is `stage`.
    """
    source = Source(file=file, text=mod.script(show_meta=False), origin=stage)
    return _program(mod, name, stage, source, ScriptText(source, "Module", trust_spans=False))


def _program(
    mod: ir.IRModule,
    name: str,
    stage: str,
    source: Source | None,
    text: ScriptText | None,
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
    facts = with_signatures(module, relax_functions)
    functions: dict[str, Function] = {}
    for function_name, function in relax_functions.items():
        places = NO_PLACES if text is None else text.places(function_name)
        functions[function_name] = extract_function(function_name, function, facts, places)
    return Program(name=name, functions=functions, kernels=kernels, stage=stage, source=source)


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
