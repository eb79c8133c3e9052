"""Files of pairs: every format gives the same pairs, and what is wrong in one is named with file and line."""

import csv
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crosslight.data import lines as lines_module
from crosslight.data.corpus import SCHEMA
from crosslight.data.parallel import FilePair
from crosslight.data.readers import READERS
from crosslight.errors import ConfigError, DataError

PAIRS = [
    ("left\u2028right", "links\u2028rechts"),
    ('a "quoted" word, and a comma', "ein „Wort“\u0085, mit Komma"),
    ("", "nur Deutsch"),
    (" spaces ", "\U0001f600 Zwölf Boxkämpfer"),
    ("lone\rreturn", "NUL \0 byte"),
]
Rows = list[tuple[str, str]]


def write_tsv(path: Path, rows: Rows) -> None:
    path.write_text("en\tde\n" + "".join(f"{s}\t{t}\n" for s, t in rows), encoding="utf-8", newline="")


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("en", "de"), *rows])


def write_json_lines(path: Path, rows: Rows) -> None:
    records = [{"id": i, "translation": {"de": t, "en": s}} for i, (s, t) in enumerate(rows)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.table({"en": [s for s, _ in rows], "de": [t for _, t in rows]}), path, row_group_size=2)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    ".tsv": write_tsv,
    ".csv": write_csv,
    ".jsonl": write_json_lines,
    ".ndjson": write_json_lines,
    ".parquet": write_parquet,
}
ANY_FORMAT = pytest.mark.parametrize("suffix", list(READERS))


def pairs_of(path: Path | str, source: Any = None, target: Any = None, langs: str = "en-de") -> list[Any]:
    source_lang, target_lang = langs.split("-")
    files = FilePair(pairs=str(path), source_field=source, target_field=target).read(source_lang, target_lang)
    chunks = list(files.chunks())
    assert all(chunk.schema == SCHEMA for chunk in chunks)
    pairs = [tuple(row.values()) for chunk in chunks for row in chunk.to_pylist()]
    assert files.count() == len(pairs)
    return pairs


def written(folder: Path, name: str, text: str | bytes) -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


@pytest.mark.parametrize("block_bytes", [17, 1 << 20])
@ANY_FORMAT
def test_every_format_gives_the_pairs_that_were_written(
    tmp_path: Path, suffix: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block_bytes)
    WRITERS[suffix](tmp_path / f"text{suffix}", PAIRS)
    assert pairs_of(tmp_path / f"text{suffix}") == PAIRS
    assert pairs_of(tmp_path / f"text{suffix}", langs="de-en") == [pair[::-1] for pair in PAIRS]


@pytest.mark.parametrize("suffix", [suffix for suffix in READERS if suffix != ".parquet"])
def test_every_text_format_may_be_compressed(tmp_path: Path, suffix: str) -> None:
    WRITERS[suffix](tmp_path / f"text{suffix}", PAIRS)
    written(tmp_path, f"packed{suffix}.gz", gzip.compress((tmp_path / f"text{suffix}").read_bytes()))
    assert pairs_of(tmp_path / f"packed{suffix}.gz") == PAIRS


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_line_break_inside_a_field_becomes_a_space(tmp_path: Path, suffix: str) -> None:
    WRITERS[suffix](tmp_path / f"text{suffix}", [("one\ntwo", "eins\r\nzwei"), ("three\n", "drei")])
    assert pairs_of(tmp_path / f"text{suffix}") == [("one two", "eins zwei"), ("three ", "drei")]


@ANY_FORMAT
def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path, suffix: str) -> None:
    if suffix != ".parquet":
        path = tmp_path / f"text{suffix}"
        WRITERS[suffix](path, PAIRS)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert pairs_of(path) == PAIRS


@pytest.mark.parametrize(
    ("text", "source", "target", "pairs"),
    [
        ("a\tb\nc\td\n", None, None, [("a", "b"), ("c", "d")]),
        ("de\ten\nb\ta\n", None, None, [("a", "b")]),
        ("target\tsource\nb\ta\n", None, None, [("a", "b")]),
        ("id\ta\tb\n7\tc\td\n", 1, 2, [("a", "b"), ("c", "d")]),
        ("id\tenglish\tde\r\n7\tc\td", "english", None, [("c", "d")]),
        ("de\ten\tx\nb\ta\tc\n", "x", 0, [("c", "b")]),
        ("a\tb\n\t\n", None, None, [("a", "b"), ("", "")]),
        ('"a\t""b"""\n', None, None, [('"a', '""b"""')]),
    ],
)
def test_tsv_has_a_header_exactly_if_it_holds_the_names(
    tmp_path: Path, text: str, source: Any, target: Any, pairs: Rows
) -> None:
    assert pairs_of(written(tmp_path, "text.tsv", text), source, target) == pairs


