"""Reads parts of parquet files over HTTP: some row groups, and of them only the columns of two languages.

A subset spread over a large corpus costs a fraction of the download this way: `datasets` downloads whole files of all
splits, whatever slice is asked for. What was read is kept in one Arrow file, so that it is read once.
"""

import io
import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crosslight.data.hub_table import rows_between, text_columns
from crosslight.errors import DataError

THREADS = 8
TRIES = 3
TIMEOUT_SECONDS = 10.0
TAIL_BYTES = 64 * 1024
MIN_GROUPS = 32
SURPLUS = 1.5
"""How many times as many rows as needed are read. Neighbours are from one document: some of many groups spread best."""

log = logging.getLogger(__name__)


class NoRangesError(Exception):
    """The server gives only whole files."""


class RemoteFile(io.RawIOBase):
    """A file behind a URL, read by range. Without a `size` the end is asked for, where parquet has its index."""

    def __init__(self, url: str, size: int | None = None) -> None:
        self.url, self.size, self.position = url, size or 0, 0
        self.kept, self.kept_from = b"", 0
        if size is None:
            self.kept = self._get(f"bytes=-{TAIL_BYTES}")
            self.kept_from = self.size - len(self.kept)

    def _get(self, wanted: str) -> bytes:
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
            httpx,
        )

        headers = {**build_hf_headers(), "Range": wanted, "Accept-Encoding": "identity"}
        for attempt in range(1, TRIES + 1):
            try:
                with get_session().stream("GET", self.url, headers=headers, timeout=TIMEOUT_SECONDS) as response:
                    hf_raise_for_status(response)
                    if response.status_code != 206:
                        raise NoRangesError
                    data = response.read()
                self.size = int(response.headers["Content-Range"].rpartition("/")[2])
                return data
            except (OSError, httpx.HTTPError):
                if attempt == TRIES:
                    raise
                time.sleep(0.3 * attempt)
        raise AssertionError

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, by one request unless what is kept has it."""
        start, end = self.position, min(self.size, self.position + len(buffer))
        if end > start:
            if not self.kept_from <= start <= end <= self.kept_from + len(self.kept):
                self.kept, self.kept_from = self._get(f"bytes={start}-{end - 1}"), start
            buffer[: end - start] = self.kept[start - self.kept_from : end - self.kept_from]
            self.position = end
        return max(0, end - start)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@dataclass(frozen=True)
class RowGroup:
    """Row group `number` of file `file`; `size` counts the compressed bytes of the columns that are wanted."""

    file: int
    number: int
    rows: int
    size: int


class ParquetParts:
    """The parquet files of one split, at first only their indexes. `languages` become the columns of what is read."""

    def __init__(self, urls: Sequence[str], languages: tuple[str, str], label: str) -> None:
        import pyarrow.parquet as pq

        self.urls, self.languages, self.label = urls, languages, label
        with ThreadPoolExecutor(THREADS) as pool:
            files = list(pool.map(RemoteFile, urls))
            self.footers = list(pool.map(lambda file: pq.read_metadata(pa.PythonFile(file, "r")), files))
        self.sizes = [file.size for file in files]
        schema = self.footers[0].schema.to_arrow_schema()
        text_columns(schema.empty_table(), languages, label)  # a missing language is said before anything is read
        self.columns = [f"translation.{lang}" if "translation" in schema.names else lang for lang in languages]
        self.groups = [group for file in range(len(urls)) for group in self._groups(file)]

    def _groups(self, file: int) -> Iterator[RowGroup]:
        footer = self.footers[file]
        leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path in self.columns]
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            yield RowGroup(file, number, group.num_rows, sum(group.column(i).total_compressed_size for i in leaves))

    @property
    def num_rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def chunks(self, size: int | None, seed: int) -> Iterator[pa.RecordBatch]:
        """`size` rows (None: all) from all over the split, in its order, drawn with `seed`."""
        groups, rows = self.groups, np.arange(self.num_rows)
        if size is not None and size < self.num_rows:
            groups = [groups[i] for i in draw_groups([group.rows for group in groups], size, seed)]
            total = sum(group.rows for group in groups)
            rows = np.sort(np.random.default_rng(seed).permutation(total)[:size])
        ends = accumulate(group.rows for group in groups)
        with ThreadPoolExecutor(THREADS) as pool:
            for group, end, batch in zip(groups, ends, pool.map(self._read, groups), strict=True):
                yield batch.take(pa.array(rows_between(rows, end - group.rows, end)))
        log.info(
            "%s: read %.1f of %.1f MB, %d of %d row groups",
            *(self.label, sum(group.size for group in groups) / 1e6, sum(self.sizes) / 1e6),
            *(len(groups), len(self.groups)),
        )

    def _read(self, group: RowGroup) -> pa.RecordBatch:
        import pyarrow.parquet as pq

        remote = pa.PythonFile(RemoteFile(self.urls[group.file], self.sizes[group.file]), "r")
        # pre_buffer: neighbouring columns come in one request
        with pq.ParquetFile(remote, metadata=self.footers[group.file], pre_buffer=True) as file:
            table = file.read_row_group(group.number, columns=self.columns, use_threads=False)
        return pa.record_batch(text_columns(table, self.languages, self.label), names=list(self.languages))


def keep(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write batches to a file that is there only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.stem}.{os.getpid()}.unfinished")
    try:
        first = next(batches)
        with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def kept_table(path: Path) -> pa.Table:
    """What `keep` has written, mapped and not read."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"data: {path} cannot be read ({error}); delete it, and it will be made again") from error


def draw_groups(rows: Sequence[int], size: int, seed: int) -> list[int]:
    """Which row groups to read for `size` rows: one from each of equally wide strata, more where the draw falls short.

    There are at least MIN_GROUPS strata, so that a small subset too is from everywhere.
    """
    rng = np.random.default_rng(seed)
    count = min(len(rows), max(MIN_GROUPS, math.ceil(SURPLUS * size * len(rows) / sum(rows))))
    edges = np.linspace(0, len(rows), count + 1).round().astype(int)
    drawn = set(rng.integers(edges[:-1], edges[1:]).tolist())
    for other in rng.permutation(len(rows)).tolist():
        if sum(rows[i] for i in drawn) >= size:
            break
        drawn.add(other)
    return sorted(drawn)
