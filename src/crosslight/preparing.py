"""The data of a run, ready for batches: load the pairs, learn or restore the tokenizers, clean, encode.

Training and `scripts/describe.py` both come through here, so that what one has prepared the other finds in the cache.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslight import build
from crosslight.build import Config
from crosslight.data.collate import Resampled
from crosslight.data.corpus import Corpus
from crosslight.data.encoded import EncodedPairs, encode_pairs
from crosslight.data.leaks import LeakGuard
from crosslight.data.preparation import prepare as prepare_training
from crosslight.data.report import cleaning_table, judge_leaks, warn_of_over_budget
from crosslight.data.streaming import TrainingStream
from crosslight.data.training_text import TrainingText
from crosslight.errors import ConfigError, DataError
from crosslight.metrics.translation import check_target_language
from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.load import load_tokenizers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """The data of a run as token ids. `report` says what cleaning left out and what leaked.

    `tag_ids` are the control symbols that may stand before a source.
    """

    tokenizers: Tokenizers
    train: EncodedPairs | TrainingStream
    validation: EncodedPairs
    tests: dict[str, EncodedPairs]
    report: dict[str, Any]
    shares: list[float] | None
    resampled: Resampled | None
    tag_ids: frozenset[int]


def prepare(config: Config, tokenizer_folder: Path | None = None) -> Prepared:
    """Everything that batches are made of.

    The tokenizers in `tokenizer_folder` are used again; if it has none yet, they are learnt from the training text and
    written there. Without a folder they are learnt, or found in the cache.
    """
    corpus, cleaning, recipe = (
        build.build_corpus(config),
        build.build_cleaning(config),
        build.build_tokenizer_recipe(config),
    )
    validation, tests = corpus.validation_sets(), corpus.test_pairs()
    sets = {f"validation {number}" if number else "validation": part for number, part in enumerate(validation)} | tests
    if len(sets) < len(validation) + len(tests):
        raise ConfigError("data: a test set is called validation, as the validation set is; give it another name")
    for name, part in sets.items():
        if not len(part):
            raise DataError(f"data: nothing to score in {name} ({part.name}); it needs at least one pair")
        check_target_language(part.target_lang or corpus.target_lang)
    text = TrainingText(corpus.training_parts(), cleaning)
    tags = corpus.target_tags()
    if tokenizer_folder is not None and (tokenizer_folder / "tokenizer.json").is_file():
        tokenizers = load_tokenizers(tokenizer_folder)
    else:
        tokenizers = recipe.fit(text, sorted(tags.values()))
        if tokenizer_folder is not None:
            tokenizers.save(tokenizer_folder)
    guard = None if corpus.leaks == "ignore" else LeakGuard(sets)
    batching = build.build_batching(config)
    train_data, report, shares = _training_data(config, corpus, text, tokenizers, guard, batching.shuffle_buffer)
    log.info(
        "data: %d pairs for validation, test sets: %s",
        sum(map(len, validation)),
        ", ".join(f"{name} ({len(test)})" for name, test in tests.items()) or "none",
    )
    limit = config["model"].get("positions", {}).get("max_positions")
    validation_data = encode_pairs(validation, tokenizers, limit)
    tests_data = {name: encode_pairs(test, tokenizers, limit) for name, test in tests.items()}
    if isinstance(train_data, EncodedPairs) and batching.max_tokens != "auto":
        warn_of_over_budget(train_data, batching.budget, "batching.max_tokens")
    for data in (validation_data, *tests_data.values()):
        warn_of_over_budget(data, batching.eval_max_tokens, "batching.eval_max_tokens")
    tag_ids = frozenset(tokenizers.source.symbol_id(tag) for tag in tags.values())
    resampled = None
    if recipe.sampling is not None:
        resampled = Resampled(recipe.sampling, config["seed"], cleaning.max_len, tag_ids)
    return Prepared(
        tokenizers,
        train_data,
        validation_data,
        tests_data,
        report,
        shares,
        resampled,
        tag_ids,
    )


def _training_data(
    config: Config,
    corpus: Corpus,
    text: TrainingText,
    tokenizers: Tokenizers,
    guard: LeakGuard | None,
    buffer: int | None,
) -> tuple[EncodedPairs | TrainingStream, dict[str, Any], list[float] | None]:
    """The training pairs, prepared or as a stream, the report on them, and how their parts are mixed."""
    if buffer is None:
        cache = Path(config["cache"]) / "data"
        prepared, report = prepare_training(text, tokenizers, guard, drop_leaks=corpus.leaks == "drop", cache=cache)
        for line in cleaning_table(report):
            log.info("%s", line)
        judge_leaks(report, corpus.leaks)
        return prepared, report, corpus.shares(prepared.parts)
    if len(text.parts) > 1 and corpus.shares(range(1, len(text.parts) + 1)) is not None:
        raise ConfigError(
            "batching.shuffle_buffer: a stream cannot mix its parts by weights or temperature, for it does not know "
            "their sizes; set batching.shuffle_buffer=null, or data.temperature=1 data.weights=null"
        )
    log.info("data: streaming %s through a buffer of %s pairs", ", ".join(p.pairs.name for p in text.parts), buffer)
    stream = TrainingStream(text, tokenizers, guard, leaks=corpus.leaks, buffer=buffer, seed=config["seed"])
    return stream, stream.report, None