def test_csv_without_a_header_is_read_by_column_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, "text.csv", 'x,"a, b",c\n\ny,d,"e"""\n')
    assert pairs_of(path, 1, 2) == [("a, b", "c"), ("d", 'e"')]


@pytest.mark.parametrize("names", [("translation.en", "translation.de"), ("en", "de"), ("source", "target")])
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_fields_with_the_usual_names_are_found(tmp_path: Path, suffix: str, names: tuple[str, str]) -> None:
    path = tmp_path / f"text{suffix}"
    separator = "," if suffix == ".csv" else "\t"
    record = {"other": "x", names[1]: "b", names[0]: "a"}
    if suffix == ".parquet":
        pq.write_table(pa.table({name: [value] for name, value in record.items()}), path)
    elif suffix == ".jsonl":
        written(tmp_path, path.name, json.dumps(record))
    else:
        written(tmp_path, path.name, f"{separator.join(record)}\n{separator.join(record.values())}\n")
    assert pairs_of(path) == [("a", "b")]


def test_missing_sides_are_null_in_json_lines(tmp_path: Path) -> None:
    records = ['{"en": "a"}', '{"en": null, "de": "b"}', "", '{"en": "c", "de": "d", "id": 5}', "{}"]
    assert pairs_of(written(tmp_path, "text.jsonl", "\n".join(records))) == [
        ("a", None),
        (None, "b"),
        ("c", "d"),
        (None, None),
    ]
    records = ['{"translation": null}', '{"translation": {"en": "a", "de": "b"}}', '{"translation": "text"}']
    assert pairs_of(written(tmp_path, "nested.jsonl", "\n".join(records))) == [(None, None), ("a", "b"), (None, None)]


def test_missing_sides_are_null_in_parquet_also_where_the_whole_struct_is(tmp_path: Path) -> None:
    column = pa.array([{"en": "a", "de": None}, None, {"en": "c", "de": "d"}])
    pq.write_table(pa.table({"id": [1, 2, 3], "translation": column}), tmp_path / "text.parquet")
    assert pairs_of(tmp_path / "text.parquet") == [("a", None), (None, None), ("c", "d")]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_every_kind_of_text_column_of_parquet_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array(["a", None, "b\nc"]).cast(kind)
    pq.write_table(pa.table({"en": column, "de": column}), tmp_path / "text.parquet")
    assert pairs_of(tmp_path / "text.parquet") == [("a", "a"), (None, None), ("b c", "b c")]


def test_half_a_surrogate_pair_in_json_is_no_end_of_the_run(tmp_path: Path) -> None:
    path = written(tmp_path, "text.jsonl", '{"en": "a\\ud83d", "de": "\\ud83d\\ude00"}\n')
    assert pairs_of(path) == [("a\ufffd", "\U0001f600")]


