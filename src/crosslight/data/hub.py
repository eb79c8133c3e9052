"""Parallel text from the Hugging Face hub.

Two layouts are read: a `translation` column (`{"de": …, "en": …}`, as in wmt/wmt14) and one column a language (as in
bentrevett/multi30k). Either direction works: only `source_lang` and `target_lang` say which side is which.
"""

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crosslight.data.corpus import Corpus, Pairs
from crosslight.errors import DataError

PROBE_SECONDS = 2.0


@dataclass(kw_only=True)
class HubPairs(Corpus):
    """A data set of the hub. `test_splits` maps the names of test sets to splits.

    `train_size` takes a seeded random subset of the training split (null takes all of it, in order).
    """

    repository: str
    config_name: str | None
    revision: str | None
    train_split: str
    validation_split: str
    test_splits: dict[str, str]
    train_size: int | None
    seed: int

    def training_pairs(self) -> Pairs:
        table = self._dataset(self.train_split)
        if self.train_size is not None and self.train_size < len(table):
            rows = np.random.default_rng(self.seed).permutation(len(table))[: self.train_size]
            table = table.select(np.sort(rows))
        return self._pairs(table, self.train_split)

    def validation_pairs(self) -> Pairs:
        return self._pairs(self._dataset(self.validation_split), self.validation_split)

    def test_pairs(self) -> dict[str, Pairs]:
        return {name: self._pairs(self._dataset(split), split) for name, split in self.test_splits.items()}

    @property
    def _label(self) -> str:
        return self.repository + (f" ({self.config_name})" if self.config_name else "")

    @cached_property
    def _splits(self) -> Any:
        """All splits of the repository, from the hub or from the local cache if the hub does not answer."""
        import datasets
        import huggingface_hub
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        logging.getLogger("httpx").setLevel(logging.WARNING)  # one line a request otherwise
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        endpoint, cache = huggingface_hub.constants.ENDPOINT, datasets.config.HF_DATASETS_CACHE
        offline = huggingface_hub.constants.HF_HUB_OFFLINE
        if not offline:
            try:
                url = f"{endpoint}/api/datasets/{self.repository}"
                offline = huggingface_hub.get_session().head(url, timeout=PROBE_SECONDS).status_code >= 500
            except (OSError, httpx.HTTPError):
                offline = True
            if offline:
                # the client would retry for over 20 s, even with a filled cache
                huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        try:
            return datasets.load_dataset(self.repository, self.config_name, revision=self.revision)
        except (OSError, ValueError, httpx.HTTPError) as error:
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            tried = f"the hub at {endpoint} did not answer and it is not in the cache {cache}" if offline else reason
            raise DataError(
                f"data: {self._label} cannot be loaded: {tried}. "
                f"Use local files (data=text_files data.train.source=… data.train.target=…) or another endpoint "
                f"(HF_ENDPOINT, now {os.environ.get('HF_ENDPOINT', endpoint)})" + (f" [{reason}]" if offline else "")
            ) from error

    def _dataset(self, split: str) -> Any:
        if split not in self._splits:
            raise DataError(f"data: {self._label} has no split {split!r}; it has {', '.join(self._splits)}")
        return self._splits[split]

    def _pairs(self, table: Any, split: str) -> Pairs:
        columns = table.column_names
        if "translation" in columns:
            feature = table.features["translation"]
            known = list(getattr(feature, "languages", feature))  # a Translation, or from JSON lines a plain dict
            rows = table["translation"][:]
            sides = [[row.get(lang, None) for row in rows] for lang in self._languages(known)]
        else:
            sides = [table[lang][:] for lang in self._languages(columns)]
        source, target = ([_one_line(text) for text in side] for side in sides)
        return Pairs(f"{self._label} {split}", source, target)

    def _languages(self, known: list[str]) -> tuple[str, str]:
        for key, lang in (("source_lang", self.source_lang), ("target_lang", self.target_lang)):
            if lang not in known:
                raise DataError(f"data.{key}: {self._label} has no language {lang!r}; it has {', '.join(known)}")
        return self.source_lang, self.target_lang


def _one_line(text: str | None) -> str:
    """A missing side is an empty one; a line feed inside a segment becomes a space."""
    return "" if text is None else text.replace("\r\n", " ").replace("\n", " ")
