"""Signals that ask a process to end: SIGTERM, SIGINT (Ctrl-C), and SIGUSR1, by which SLURM announces a pre-emption.

In training they wait for the end of the update, so that it can be saved; everywhere else they end the process at once,
with status 128 + the signal's number (143, 130, 138). Lightning would exit with 0 and save nothing.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from crosslight.runs.ranks import rank

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

log = logging.getLogger(__name__)


class Interrupted(SystemExit):
    """A signal has ended the process; `code` is its exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name


class Interruption:
    """The signal that has come, if `waiting` is set: who sets it, ends the process at its next good moment.

    A second one ends it at once.
    """

    def __init__(self) -> None:
        self.waiting, self.received = False, 0

    @contextmanager
    def handled(self) -> Iterator[None]:
        """The signals are ours while the context is entered. Only a main thread can have them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self.waiting, self.received = False, 0
        self.install()
        try:
            yield
        finally:
            self.waiting = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def install(self) -> None:
        """Take the signals, again if somebody else has taken them in between."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.received = not self.received, number  # kept, for what is raised below may be lost in a destructor
        if not self.waiting or not first:
            self.waiting = False
            raise Interrupted(number)
        if rank() == 0:
            log.warning(
                "%s: saving after this update, then the run ends; once more ends it now", signal.Signals(number).name
            )


interruption = Interruption()
"""Signals come to a process, not to an object of it."""
