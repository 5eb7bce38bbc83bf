"""One self-contained page: template, style and script in one file, which loads nothing."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib import import_module, resources
from typing import Any

from symalloc.errors import UsageError

SCALE = 2  # pixels for one of the SVG


def require_png() -> None:
    """Raise UsageError where CairoSVG, or the cairo library that it calls, is missing."""
    try:
        import_module("cairosvg")
    except ImportError:
        raise UsageError(
            'a .png needs CairoSVG: `pip install "symalloc[png]"`; a .svg needs nothing'
        ) from None
    except OSError as error:  # it looks for the library when it is imported
        raise UsageError(f"a .png needs the cairo library: {str(error).splitlines()[0]}") from None


def as_png(picture: str) -> bytes:
    """Return an SVG as PNG."""
    made: bytes = import_module("cairosvg").svg2png(bytestring=picture.encode(), scale=SCALE)
    return made


SCRIPTS = ("formulas.js", "drawing.js", "explorer.js", "plan.js", "trace.js", "start.js")
# whatever ends a script element, begins a comment, or is a line of JavaScript's but not of JSON's
_UNSAFE = re.compile("[<>&\u2028\u2029]")


def map_page(data: Mapping[str, Any]) -> str:
    """Return the page that shows `data`, which `plan_data` or `trace_data` made.

    Its policy (Content-Security-Policy) permits this script and this style alone, and no request.
    """
    style, script = _part("page.css"), _script()
    kind = "Allocation trace" if data["kind"] == "trace" else "Memory map"
    parts = {
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        "title": escape(f"{data['title']} - {kind.lower()}"),
        "heading": kind,
        "file": escape(str(data["title"])),
        "style": style,
        "script": script,
        "data": _json(data),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


def _json(data: Mapping[str, Any]) -> str:
    """Return `data` as JSON that no name in it can leave."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def _script() -> str:
    return f'"use strict";\n(() => {{\n{"".join(map(_part, SCRIPTS))}}})();\n'


@cache
def _part(name: str) -> str:
    return (resources.files("symalloc.report.map") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
