"""The exchange with a real server: findings, hovers, fixes, changes, deaths of TVM, other encodings."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.editor.client import PATIENCE, EditorClient, edited
from tests.editor.texts import FAULTY, HEAD, SOUND
from tests.pool.processes import descendants

pytestmark = [
    pytest.mark.editor,
    pytest.mark.skipif(
        find_spec("pygls") is None, reason="pygls is not installed: pip install 'symalloc[editor]'"
    ),
]
LINE = next(i for i, text in enumerate(FAULTY.split("\n")) if "alloc_tensor" in text)


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorClient]:
    with EditorClient(tmp_path_factory.mktemp("editor"), debounce=0) as client:
        yield client
        assert client.quit() == 0


def _actions(editor: EditorClient, uri: str, range_: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The edits of the actions offered, by title."""
    document, context = {"uri": uri}, {"diagnostics": []}
    found = editor.request("textDocument/codeAction", textDocument=document, range=range_, context=context)
    changes = {action["title"]: action["edit"]["documentChanges"] for action in found}
    assert all(change[0]["textDocument"]["uri"] == uri for change in changes.values())
    return {title: change[0]["edits"] for title, change in changes.items()}


def test_a_fault_is_found_shown_fixed_and_gone(editor: EditorClient) -> None:
    uri = (editor.folder / "never saved.py").as_uri()
    (found,) = editor.open(uri, FAULTY)["diagnostics"]
    assert (found["code"], found["severity"], found["source"]) == ("SYM101", 1, "symalloc")
    assert found["codeDescription"]["href"].endswith("/rules/SYM101.toml")
    text = FAULTY.split("\n")[LINE]
    start = len(text[: text.index("R.memory")].encode("utf-16-le")) // 2
    assert found["range"]["start"] == {"line": LINE, "character": start}
    (related,) = found["relatedInformation"]
    assert related["location"]["range"]["start"] == {"line": LINE - 1, "character": 8 + 4 + 3}
    assert related["message"] == "`𐎠𐎡` reserves 16 B"
    shown = editor.request("textDocument/hover", textDocument={"uri": uri}, position=found["range"]["start"])
    assert "**size** `4*m B`" in shown["contents"]["value"]
    actions = _actions(editor, uri, found["range"])
    fix, *_, allow = actions
    assert (fix, allow) == (
        "storage is in bytes, m counts elements: R.shape([m * 4])",
        "allow SYM101 here with a comment",
    )
    for edits in (actions[allow], actions[fix]):
        editor.change(uri, FAULTY)
        assert editor.change(uri, edited(FAULTY, edits))["diagnostics"] == []
    assert _actions(editor, uri, found["range"]) == {}


def test_an_unused_comment_is_unnecessary_and_removed(editor: EditorClient) -> None:
    uri = (editor.folder / "comment.py").as_uri()
    text = SOUND.replace("# 🧮", "# symalloc: allow(SYM203)")
    (found,) = editor.open(uri, text)["diagnostics"]
    assert (found["code"], found["tags"]) == ("SYM901", [1])
    ((title, edits),) = _actions(editor, uri, found["range"]).items()
    assert title == "remove `SYM203` from the comment"
    assert edited(text, edits) == SOUND.replace("  # 🧮", "")


def test_a_text_that_cannot_be_read_yet_is_a_finding(editor: EditorClient) -> None:
    uri = (editor.folder / "typing.py").as_uri()
    (found,) = editor.open(uri, HEAD + "    @R.function\n    def main(")["diagnostics"]
    assert (found["code"], found["range"]["start"]["line"]) == ("SYM902", HEAD.count("\n") + 1)
    assert [one["code"] for one in editor.change(uri, FAULTY)["diagnostics"]] == ["SYM101"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("plain.py", "import os\nx = os.function("), ("data.json", '{"a": 1}'), ("empty.py", "")],
)
def test_other_files_are_left_alone(editor: EditorClient, name: str, text: str) -> None:
    uri = (editor.folder / name).as_uri()
    assert editor.open(uri, text, "json" if "json" in name else "python")["diagnostics"] == []


