"""Pages of the site that are made from other files: the front page, the rules, the API, the lists.

mkdocs calls the functions named `on_…` (https://www.mkdocs.org/user-guide/plugins/#events).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import symalloc
from symalloc.rulebook.rule import SITE_KINDS, Rule, load_rules

ROOT = Path(__file__).parent.parent.parent
WHOLE = {"README.md": "index.md", "BUGS.md": "bugs.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    for path, text in _pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have links lead to pages; what lies beside the documents is named, not linked."""
    depth = page.file.src_uri.count("/")

    def leading(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        inside = not target.startswith("..") and (ROOT / "docs" / target).is_file()
        if not target or "://" in target or inside or target in PLACES:
            return link[0]
        bare = target.removeprefix("../")
        place = WHOLE.get(bare) or (bare.removeprefix("docs/") if bare.startswith("docs/") else None)
        return f"[{text}]({'../' * depth}{place}{anchor})" if place else text

    return LINK.sub(leading, markdown)


def _pages() -> Iterator[tuple[str, str]]:
    for source, path in WHOLE.items():
        yield path, (ROOT / source).read_text(encoding="utf-8")
    rules = load_rules().rules
    yield "rules/index.md", _rule_list(rules)
    yield from ((f"rules/{rule.id}.md", _rule_page(rule)) for rule in rules)
    yield "api.md", _api()


def _rule_list(rules: tuple[Rule, ...]) -> str:
    rows = (f"| [{r.id}]({r.id}.md) | {r.name} | {r.severity} | {r.summary} |" for r in rules)
    return "\n".join(
        ["# Rules", "", "| id | name | severity | what must hold |", "|---|---|---|---|", *rows, ""]
    )


def _rule_page(rule: Rule) -> str:
    parts = [f"# {rule.id} {rule.name}", f"Looked for at: {SITE_KINDS[rule.site].description}."]
    asked = rule.constraint or rule.relation
    if asked:
        parts.append(f"```text\n{asked.strip()}\n```")
    parts.append(rule.doc.strip())
    for title, examples in (("Found", rule.bad), ("Fine", rule.good)):
        for example in examples:
            parts += [f"## {title}: {example.title}", f"```python\n{example.module.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _api() -> str:
    names = [name for name in symalloc.__all__ if name != "__version__"]
    parts = ["# Python", "Names of `symalloc`, each imported when it is first used."]
    return "\n\n".join([*parts, *map(_public, names)])


def _public(name: str) -> str:
    options = {"heading_level": 2, "heading": f"symalloc.{name}", "toc_label": name}
    lines = (f"      {key}: {value}" for key, value in options.items())
    return "\n".join([f"::: symalloc.{_home(name)}", "    options:", *lines])


def _home(name: str) -> str:
    module, there = symalloc._HOMES[name]
    return f"{module}.{there}".removeprefix("symalloc.")


PLACES = {path for path, _ in _pages()}
