"""Every block of the documentation runs as it stands, in a folder with the files of a clone.

Shell blocks: each line is a command; a comment may announce its exit status.  Python blocks run alone.  Text
behind a paragraph that names a command is a part of what it prints.  TOML is read as configuration.  C++ is
compiled and run by tests/native/test_cmake_package.py.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tvm  # noqa: F401 (for register_pipelines)

from symalloc.pipelines import register_pipelines
from symalloc.session.config import load_config
from tests.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_workers")]

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FILES = ("examples", "rules", "BUGS.md")  # what the blocks name
ELSEWHERE = (
    *("make ", "pip install "),  # commands that other checks run: they build the environment of this one
    *("python examples/serving/", "cmake ", "build/serve "),  # tests/examples/test_serving.py
)
KNOWN = ("sh", "python", "text", "console", "toml", "yaml", "py", "lua", "cpp", "cmake")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the paragraph in front of it."""

    document: str
    line: int
    language: str
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    """The blocks of all documents in these languages, by default in all."""
    for path in DOCUMENTS:
        text = path.read_text()
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            if not languages or found[1] in languages:
                before = text[: found.start()].strip().rsplit("\n\n", 1)[-1]
                line = text.count("\n", 0, found.start()) + 1
                yield Block(str(path.relative_to(ROOT)), line, found[1], found[2], before)


def _commands(block: Block) -> Iterator[tuple[list[str], int]]:
    """Return the words of each command in a shell block, and its exit status."""
    for line in block.text.replace("\\\n", "").splitlines():
        text = line.removeprefix("$ ")
        if text.strip() and not text.startswith(("#", *ELSEWHERE)):
            status = re.search(r"#.*exit status (\d)", text)
            yield shlex.split(text, comments=True), int(status[1]) if status else 0


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder that looks like a clone."""
    for name in FILES:
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_block_has_a_language() -> None:
    assert [str(block) for block in blocks() if block.language not in KNOWN] == []


def test_cmake_blocks_are_excerpts_of_the_example() -> None:
    example = (ROOT / "examples" / "serving" / "CMakeLists.txt").read_text()
    assert [block.text in example for block in blocks("cmake")] == [True]


@pytest.mark.parametrize("block", list(blocks("sh", "console")), ids=str)
@pytest.mark.usefixtures("clone")
def test_shell_blocks_run(block: Block, run: Run) -> None:
    for (program, *arguments), status in _commands(block):
        assert program == "symalloc"
        found, *said = run(*arguments)
        assert found == status, f"{arguments}: {said}"


@pytest.mark.parametrize("block", list(blocks("python")), ids=str)
@pytest.mark.usefixtures("clone")
def test_python_blocks_run(block: Block) -> None:
    register_pipelines()  # as TVM's import does, by the entry point of an installed package
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})


def _shown() -> Iterator[tuple[Block, list[str]]]:
    """Return the text blocks that show what a command prints about a file of the clone."""
    for block in blocks("text"):
        named = [shlex.split(c) for c in re.findall(r"`symalloc ([^`]+)`", block.before)]
        yield from ((block, c) for c in named if any(map(_in_clone, c)))


def _in_clone(word: str) -> bool:
    return word.partition("/")[0] in FILES and (ROOT / word).is_file()


@pytest.mark.parametrize(("block", "arguments"), list(_shown()), ids=str)
@pytest.mark.usefixtures("clone")
def test_text_blocks_show_what_is_printed(block: Block, arguments: list[str], run: Run) -> None:
    _, out, err = run(*arguments)
    printed = [line.rstrip() for line in (out + err).splitlines()]
    lines = [line.rstrip() for line in block.text.splitlines()]
    assert [line for line in lines if not any(_shows(line, other) for other in printed)] == []


def _shows(line: str, printed: str) -> bool:
    """Whether a line, which `…` may cut, shows the printed one."""
    return re.fullmatch(".*".join(map(re.escape, line.split("…"))), printed) is not None


@pytest.mark.parametrize("block", list(blocks("toml")), ids=str)
def test_toml_blocks_are_understood(block: Block, clone: Path) -> None:
    table = tomllib.loads(block.text)
    if "tool" in table:
        (clone / "pyproject.toml").write_text(block.text)
        assert load_config(clone / "pyproject.toml")
