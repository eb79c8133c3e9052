"""Which writing systems a language uses, to find text in the wrong one.

Script names are those of Unicode, as RE2 (Arrow's regular expressions) knows them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LATIN = (
    "af az br bs ca cs cy da de en eo es et eu fi fo fr fy ga gl ha hr ht hu id ig is it ku la lb lt lv mg ms mt nb nl "
    "nn no oc pl pt ro sk sl so sq sv sw tl tr uz vi wo xh yo zu"
)
CYRILLIC, ARABIC, DEVANAGARI = "ru uk bg be mk kk ky tg mn", "ar fa ur ps ug sd", "hi mr ne sa"
LONE = (
    "el:Greek he:Hebrew yi:Hebrew th:Thai lo:Lao km:Khmer my:Myanmar ka:Georgian hy:Armenian am:Ethiopic ti:Ethiopic "
    "bn:Bengali as:Bengali gu:Gujarati pa:Gurmukhi kn:Kannada ml:Malayalam or:Oriya si:Sinhala ta:Tamil te:Telugu "
    "bo:Tibetan zh:Han yue:Han"
)

SCRIPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(LATIN.split(), ("Latin",)),
    **dict.fromkeys(CYRILLIC.split(), ("Cyrillic",)),
    **dict.fromkeys(ARABIC.split(), ("Arabic",)),
    **dict.fromkeys(DEVANAGARI.split(), ("Devanagari",)),
    **{lang: (script,) for lang, _, script in (entry.partition(":") for entry in LONE.split())},
    "ja": ("Han", "Hiragana", "Katakana"),
    "ko": ("Hangul", "Han"),
    "sr": ("Cyrillic", "Latin"),
}


SUBTAGS = {"latn": "Latin", "cyrl": "Cyrillic", "arab": "Arabic", "deva": "Devanagari", "hans": "Han", "hant": "Han"}
"""Scripts that a language code may name itself (ISO 15924)."""


def scripts_of(lang: str) -> tuple[str, ...] | None:
    """The scripts of a language code such as `de`, `pt_BR` or `uz_Cyrl`; None for one that is not in the table."""
    language, *subtags = lang.replace("-", "_").lower().split("_")
    named = [(SUBTAGS[subtag],) for subtag in subtags if subtag in SUBTAGS]
    return named[0] if named else SCRIPTS.get(language)


def wrong_script(lines: pa.Array, lang: str) -> NDArray[np.bool_]:
    """True where more than half of the letters are of no script of the language. Lines without letters pass."""
    wrong, scripts = np.zeros(len(lines), bool), scripts_of(lang)
    if scripts is not None:
        known = "".join(f"\\p{{{script}}}" for script in (*scripts, "Common", "Inherited"))
        suspects = pc.indices_nonzero(pc.match_substring_regex(lines, f"[^\\P{{L}}{known}]"))
        text = lines.take(suspects)  # few: to count is dear
        letters = pc.utf8_length(pc.replace_substring_regex(text, r"\P{L}+", ""))
        foreign = pc.utf8_length(pc.replace_substring_regex(text, f"[\\P{{L}}{known}]+", ""))
        wrong[suspects.to_numpy()] = pc.greater(pc.multiply(foreign, 2), letters).to_numpy(zero_copy_only=False)
    return wrong
