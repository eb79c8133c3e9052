"""Training data as token ids, prepared once and kept.

Text is cleaned and encoded on all cores into an Arrow file, which runs map into memory. Cores are used by threads:
SentencePiece and Arrow work outside Python's lock, and a thread cannot hang as a process forked from torch's can. The
folder of the file is named by a hash of everything that decides its content (the text, the tokenizers, every option,
this program's own code), so it is never stale and never made again for nothing.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from crosslight.data.corpus import TextDigest
from crosslight.data.encoded import SCHEMA, EncodedPairs
from crosslight.data.leaks import LeakGuard
from crosslight.data.report import refuse_nothing
from crosslight.data.sieve import Sieve, sifted_in_order
from crosslight.data.training_text import TrainingText
from crosslight.errors import DataError
from crosslight.tokenizers.base import Tokenizers

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 10.0


def code_version() -> str:
    """A hash of the modules that read, clean and encode: other code, other data."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for folder in ("data", "tokenizers"):
        for file in sorted((package / folder).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def prepare(
    text: TrainingText, tokenizers: Tokenizers, guard: LeakGuard | None, *, drop_leaks: bool, cache: Path
) -> tuple[EncodedPairs, dict[str, Any]]:
    """The training pairs, from `cache` or made now, and the report on them.

    The report has `read` and `kept` (numbers of pairs), `left_out` (by reason), `truncated`, `parts` (pairs kept, by
    name), `examples` (of what left) and `leaks`. Of several processes on one machine one prepares, the others wait.
    """
    settings = [code_version(), text.fingerprint, tokenizers.content_hash, guard and guard.fingerprint, drop_leaks]
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]
    cache = cache.expanduser()
    folder = cache / key
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if not _whole(folder):
            with _lock(cache / f"{key}.lock"):
                if not _whole(folder):  # another process may have made it meanwhile
                    _build(folder, text, Sieve(text.cleaning, tokenizers, guard, drop_leaks=drop_leaks))
    except OSError as error:
        raise DataError(
            f"cache: training data cannot be kept in {cache} ({error.strerror or error}); "
            f"make room or choose another folder with cache=FOLDER"
        ) from error
    return _open(folder, ", ".join(part.pairs.name for part in text.parts))


def _whole(folder: Path) -> bool:
    """Whether a folder is a finished one, with the file that its report describes."""
    try:
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return (folder / "pairs.arrow").stat().st_size == report["bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _open(folder: Path, name: str) -> tuple[EncodedPairs, dict[str, Any]]:
    """`name` says where the text is now; the report was perhaps written when it was elsewhere."""
    report = {**json.loads((folder / "report.json").read_text(encoding="utf-8")), "name": name}
    reader = pa.ipc.open_file(pa.memory_map(str(folder / "pairs.arrow")))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    parts = list(report["parts"].values())
    return EncodedPairs(name, batches, report["sha256"], parts=parts), {**report, "folder": str(folder)}


def _lock(path: Path) -> FileLock:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
        lock.release()
    except Timeout:
        log.info("data: another process is preparing this data; waiting for it")
    return lock


def _build(folder: Path, text: TrainingText, sieve: Sieve) -> None:
    """Make the folder under a temporary name and rename it: a reader sees it whole or not at all."""
    for leftover in folder.parent.glob(f"{folder.name}.tmp*"):  # the lock is ours: whoever made it is gone
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = folder.with_name(f"{folder.name}.tmp{os.getpid()}")
    temporary.mkdir()
    try:
        report = _write(temporary / "pairs.arrow", text, sieve)
        (temporary / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # damaged, or we would not be here
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    log.info(
        "data: %s pairs prepared in %.0f s, kept in %s (%.0f MB)",
        f"{report['read']:,}",
        report["seconds"],
        folder,
        report["bytes"] / 1e6,
    )


def _write(path: Path, text: TrainingText, sieve: Sieve) -> dict[str, Any]:
    start = time.monotonic()
    digest, parts = TextDigest(), {part.name: 0 for part in text.parts}
    progress = _Progress(start)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for sifted in sifted_in_order(sieve, text.chunks()):
            batch = sieve.settle(sifted)
            parts[sifted.part.name] += batch.num_rows
            progress(sieve.read)
            if batch.num_rows:
                writer.write_batch(batch)
                digest.update(batch)
    names = [part.pairs.name for part in text.parts]
    report = {"name": ", ".join(names), **sieve.report(), "parts": parts, "sha256": digest.hexdigest()}
    refuse_nothing(report["name"], report)
    text.check_unchanged()
    return {**report, "bytes": path.stat().st_size, "seconds": round(time.monotonic() - start, 2)}


class _Progress:
    """A line now and then while long work goes on."""

    def __init__(self, start: float) -> None:
        self.start = self.last = start

    def __call__(self, read: int) -> None:
        now = time.monotonic()
        if now - self.last >= PROGRESS_SECONDS:
            self.last = now
            log.info("data: %s pairs read, %s a second", f"{read:,}", f"{read / (now - self.start):,.0f}")
