"""TVM's error texts, fit for a person: without stacks, addresses and dumps of its own objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from symalloc.errors import RunError

_STACK = ("File ", "at ", "Traceback", "Stack trace", "During handling")
_CHECK = re.compile(r"Check failed: (?:\(.*?\) is false: |.*? : )", re.DOTALL)
_ADDRESS = re.compile(r" 0x[0-9a-f]{6,}")
_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)', re.DOTALL)
_MOST_CHARACTERS = 600


def error_text(error: BaseException, most: int = 4) -> str:
    """The first `most` lines of the message of `error` that say something, else the name of its type.

    The check that failed is left out where TVM says in words what it means.
    """
    text = _ADDRESS.sub("", _OPERATOR.sub(r"\1", str(error)))
    said = _lines(_CHECK.sub("", text), most) or _lines(text, most)
    if len(said) > _MOST_CHARACTERS:
        said = said[:_MOST_CHARACTERS] + " …"
    return said or type(error).__name__


@contextmanager
def run_error(what: str, most: int = 4) -> Iterator[None]:
    """Raise whatever TVM raises within as RunError: `what`, and the first `most` lines of TVM's message."""
    try:
        yield
    except Exception as error:  # passes, code generators, kernels: all raise whatever they raise
        raise RunError(f"{what}: {error_text(error, most)}") from None


def _lines(text: str, most: int) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join([line for line in lines if line and not line.startswith(_STACK)][:most])
