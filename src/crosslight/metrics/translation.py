"""sacreBLEU's BLEU and chrF on detokenised text (Post 2018), exact match, and the signature beside each number.

There is one scorer for validation, test and the command line: whole texts go in, so how they were batched or spread
over processes cannot matter.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from crosslight.errors import ConfigError, DataError

TOKENIZER_OF_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


class Score(NamedTuple):
    """A number with what it takes to reproduce it."""

    value: float
    signature: str


def score_translations(hypotheses: Sequence[str], references: Sequence[str], target_lang: str) -> dict[str, Score]:
    """`bleu`, `chrf` and `exact_match`, all from 0 to 100. Raises a DataError if the counts differ.

    No hypothesis is left out: an empty one earns nothing, and an empty set scores 0.
    """
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} hypotheses cannot be scored against {len(references)} references")
    equal = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    exact = Score(100 * equal / max(1, len(references)), f"exact|lines:{len(references)}")
    if not references:
        return {"bleu": Score(0.0, "empty"), "chrf": Score(0.0, "empty"), "exact_match": exact}
    from sacrebleu import CHRF

    scores = {"exact_match": exact}
    tokenize = TOKENIZER_OF_LANGUAGE.get(target_lang, "13a")
    for name, metric in (("bleu", _bleu(tokenize)), ("chrf", CHRF())):
        result = metric.corpus_score(list(hypotheses), [list(references)])
        scores[name] = Score(result.score, str(metric.get_signature()))
    return scores


def check_target_language(target_lang: str) -> None:
    """Fail before training if the scorer of this language needs a package that is not installed."""
    _bleu(TOKENIZER_OF_LANGUAGE.get(target_lang, "13a"))


def _bleu(tokenize: str) -> Any:
    from sacrebleu import BLEU

    try:
        return BLEU(tokenize=tokenize)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"data.target_lang: BLEU for this language needs sacreBLEU's {tokenize} tokenizer: "
            f"{' '.join(str(error).split())}"
        ) from error
