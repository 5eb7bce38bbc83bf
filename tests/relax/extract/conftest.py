"""Modules are written as TVMScript and parsed by TVM itself."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from symalloc.program.ir import Program
from symalloc.program.span import Source
from symalloc.relax.extract import extract

HEAD = "@I.ir_module(check_well_formed=False)\nclass Module:\n"


@pytest.fixture
def script() -> Callable[[str], str]:
    """The text of a module whose class body is given."""
    return lambda body: HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"


@pytest.fixture
def parse(script: Callable[[str], str]) -> Callable[[str], Any]:
    """TVM's module for a class body."""

    def run(body: str) -> Any:
        try:
            return tvm.script.from_source(script(body), {"I": I, "R": R, "T": T})
        except tvm.error.DiagnosticError as error:  # TVM's error prints nothing when left uncaught
            pytest.fail(str(error))

    return run


@pytest.fixture
def program(parse: Callable[[str], Any], script: Callable[[str], str]) -> Callable[[str], Program]:
    """The memory program of a class body, with spans into it."""
    return lambda body: extract(parse(body), name="Module", source=Source(file="m.py", text=script(body)))
