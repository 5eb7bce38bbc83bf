"""`[tool.symalloc]` in pyproject.toml, the files of a lint run, the cache of its results; imports no linter.

    [tool.symalloc]
    select = ["SYM1", "SYM2"]
    ignore = ["SYM205"]
    assume = ["n <= 2048"]
    rules = ["house-rules"]          # relative to the file
    stage = "auto"
    exclude = ["third_party"]
    per-file-ignores = { "tests/*" = ["SYM2"] }
    baseline = "symalloc-baseline.json"   # relative to the file
    jobs = 4
    budget = "512MiB"
    max-buffer = "1GiB"              # of plans
    cache = false                    # lint all files in each run

    [tool.symalloc.packed."mylib.sort"]  # what a packed function does, as `symalloc.packed_function` has it
    defines = [1]
    takes = "nothing"

These are the options of `LintOptions` and `PlanOptions` that stand `in_file`, read as Python reads its
keyword arguments.  The command line overlays them.  `trust` is refused: whoever can change this file (a pull
request) could otherwise make the linter run the code that it brings.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.options import options_of, read_table
from symalloc.pipelines import REPLACE
from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.packed_contracts import PackedContract, stated_contracts
from symalloc.program.reading import UnreadableError
from symalloc.relax.read.find_files import STDIN, FoundFiles, find, kind_of, model_function
from symalloc.rulebook.rule import rule_files
from symalloc.session.files import read_regular, read_text, replace_file
from symalloc.shown import version_of

if TYPE_CHECKING:
    from symalloc.linter.linter import LintedFile


PLANNING = frozenset(
    name.replace("_", "-") for name, known in options_of(PlanOptions).items() if known.in_file
)
"""The keys that are options of plans."""


def find_config(paths: Sequence[str]) -> Path | None:
    """Find the nearest pyproject.toml with a [tool.symalloc] table, above the first path or from here."""
    start = (Path(paths[0]) if paths else Path.cwd()).resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        with suppress(OSError):  # of a name that is too long
            if file.is_file() and _table(file) is not None:
                return file
    return None


def load_config(file: Path) -> LintOptions:
    """Read the options set in `file`; raises UsageError for what is no TOML or not understood."""
    table = _table(file)
    if table is None:
        raise UsageError(f"{file}: there is no [tool.symalloc] table")
    if "trust" in table:
        raise UsageError(
            f"{file}: `trust` cannot be set in a file: a change to the project could then make the linter "
            "run the code that it brings; give --trust on the command line"
        )
    packed = stated_contracts(f"{file}: `packed`", table.pop("packed", {}))
    own = {key: value for key, value in table.items() if key not in PLANNING}
    given = read_table(LintOptions, own, "[tool.symalloc]", prefix=f"{file}: ")
    return LintOptions(packed=packed, **{name: _below(file.parent, value) for name, value in given.items()})


def plan_options(path: Path, given: Mapping[str, Any]) -> tuple[PlanOptions, Mapping[str, PackedContract]]:
    """Return the options of a plan of the model at `path`, as `given`, else as [tool.symalloc] says, and the
    contracts of packed functions: those of [tool.symalloc.packed] and others.
    """
    file = find_config([str(path)])
    table = {} if file is None else _table(file) or {}
    packed = stated_contracts(f"{file}: `packed`", table.get("packed", {}))
    own = {key: value for key, value in table.items() if key in PLANNING}
    told = read_table(PlanOptions, own, "[tool.symalloc]", f"{file}: ")
    stated = {name: value for name, value in given.items() if value is not None}
    return PlanOptions(**{**told, **stated}), packed


def _below(folder: Path, value: Any) -> Any:
    """Return an option's value, with its paths relative to `folder`."""
    if isinstance(value, tuple):
        return tuple(_below(folder, each) for each in value)
    return folder / value if isinstance(value, Path) else value


def _table(file: Path) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    found = document.get("tool", {}).get("symalloc")
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{file}: tool.symalloc is not a table")
    return found


def found_files(options: LintOptions, paths: Sequence[str]) -> FoundFiles:
    """Find the files that `paths` name, less those excluded; raises UsageError where nothing is left."""
    found = find(paths, trust=options.trust, strict=options.strict)
    kept = tuple(file for file in found.files if not options.excludes(str(file)))
    if found.files and not kept:
        raise UsageError(f"all {len(found.files)} files are excluded by {', '.join(options.exclude)}")
    return replace(found, files=kept)


# -- the results of linting, kept from one run to the next: what did not change is not linted again --------


VERSION = 2
MOST_BYTES = 256 * 2**20
_KEPT = 0.8  # of MOST_BYTES, where entries are removed
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of symalloc lint: https://bford.info/cachedir/\n"
)
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "z3-solver", "onnx", "torch")
_LOG = logging.getLogger("symalloc")
_NAMED_ELSEWHERE = b"location"  # in an ONNX model whose tensors lie in other files


def default_folder() -> Path | None:
    """Return the folder for caches that the user has by the XDG convention; None where it cannot be."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        folder = (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "symalloc"
        return None if _is_taken(folder) else folder
    return None


class _Entry(msgspec.Struct):
    """The file of an entry: the findings, and the sum by which damage shows, and another entry's contents."""

    sum: str
    linted: msgspec.Raw


