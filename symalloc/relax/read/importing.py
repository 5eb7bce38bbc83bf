"""The output and the errors of TVM's importers, made fit for a person."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from symalloc.program.reading import ImportRefusedError, MissingExtraError
from symalloc.relax.tvm_error import error_text


def require_extra(name: Literal["onnx", "torch"], *, reading: Path) -> None:
    """Raise MissingExtraError where the library `name`, which reading a file needs, is not installed."""
    if find_spec(name) is None:
        raise MissingExtraError(f"reading {reading} needs {name}: pip install 'symalloc[{name}]'")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep what importers print and warn of from the user; errors say what is wrong."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def refusal(place: str) -> Iterator[None]:
    """Raise what goes wrong within as ImportRefusedError that names the place, the innermost one."""
    try:
        yield
    except ImportRefusedError:
        raise
    except Exception as error:  # converters raise whatever they raise
        raise ImportRefusedError(f"{place}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The text of `error`; with its kind where the text alone is a word or nothing, as that of a KeyError."""
    text, kind = error_text(error), type(error).__name__
    if text == kind:
        return f"TVM's importer fails ({kind})"
    return text if " " in text else f"{kind} {text}"
