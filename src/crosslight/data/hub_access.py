"""Access to a repository of the Hugging Face hub: does the hub answer, which commit is meant, and what can go wrong.

Without an answer everything comes from the cache, and a line says so. Whatever fails is one sentence.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from crosslight.data.hub_client import PROBE_SECONDS, commit_of, endpoint, first_words
from crosslight.errors import DataError

OFFICIAL = "https://huggingface.co"
WAYS_OUT = (
    "use local files (data=text_files data.train.source=… data.train.target=…) or another endpoint (HF_ENDPOINT=…)"
)
SCRIPT = "try its converted files (data.revision=refs/convert/parquet data.data_dir=CONFIG data.config_name=null)"

log = logging.getLogger(__name__)


def is_commit(revision: str | None) -> bool:
    """Whether a revision names one state of a repository for ever; branches and tags move."""
    return revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None


@dataclass
class HubRepository:
    """One configuration of one repository. `data_dir` takes the files of a folder instead of a named configuration."""

    repository: str
    config_name: str | None
    data_dir: str | None
    revision: str | None
    _said_offline: bool = field(default=False, init=False)

    @property
    def label(self) -> str:
        chosen = self.config_name or self.data_dir
        return self.repository + (f" ({chosen})" if chosen else "")

    @cached_property
    def commit(self) -> str | None:
        """The commit that `revision` stands for, from one request; None if the hub does not answer.

        A mirror often has the files and not the history. There, a pinned commit that is missing gives way to `main`,
        with a warning; from the official hub, or for a branch or tag that does not exist, it is an error.
        """
        from huggingface_hub import errors

        try:
            try:
                return commit_of(self.repository, self.revision)
            except errors.RevisionNotFoundError:
                if not is_commit(self.revision) or endpoint() == OFFICIAL:
                    raise
            commit = commit_of(self.repository, "main")
        except errors.RevisionNotFoundError:
            problem = f"revision: {self.repository} has no revision {self.revision!r} at {endpoint()}"
            remedy = "data.revision=main is the newest state"
        except errors.GatedRepoError:
            problem, remedy = f"repository: {self.repository} is gated", f"ask for access at {endpoint()}, set HF_TOKEN"
        except errors.RepositoryNotFoundError:
            problem = f"repository: {self.repository} does not exist at {endpoint()} or is not public"
            remedy = "a name is ORGANISATION/NAME, and a private one needs HF_TOKEN"
        except (errors.HFValidationError, errors.HfHubHTTPError) as error:
            problem, remedy = f"repository: {first_words(error)}", f"a name is ORGANISATION/NAME; or {WAYS_OUT}"
        else:
            log.warning(
                "%s does not have commit %s of %s; taking its main, commit %s",
                *(endpoint(), self.revision, self.repository, commit),
            )
            return commit
        raise DataError(f"data.{problem}; {remedy}")

    @property
    def offline(self) -> bool:
        return self.commit is None

    @cached_property
    def builder(self) -> Any:
        """What `datasets` knows before it downloads anything but the card: splits, files, often columns and sizes."""
        import datasets

        with self.failures(), _quiet(self.offline):
            try:
                return datasets.load_dataset_builder(
                    self.repository, self.config_name, data_dir=self.data_dir, revision=self.commit
                )
            except ValueError:
                if not self.offline:
                    self._check_config_name()
                raise

    def _check_config_name(self) -> None:
        import datasets

        if self.data_dir is not None:
            return
        known = datasets.get_dataset_config_names(self.repository, revision=self.commit)
        if self.config_name not in known and (self.config_name is not None or len(known) > 1):
            found = f"has no configuration {self.config_name!r}" if self.config_name else "has several configurations"
            raise DataError(
                f"data.config_name: {self.repository} {found}; choose one of {', '.join(known)} (for either direction)"
            ) from None

    @cached_property
    def splits(self) -> list[str]:
        """The names of the splits, known before their data is downloaded."""
        return [str(name) for name in self.builder.config.data_files or self.builder.info.splits or ()]

    def check_split(self, split: str, place: str) -> None:
        """Raise a DataError if there is no such split; `place` is the setting that names it."""
        if split not in self.splits:
            raise DataError(f"{place}: {self.label} has no split {split!r}; it has {', '.join(self.splits)}")

    def parquet_urls(self, split: str) -> list[str]:
        """Where the files of a split are if all of them are parquet, else an empty list."""
        from huggingface_hub import hf_hub_url

        files = [str(file) for file in (self.builder.config.data_files or {}).get(split, ())]
        start = f"hf://datasets/{self.repository}@{self.commit}/"
        if not all(file.startswith(start) and file.endswith(".parquet") for file in files):
            return []
        names = [file.removeprefix(start) for file in files]
        return [hf_hub_url(self.repository, name, repo_type="dataset", revision=self.commit) for name in names]

    @property
    def has_media(self) -> bool:
        """Whether there are images or the like beside the text, gigabytes that `datasets` would download too."""
        return any(type(f).__name__ in ("Image", "Audio", "Video") for f in (self.builder.info.features or {}).values())

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, if the card says them: known before the data is downloaded."""
        features = self.builder.info.features
        return features.arrow_schema if features else None

    @cached_property
    def dataset(self) -> Any:
        """All splits whole, downloaded if they are not in the cache."""
        builder = self.builder
        with self.failures(), _quiet(self.offline):
            builder.download_and_prepare()
            dataset = builder.as_dataset()
        if self.offline:
            self.say_offline(Path(builder.cache_dir).name)
        return dataset

    def table(self, split: str) -> tuple[pa.Table, list[Path]]:
        """The rows of a whole split, mapped from the files of the cache."""
        dataset = self.dataset[split]
        return dataset.data.table, [Path(file["filename"]) for file in dataset.cache_files]

    def say_offline(self, cached: str) -> None:
        """Log once that a commit of the cache is read."""
        if self._said_offline:
            return
        self._said_offline = True
        other = is_commit(self.revision) and is_commit(cached) and cached != self.revision
        log.warning(
            "%s does not answer; %s is read from the cache (commit %s%s)",
            *(endpoint(), self.label, cached, f", not data.revision={self.revision}" if other else ""),
        )

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Whatever the libraries raise becomes one DataError: what was wanted, what was tried, and the ways out."""
        import datasets
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        try:
            yield
        except (OSError, ValueError, RuntimeError, httpx.HTTPError, datasets.exceptions.DatasetsError) as error:
            reason = first_words(error)
            if self.offline:
                reason = (
                    f"{endpoint()} does not answer (within {PROBE_SECONDS:g} s, or HF_HUB_OFFLINE is set) and "
                    f"the cache {datasets.config.HF_DATASETS_CACHE} does not have it [{reason}]"
                )
            else:
                reason = f"{endpoint()} answered, but then: {reason}"
            retry = SCRIPT if "scripts are no longer supported" in reason else "try again"
            raise DataError(f"data: {self.label} cannot be loaded: {reason}; {retry}, {WAYS_OUT}") from error


@contextmanager
def _quiet(offline: bool) -> Iterator[None]:
    """Without the several warnings of `datasets` about being offline; we say it in one."""
    import datasets

    before = datasets.logging.get_verbosity()
    if offline:
        datasets.logging.set_verbosity_error()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(before)
