"""Scripts of the page run by Node, where it is installed; the browser's tests run them all the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from typing import Any

import pytest

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed; `make browser` runs the page")


def scripts_text(names: tuple[str, ...]) -> str:
    """Return scripts of the page, one behind the other."""
    folder = resources.files("symalloc.report.map")
    return "".join((folder / name).read_text("utf-8") for name in names)


def run_scripts(names: tuple[str, ...], code: str, given: Any) -> Any:
    """Return the JSON value of the expression `code`, in which `given` is the argument."""
    text = (
        f"'use strict';\n{scripts_text(names)}\n"
        "const given = JSON.parse(require('fs').readFileSync(0, 'utf-8'));\n"
        "const plain = (_, value) => (typeof value === 'bigint' ? String(value) : value);\n"
        f"process.stdout.write(JSON.stringify({code}, plain));\n"
    )
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--eval", text], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
