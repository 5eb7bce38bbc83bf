"""Child processes forked from one that has imported and used TVM: milliseconds, not the seconds it takes.

`ForkingPopen` stands in for `subprocess.Popen` while a test runs (conftest.py).  What code of symalloc starts
with this interpreter, `[sys.executable, "-P", "-c", ...]`, and `python -m symalloc` of a test are forked from
the server; every other process is started as ever.  A forked child has its own signals, limits, descriptors,
folder and exit status, and is a child of the test's process: only its imports are older than it.  Processes
that it starts are forked from it in turn.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import inspect
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.compile_once import compile_kernels_once
from tests.quick_scripts import read_scripts_quickly
from tests.scale import NIGHTLY

ROOT = Path(__file__).parent.parent
_SET_CHILD_SUBREAPER = 36  # prctl: orphans below this process become its children
_Popen = subprocess.Popen[Any]
_EXECUTE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_LONGEST = 1 << 20  # bytes of a request: the environment is in it
_OPTIONS_WITHOUT_VALUE = ("-P", "-I", "-S", "-B", "-E", "-s")


@dataclass(frozen=True, slots=True)
class _Request:
    """A process to be forked.  The descriptors sent along become `descriptors`, in their order."""

    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    descriptors: Sequence[int]
    new_session: bool


class ForkServer:
    """A process that has imported TVM and symalloc, from which others are forked."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _Popen(
                [sys.executable, "-P", "-m", "tests.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: _Request, descriptors: Sequence[int]) -> int:
        """Fork a process; return its number.  It is a child of this process."""
        data = pickle.dumps(request)
        assert len(data) < _LONGEST
        _adopt_orphans(True)
        try:
            socket.send_fds(self._socket, [data], descriptors)
            return int(self._socket.recv(64))
        finally:
            _adopt_orphans(False)

    def close(self) -> None:
        """End the server; what was forked from it runs on."""
        self._socket.close()
        self._process.wait()


class ForkingPopen(_Popen):
    """Popen that forks Python processes of symalloc's from `server`."""

    server: ClassVar[ForkServer | None] = None

    def _execute_child(self, *values: Any) -> None:
        call = _EXECUTE.bind(self, *values).arguments
        if not _is_ours(call["args"]):
            super()._execute_child(*values)  # type: ignore[misc]
            return
        streams = _streams(call)
        kept = tuple(call["pass_fds"])
        request = _Request(
            arguments=tuple(map(os.fsdecode, call["args"][1:])),
            folder=os.fsdecode(call["cwd"] or Path.cwd()),
            environment=dict(os.environ if call["env"] is None else call["env"]),
            descriptors=(0, 1, 2, *kept),
            new_session=bool(call["start_new_session"]),
        )
        self.pid = self._forked(request, (*streams, *kept))
        self._child_created = True
        self._close_pipe_fds(*(call[name] for name in _PIPES))  # type: ignore[attr-defined]

    def _forked(self, request: _Request, descriptors: Sequence[int]) -> int:
        if ForkingPopen.server is None:
            ForkingPopen.server = ForkServer()
        return ForkingPopen.server.fork(request, descriptors)


class _OwnForkPopen(ForkingPopen):
    """Popen in a forked process, which has imported all that its children need."""

    def _forked(self, request: _Request, descriptors: Sequence[int]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os._exit(_run(request, descriptors))
        return child


_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def _streams(call: Mapping[str, Any]) -> Sequence[int]:
    ends = (call["p2cread"], call["c2pwrite"], call["errwrite"])
    return [number if end == -1 else end for number, end in enumerate(ends)]


def _is_ours(arguments: object) -> bool:
    """Whether a module of symalloc starts this interpreter, or a test starts symalloc itself."""
    if not isinstance(arguments, list | tuple) or arguments[0] != sys.executable:
        return False
    if tuple(arguments[1:3]) == ("-m", "symalloc"):
        return True
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in (__name__, "subprocess"):
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("symalloc.")


def _adopt_orphans(adopt: bool) -> None:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


# -- the server's side -------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Fork what is asked for until the other side closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_everything()
    if not NIGHTLY:
        compile_kernels_once()
        read_scripts_quickly()
        _run_once()
    gc.freeze()
    with socket.socket(fileno=descriptor) as ours:
        while True:
            data, descriptors, _, _ = socket.recv_fds(ours, _LONGEST, 16)
            if not data:
                return
            _fork(ours, pickle.loads(data), descriptors)
            for number in descriptors:
                os.close(number)


def _import_everything() -> None:
    import symalloc.relax

    for module in pkgutil.walk_packages(symalloc.relax.__path__, "symalloc.relax."):
        importlib.import_module(module.name)


def _run_once() -> None:
    """Have the compiler of kernels started: that takes each process half a second."""
    import symalloc
    from symalloc.relax.files.load import read_one
    from tests.modules import CHAIN

    symalloc.run(read_one(Path("chain.py"), data=CHAIN.encode()), {"n": 3}, check=True)


def _fork(ours: socket.socket, request: _Request, descriptors: Sequence[int]) -> None:
    """Fork twice: the parent of the second ends, so that the test's process adopts it."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0005)
    ours.send(str(os.getpid()).encode())
    os._exit(_run(request, descriptors))


def _run(request: _Request, descriptors: Sequence[int]) -> int:
    """Be the process that was asked for; return its exit status."""
    status = 1
    try:
        _become(request, descriptors)
        subprocess.Popen = _OwnForkPopen  # type: ignore[misc]
        _interpret(list(request.arguments))
        status = 0
    except SystemExit as stop:
        status = _status(stop)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return status


def _status(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def _become(request: _Request, descriptors: Sequence[int]) -> None:
    if request.new_session:
        os.setsid()
    above = max(*descriptors, *request.descriptors) + 1
    aside = [os.dup2(number, above + index) for index, number in enumerate(descriptors)]
    for number, wanted in zip(aside, request.descriptors, strict=True):
        os.dup2(number, wanted, inheritable=True)
    kept = sorted(request.descriptors)
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)


def _interpret(arguments: list[str]) -> None:
    """Do what `python ARGUMENTS` does."""
    while arguments[0] in _OPTIONS_WITHOUT_VALUE:
        arguments.pop(0)
    option, program, *rest = arguments
    sys.argv = [option, *rest]
    if option == "-c":
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        assert option == "-m"
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    from tests.fork_server import serve as _serve  # what is pickled names the module

    _serve(int(sys.argv[1]))
