"""The kinds of sites that a rule can ask about; sites.toml says what each of them is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from symalloc.rulebook.language import Unit


class SiteKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of site: what it is, and the names it offers."""

    name: str
    description: str
    quantities: dict[str, Unit] = {}
    texts: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def _kinds() -> Mapping[str, SiteKind]:
    table = (resources.files("symalloc.rulebook") / "sites.toml").read_text(encoding="utf-8")
    written: dict[str, dict[str, Any]] = tomllib.loads(table)
    return {name: msgspec.convert({"name": name, **kind}, SiteKind) for name, kind in written.items()}


SITE_KINDS = _kinds()
"""The kinds of sites by name."""
