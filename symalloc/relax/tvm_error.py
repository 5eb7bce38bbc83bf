"""What TVM says when it fails, fit for a person: without stacks, addresses and dumps of its own objects."""

from __future__ import annotations

import re

__all__ = ["error_text"]

_STACK = ("File ", "at ", "Traceback", "Stack trace", "During handling")
_CHECK = re.compile(r"Check failed: (?:\(.*?\) is false: |.*? : )", re.DOTALL)
_ADDRESS = re.compile(r" 0x[0-9a-f]{6,}")
_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)', re.DOTALL)
_MOST_CHARACTERS = 600


def error_text(error: BaseException, most: int = 4) -> str:
    """The first `most` lines of the message of `error` that say something, else the name of its type."""
    text = _OPERATOR.sub(r"\1", _CHECK.sub("", str(error)))
    lines = (line.strip() for line in _ADDRESS.sub("", text).splitlines())
    said = "\n".join([line for line in lines if line and not line.startswith(_STACK)][:most])
    if len(said) > _MOST_CHARACTERS:
        said = said[:_MOST_CHARACTERS] + " …"
    return said or type(error).__name__
