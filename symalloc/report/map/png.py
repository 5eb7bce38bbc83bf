"""Pictures as PNG, by CairoSVG, which comes with the extra `png`."""

from __future__ import annotations

from importlib import import_module

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
