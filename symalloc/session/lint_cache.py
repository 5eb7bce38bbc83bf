"""The results of linting, kept from one run to the next: what did not change is not linted again.

An entry is found by a hash of all that its findings depend on: the bytes and the name of the file, the
options, the rules, the versions of symalloc and of TVM.  It is JSON, and no code: whoever can write to the
folder can make findings disappear, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.pipelines import REPLACE
from symalloc.program.reading import UnreadableError
from symalloc.relax.read.find_files import STDIN, kind_of, model_function
from symalloc.rulebook.book import rule_files
from symalloc.session.files import read_regular, replace_file

if TYPE_CHECKING:
    from symalloc.linter.linter import LintedFile

VERSION = 1
MOST_BYTES = 256 * 2**20
_KEPT = 0.8  # of MOST_BYTES, where entries are removed
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of symalloc lint: https://bford.info/cachedir/\n"
)
_ANYTHING = {"trust", "jobs", "exclude", "baseline", "cache"}  # options that no finding depends on
_PACKAGES = ("symalloc", "apache-tvm", "apache-tvm-ffi", "z3-solver", "onnx", "torch")
_LOG = logging.getLogger("symalloc")
_NAMED_ELSEWHERE = b"location"  # in an ONNX model whose tensors lie in other files


def default_folder() -> Path | None:
    """Return the folder for caches that the user has by the XDG convention; None where it cannot be."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        folder = (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "symalloc"
        return None if _is_taken(folder) else folder
    return None


class LintCache:
    """The findings of files linted before with the same `options`, in `folder`.

    `fixes`: whether fixes were tried.  What cannot be read there counts as missing, and what cannot be
    written is not kept: a cache is no reason to fail.
    """

    def __init__(self, folder: Path, options: LintOptions, *, fixes: bool) -> None:
        """Raises UsageError where `folder` is something else."""
        if _is_taken(folder):
            raise UsageError(f"the cache {folder} is not a folder")
        self._folder, self._options, self._fixes = folder, options, fixes
        self._asked: dict[Path, str | None] = {}
        self._wrote = False

    def has(self, file: Path) -> bool:
        """Return whether there seems to be an entry; it may turn out to be none."""
        key = self._key(file)
        return key is not None and self._entry(key).is_file()

    def get(self, file: Path) -> LintedFile | None:
        """Return the findings of `file` as it is now; None where they are not known."""
        from symalloc.linter.linter import restored

        key = self._asked[file] = self._key(file)
        if key is None:
            return None
        entry = self._entry(key)
        try:
            document = json.loads(read_regular(entry, MOST_BYTES))
            text = document["linted"]
            known = document["version"] == VERSION and isinstance(text, str)
            if not known or document["sum"] != _sum(key, text):
                raise ValueError("another version, or another sum")
            found = restored(json.loads(text))
            os.utime(entry)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, msgspec.ValidationError) as error:
            _LOG.debug("the cache's entry for %s is of no use: %s", file, error)
            return None
        _LOG.debug("the findings of %s are known from %s", file, self._folder)
        return found

    def put(self, file: Path, linted: LintedFile) -> None:
        """Keep the findings of `file`, unless linting it again could give others.

        It was changed meanwhile where it is not as it was when `get` was asked.
        """
        from symalloc.linter.linter import stored

        key = self._key(file) if linted.is_complete else None
        if key is None or key != self._asked.get(file, key):
            return
        text = json.dumps(stored(linted), ensure_ascii=False)
        document = {"version": VERSION, "sum": _sum(key, text), "linted": text}
        try:
            self._prepare()
            replace_file(self._entry(key), json.dumps(document).encode())
            self._wrote = True
        except (OSError, UnicodeEncodeError) as error:
            _LOG.debug("nothing is kept in %s: %s", self._folder, error)

    def put_all(self, linted: Mapping[Path, LintedFile]) -> None:
        """Keep the findings of some files, see `put`, and make room."""
        for file, one in linted.items():
            self.put(file, one)
        self.trim()

    def trim(self) -> None:
        """Remove the entries that were used longest ago, where there are too many bytes.

        What a process left behind that was killed while it wrote counts as an entry.
        """
        if not self._wrote:
            return
        with suppress(OSError):
            entries = sorted(_entries(self._folder), key=lambda found: found[1].st_mtime_ns)
            left = sum(status.st_size for _, status in entries)
            least = MOST_BYTES * _KEPT if left > MOST_BYTES else left
            for path, status in entries:
                if left <= least:
                    break
                with suppress(OSError):
                    path.unlink()
                left -= status.st_size

    def _entry(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _prepare(self) -> None:
        """Make the folder, marked as a cache for programs that copy, and for git."""
        if (self._folder / "CACHEDIR.TAG").is_file():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / ".gitignore", b"*\n")
        replace_file(self._folder / "CACHEDIR.TAG", _TAG.encode())

    def _key(self, file: Path) -> str | None:
        """Return the name of an entry for the bytes that a file has now; None where there is more to it."""
        data = None if self._options.trust or file == STDIN else sendable(file)
        return None if data is None else _hash(self._context, os.fsencode(file), data)

    @cached_property
    def _context(self) -> bytes:
        """All that the findings of every file depend on."""
        options = {name: value for name, value in _items(self._options) if name not in _ANYTHING | {"rules"}}
        files = [path for place in self._options.rules for path in rule_files(place)]
        rules = [(str(path), _sum_of_file(path)) for path in files]
        versions = (
            sys.version,
            *map(_version, _PACKAGES),
            _origin("tvm"),
            *_libraries(),
            os.environ.get(REPLACE),
        )
        parts = (VERSION, versions, list(_package()), rules, sorted(options.items()), self._fixes)
        return repr(parts).encode()


