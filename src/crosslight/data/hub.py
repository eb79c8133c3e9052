"""Parallel text from the Hugging Face hub, or from any server that speaks like it (HF_ENDPOINT).

Either direction works: only `source_lang` and `target_lang` say which side is which.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crosslight.data.corpus import Corpus, Pairs, read_pairs
from crosslight.data.hub_access import HubRepository, is_commit
from crosslight.data.hub_parts import NoRangesError, ParquetParts, keep, kept_table
from crosslight.data.hub_table import HubTable, text_columns
from crosslight.errors import ConfigError

OF_A_REPOSITORY = ("config_name", "data_dir", "revision")

PARTS_VERSION = 1
"""Part of the name of what is kept; to be raised when `hub_parts` would read other rows or other text."""


@dataclass(kw_only=True)
class HubPairs(Corpus):
    """A data set of the hub.

    `train_size` takes a seeded subset that is spread over the training split (null takes all of it). Where it is less
    than half of a split in parquet files, only parts of them are read, once, and kept below `cache`; else the files
    are downloaded whole into the cache of `datasets`.

    `test_splits` maps the names of test sets to splits. A value may also be a mapping with `split` and any of
    `repository`, `config_name`, `data_dir` and `revision`, for a test set that is stored elsewhere. Where a value or
    `validation_split` is null, `held_out` training pairs take its place, drawn with `seed` (at most a tenth of the
    pairs for each set); they leave the training set.
    """

    repository: str | None
    config_name: str | None
    data_dir: str | None
    revision: str | None
    train_split: str
    validation_split: str | None
    test_splits: dict[str, str | dict[str, str | None] | None]
    held_out: int
    train_size: int | None
    seed: int
    cache: str

    def __post_init__(self) -> None:
        if self.held_out < 0 or self.seed < 0:
            raise ConfigError(f"data.held_out={self.held_out}, data.seed={self.seed}: neither can be negative")
        if self.train_size is not None and self.train_size < 1:
            raise ConfigError(f"data.train_size: {self.train_size} takes no pair; null takes all")

    def training_pairs(self) -> HubTable:
        return self._training[0]

    def validation_pairs(self) -> Pairs:
        if self.validation_split is None:
            return read_pairs(self._training[1][0])
        return read_pairs(self._table(self.validation_split, "data.validation_split"))

    def test_pairs(self) -> dict[str, Pairs]:
        held_out = iter(self._training[1][self.validation_split is None :] if None in self.test_splits.values() else ())
        return {
            name: read_pairs(next(held_out) if where is None else self._test_table(name, where))
            for name, where in self.test_splits.items()
        }

    @cached_property
    def _hub(self) -> HubRepository:
        if not self.repository:
            raise ConfigError("data.repository: no data set; give data.repository=ORGANISATION/NAME")
        return HubRepository(self.repository, self.config_name, self.data_dir, self.revision)

    @cached_property
    def _training(self) -> tuple[HubTable, list[HubTable]]:
        """The training pairs and the held-out sets, that for validation first."""
        num_sets = [self.validation_split, *self.test_splits.values()].count(None)
        size = self.train_size and self.train_size + num_sets * self.held_out
        table = self._table(self.train_split, "data.train_split", size)
        if size is None and not num_sets:
            return table, []
        order = np.random.default_rng(self.seed).permutation(len(table))
        each = min(self.held_out, len(table) // 10)
        name = f"{each} held-out pairs of {table.name}"
        sets = [np.sort(order[i * each : (i + 1) * each]) for i in range(num_sets)]
        rest = np.sort(order[num_sets * each :][: self.train_size])
        return replace(table, rows=rest), [replace(table, name=name, rows=rows) for rows in sets]

    def _test_table(self, name: str, where: str | dict[str, str | None]) -> HubTable:
        place = f"data.test_splits.{name}"
        if isinstance(where, str):
            return self._table(where, place)
        if not where.get("split") or not set(where) <= {"split", "repository", *OF_A_REPOSITORY}:
            known = ", ".join(("repository", *OF_A_REPOSITORY))
            raise ConfigError(f"{place}: {where} must have `split` and may have {known}")
        settings: dict[str, Any] = {key: value for key, value in where.items() if key != "split"}
        if "repository" in settings:  # nothing of this one holds for another
            settings = {**dict.fromkeys(OF_A_REPOSITORY), **settings}
        return replace(self, **settings)._table(str(where["split"]), place, alone=True)

    def _table(self, split: str, place: str, size: int | None = None, *, alone: bool = False) -> HubTable:
        """A split, or of a large one only `size` rows; `place` is the setting that names it.

        `alone` is for a split of a repository of which nothing else is wanted.
        """
        name, languages = f"{self._hub.label} {split}", (self.source_lang, self.target_lang)
        kept = self._kept(split, size)
        if kept is None:
            self._hub.check_split(split, place)
            if self._hub.schema is not None:
                text_columns(self._hub.schema.empty_table(), languages, name)
            kept = self._read_parts(split, size) if alone or self._in_parts else None
        table, files = self._hub.table(split) if kept is None else (kept_table(kept), [kept])
        return HubTable(name, table, files, *languages)

    # -- parts of parquet files ----------------------------------------------------------------------------------------

    def _kept(self, split: str, size: int | None) -> Path | None:
        """The parts that an earlier start has read; with a pinned commit it takes no request to find them."""
        folder = self._folder(split, size)
        pinned = folder / f"{self.revision}.arrow"
        if is_commit(self.revision) and pinned.is_file():
            return pinned
        if not self._hub.offline:
            path = folder / f"{self._hub.commit}.arrow"
            return path if path.is_file() else None
        newest = max(folder.glob("*.arrow"), key=lambda path: path.stat().st_mtime, default=None)
        if newest is not None:
            self._hub.say_offline(newest.stem)
        return newest

    def _folder(self, split: str, size: int | None) -> Path:
        """Where the parts of a split are kept, one file a commit; the name says all else that decides what is in it."""
        seed = None if size is None else self.seed
        languages = sorted((self.source_lang, self.target_lang))
        recipe = [PARTS_VERSION, self.repository, self.config_name, self.data_dir, split, size, seed, languages]
        key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]
        return Path(self.cache).expanduser() / f"{str(self.repository).replace('/', '___')}-{split}-{key}"

    def _read_parts(self, split: str, size: int | None) -> Path | None:
        """Fetch the parts of a split and keep them; None where it has to be downloaded whole."""
        parts = self._parts(split)
        if parts is None:
            return None
        path = self._folder(split, size) / f"{self._hub.commit}.arrow"
        with self._hub.failures():
            keep(parts.chunks(size, self.seed), path)
        return path

    @cached_property
    def _in_parts(self) -> bool:
        """Whether all splits are read by parts: if less than half of the training split, or no image, is wanted.

        Folders too: `datasets` does not find them again in its cache when it is offline.
        """
        if self._hub.has_media or self.data_dir is not None:
            return True
        parts = self._parts(self.train_split) if self.train_size is not None else None
        return parts is not None and 2 * (self.train_size or 0) < parts.num_rows

    def _parts(self, split: str) -> ParquetParts | None:
        """The indexes of the files of a split; None if it is not parquet or the server cannot give parts of files."""
        if split not in self._indexes and not self._hub.offline:
            urls = self._hub.parquet_urls(split)
            languages = sorted((self.source_lang, self.target_lang))
            with self._hub.failures(), suppress(NoRangesError):
                if urls:
                    self._indexes[split] = ParquetParts(
                        urls, (languages[0], languages[1]), f"{self._hub.label} {split}"
                    )
        return self._indexes.get(split)

    @cached_property
    def _indexes(self) -> dict[str, ParquetParts]:
        return {}
