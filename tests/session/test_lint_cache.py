"""Findings kept from one run to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import LintedFile
from symalloc.program.reading import FileResult, ReadProblem
from symalloc.relax.read.find_files import FoundFiles
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.rulebook.rule import load_rules
from symalloc.session import config
from symalloc.session.config import LintCache, default_folder
from symalloc.session.linting import LintSession
from tests.conftest import Run
from tests.pool.processes import at_once, died

SOUND = Path(__file__).parents[2] / "examples" / "mlp.py"
FAULTY = Path(__file__).parents[2] / "examples" / "issue_17322.py"


@pytest.fixture(scope="module")
def linted(tmp_path_factory: pytest.TempPathFactory, kept_pool: WorkerPool) -> list[LintedFile]:
    """Reports with findings of several rules, with fixes."""
    folder, files = tmp_path_factory.mktemp("rules"), []
    for rule in load_rules().rules[::3]:
        files.append(folder / f"{rule.id}.py")
        files[-1].write_text(rule.bad[0].module)
    session = LintSession(LintOptions(), kept_pool)
    return list(session._linted([*files, FAULTY], None, fixes=True).values())


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have every process fail that is started from the call on."""

    def forbid() -> None:
        def fail(*_: object, **__: object) -> None:
            raise AssertionError("a file was read")

        monkeypatch.setattr(WorkerPool, "read", fail)
        monkeypatch.setattr(WorkerPool, "start", fail)

    return forbid


def test_what_is_stored_comes_back_whole(linted: list[LintedFile]) -> None:
    assert sum(len(one.report) for one in linted) > 8
    assert any(d.fixes for one in linted for d in one.report)
    for one in linted:
        assert msgspec.json.decode(msgspec.json.encode(one), type=LintedFile) == one


def test_a_second_run_reads_no_file(run: Run, no_workers: Callable[[], None], tmp_path: Path) -> None:
    arguments = ("lint", str(FAULTY), str(SOUND), "--cache", str(tmp_path / "cache"), "-q")
    first = run(*arguments)
    no_workers()
    assert run(*arguments) == first
    assert first[0] == 1
    for form in ("sarif", "json"):
        assert run(*arguments, "--format", form)[0] == 1


def test_the_cache_is_the_users_own(run: Run, no_workers: Callable[[], None], tmp_path: Path) -> None:
    first = run("lint", str(FAULTY), "-q")
    folder = default_folder()
    assert folder is not None and str(folder).startswith(os.environ["XDG_CACHE_HOME"])
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert (folder / ".gitignore").read_text() == "*\n"
    no_workers()
    assert run("lint", str(FAULTY), "-q") == first
    assert run("lint", str(FAULTY), "-q", "--no-cache")[0] == 2


def test_a_project_can_do_without(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.symalloc]\ncache = false\n")
    model = tmp_path / "model.py"
    model.write_text(FAULTY.read_text())
    run("lint", str(model), "-q")
    folder = default_folder()
    assert folder is not None and not folder.exists()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.py"
    file.write_text(FAULTY.read_text())
    return file


def _cache(folder: Path, fixes: bool = True, **options: object) -> LintCache:
    return LintCache(folder / "cache", LintOptions(**options), fixes=fixes)  # type: ignore[arg-type]


