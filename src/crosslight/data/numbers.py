"""Numbers, ordinals, dates, amounts and times in words, from one language to another: real translation, no download.

num2words says the numbers; names and patterns are CLDR's, through Babel. Nothing is inflected beyond what they give.
"""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date, time
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, Literal

from crosslight.data.corpus import Corpus, LazyPairs, Pairs
from crosslight.errors import ConfigError

log = logging.getLogger(__name__)

Value = tuple[Any, ...]
"""A number or ordinal; a day and a style of CLDR's patterns; a number and a currency's code; a minute of the day."""

CLDR_NAMES = {"kz": "kk", "sr": "sr_Latn"}
"""Where num2words names a language differently, or writes it in another script than CLDR does by default."""

LARGEST = 999_999_999
LARGEST_IN = {"am": 999_999}
"""num2words 0.5.14 never returns from some larger numbers in Amharic."""

TRIES = 200
"""Draws for each pair that is asked for, before the values are taken to be too few."""


def say(kind: str, value: Value, lang: str) -> str:
    """The value in words of a language, with single spaces. Raises what the libraries raise where they cannot."""
    text = " ".join(WORDS[kind](lang, *value).split())
    if not text:
        raise ValueError(f"num2words says nothing for {kind} {value}")
    return text


def _attempt(kind: str, value: Value, lang: str) -> str | Exception:
    try:
        return say(kind, value, lang)
    except Exception as error:  # num2words raises any of seven kinds, and fails now and then on a single value
        return error


@lru_cache(maxsize=100_000)
def _number(lang: str, number: int, form: str = "cardinal") -> str:
    from num2words import num2words

    return num2words(number, lang=lang, to=form)


def _ordinal(lang: str, number: int) -> str:
    return _number(lang, number, "ordinal")


def _amount(lang: str, number: int, currency: str) -> str:
    from babel.numbers import get_currency_name, get_currency_unit_pattern

    pattern = get_currency_unit_pattern(currency, number, _locale(lang))
    return pattern.format(_number(lang, number), get_currency_name(currency, number, _locale(lang)))


def _time(lang: str, minute_of_day: int) -> str:
    from babel.dates import DateTimeFormat

    hour, minute = divmod(minute_of_day, 60)
    numerals = {"H": hour, "k": hour or 24, "K": hour % 12, "h": hour % 12 or 12, "m": minute}
    names = DateTimeFormat(time(hour, minute), _locale(lang))
    text = ""
    for field, content in _pattern(lang, "time"):
        number = numerals.get(field)
        text += content if not field else names[content] if number is None else _number(lang, number)
    return text


def _date(lang: str, day: int, style: str) -> str:
    from babel.dates import DateTimeFormat

    when = date.fromordinal(day)
    names = DateTimeFormat(when, _locale(lang))
    text, before = "", ""
    for field, content in _pattern(lang, style):
        if field == "y":
            text += _number(lang, when.year, "year" if _has_form(lang, "year") else "cardinal")
        elif field == "d":
            text += _number(lang, when.day, "ordinal" if _says_ordinal_days(lang) else "cardinal")
        elif content in ("M", "MM", "L", "LL"):
            text += _number(lang, when.month)
        elif field:
            text += names[content]
        elif before == "y" and text.endswith(content[0]):  # Korean years end in the 년 of the pattern already
            text += content[1:]
        else:  # the dot of `21.` is none after a word
            text += content.removeprefix(".") if before in ("d", "y") else content
        before = field
    return text


WORDS: dict[str, Any] = {"number": _number, "ordinal": _ordinal, "date": _date, "amount": _amount, "time": _time}


@lru_cache
def _locale(lang: str) -> Any:
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(CLDR_NAMES.get(lang, lang))
    except UnknownLocaleError as error:
        raise NotImplementedError(f"CLDR has no {lang}") from error


