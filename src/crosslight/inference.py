"""Use a trained run: load it from its folder, translate lines, score test sets. Needs no Lightning."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from crosslight import build
from crosslight.config.check import check_config
from crosslight.config.compose import compose
from crosslight.data.batching import plan_evaluation
from crosslight.data.collate import pad
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import encode_pairs, encode_side
from crosslight.data.lines import read_lines
from crosslight.data.loaders import evaluation_loader
from crosslight.decoding.protocols import Search
from crosslight.errors import ConfigError
from crosslight.export.ctranslate2_engine import CTranslate2Engine
from crosslight.export.folder import load_engine
from crosslight.losses import LabelSmoothedCrossEntropy
from crosslight.models.attention_maps import attention_figure, cross_attention
from crosslight.nn.initialization import Unfilled
from crosslight.runs.checkpoints import check_tokenizer, load_checkpoint, model_weights
from crosslight.runs.folder import RunFolder
from crosslight.runs.launch import pinned_threads
from crosslight.runs.record import read_record
from crosslight.tasks.evaluation import Evaluation, EvaluationResult, translate_state
from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.load import load_tokenizers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedRun:
    """A model with everything it needs to translate. `threads` is how many each process trained with, on a CPU.

    With another `engine` than our own search there is no model here.
    """

    config: dict[str, Any]
    model: Any
    tokenizers: Tokenizers
    search: Search
    device: torch.device
    precision: Callable[[], AbstractContextManager[Any]]
    threads: int | None
    tags: dict[str, str]
    engine: CTranslate2Engine | None = None

    @property
    def max_positions(self) -> int | None:
        """How many ids a source may have; None: any number."""
        return (self.engine or self.model).max_positions

    def tag(self, target_lang: str | None) -> str | None:
        """The control symbol that a multilingual model needs before a source; a ConfigError lists its languages."""
        if not self.tags:
            if target_lang not in (None, self.config["data"]["target_lang"]):
                raise ConfigError(f"target_lang: this run translates into {self.config['data']['target_lang']} only")
            return None
        if target_lang not in self.tags:
            raise ConfigError(f"target_lang: {target_lang!r} is not one of {', '.join(self.tags)}; give target_lang=…")
        return self.tags[target_lang]


def load_run(
    path: str, *, checkpoint: str | None = None, decode: dict[str, Any] | None = None, engine: str | None = None
) -> TrainedRun:
    """The best checkpoint of a run folder (or another file in its `checkpoints/`), ready on the best device.

    `decode` changes the search's settings. The classes that the folder names must be ours, torch's or Lightning's.
    `engine="ctranslate2"` translates, and does nothing else, with what `scripts/export.py` has made of the checkpoint.
    """
    folder = RunFolder.existing(path)
    config = folder.read_config()
    config["decode"] = {**config["decode"], **(decode or {})}
    build.check(config, trusted_only=True)
    tokenizers, search = load_tokenizers(folder.tokenizer), build.build_search(config)
    on_gpu = torch.cuda.is_available() and config["trainer"]["accelerator"] != "cpu"
    device = torch.device("cuda" if on_gpu else "cpu")
    name = str(config["trainer"]["precision"]).removesuffix("-mixed")
    half = {"bf16": torch.bfloat16, "16": torch.float16}.get(name)

    def precision() -> AbstractContextManager[Any]:
        if on_gpu:
            torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        return nullcontext() if half is None else torch.autocast(device.type, dtype=half)

    threads = read_record(folder.record).get("threads") if folder.record.is_file() and not on_gpu else None
    tags = build.build_corpus(config).target_tags() if config["data"].get("tags") else {}
    file = folder.checkpoints / (checkpoint or folder.best.name)
    if engine is None:
        model, exported = _load_model(config, tokenizers, file).to(device).eval(), None
    else:
        budget = config["batching"]["eval_max_tokens"]
        model, exported = None, load_engine(engine, folder, file, tokenizers, search, device.type, budget)
    return TrainedRun(config, model, tokenizers, search, device, precision, threads, tags, exported)


def _load_model(config: dict[str, Any], tokenizers: Tokenizers, file: Path) -> Any:
    content = load_checkpoint(file)
    check_tokenizer(content, tokenizers.content_hash, file)
    with Unfilled():
        model = build.build_model(config, tokenizers)
    model.load_state_dict(model_weights(content))
    return model


def evaluate(run: TrainedRun, pairs: Pairs | list[Pairs]) -> EvaluationResult:
    """The scores of a test set, computed as training computed them: same batches, search, precision, scorer."""
    tokenizer = run.tokenizers.target
    loss = LabelSmoothedCrossEntropy(0.0, tokenizer.pad_id)
    data = encode_pairs(pairs, run.tokenizers, run.model.max_positions)
    lang = data.target_lang or run.config["data"]["target_lang"]
    evaluation = Evaluation(run.model, loss, run.search, tokenizer, lang)
    budget = run.config["batching"]["eval_max_tokens"]
    with run.precision(), pinned_threads(run.threads):
        for batch in evaluation_loader(data, run.tokenizers, max_tokens=budget):
            evaluation.update(batch.to(run.device))
    return evaluation.result()


def draw_attention(run: TrainedRun, line: str, file: str, *, target_lang: str | None = None) -> str:
    """Translate a line and draw, as a picture in `file`, where each decoder layer looked to write each piece."""
    source_of, target_of = run.tokenizers.source, run.tokenizers.target
    translation = translate(run, [line], target_lang=target_lang).lines[0]
    (source,), _ = encode_side(source_of, [line], run.model.max_positions, "line", tag=run.tag(target_lang))
    target = target_of.encode_batch([translation])[0]
    written = pad([[target_of.bos_id, *target]], target_of.pad_id).to(run.device)
    with run.precision():
        weights = cross_attention(run.model, pad([source], source_of.pad_id).to(run.device), written)
    pieces = source_of.pieces(source), target_of.pieces([*target, target_of.eos_id])
    try:
        attention_figure(weights[:, 0].mean(dim=1).float().cpu(), *pieces).savefig(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"output={file}: cannot be written ({error})") from error
    return translation


def test_sets(run: TrainedRun, arguments: dict[str, Any]) -> dict[str, list[Pairs]]:
    """What the arguments of `scripts/evaluate.py` ask to score, by name: two files, or a split of a data set.

    Without `data=…` that is the run's own data set; `data.x=…` changes its settings. `target_lang` says for files
    which language a multilingual model shall translate into.
    """
    if "source" in arguments or "reference" in arguments:
        files = {key: arguments.get(key) for key in ("source", "reference")}
        if None in files.values():
            raise ConfigError("source, reference: give both files or neither")
        pairs = Pairs(
            str(files),
            read_lines(str(files["source"])),
            read_lines(str(files["reference"])),
            target_lang=arguments.get("target_lang"),
            tag=run.tag(arguments.get("target_lang")),
        )
        return {Path(str(files["source"])).name: [pairs]}
    node = compose([f"data={arguments['data']}"]).data if "data" in arguments else OmegaConf.create(run.config["data"])
    for key, value in arguments["data.values"].items():
        OmegaConf.update(node, key, value, force_add=True)
    chosen = {"data": build.plain(node)}
    check_config(chosen, trusted_only=True)
    corpus = build.build_corpus(chosen)
    split = arguments.get("split", "test")
    if split not in ("test", "validation"):
        raise ConfigError(f"split: {split!r} is neither test nor validation")
    tests = {name: [pairs] for name, pairs in corpus.test_pairs().items()} if split == "test" else {}
    sets = tests if split == "test" else {"validation": corpus.validation_sets()}
    if not sets:
        raise ConfigError("data: this data set has no test set; give split=validation, or source=FILE reference=FILE")
    if run.tags:  # another data set does not know that this model wants tags
        lang = corpus.target_lang
        return {name: [p if p.tag else replace(p, tag=run.tag(lang)) for p in parts] for name, parts in sets.items()}
    return sets


@dataclass(frozen=True)
class Translations:
    """`lines[i]` translates line i; `num_cut` sources were longer than the model's positions and lost their ends."""

    lines: list[str]
    num_cut: int


