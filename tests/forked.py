"""Starts commands by the fork server, in a tenth of a second instead of five, and gives what `subprocess` would."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from fork_server import SIZE

READ_LATER = ("CROSSLIGHT_", "PYTEST_", "PL_")
"""Beginnings of the variables that may differ from the server's: imports do not read them, and `PL_GLOBAL_SEED` is set
by any test that seeds."""


class Forked:
    """A running process; `returncode` is None until its end has been seen, and negative after a signal."""

    def __init__(self, args: Sequence[str], connection: socket.socket) -> None:
        self.args, self._connection = args, connection
        self.pid = int(connection.recv(SIZE))
        self._handle = os.pidfd_open(self.pid)  # a number that no later process can have
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended, or None."""
        return self.returncode if self.returncode is not None or not self._ended(0.0) else self._end()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; a TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            if not self._ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            return self._end()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._connection], [], [], timeout)[0])

    def _end(self) -> int:
        message = self._connection.recv(SIZE)
        assert message, "the fork server has ended"
        self.returncode = int(message)
        self._connection.close()
        os.close(self._handle)
        return self.returncode


class ForkServer:
    """One server for a whole test session; it ends with the process that has made it. `variables` are set in it."""

    def __init__(self, **variables: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = {**os.environ, **variables}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno())],
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    @cached_property
    def _imported(self) -> dict[str, str]:
        """The variables that the server's imports have set. Waits until they are done."""
        message = self._control.recv(SIZE)
        assert message, "the fork server did not start"
        return json.loads(message)

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a process with these variables can be forked: those read by imports are the server's."""
        names = {*environment, *self._environment} - {*self._imported}
        different = [name for name in names if environment.get(name) != self._environment.get(name)]
        return all(name.startswith(READ_LATER) for name in different)

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        new_session: bool = False,
    ) -> Forked:
        """`python *command` with these three descriptors; a new session makes its `pid` a process group of its own."""
        assert self.suits(environment), "start a real process: a variable differs that imports may read"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "command": list(command),
            "cwd": str(cwd),
            "environment": dict(environment),
            "new_session": new_session,
        }
        with theirs:
            descriptors = [stdin, stdout, stderr, theirs.fileno()]
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        return Forked(command, ours)

    def run(
        self, command: Sequence[str], *, stdin: bytes, cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """The process after its end, with all that it has written."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            ends = {"stdin": given.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
            process = self.start(command, cwd=cwd, environment=environment, **ends)
            try:
                status = process.wait(timeout)
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, status, out.read(), err.read())

    def close(self) -> None:
        """End the server and what still runs."""
        self._control.shutdown(socket.SHUT_RDWR)  # also where a process that a test has forked still holds it
        self._control.close()
        self._process.wait(timeout=60)
