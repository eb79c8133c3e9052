"""One start of a run, from the first entry in its record to the last: how it ended, and how long it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crosslight.errors import RunError
from crosslight.runs.folder import RunFolder, write_atomically
from crosslight.runs.record import Record, environment, now


@contextmanager
def attempt(folder: RunFolder, name: str) -> Iterator[Record]:
    """The record of the run, `running` while the context is entered, then `finished`, `interrupted` or `failed`.

    `wall_seconds` adds up over the attempts that came to an end. A resume that is refused (RunError), or fails before
    `record.training` is set, leaves config and record as they were. SIGTERM ends with status 143 and SIGINT with 130:
    Lightning's own 0 and 1 would tell a scheduler that all went well, or nothing.
    """
    before = {file: file.read_bytes() for file in (folder.config, folder.record) if file.is_file()}
    record = Record(folder.record)
    started, earlier, begun = (
        record.content.get("started", now()),
        record.content.get("wall_seconds", 0.0),
        time.monotonic(),
    )
    record.update(name=name, status="running", started=started, error=None, **environment())

    def end(status: str, error: Any = None) -> None:
        record.update(
            status=status, finished=now(), wall_seconds=round(earlier + time.monotonic() - begun, 2), error=error
        )

    try:
        yield record
    except (KeyboardInterrupt, SystemExit) as error:
        end("interrupted")
        raise SystemExit(143 if type(error).__name__ == "SIGTERMException" else 130) from None
    except BaseException as error:
        if before and (isinstance(error, RunError) or not record.training):
            for file, content in before.items():
                write_atomically(file, content)
        else:
            end("failed", f"{type(error).__name__}: {error}")
        raise
    end("finished")