def sendable(file: Path, contents: Mapping[Path, bytes] = MappingProxyType({})) -> bytes | None:
    """Return the bytes that are all of a model, from `contents` or from the file.

    None for a function of a file, for what is very large, for ONNX that keeps tensors elsewhere, and for what
    cannot be read.
    """
    if file in contents:
        return contents[file]
    data = None if model_function(file) else _read(file)
    return None if data is None or (_is_onnx(file, data) and _NAMED_ELSEWHERE in data) else data


def _is_onnx(file: Path, data: bytes) -> bool:
    """Return whether a file is read as ONNX, whatever it is called."""
    try:
        return kind_of(file, data) == "onnx"
    except UnreadableError:
        return False


def _items(options: LintOptions) -> Iterator[tuple[str, str]]:
    for name in options.__dataclass_fields__:
        value = getattr(options, name)
        yield name, repr(sorted(value.items()) if isinstance(value, Mapping) else value)


def _is_taken(folder: Path) -> bool:
    """Return whether something other than a folder has this name; what cannot be looked at has not."""
    with suppress(OSError):
        return folder.exists() and not folder.is_dir()
    return False


def _package() -> Iterator[tuple[str, int, int]]:
    """The files of this package: a version says nothing of an editable install."""
    for path in _package_files():
        status = path.stat()
        yield str(path), status.st_size, status.st_mtime_ns


@cache
def package_sum() -> str:
    """A hash of the code and the rules of this package, equal wherever it is installed."""
    return _hash(*(part for path in _package_files() for part in (path.name.encode(), path.read_bytes())))


def _package_files() -> Iterator[Path]:
    root = Path(__file__).parent.parent
    for folder in (root, root / "rules", root.parent / "rules"):
        yield from sorted(folder.rglob("*.py" if folder == root else "*.toml"))


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in (*folder.glob("*.json"), *folder.glob(".*.json.*")):
        with suppress(FileNotFoundError):
            yield path, path.lstat()


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes() if file.stat().st_size <= MOST_BYTES else None
    except OSError:
        return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _origin(package: str) -> tuple[str, int] | None:
    """The place of a package, and when it was written there: a build of one's own may bear any version."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    with suppress(OSError):
        return spec.origin, Path(spec.origin).stat().st_mtime_ns
    return spec.origin, 0


def _libraries() -> Iterator[tuple[str, int, int] | str]:
    """The libraries of TVM, which may be built again, and the variables by which it chooses them."""
    spec, given = find_spec("tvm"), os.environ.get("TVM_LIBRARY_PATH", "")
    folders = [Path(spec.origin).parent / "lib"] if spec and spec.origin else []
    folders += [Path(given)] if given else []
    for library in sorted(each for folder in folders for each in folder.glob("*.so")):
        with suppress(OSError):
            status = library.stat()
            yield str(library), status.st_size, status.st_mtime_ns
    yield from (given, os.environ.get("TVM_USE_RUNTIME_LIB", ""))


def _hash(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()


def _sum(key: str, text: str) -> str:
    """The sum of an entry: one that was renamed, or that lies under another's name, has another."""
    return _hash(key.encode(), text.encode(errors="replace"))


def _sum_of_file(path: Path) -> str:
    return _hash(_read(path) or b"")