class LintCache:
    """The findings of files linted before with the same `options`, in `folder`.

    An entry is found by a hash of all that its findings depend on: the bytes and the name of the file, the
    options, the rules, the versions of symalloc and of TVM.  It is JSON, and no code: whoever can write to
    the folder can make findings disappear, and nothing else.

    `fixes`: whether fixes were tried.  What cannot be read there counts as missing, and what cannot be
    written is not kept: a cache is no reason to fail.
    """

    def __init__(self, folder: Path, options: LintOptions, *, fixes: bool) -> None:
        """Raises UsageError where `folder` is something else."""
        if _is_taken(folder):
            raise UsageError(f"the cache {folder} is not a folder")
        self._folder, self._options, self._fixes = folder, options, fixes
        self._asked: dict[Path, str | None] = {}

    def has(self, file: Path) -> bool:
        """Return whether there seems to be an entry; it may turn out to be none."""
        key = self._key(file)
        return key is not None and self._entry(key).is_file()

    def get(self, file: Path) -> LintedFile | None:
        """Return the findings of `file` as it is now; None where they are not known."""
        from symalloc.linter.linter import LintedFile

        key = self._asked[file] = self._key(file)
        if key is None:
            return None
        try:
            entry = msgspec.json.decode(read_regular(self._entry(key), MOST_BYTES), type=_Entry)
            if entry.sum != _hash(key.encode(), bytes(entry.linted)):
                raise ValueError("another sum")
            found = msgspec.json.decode(entry.linted, type=LintedFile)
            os.utime(self._entry(key))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            _LOG.debug("the cache's entry for %s is of no use: %s", file, error)
            return None
        _LOG.debug("the findings of %s are known from %s", file, self._folder)
        return found

    def put(self, linted: Mapping[Path, LintedFile]) -> None:
        """Keep the findings of some files, and make room: remove the entries that were used longest ago."""
        for file, one in linted.items():
            try:
                self._keep(file, one)
            except (OSError, UnicodeEncodeError) as error:
                _LOG.debug("nothing is kept in %s: %s", self._folder, error)
        if linted:
            with suppress(OSError):
                self._make_room()

    def _keep(self, file: Path, linted: LintedFile) -> None:
        """Keep the findings of `file`, unless linting it again could give others.

        It was changed meanwhile where it is not as it was when `get` was asked.
        """
        complete = linted.settled and not linted.report.unread and not linted.report.summary.unknown
        key = self._key(file) if complete else None
        if key is None or key != self._asked.get(file, key):
            return
        data = msgspec.json.encode(linted)
        if not (self._folder / "CACHEDIR.TAG").is_file():  # programs that copy look for it
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(self._folder / ".gitignore", b"*\n")
            replace_file(self._folder / "CACHEDIR.TAG", _TAG.encode())
        entry = _Entry(sum=_hash(key.encode(), data), linted=msgspec.Raw(data))
        replace_file(self._entry(key), msgspec.json.encode(entry))

    def _make_room(self) -> None:
        """Remove old entries, and what processes left behind that were killed while they wrote."""
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

    def _key(self, file: Path) -> str | None:
        """Return the name of an entry for the bytes that a file has now; None where there is more to it."""
        data = None if self._options.trust or file == STDIN else sendable(file)
        return None if data is None else _hash(self._context, os.fsencode(file), data)

    @cached_property
    def _context(self) -> bytes:
        """All that the findings of every file depend on."""
        options = replace(self._options, rules=(), jobs=None, exclude=(), baseline=None, cache=True)
        files = [path for place in self._options.rules for path in rule_files(place)]
        rules = [(str(path), _hash(path.read_bytes())) for path in files]
        versions = (sys.version, *installed_versions().items(), *_tvm(), os.environ.get(REPLACE))
        return repr((VERSION, versions, rules, options, self._fixes)).encode()


def sendable(file: Path, contents: Mapping[Path, bytes] = MappingProxyType({})) -> bytes | None:
    """Return the bytes that are all of a model, from `contents` or from the file.

    None for a function of a file, for what is very large, for ONNX that keeps tensors elsewhere, and for what
    cannot be read.
    """
    if file in contents:
        return contents[file]
    try:
        if model_function(file) or file.stat().st_size > MOST_BYTES:
            return None
        data = file.read_bytes()
        return None if _NAMED_ELSEWHERE in data and kind_of(file, data) == "onnx" else data
    except OSError:
        return None
    except UnreadableError:  # of no kind; the reader says so
        return data


def installed_versions() -> dict[str, str]:
    """The versions of what findings depend on, wherever they are made; "none" where a package is missing."""
    python = ".".join(map(str, sys.version_info[:2]))
    packages = {name: version_of(name, "none") for name in _PACKAGES}
    return {"Python": python, **packages, "symalloc's files": _package()}


@cache
def _package() -> str:
    """A hash of the code, the tables and the rules of this package, equal wherever it is installed."""
    root = Path(__file__).parent.parent
    folders = ((root, "*.py"), (root, "*.toml"), (root.parent / "rules", "*.toml"))
    files = [path for folder, pattern in folders for path in sorted(folder.rglob(pattern))]
    return _hash(*(part for path in files for part in (path.name.encode(), path.read_bytes())))[:12]


def _tvm() -> Iterator[object]:
    """The files of TVM that may be built again, and the variables by which it chooses its libraries."""
    given = os.environ.get("TVM_LIBRARY_PATH", "")
    yield from (given, os.environ.get("TVM_USE_RUNTIME_LIB", ""))
    spec = find_spec("tvm")
    files = [Path(spec.origin)] if spec and spec.origin else []
    folders = [*(file.parent / "lib" for file in files), *([Path(given)] if given else [])]
    for file in (*files, *sorted(library for folder in folders for library in folder.glob("*.so"))):
        with suppress(OSError):
            status = file.stat()
            yield str(file), status.st_size, status.st_mtime_ns


def _is_taken(folder: Path) -> bool:
    """Return whether something other than a folder has this name; what cannot be looked at has not."""
    with suppress(OSError):
        return folder.exists() and not folder.is_dir()
    return False


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in (*folder.glob("*.json"), *folder.glob(".*.json.*")):
        with suppress(FileNotFoundError):
            yield path, path.lstat()


def _hash(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()
