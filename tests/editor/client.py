"""A client of the language server: JSON-RPC over the pipes of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

PATIENCE = 40.0  # seconds until a server that says nothing counts as dead


class EditorClient:
    """An editor that talks to `symalloc server`; use it in a `with` statement."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "symalloc", "server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
        )
        self.folder, self.options = folder, options
        self.messages: Queue[dict[str, Any]] = Queue()
        self.versions: dict[str, int] = {}
        self._number = 0
        assert self.process.stdout is not None
        self._listener = Thread(target=self._listen, args=(self.process.stdout,), daemon=True)
        self._listener.start()

    def __enter__(self) -> EditorClient:
        encodings = self.options.pop("encodings", None)
        self.capabilities = self.request(
            "initialize",
            processId=None,
            rootUri=self.folder.as_uri(),
            capabilities={"general": {"positionEncodings": encodings}} if encodings else {},
            initializationOptions=self.options,
        )["capabilities"]
        self.notify("initialized")
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:  # closes its streams, those that are closed too
            self.process.kill()
            self._listener.join()

    def quit(self) -> int:
        """Shut the server down as an editor does; return its exit status."""
        self.request("shutdown")
        self.notify("exit")
        return self.process.wait(PATIENCE)

    def open(self, uri: str, text: str, language: str = "python") -> dict[str, Any]:
        """Open a text; return the diagnostics that are published of it."""
        self.versions[uri] = 1
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", textDocument=document)
        return self.published(uri)

    def change(self, uri: str, text: str) -> dict[str, Any]:
        """Replace a text; return the diagnostics that are published of it."""
        self.send_change(uri, text)
        return self.published(uri)

    def send_change(self, uri: str, text: str) -> None:
        """Replace a text, and wait for nothing."""
        self.versions[uri] += 1
        document = {"uri": uri, "version": self.versions[uri]}
        self.notify("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])

    def published(self, uri: str) -> dict[str, Any]:
        """The diagnostics of the version that was sent last."""
        for message in self._received():
            params = message.get("params") or {}
            told = message.get("method"), params.get("uri"), params.get("version")
            if told == ("textDocument/publishDiagnostics", uri, self.versions[uri]):
                return dict(params)
        raise AssertionError("no diagnostics came")

    def request(self, method: str, **params: Any) -> Any:
        """Ask, and wait for the answer."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params or None})
        for message in self._received():
            if message.get("id") == self._number and "method" not in message:
                assert "error" not in message, message
                return message.get("result")
        raise AssertionError("no answer came")

    def notify(self, method: str, **params: Any) -> None:
        """Tell, and wait for nothing."""
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def _received(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                yield self.messages.get(timeout=PATIENCE)
            except Empty:
                return

    def _listen(self, stream: IO[bytes]) -> None:
        while header := stream.readline():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                while stream.readline().strip():
                    pass
                self.messages.put(json.loads(stream.read(int(value))))


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """Make the edits of the protocol in `text`; its positions count UTF-16 code units."""
    data = text.encode("utf-16-le")
    lines = [line.encode("utf-16-le") for line in text.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 2)

    def offset(position: dict[str, int]) -> int:
        return min(starts[min(position["line"], len(lines))] + 2 * position["character"], len(data))

    for edit in sorted(edits, key=lambda e: offset(e["range"]["start"]), reverse=True):
        start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
        data = data[:start] + edit["newText"].encode("utf-16-le") + data[end:]
    return data.decode("utf-16-le")
