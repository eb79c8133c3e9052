"""One start of a run, from the first entry in its record to the last: how it ended, and how long it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from filelock import FileLock, Timeout

from crosslight.errors import RunError
from crosslight.runs.folder import RunFolder, write_atomically
from crosslight.runs.record import Record, environment, now
from crosslight.runs.signals import Interrupted, interruption


@contextmanager
def attempt(folder: RunFolder, name: str) -> Iterator[Record]:
    """The record of the run, `running` while the context is entered, then `finished`, `interrupted` or `failed`.

    `wall_seconds` adds up over the attempts that came to an end. An attempt that fails before `record.training` is set
    leaves config and record as they were. A run has one attempt at a time: a second raises a RunError. Signals end it
    with 128 + their number; Lightning's own 0 and 1 would tell a scheduler that all went well, or nothing.
    """
    lock = FileLock(folder.path / "run.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunError(f"{folder.path}: another process is training in this folder; end it first") from error
    with lock, interruption.handled():
        folder.sweep()
        before = {file: file.read_bytes() for file in (folder.config, folder.record) if file.is_file()}
        record = Record(folder.record)
        earlier, begun = record.content.get("wall_seconds", 0.0), time.monotonic()
        started = record.content.get("started", now())
        record.update(name=name, status="running", started=started, error=None, **environment())

        def end(status: str, error: Any = None) -> None:
            record.update(
                status=status, finished=now(), wall_seconds=round(earlier + time.monotonic() - begun, 2), error=error
            )

        try:
            yield record
        except (KeyboardInterrupt, SystemExit) as error:
            with suppress(OSError):
                end("interrupted")
            raise error if isinstance(error, Interrupted) else SystemExit(130) from None
        except BaseException as error:
            with suppress(OSError):  # on a full disk the first error is the one to tell
                if before and not record.training:
                    for file, content in before.items():
                        write_atomically(file, content)
                else:
                    end("failed", f"{type(error).__name__}: {error}")
            raise
        end("finished")
