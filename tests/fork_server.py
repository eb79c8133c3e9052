"""A Python that has imported what the commands import, and forks a process for each command that it is asked for.

Run as a script by `forked.py`. A forked process is a user's one in all that a command can see, but has read
`PYTHONHASHSEED` and other variables of the start long ago.
"""

import atexit
import builtins
import gc
import importlib
import json
import logging
import multiprocessing.process
import os
import pkgutil
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

SIZE = 1 << 20
"""The longest request in bytes."""

LATE = (
    "lightning.pytorch.loggers",
    "torch.distributed.checkpoint.state_dict",
    "torch.utils.tensorboard",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
)
"""What is imported only when it is used."""

HARMLESS = {"jemalloc_bg_thd"}
"""Threads whose library expects a fork: pyarrow's allocator."""


def prepare() -> dict[str, str]:
    """Import everything; returns the environment variables that imports have set."""
    before = dict(os.environ)
    sys.path.pop(0)  # tests/, which no command sees
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)  # Lightning logs by itself if there is none when it is imported
    import crosslight

    for module in pkgutil.walk_packages(crosslight.__path__, "crosslight."):
        importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    logging.getLogger().removeHandler(handler)
    gc.freeze()
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def check_threads() -> None:
    """A thread would be missing in the forked process, with its locks held for ever."""
    names = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read().strip())
    if set(names) - HARMLESS:
        raise RuntimeError(f"imports have started threads: {', '.join(names)}")


def serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork on request and tell how each process ended, until nobody holds the other end of `control`.

    Returns in the forked processes only: the request and its standard input, output and error.
    """
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([control, *running], [], [])[0]:
            if ready in running:
                pid, reply = running.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError), reply:  # who asked may be gone
                    reply.send(str(status).encode())
                os.close(ready)
                continue
            message, descriptors = b"", list[int]()
            with suppress(ConnectionResetError):  # the other end has left something unread
                message, descriptors, _, _ = socket.recv_fds(control, SIZE, 4)
            if not message:
                for pid, _ in running.values():
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                os._exit(0)
            reply = socket.socket(fileno=descriptors.pop())
            if (pid := os.fork()) == 0:
                for end in (control, reply, *(other for _, other in running.values())):
                    end.close()
                for process in running:
                    os.close(process)
                return json.loads(message), descriptors
            for descriptor in descriptors:
                os.close(descriptor)
            running[os.pidfd_open(pid)] = pid, reply
            with suppress(OSError):
                reply.send(str(pid).encode())


def become(request: dict[str, Any], descriptors: list[int], imported: dict[str, str]) -> ModuleType:
    """Take over everything that a new process would have been given; returns its empty `__main__`."""
    import numpy as np

    script, cwd = request["command"][0], request["cwd"]
    if request["new_session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(request["environment"] | imported)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    np.random.seed()  # as unforeseeable as in a new process
    multiprocessing.process.ORIGINAL_DIR = cwd
    sys.argv = request["command"]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path.insert(0, os.path.dirname(script))
    main = ModuleType("__main__")
    vars(main).update(__file__=script, __cached__=None, __annotations__={}, __builtins__=builtins)
    main.__loader__ = SourceFileLoader("__main__", script)
    sys.modules["__main__"] = main
    return main


if __name__ == "__main__":
    control = socket.socket(fileno=int(sys.argv[1]))
    imported = prepare()
    check_threads()
    control.send(json.dumps(imported).encode())
    main = become(*serve(control), imported)
    with open(sys.argv[0], "rb") as file:
        code = compile(file.read(), sys.argv[0], "exec")
    try:
        exec(code, vars(main))
    except KeyboardInterrupt:  # torch._dynamo, once imported, makes Python forget at exit that it was interrupted
        sys.excepthook(*sys.exc_info())
        atexit._run_exitfuncs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
