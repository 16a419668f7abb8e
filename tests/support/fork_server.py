"""Forks Python processes whose imports are done: ``python fork_server.py FD``, see :mod:`forked_python`.

Reads requests from a socket of packets, each a JSON object and four descriptors: where the exit code goes,
and the new process's three streams. Answers each with the new process's number.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 2**18
DESCRIPTORS = 4
IMPORTED_LATE = ("pandas", "anyio._backends._asyncio", "uvicorn.lifespan.on", "uvicorn.loops.asyncio")
"""What the services' libraries import at first use."""

ARGUMENTS_OF_CODE = 2
"""Where the arguments of ``-c CODE`` begin."""


class Server:
    """The process that every other one is forked from. It has one thread, and so may fork."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        self._told: dict[int, int] = {}
        """Where each process's exit code goes, by its number."""
        self._loaded: set[str] = set()

    def serve(self) -> None:
        """Fork until nobody is left to ask."""
        while True:
            ready, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._requests in ready:
                content, descriptors, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES_MAX, DESCRIPTORS)
                if not content:
                    return
                self._start(json.loads(content), descriptors)

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        for name in (*IMPORTED_LATE, *request["modules"]):
            self._load(name)
        pid = os.fork()
        if pid == 0:
            self._become(request, descriptors)
        told, *streams = descriptors
        self._told[pid] = told
        for stream in streams:
            os.close(stream)
        self._requests.send(str(pid).encode())

    def _load(self, name: str) -> None:
        """Import what a module that is to be run imports. What will be ``__main__`` has to be run afresh."""
        if name in self._loaded:
            return
        importlib.import_module(name)
        if "tacit_protocol.procedures.discovery" in sys.modules:
            sys.modules["tacit_protocol.procedures.discovery"].PROCEDURES.loaded()
        for found in [found for found in sys.modules if found.endswith(".__main__")]:
            del sys.modules[found]
        self._loaded.add(name)
        gc.collect()
        gc.freeze()  # so that a child's collector does not copy every page

    def _reap(self) -> None:
        with suppress(ChildProcessError):  # there is none
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                told = self._told.pop(pid)
                with suppress(BrokenPipeError):  # nobody asks any more
                    os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(told)

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> NoReturn:
        """Be the process that was asked for."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, *streams = descriptors
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        self._requests.close()
        for descriptor in {*descriptors, *self._told.values(), self._woken, self._wake}:
            os.close(descriptor)
        if request["new_session"]:
            os.setsid()
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        end(request["command"])


def end(command: list[str]) -> NoReturn:
    """Run what ``python COMMAND`` runs, and end as it does."""
    code = 1
    try:
        run(command)
        code = 0
    except SystemExit as asked:
        if isinstance(asked.code, str):
            sys.stderr.write(f"{asked.code}\n")
        else:
            code = asked.code or 0
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:  # as the interpreter does
        traceback.print_exc()
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def run(command: list[str]) -> None:
    """Run ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …`` in this process."""
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.argv = ["-c", *command[ARGUMENTS_OF_CODE:]]
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 (as python -c)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
