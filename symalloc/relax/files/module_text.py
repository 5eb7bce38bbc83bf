"""A planned module as text: JSON, or TVMScript that is a Python file."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import tvm
import tvm_ffi

from symalloc.errors import RunError
from symalloc.relax.files.load import from_script
from symalloc.relax.ir_types import Node
from symalloc.relax.read.json import load_module

Form: TypeAlias = Literal["json", "script"]

_COMMENTED_IMPORT = re.compile(r"^# (?=(?:from|import) )", re.MULTILINE)


def written(module: tvm.IRModule, form: Form) -> str:
    """`module` as JSON or as TVMScript that reads back as the same module; raises RunError where it does
    not.
    """
    if form == "json":
        text = str(tvm.ir.save_json(module))
        again = load_module(text.encode())
    else:
        text = _script(module)
        again = _read_back(text)
    if not _same(again, module):
        raise RunError(
            f"TVM writes this module as {form} that reads back as another one; choose the other form"
        )
    return text


def _same(one: tvm.IRModule, other: tvm.IRModule) -> bool:
    """Equal, or at least printed alike: scripts leave out widths of integers that decide nothing."""
    return bool(tvm_ffi.structural_equal(one, other)) or _printed(one) == _printed(other)


def _printed(module: tvm.IRModule) -> str:
    return str(module.script(show_meta=True))


def _script(module: tvm.IRModule) -> str:
    """TVM's script with its imports made real, so that it is a Python file; constants travel as metadata."""
    plain = module.script()
    text = module.script(show_meta=True) if "metadata[" in plain else plain
    return _COMMENTED_IMPORT.sub("", text) + "\n"


def _read_back(text: str) -> Node:
    try:
        return from_script("the planned module", text.encode())
    except Exception as error:  # TVM prints what its own parser refuses in many ways
        raise RunError(f"the planned module cannot be written as TVMScript, write JSON: {error}") from None