NAMED = '{"en": "a", "de": "b"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", NAMED + '{"en": "a", \n', r"x\.jsonl, line 2: is not JSON \(Expecting property name"),
        ("x.jsonl", NAMED + "\n\n" + '["a", "b"]\n', r"x\.jsonl, line 4: is \[\"a\", \"b\"\], not an object such as"),
        ("x.jsonl", NAMED + "[" * 100_000, r"x\.jsonl, line 2: is not JSON"),
        ("x.jsonl", NAMED + '{"en": "a", "de": 5}\n', r"x\.jsonl, line 2: holds 5 where text is needed"),
        ("x.jsonl", '{"en": ["a"], "de": "b"}\n', r"x\.jsonl, line 1: holds \['a'\] where text is needed"),
        ("x.jsonl", '{"a": {"b": "c"}, "d": 1}\n', r"has no field 'en' and 'de'; it has 'a\.b', 'd'; choose with"),
        ("x.jsonl", NAMED.encode() * 2 + b'{"en": "\xff"}', r"x\.jsonl, line 3: byte 0xff is not UTF-8"),
        ("x.tsv", "a\tb\nc\n", r"x\.tsv, line 2: 1 columns, but the first row has 2; a field cannot hold a tab"),
        ("x.tsv", "en\tde\na\tb\nc\td\te\n", r"x\.tsv, line 3: 3 columns, but the first row has 2"),
        ("x.tsv", "one sentence\n", r"x\.tsv: has no field 'en' and 'de'; it has 'one sentence'"),
        ("x.csv", "a,b\nc,d\n", r"x\.csv: has no field 'en' and 'de'; it has 'a', 'b'; choose with source_field"),
        ("x.csv", 'en,de\n"a\nb",c\nHello, world,Hallo\n', r"x\.csv, line 4: 3 columns.*comma needs quotes"),
        ("x.csv", 'en,de\na,b\n"c,d\ne,f\n', r"x\.csv, line 3: unexpected end of data; is a quote not closed"),
        ("x.csv", "en,de\na\rb,c\n", r"x\.csv, line 2: new-line character seen in unquoted field"),
        ("x.csv", 'en,de\na,"' + "b\n" * 100_000, r"x\.csv, line 2: unexpected end of data"),
        ("x.parquet", b"PAR1 and no more", r"x\.parquet: cannot be read as Parquet \(.*\)"),
        ("x.tsv", "", r"x\.tsv: no sentence pairs in it"),
        ("x.tsv", "en\tde\n", r"x\.tsv: no sentence pairs in it"),
        ("x.csv", "\n\n", r"x\.csv: no sentence pairs in it"),
        ("x.jsonl", " \n", r"x\.jsonl: no sentence pairs in it"),
        ("x.tsv.gz", b"\x1f\x8b", r"x\.tsv\.gz: cannot be read \(Truncated"),
        ("x.tsv", "en\tde\na\tb\n".encode("utf-16"), r"x\.tsv: is UTF-16"),
        ("x.txt", "a\tb\n", r"x\.txt: pairs are read from \.tsv, \.csv, \.jsonl and \.ndjson .*as source and target"),
        ("x.parquet.gz", b"", r"x\.parquet\.gz: pairs are read from"),
    ],
)
@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_what_is_wrong_is_named_with_file_and_line_in_one_sentence(
    tmp_path: Path,
    name: str,
    content: str | bytes,
    message: str,
    block_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block_bytes)
    path = written(tmp_path, name, content)
    with pytest.raises(DataError, match=message) as error:
        pairs_of(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("suffix", "source", "target", "missing"),
    [
        (".tsv", "english", None, "'english'"),
        (".csv", "english", "german", "'english' and 'german'"),
        (".jsonl", "translation.en", "translation.fr", "'translation.fr'"),
        (".parquet", "en", 1, "1"),
        (".tsv", 0, 2, "2"),
    ],
)
def test_an_unknown_field_is_answered_with_those_that_there_are(
    tmp_path: Path, suffix: str, source: Any, target: Any, missing: str
) -> None:
    WRITERS[suffix](tmp_path / f"x{suffix}", PAIRS)
    known = "'id', 'translation.de', 'translation.en'" if suffix == ".jsonl" else "'en', 'de'"
    with pytest.raises(DataError, match=re.escape(f"x{suffix}: has no field {missing}; it has {known}; choose")):
        pairs_of(tmp_path / f"x{suffix}", source, target)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1, 2]), "int64"),
        (pa.array([["a"], ["b"]]), "list<"),
        (pa.array([b"a", b"b"]), "binary"),
        (pa.array([b"a", b"a"]).dictionary_encode(), "dictionary<values=binary"),
    ],
)
def test_a_parquet_column_that_is_no_text_is_refused_with_its_type(tmp_path: Path, column: pa.Array, kind: str) -> None:
    pq.write_table(pa.table({"en": ["a", "b"], "de": column}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=rf"x\.parquet: column 'de' holds {kind}.*, not text"):
        pairs_of(tmp_path / "x.parquet")


def test_bytes_in_parquet_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xc3\x28"))
    pq.write_table(pa.table({"en": ["a"], "de": broken}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read as Parquet \(Invalid: Invalid UTF8|UTF8 sequence"):
        pairs_of(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": "x.tsv", "source": "a", "target": "b"}, "source=a and pairs=x.tsv; give either pairs or the two"),
        ({"pairs": "x.tsv", "target_field": -1}, "target_field=-1; columns are counted from 0"),
        ({"source": "a", "target": "b", "source_field": "en"}, "source_field=en chooses in files of pairs"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FilePair(**settings)


@ANY_FORMAT
def test_reading_begins_before_the_end_is_seen(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 4096)
    path = tmp_path / f"text{suffix}"
    WRITERS[suffix](path, [(f"source {i}", f"target {i}") for i in range(40_000)])
    chunks = FilePair(pairs=str(path)).read("en", "de").chunks()
    first = next(chunks)
    assert first.to_pylist()[0] == {"source": "source 0", "target": "target 0"}
    assert len(first) <= 16_384
    assert sum(map(len, chunks)) == 40_000 - len(first)
