"""Verified memory planning for dynamic-shape models in Apache TVM's Relax.

    report = symalloc.lint("model.py", assume=["n <= 2048"])
    proof = symalloc.prove("4*m <= 16", assume=["m >= 1"])
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(symalloc.Pool()))

Names are imported when they are first used: `import symalloc` loads neither TVM nor a solver.  They
are listed once, in `__init__.pyi`, which type checkers read as well.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from symalloc.pipelines import register_pipelines
from symalloc.shown import to_text

# by public name: the module it comes from, and its name there
_HOMES = {
    public: (module, name)
    for module, name, public in re.findall(
        r"^from (\S+) import (\w+) as (\w+)$",
        Path(__file__).with_suffix(".pyi").read_text("utf-8"),
        re.MULTILINE,
    )
}
__all__ = [*(name for name in sorted(_HOMES) if name != "pool"), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("symalloc")
    if name not in _HOMES:
        raise AttributeError(f"module `symalloc` has no attribute `{name}`")
    module, there = _HOMES[name]
    if module == "symalloc":  # a room, for `symalloc.pool.statistics()`
        return import_module(f"symalloc.{there}")
    value = getattr(import_module(module), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


@to_text.register(object)
def _text(value: object) -> str:
    """Return the text of `value`: renderers are imported when something is shown for the first time."""
    import_module("symalloc.report.shown_texts")
    renderer = to_text.dispatch(type(value))
    if renderer is _text:
        raise TypeError(f"a {type(value).__name__} cannot be shown")
    return renderer(value)


register_pipelines()