def test_json_with_a_fault_says_in_which_function(editor: EditorClient) -> None:
    uri = (editor.folder / "model.json").as_uri()
    (found,) = editor.open(uri, '{"root_index": 0, "nodes": []}', "json")["diagnostics"]
    assert (found["code"], found["range"]["start"]) == ("SYM902", {"line": 0, "character": 0})


def test_of_changes_in_a_row_the_last_one_is_told(editor: EditorClient) -> None:
    uri = (editor.folder / "row.py").as_uri()
    editor.open(uri, SOUND)
    for _ in range(5):
        editor.send_change(uri, SOUND)
        editor.send_change(uri, FAULTY)
    assert [one["code"] for one in editor.published(uri)["diagnostics"]] == ["SYM101"]


def test_the_configuration_of_the_folder_counts(editor: EditorClient) -> None:
    folder = editor.folder / "configured"
    folder.mkdir()
    settings, uri = folder / "pyproject.toml", (folder / "model.py").as_uri()
    settings.write_text('[tool.symalloc]\nassume = ["m <= 4", "other <= 2"]\n')
    assert editor.open(uri, FAULTY)["diagnostics"] == []
    settings.write_text('[tool.symalloc]\nassume = ["m <"]\n')
    editor.notify("textDocument/didSave", textDocument={"uri": settings.as_uri()})
    (found,) = editor.published(uri)["diagnostics"]
    assert found["message"].startswith("assumption `m <`:")


def test_a_death_of_tvm_ends_a_check_and_not_the_server(editor: EditorClient) -> None:
    uri = (editor.folder / "death.py").as_uri()
    editor.open(uri, FAULTY)
    for worker in descendants(editor.process.pid):
        os.kill(worker, signal.SIGKILL)
    seen = editor.change(uri, SOUND)["diagnostics"]  # it may be sent to the dying worker, or to a new one
    assert all("crashed (SIGKILL)" in one["message"] for one in seen)
    assert [one["code"] for one in editor.change(uri, FAULTY)["diagnostics"]] == ["SYM101"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-32"])
def test_a_client_may_count_other_units(tmp_path: Path, encoding: str) -> None:
    with EditorClient(tmp_path, encodings=[encoding], bogus=1) as client:
        uri = (tmp_path / "model.py").as_uri()
        (found,) = client.open(uri, FAULTY)["diagnostics"]
        size = {"utf-8": 4, "utf-32": 1}[encoding]
        assert client.capabilities["positionEncoding"] == encoding
        assert found["range"]["start"]["character"] == 8 + size + 3
        assert client.quit() == 0


@pytest.mark.parametrize(
    ("end", "status"), [("exit", 1), ("end of input", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_every_end_takes_the_worker_along(tmp_path: Path, end: str | signal.Signals, status: int) -> None:
    if isinstance(end, signal.Signals) and signal.getsignal(end) == signal.SIG_IGN:
        pytest.skip(f"{end.name} is ignored here, as nohup has it, and the server goes on")
    with EditorClient(tmp_path) as client:
        uri = (tmp_path / "model.py").as_uri()
        client.open(uri, FAULTY)
        workers = descendants(client.process.pid)
        client.send_change(uri, _long(200))  # it is being read
        if isinstance(end, signal.Signals):
            client.process.send_signal(end)
        elif end == "exit":
            client.notify("exit")
        else:
            assert client.process.stdin is not None
            client.process.stdin.close()
        assert client.process.wait(PATIENCE) == status
        assert workers
        for worker in workers:
            assert not Path(f"/proc/{worker}").exists()


def test_an_address_with_a_null_byte_is_a_name(editor: EditorClient) -> None:
    (found,) = editor.open("file:///%00.py", FAULTY)["diagnostics"]
    assert found["code"] == "SYM101"


def _long(lines: int) -> str:
    """A module of about so many lines that works in storages."""
    start = SOUND.rindex("        𐎠𐎡 =")
    body, end = SOUND[start : SOUND.rindex("        return")], SOUND[SOUND.rindex("        return") :]
    return SOUND[:start] + body * ((lines - SOUND.count("\n")) // body.count("\n")) + end
