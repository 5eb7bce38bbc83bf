"""Sites of kind `match-cast`: each extent that R.match_cast compares."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.linter.sites.site import Scene, Site, name_of
from symalloc.program.casts import read_cast
from symalloc.program.model import MatchCast
from symalloc.size.condition import eq

__all__ = ["match_casts"]


def match_casts(scene: Scene, cast: MatchCast) -> Iterator[Site]:
    """The sites of one cast; extents that bind a symbol are compared with nothing."""
    reading = read_cast(cast)
    for index, source, target in reading.compared:
        yield Site(
            kind="match-cast",
            instruction=cast,
            quantities={"source.extent": source, "extent": target},
            texts={"value": cast.var.name, "source": name_of(cast.source), "index": str(index)},
            checked=None if index in reading.unchecked else eq(source, target),
        )