def translate(run: TrainedRun, lines: Sequence[str], *, first: int = 1, target_lang: str | None = None) -> Translations:
    """One translation for each line, in order. A line without any piece gets an empty one, without asking the model.

    A warning names each line that is cut; lines are counted from `first`. `target_lang` is for multilingual models.
    """
    translations = [""] * len(lines)
    tag = run.tag(target_lang)
    encoded, num_cut = encode_side(run.tokenizers.source, lines, run.max_positions, "line", first=first, tag=tag)
    shortest = 2 if tag is None else 3
    for numbers, texts in run.engine(encoded, shortest) if run.engine else _batches(run, encoded, shortest):
        for number, text in zip(numbers, texts, strict=True):
            translations[number] = text
    return Translations(translations, num_cut)


def _batches(run: TrainedRun, encoded: list[list[int]], shortest: int) -> Iterator[tuple[list[int], list[str]]]:
    source, target = run.tokenizers.source, run.tokenizers.target
    lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
    written = np.flatnonzero(lengths >= shortest)
    for chosen in plan_evaluation(lengths[written], run.config["batching"]["eval_max_tokens"]):
        rows = written[chosen]
        batch = pad([encoded[i] for i in rows], source.pad_id).to(run.device)
        with torch.inference_mode(), run.precision():
            found = translate_state(run.model, run.model.encode(batch), run.search, target)
        yield rows.tolist(), target.decode_batch([hypotheses[0].ids for hypotheses in found])