def test_what_findings_depend_on_is_in_the_key(
    model: Path, tmp_path: Path, linted: list[LintedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    _cache(tmp_path).put({model: linted[-1]})
    assert _cache(tmp_path).get(model) == linted[-1]
    assert _cache(tmp_path, jobs=3, exclude=("x",)).get(model) == linted[-1]
    others: list[dict[str, object]] = [
        {"assume": ("n <= 3",)},
        {"select": ("SYM1",)},
        {"ignore": ("SYM101",)},
        {"strict": True},
        {"timeout": 7.0},  # of fixes that are tried, too
        {"stage": "planned"},
        {"target": "cuda"},
        {"pipeline": "target"},
        {"budget": 4096},
        {"per_file_ignores": {"a": ("SYM1",)}},
        {"trust": True},
    ]
    for other in others:
        assert not _cache(tmp_path, **other).has(model), other
    assert not _cache(tmp_path, fixes=False).has(model)
    (rules / "mine.toml").write_text("one")
    with_rules = _cache(tmp_path, rules=(rules,))
    with_rules.put({model: linted[-1]})
    (rules / "mine.toml").write_text("other")
    assert not _cache(tmp_path, rules=(rules,)).has(model)
    with monkeypatch.context() as patch:
        patch.setenv("SYMALLOC_REPLACE_TVM_PLANNER", "1")
        assert not _cache(tmp_path).has(model)
    assert _cache(tmp_path).has(model)
    versions = config.installed_versions()
    for changed in versions:
        monkeypatch.setattr(config, "installed_versions", lambda of=changed: {**versions, of: "9"})
        assert not _cache(tmp_path).has(model), changed


def test_a_change_of_the_file_counts(model: Path, tmp_path: Path, linted: list[LintedFile]) -> None:
    cache = _cache(tmp_path)
    assert cache.get(model) is None
    model.write_text(model.read_text() + "# changed while it was linted\n")
    cache.put({model: linted[-1]})
    assert not _cache(tmp_path).has(model)
    other = model.with_name("other.py")
    other.write_bytes(model.read_bytes())
    _cache(tmp_path).put({model: linted[-1]})
    assert _cache(tmp_path).has(model)
    assert not _cache(tmp_path).has(other), "the name stands in the findings"


def test_fixes_that_could_not_be_tried_to_the_end_are_tried_again(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = WorkerPool.read

    def gives_up(
        pool: WorkerPool, files: Sequence[Path], options: LintOptions, *more: Any
    ) -> Iterator[FileResult]:
        for result in read(pool, files, options, *more):
            problem = ReadProblem(file=result.file, message="gave up after 1 s", passing=True)
            is_changed = result.file != str(model)
            yield replace(result, programs=(), problems=(problem,)) if is_changed else result

    arguments = ("lint", str(model), "--cache", str(tmp_path / "cache"), "--format", "sarif")
    with monkeypatch.context() as patch:
        patch.setattr(WorkerPool, "read", gives_up)
        assert '"fixes"' not in run(*arguments)[1]
    assert not list((tmp_path / "cache").glob("*.json"))
    assert '"fixes"' in run(*arguments)[1]
    assert list((tmp_path / "cache").glob("*.json"))


def test_what_was_not_decided_or_read_is_not_kept(
    model: Path, tmp_path: Path, linted: list[LintedFile]
) -> None:
    report = linted[-1].report
    undecided = replace(report, summary=replace(report.summary, unknown=1))
    unread = replace(report, diagnostics=(replace(report.diagnostics[0], rule="SYM902"),))
    for other in (undecided, unread):
        _cache(tmp_path).put({model: replace(linted[-1], report=other)})
        assert not _cache(tmp_path).has(model)


NO_REPORT = b'{"sum": "", "linted": 5}'


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", NO_REPORT, b"\xff\xfe", b"[" * 100_000, None])
def test_a_damaged_entry_is_ignored(
    model: Path, tmp_path: Path, linted: list[LintedFile], damage: bytes | None
) -> None:
    _cache(tmp_path).put({model: linted[-1]})
    (entry,) = (tmp_path / "cache").glob("*.json")
    data = entry.read_bytes()
    entry.write_bytes(data.replace(b"SYM101", b"SYM102") if damage is None else damage)
    assert _cache(tmp_path).get(model) is None
    _cache(tmp_path).put({model: linted[-1]})
    assert _cache(tmp_path).get(model) == linted[-1]


def _as_large(entry: Path) -> None:
    with entry.open("wb") as stream:
        stream.truncate(config.MOST_BYTES + 1)


@pytest.mark.parametrize(
    "occupy",
    [
        os.mkfifo,
        lambda entry: entry.symlink_to("/dev/zero"),
        lambda entry: entry.symlink_to(entry.parent / "elsewhere"),
        _as_large,
    ],
    ids=["pipe", "endless", "dangling", "large"],
)
def test_what_is_no_file_is_not_read_and_is_replaced(
    model: Path, tmp_path: Path, linted: list[LintedFile], occupy: Callable[[Path], None]
) -> None:
    cache = _cache(tmp_path)
    cache.put({model: linted[-1]})
    for name in ("CACHEDIR.TAG", ".gitignore", *(path.name for path in (tmp_path / "cache").glob("*.json"))):
        (tmp_path / "cache" / name).unlink()
        occupy(tmp_path / "cache" / name)
    assert cache.get(model) is None
    cache.put({model: linted[-1]})
    assert _cache(tmp_path).get(model) == linted[-1]
    assert not (tmp_path / "cache" / "elsewhere").exists()


def test_a_folder_in_the_place_of_an_entry_is_left_alone(
    model: Path, tmp_path: Path, linted: list[LintedFile]
) -> None:
    cache = _cache(tmp_path)
    cache.put({model: linted[-1]})
    (entry,) = (tmp_path / "cache").glob("*.json")
    entry.unlink()
    entry.mkdir()
    cache.put({model: linted[-1]})
    assert cache.get(model) is None
    assert list(entry.parent.glob(".*.json.*")) == []


def test_an_entry_under_the_name_of_another_is_ignored(
    model: Path, tmp_path: Path, linted: list[LintedFile]
) -> None:
    other = model.with_name("other.py")
    other.write_text("# nothing\n")
    _cache(tmp_path).put({model: linted[-1]})
    (entry,) = (tmp_path / "cache").glob("*.json")
    data = entry.read_bytes()
    _cache(tmp_path).put({other: linted[0]})
    (found,) = set((tmp_path / "cache").glob("*.json")) - {entry}
    found.write_bytes(data)
    assert _cache(tmp_path).get(other) is None
    assert _cache(tmp_path).get(model) == linted[-1]


def test_another_library_of_tvm_counts(
    model: Path, tmp_path: Path, linted: list[LintedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    _cache(tmp_path).put({model: linted[-1]})
    monkeypatch.setenv("TVM_LIBRARY_PATH", str(tmp_path))
    assert not _cache(tmp_path).has(model)
    _cache(tmp_path).put({model: linted[-1]})
    (tmp_path / "libtvm.so").write_bytes(b"built again")
    assert not _cache(tmp_path).has(model)


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(run: Run, tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    status, out, err = run("lint", str(SOUND), "--cache", str(occupied / "cache"))
    assert (status, err) == (0, "")
    assert "always valid" in out


def test_models_of_several_files_are_not_kept(tmp_path: Path) -> None:
    elsewhere = b"\x08..location.."
    for name, data, kept in (
        ("a.onnx", elsewhere, False),
        ("a.model", elsewhere, False),
        ("b.onnx", b"..", True),
        ("b.model", b"\x08..", True),
        ("c.py", b"location", True),
        ("c.model", b"", True),
    ):
        (tmp_path / name).write_bytes(data)
        assert (config.sendable(tmp_path / name) is not None) is kept


def test_very_large_files_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_bytes(b"." * 101)
    monkeypatch.setattr(config, "MOST_BYTES", 100)
    assert config.sendable(tmp_path / "a.py") is None


def test_the_entries_used_longest_ago_go_first(
    model: Path, tmp_path: Path, linted: list[LintedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = _cache(tmp_path)
    for number in range(6):
        entry = tmp_path / "cache" / f"{number}.json"
        entry.parent.mkdir(exist_ok=True)
        entry.write_bytes(b" " * 1000)
        os.utime(entry, (number, number))
    monkeypatch.setattr(config, "MOST_BYTES", 4000)
    cache.put({model: linted[0]})
    left = {path.stem for path in (tmp_path / "cache").glob("*.json")}
    assert {"0", "1", "2"}.isdisjoint(left)
    assert _cache(tmp_path).has(model)


def test_two_writers_do_not_disturb_each_other(model: Path, tmp_path: Path, linted: list[LintedFile]) -> None:
    ends: list[tuple[int, str]] = []

    def write() -> None:
        cache = _cache(tmp_path)
        for _ in range(40):
            cache.put({model: linted[-1]})
            assert cache.get(model) == linted[-1]

    at_once(*[lambda: ends.append(died(write))] * 2)
    assert ends == [(0, "")] * 2
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".json", ".TAG", ""}


def test_a_file_that_goes_meanwhile_is_no_fault(kept_pool: WorkerPool, tmp_path: Path, model: Path) -> None:
    cache = _cache(tmp_path)
    session = LintSession(LintOptions(), kept_pool, cache=cache)
    report = session.lint_files(FoundFiles(files=(model, model), skipped=2))
    assert (report.files, report.skipped) == ((str(model),), 2)
    again = LintSession(LintOptions(), kept_pool, cache=_cache(tmp_path))
    kept = again.lint_files(FoundFiles(files=(model,), skipped=2))
    assert replace(kept, summary=report.summary) == report