@lru_cache
def _pattern(lang: str, style: str) -> list[tuple[str, str]]:
    """CLDR's short pattern of times or its full or long one of dates: a field's letter (or "") and the content."""
    from babel.dates import tokenize_pattern

    formats = _locale(lang).time_formats["short"] if style == "time" else _locale(lang).date_formats[style]
    tokens: list[Any] = tokenize_pattern(formats.pattern)
    return [("", part) if kind == "chars" else (part[0], part[0] * part[1]) for kind, part in tokens]


@lru_cache
def _says_ordinal_days(lang: str) -> bool:
    """Where the pattern has a dot after the day, as in `21. März`, and in English."""
    dotted = "d." in _locale(lang).date_formats["long"].pattern
    return (dotted or lang.startswith("en")) and _has_form(lang, "ordinal")


@lru_cache
def _has_form(lang: str, form: str) -> bool:
    try:
        return bool(_number(lang, 21, form))
    except Exception:
        return False


@dataclass(kw_only=True)
class NumberPairs(Corpus):
    """Each kind equally often. No text on either side of a validation or test pair occurs in training.

    Numbers go up to `largest`, long ones more often than short ones. At most a quarter of all values can be held out,
    so that of the few small ones most stay in training. A kind that one of the languages lacks is left out.
    """

    kinds: list[str]
    largest: int
    first_year: int
    last_year: int
    currencies: list[str]
    num_train: int
    num_validation: int
    num_test: int
    seed: int

    def __post_init__(self) -> None:
        for key in ("source_lang", "target_lang"):
            self._check_language(key, getattr(self, key))
        self._check_values()
        self._usable = [kind for kind in dict.fromkeys(self.kinds) if not self._objection(kind)]
        if not self._usable:
            raise ConfigError(
                f"data.kinds: {self.source_lang} to {self.target_lang} has none of {', '.join(self.kinds)}; "
                f"add number, which every language has"
            )

    def training_pairs(self) -> LazyPairs:
        libraries = [f"{name} {version(name)}" for name in ("num2words", "babel")]
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "leaks"}
        source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return LazyPairs(self._name("training"), f"{options} {libraries} {source}", self._training)

    def validation_pairs(self) -> Pairs:
        return self._pairs("validation", self._held_out[: self.num_validation])

    def test_pairs(self) -> dict[str, Pairs]:
        return {"numbers": self._pairs("test", self._held_out[self.num_validation :])}

    @cached_property
    def _held_out(self) -> list[tuple[str, str]]:
        """Validation pairs, then test pairs; no text is twice on one side."""
        wanted = self.num_validation + self.num_test
        chosen: dict[str, str] = {}
        targets: set[str] = set()
        for source, target in self._draws("held out", wanted):
            if len(chosen) == wanted:
                break
            if source not in chosen and target not in targets:
                chosen[source] = target
                targets.add(target)
        if len(chosen) < wanted:
            raise ConfigError(
                f"data.num_test: {wanted} held-out pairs are asked for, but only {len(chosen)} can be held out of "
                f"{', '.join(self._usable)} up to {self.largest}; raise data.largest or add data.kinds"
            )
        return list(chosen.items())

    def _training(self) -> Pairs:
        """Pairs may repeat, but a source has one target throughout."""
        held_out, held_out_targets = dict(self._held_out), {target for _, target in self._held_out}
        answers: dict[str, str] = {}
        pairs: list[tuple[str, str]] = []
        for source, target in self._draws("training", self.num_train):
            if len(pairs) == self.num_train:
                break
            new = source not in held_out and target not in held_out_targets
            if new and answers.setdefault(source, target) == target:
                pairs.append((source, target))
        return self._pairs("training", pairs)

    def _draws(self, stream: Literal["held out", "training"], count: int) -> Iterator[tuple[str, str]]:
        """Random pairs, TRIES for each that is wanted and one more. A value that one side cannot say is skipped."""
        rng = Random(f"{self.seed} {stream}")
        for _ in range(TRIES * count + 1):
            kind = self._usable[_below(rng, len(self._usable))]
            value = self._draw(rng, kind)
            if stream == "held out" and not self._may_be_held_out(kind, value):
                continue
            source, target = _attempt(kind, value, self.source_lang), _attempt(kind, value, self.target_lang)
            if isinstance(source, str) and isinstance(target, str):
                yield source, target

    def _may_be_held_out(self, kind: str, value: Value) -> bool:
        return hashlib.sha256(repr((self.seed, kind, value)).encode()).digest()[0] < 64

    def _draw(self, rng: Random, kind: str) -> Value:
        first_day, last_day = date(self.first_year, 1, 1).toordinal(), date(self.last_year, 12, 31).toordinal()
        match kind:
            case "time":
                return (_below(rng, 24 * 60),)
            case "date":
                return first_day + _below(rng, last_day - first_day + 1), ("full", "long")[_below(rng, 2)]
            case "amount":
                return self._draw_number(rng), self.currencies[_below(rng, len(self.currencies))]
            case "ordinal":
                return (max(1, self._draw_number(rng)),)
        return (self._draw_number(rng),)

    def _draw_number(self, rng: Random) -> int:
        """The number of digits is the larger of two draws; then all numbers that have so many are equally likely."""
        longest = len(str(self.largest))
        digits = 1 + max(_below(rng, longest), _below(rng, longest))
        low, high = 10 ** (digits - 1) if digits > 1 else 0, min(10**digits - 1, self.largest)
        return low + _below(rng, high - low + 1)

    def _objection(self, kind: str) -> str | None:
        """Why a kind is left out, which is logged: most of twenty values fail, or many ordinals read like numbers."""
        rng, objection = Random(kind), None
        values = [self._draw(rng, kind) for _ in range(20)]
        for lang in self.source_lang, self.target_lang:
            errors = [error for value in values if isinstance(error := _attempt(kind, value, lang), Exception)]
            if len(errors) > 10:
                objection = f"{lang} lacks it ({type(errors[0]).__name__}: {errors[0]})"
        lang = self.source_lang
        if kind == "ordinal" and sum(_attempt(kind, v, lang) == _attempt("number", v, lang) for v in values) > 2:
            objection = f"{lang} does not tell it from number"
        if objection:
            log.info("data.kinds: %s is left out: %s", kind, objection)
        return objection

    def _check_language(self, key: str, lang: str) -> None:
        from num2words import CONVERTER_CLASSES as CONVERTERS

        if lang not in CONVERTERS:
            known = {name.lower(): name for name in sorted(CONVERTERS)}
            near = get_close_matches(lang.lower().replace("-", "_"), known) or known
            names = ", ".join(known[name] for name in near)
            raise ConfigError(f"data.{key}: num2words has no {lang!r}; nearest are {names}")
        most = LARGEST_IN.get(lang, LARGEST)
        if not 9 <= self.largest <= most:
            raise ConfigError(f"data.largest: {self.largest} is not from 9 to {most}, which is the range for {lang}")

    def _check_values(self) -> None:
        from babel.numbers import is_currency

        if min(self.num_train, self.num_validation, self.num_test, self.seed + 1) < 1:
            raise ConfigError("data: num_train, num_validation and num_test must be at least 1, seed at least 0")
        if not self.kinds or not set(self.kinds) <= set(WORDS):
            raise ConfigError(f"data.kinds: {self.kinds} must be some of {', '.join(WORDS)}")
        if not 1 <= self.first_year <= self.last_year <= 9999:
            raise ConfigError(f"data: need 1 <= first_year={self.first_year} <= last_year={self.last_year} <= 9999")
        if not self.currencies or not all(is_currency(code) for code in self.currencies):
            raise ConfigError(f"data.currencies: {self.currencies} must be codes of ISO 4217 such as EUR")

    def _name(self, part: str) -> str:
        return f"numbers {self.source_lang}-{self.target_lang} {part}"

    def _pairs(self, part: str, pairs: list[tuple[str, str]]) -> Pairs:
        return Pairs(self._name(part), [source for source, _ in pairs], [target for _, target in pairs])


def _below(rng: Random, count: int) -> int:
    """0 … count - 1. Of Python's generator only `random` promises the same numbers in every version."""
    return int(rng.random() * count)
