"""Evaluating a script that passed the guard, with two further walls around it.

TVM's parser evaluates names against Python's builtins and evaluates strings that stand for shapes.  Inside
`sandbox` only a handful of builtins exist, such strings are checked again at the moment they would be
evaluated, and an audit hook stops whatever would start a process, write a file or open a connection.  The
guard alone should suffice; this is for the day that it does not.

`sandbox` changes module-level functions of TVM while it is open: it belongs into worker processes only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from tvm.relax.script.parser import entry
from tvm.script.parser.core import evaluator

from symalloc.relax.read.script_dialect import dialect_names
from symalloc.relax.read.script_expressions import SAFE_BUILTINS, text_refusal

_REFUSED_EVENTS = frozenset(
    {
        "builtins.breakpoint",
        "builtins.input",
        "ctypes.dlopen",
        "os.chmod",
        "os.chown",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.link",
        "os.mkdir",
        "os.posix_spawn",
        "os.putenv",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.spawn",
        "os.symlink",
        "os.system",
        "os.truncate",
        "os.unsetenv",
        "os.utime",
        "pty.spawn",
        "subprocess.Popen",
        "sys._getframe.f_locals",
        "sys.setprofile",
        "sys.settrace",
        "urllib.Request",
    }
)
_REFUSED_FAMILIES = (
    "socket.",
    "shutil.",
    "ftplib.",
    "smtplib.",
    "http.",
    "sqlite3.",
    "webbrowser.",
    "cpython.run_",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_state = {"active": False}


class SandboxError(Exception):
    """A script tried, while it was evaluated, something that building IR never needs."""


@contextmanager
def sandbox() -> Iterator[Mapping[str, object]]:
    """Wall TVM's parser in; yields the `__builtins__` that scripts are to be evaluated with."""
    _install_hook()
    builtins = _safe_builtins()
    saved = evaluator._get_builtin_or_none, entry._eval_shape
    evaluator._get_builtin_or_none = builtins.get
    entry._eval_shape = _shape_evaluator(builtins)
    _state["active"] = True
    try:
        yield builtins
    finally:
        _state["active"] = False
        evaluator._get_builtin_or_none, entry._eval_shape = saved


def _safe_builtins() -> dict[str, object]:
    import builtins

    return {name: getattr(builtins, name) for name in SAFE_BUILTINS}


def _shape_evaluator(
    builtins: Mapping[str, object],
) -> Callable[[object, Mapping[str, object] | None], object]:
    def evaluate(shape: object, names: Mapping[str, object] | None) -> object:
        if not isinstance(shape, str):
            return shape
        refused = text_refusal(shape, dialect_names())
        if refused is not None:
            raise SandboxError(f"the shape {shape!r} is not evaluated: {refused}")
        return eval(compile(shape, "<shape>", "eval"), {**(names or {}), "__builtins__": builtins})

    return evaluate


@cache
def _install_hook() -> None:
    """Install the hook once: it stays as long as the process."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _state["active"]:
        return
    writes = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
    if writes or event in _REFUSED_EVENTS or event.startswith(_REFUSED_FAMILIES):
        raise SandboxError(f"the script tried to {event} while it was read")
