"""The names of TVM's script packages that a script may use: those that only build IR.

The list is taken from what the installed TVM exports, by where each object is defined.  Left out is what runs
Python that the script brings along (macros, `R.emit_te`, `T.meta_class`), loads or compiles code
(`T.call_kernel`), or changes TVM itself (`T.register_script_namespace`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType

_IR_NAMES = (
    "ir_module",
    "module_attrs",
    "module_global_infos",
    "dummy_global_info",
    "vdevice",
    "lookup_vdevice",
    "meta_var",
    "Range",
    "StringImm",
    "StringType",
)
_RELAX_NAMES = frozenset(
    (  # noqa: SIM905
        "Any Callable ExternFunc Object Prim Shape ShapeExpr Tensor Tuple TupleGetItem call_packed const "
        "cpu dataflow device dtype emit emit_match_cast emit_with_ty emit_with_type func_attr function "
        "match_cast output prim_value shape str to_vdevice tuple"
    ).split()
)
_RELAX_PACKAGES = ("builtin", "ccl", "grad", "image", "memory", "nn", "vision", "vm")
_DISTRIBUTED_NAMES = ("DTensor", "annotate_sharding", "call_tir", "const", "device_mesh", "redistribute")
_TIR_HOMES = frozenset(
    {
        "tvm.ir.prim.op",
        "tvm.target.codegen",
        "tvm.tirx.expr",
        "tvm.tirx.op",
        "tvm.tirx.script.builder.ir",
    }
)
_TIR_REFUSED = frozenset(
    (  # noqa: SIM905
        "LetAnnotation SMEMPool ScopeIdDef TMEMPool add_to_parent block_name_suffix_context device_entry "
        "meta_class register_script_namespace scalar_wrapper"
    ).split()
)
_TIR_ENTRIES = ("Buffer", "Ptr", "let", "prim_func")


@cache
def faces() -> dict[str, ModuleType]:
    """The packages that a script reaches as I, R and T."""
    from tvm.script.parser import ir, relax, tirx

    return {"I": ir, "R": relax, "T": tirx}


@cache
def dialect_names() -> frozenset[str]:
    """Every allowed path, such as `R.memory.alloc_tensor`; the roots are I, R and T whatever a file calls
    them.
    """
    names = {f"I.{name}" for name in _IR_NAMES if hasattr(faces()["I"], name)}
    names.update(f"R.{name}" for name in _relax_names(faces()["R"]))
    names.update(f"T.{name}" for name in _tir_names(faces()["T"]))
    return frozenset(names)


@cache
def takes_type_arguments(path: str) -> bool:
    """Return whether the function at `path` (such as `R.call_packed`) has a parameter `ty_args`; true where
    that is unknown.
    """
    root, *names = path.split(".")
    value: object = faces()[root]
    for name in names:
        value = getattr(value, name, None)
    if not inspect.isfunction(value):
        return True
    return "ty_args" in inspect.signature(value).parameters


def _relax_names(relax: ModuleType) -> Iterator[str]:
    for name in relax.__all__:
        if name in _RELAX_NAMES or _is_operator(getattr(relax, name, None)):
            yield name
    for package in _RELAX_PACKAGES:
        held = vars(getattr(relax, package))
        yield from (f"{package}.{name}" for name, value in held.items() if _is_operator(value))
    yield from (f"dist.{name}" for name in _DISTRIBUTED_NAMES if hasattr(relax.dist, name))


def _is_operator(value: object) -> bool:
    is_public = inspect.isfunction(value) and not value.__name__.startswith("_")
    return is_public and (value.__module__ or "").startswith("tvm.relax.op.")


def _tir_names(tirx: ModuleType) -> Iterator[str]:
    yield from _TIR_ENTRIES
    for name in tirx.__all__:
        if name not in _TIR_REFUSED and _builds_tir(getattr(tirx, name, None)):
            yield name
    yield from (f"axis.{name}" for name in vars(tirx.axis) if not name.startswith("_"))


def _builds_tir(value: object) -> bool:
    if type(value).__name__ == "DtypeConstructor":
        return True
    if inspect.isclass(value):
        return value.__module__.startswith(("tvm.tirx.", "tvm.ir."))
    return inspect.isfunction(value) and value.__module__ in _TIR_HOMES
