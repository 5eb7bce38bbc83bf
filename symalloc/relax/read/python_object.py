"""IRModules from models in memory: of TVM, of onnx, of torch.export, of TVM's nn.Module with a spec.

The kind of an object is told by its classes: neither onnx nor torch is imported to find out.
"""

from __future__ import annotations

import tvm

from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.relax.ir_types import Node
from symalloc.relax.read.importing import refusal
from symalloc.relax.read.nn_module import export_sourced

KINDS = (
    "an IRModule, an onnx.ModelProto, a torch.export.ExportedProgram, "
    "or a pair of a tvm.relax.frontend.nn.Module and its spec"
)


def is_model(value: object) -> bool:
    """Return whether `module_from` can make a module of `value`."""
    return (
        isinstance(value, tvm.IRModule)
        or _is_a(value, "onnx", "ModelProto")
        or is_exported_program(value)
        or _is_spec_pair(value)
    )


def module_from(value: object) -> Node:
    """The IRModule that `value` is, or describes.  Raises UnreadableError where nothing can be made of it."""
    if isinstance(value, tvm.IRModule):
        return value
    if _is_a(value, "onnx", "ModelProto"):
        from symalloc.relax.read.onnx_model import import_onnx

        return import_onnx(value)
    if is_exported_program(value):
        from symalloc.relax.read.torch_program import import_torch

        return import_torch(value)
    if isinstance(value, tuple) and _is_spec_pair(value):
        return _from_spec(*value)
    raise UnreadableError(f"it is of type {type(value).__name__}, not {KINDS}")


def is_exported_program(value: object) -> bool:
    """Return whether `value` is a program of torch.export."""
    return _is_a(value, "torch", "ExportedProgram")


def _is_a(value: object, package: str, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(value).__mro__
    )


def _is_spec_pair(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], tvm.relax.frontend.nn.Module)
        and not isinstance(value[1], tvm.relax.frontend.nn.Module)
    )


def _from_spec(network: Node, spec: object) -> Node:
    """The module that an nn.Module of TVM exports; its weights are inputs, because it holds none."""
    with refusal(f"{type(network).__name__}.export_tvm"):
        exported = export_sourced(network, spec)
    if not isinstance(exported, tvm.IRModule):
        raise ImportRefusedError(f"{type(network).__name__}.export_tvm gave no IRModule")
    return exported
