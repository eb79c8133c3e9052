"""The hub through a local mirror: layouts and directions, subsets, parts of files, the caches, and every way to fail.

`datasets` reads HF_ENDPOINT when it is imported, so the loading runs in child processes with caches of their own.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hub_server import Handler, HubServer

from crosslight.config.compose import CONF, compose
from crosslight.data.corpus import CHUNK_ROWS
from crosslight.data.hub import HubPairs
from crosslight.data.hub_access import is_commit
from crosslight.data.hub_parts import draw_groups
from crosslight.data.hub_table import HubTable
from crosslight.errors import ConfigError, DataError

CHILD = """
import json, logging, sys, time
from crosslight.data.hub import HubPairs
from crosslight.errors import CrosslightError
said = []
class Keep(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("crosslight").addHandler(Keep())
logging.getLogger("crosslight").setLevel(logging.INFO)
def columns(pairs):
    chunks = [chunk.to_pydict() for chunk in pairs.chunks()]
    return {side: [text for chunk in chunks for text in chunk[side]] for side in ("source", "target")}
for name, settings, call in json.load(sys.stdin):
    said.clear()
    start = time.monotonic()
    try:
        found = getattr(HubPairs(**settings), call)()
        sets = found if isinstance(found, dict) else {"": found}
        answer = {
            key: {"name": p.name, "fingerprint": p.fingerprint(), **columns(p)} for key, p in sets.items()
        }
    except CrosslightError as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"crash": repr(error)}
    print(json.dumps([name, answer | {"said": list(said), "seconds": time.monotonic() - start}]))
"""

MISSING_COMMIT = "b199e406369ec1b7634206d3ded5ba45de2fe696"
WMT14 = {
    "repository": "wmt/wmt14",
    "config_name": "de-en",
    "data_dir": None,
    "revision": None,
    "source_lang": "en",
    "target_lang": "de",
    "leaks": "warn",
    "train_split": "train",
    "validation_split": "validation",
    "test_splits": {"newstest2014": "test"},
    "held_out": 300,
    "train_size": None,
    "seed": 1,
}
SMALL = WMT14 | {"train_size": 900}
MULTI30K = {**WMT14, "repository": "bentrevett/multi30k", "config_name": None}
DIRTY = {**WMT14, "repository": "local/dirty-de-en", "config_name": None}
UNREACHABLE = "http://127.0.0.1:9"

REQUESTS = {
    "whole": (WMT14, "training_pairs"),
    "half and more": (WMT14 | {"train_size": 30_000}, "training_pairs"),
    "validation": (WMT14, "validation_pairs"),
    "other direction": (WMT14 | {"source_lang": "de", "target_lang": "en"}, "validation_pairs"),
    "test": (WMT14, "test_pairs"),
    "test set from elsewhere": (
        WMT14 | {"test_splits": {"here": "test", "captions": {"repository": "bentrevett/multi30k", "split": "test"}}},
        "test_pairs",
    ),
    "flat columns": (MULTI30K | {"test_splits": {"test2016": "test", "val": "validation"}}, "test_pairs"),
    "more than all": (MULTI30K | {"train_size": 10**9}, "training_pairs"),
    "held out, training": (MULTI30K | {"validation_split": None, "test_splits": {"own": None}}, "training_pairs"),
    "held out, validation": (MULTI30K | {"validation_split": None, "test_splits": {"own": None}}, "validation_pairs"),
    "held out, test": (MULTI30K | {"validation_split": None, "test_splits": {"own": None}}, "test_pairs"),
    "null sides": (DIRTY, "training_pairs"),
    "null sides, to be scored": (DIRTY | {"validation_split": "train"}, "validation_pairs"),
    "commit that a mirror lacks": (WMT14 | {"revision": MISSING_COMMIT}, "validation_pairs"),
    "unknown dataset": (WMT14 | {"repository": "wmt/wmt99"}, "training_pairs"),
    "no dataset name": (WMT14 | {"repository": "a/b/c"}, "training_pairs"),
    "unknown config": (WMT14 | {"config_name": "en-de"}, "training_pairs"),
    "no config": (WMT14 | {"config_name": None}, "training_pairs"),
    "unknown revision": (WMT14 | {"revision": "deadbeef"}, "training_pairs"),
    "unknown split": (WMT14 | {"validation_split": "dev"}, "validation_pairs"),
    "unknown training split": (SMALL | {"train_split": "training"}, "training_pairs"),
    "unknown test split": (WMT14 | {"test_splits": {"mine": "testing"}}, "test_pairs"),
    "wrong test set": (WMT14 | {"test_splits": {"mine": {"repo": "a/b"}}}, "test_pairs"),
    "unknown language": (WMT14 | {"source_lang": "fr"}, "validation_pairs"),
    "unknown language of a subset": (SMALL | {"source_lang": "fr"}, "training_pairs"),
    "unknown column": (MULTI30K | {"target_lang": "nl"}, "validation_pairs"),
}

PARTS = {
    "subset": (SMALL, "training_pairs"),
    "validation beside a subset": (SMALL, "validation_pairs"),
    "subset again": (SMALL, "training_pairs"),
    "subset, other direction": (SMALL | {"source_lang": "de", "target_lang": "en"}, "training_pairs"),
    "subset of another seed": (SMALL | {"seed": 2}, "training_pairs"),
}


def ask(endpoint: str, home: Path, **requests: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """What a child process gets for each request."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
    cache = {"cache": str(home / "crosslight")}
    result = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([[name, settings | cache, call] for name, (settings, call) in requests.items()]),
        env={**env, "HF_ENDPOINT": endpoint, "HF_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return dict(json.loads(line) for line in result.stdout.splitlines())


def pairs_of(answer: dict[str, Any], name: str = "") -> list[tuple[str, str]]:
    assert "error" not in answer, answer["error"]
    assert "crash" not in answer, answer["crash"]
    return list(zip(answer[name]["source"], answer[name]["target"], strict=True))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hf_home")


@pytest.fixture(scope="module")
def answers(shared: Path, home: Path) -> dict[str, Any]:
    """All requests, in one process against the mirror; `home` is filled after this."""
    with HubServer(shared / "hub" / "hub") as hub:
        found = ask(hub.endpoint, home, **REQUESTS)
        assert not [request for request in hub.requests if request["status"] >= 500]
    return found


@pytest.fixture(scope="module")
def parts_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts_home")


@pytest.fixture(scope="module")
def parts(shared: Path, parts_home: Path) -> dict[str, Any]:
    """Subsets, from a mirror that nobody has asked before; "requests" are what it was asked for."""
    with HubServer(shared / "hub" / "hub") as hub:
        return ask(hub.endpoint, parts_home, **PARTS) | {"requests": hub.requests}


def rows_of(shared: Path, split: str) -> list[tuple[str, str]]:
    """The English and German rows of a split of WMT 2014, read without the code under test."""
    files = sorted((shared / "hub/hub/datasets/wmt/wmt14/de-en").glob(f"{split}-*.parquet"))
    return [(row["en"], row["de"]) for file in files for row in pq.read_table(file)["translation"].to_pylist()]


def assert_spread_subset(pairs: list[tuple[str, str]], rows: list[tuple[str, str]], size: int) -> None:
    """`pairs` are that many rows, none twice, in their order, as many from each third of the file."""
    where: dict[tuple[str, str], list[int]] = {}
    for number, row in enumerate(rows):
        where.setdefault(row, []).append(number)
    places = [where[pair] for pair in pairs]
    assert len(places) == size
    thirds = np.histogram([place[0] for place in places], bins=3, range=(0, len(rows)))[0]
    assert (thirds > 0.27 * size).all(), "the file begins with one domain, so its head would be no sample"
    unique = [place[0] for place in places if len(place) == 1]
    assert unique == sorted(set(unique))


# -- what is read --------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_either_direction_reads_the_same_pairs(answers: dict[str, Any], shared: Path) -> None:
    rows = rows_of(shared, "validation")
    assert len(rows) == 3000
    assert pairs_of(answers["validation"]) == rows
    assert pairs_of(answers["other direction"]) == [(target, source) for source, target in rows]
    assert answers["validation"][""]["name"] == "wmt/wmt14 (de-en) validation"
    assert pairs_of(answers["test"], "newstest2014") == rows_of(shared, "test")


@pytest.mark.shared
def test_the_whole_split_is_read_in_its_order(answers: dict[str, Any], shared: Path) -> None:
    rows = [(a.replace("\n", " "), b.replace("\n", " ")) for a, b in rows_of(shared, "train")]
    assert len(rows) > 2 * CHUNK_ROWS
    assert pairs_of(answers["whole"]) == rows


@pytest.mark.shared
def test_a_subset_of_files_that_are_downloaded_whole_is_spread_too(answers: dict[str, Any], shared: Path) -> None:
    assert_spread_subset(pairs_of(answers["half and more"]), rows_of(shared, "train"), 30_000)
    assert len(pairs_of(answers["more than all"])) == 29000


@pytest.mark.shared
def test_test_sets_may_be_stored_in_another_repository(answers: dict[str, Any], shared: Path) -> None:
    found = answers["test set from elsewhere"]
    assert pairs_of(found, "here") == rows_of(shared, "test")
    assert pairs_of(found, "captions") == pairs_of(answers["flat columns"], "test2016")
    assert found["captions"]["name"] == "bentrevett/multi30k test"


@pytest.mark.shared
def test_of_the_other_repository_only_the_test_split_is_downloaded(tmp_path: Path, shared: Path) -> None:
    there = {"repository": "wmt/wmt14", "config_name": "cs-en", "split": "test"}
    settings = MULTI30K | {"source_lang": "cs", "test_splits": {"newstest2014": there}, "target_lang": "en"}
    with HubServer(shared / "hub" / "hub") as hub:
        found = ask(hub.endpoint, tmp_path, test=(settings, "test_pairs"))["test"]
        assert {name for r in hub.requests for name in re.findall(r"/(\w+)-0\d*-of", r["path"])} == {"test"}
    assert len(pairs_of(found, "newstest2014")) == 3003
    assert found["newstest2014"]["name"] == "wmt/wmt14 (cs-en) test"


@pytest.mark.shared
def test_flat_columns_are_read_like_the_raw_files(answers: dict[str, Any], shared: Path) -> None:
    test = answers["flat columns"]["test2016"]
    for side, lang in (("source", "en"), ("target", "de")):
        raw = (shared / "data" / "multi30k" / f"test_2016_flickr.{lang}").read_text(encoding="utf-8")
        assert [line.strip() for line in test[side]] == [line.strip() for line in raw.removesuffix("\n").split("\n")]
    assert len(answers["flat columns"]["val"]["source"]) == 1014


@pytest.mark.shared
def test_held_out_pairs_leave_the_training_set(answers: dict[str, Any]) -> None:
    everything = pairs_of(answers["more than all"])
    train, validation = pairs_of(answers["held out, training"]), pairs_of(answers["held out, validation"])
    test = pairs_of(answers["held out, test"], "own")
    assert (len(validation), len(test)) == (300, 300)
    assert sorted(train + validation + test) == sorted(everything)
    assert train == [pair for pair in everything if pair not in {*validation, *test}]
    assert answers["held out, test"]["own"]["name"] == "300 held-out pairs of bentrevett/multi30k train"


@pytest.mark.shared
def test_null_sides_stay_null_in_training_and_are_empty_where_they_are_scored(answers: dict[str, Any]) -> None:
    pairs, scored = pairs_of(answers["null sides"]), pairs_of(answers["null sides, to be scored"])
    assert len(pairs) == len(scored) == 20
    assert pairs[18:] == [("null on the source side", None), (None, "Null auf der Zielseite")]
    assert scored[18:] == [("null on the source side", ""), ("", "Null auf der Zielseite")]
    assert not any("\n" in line for pair in scored for line in pair)
    assert any("\u2028" in line for pair in scored for line in pair)


def table_of(**columns: Any) -> HubTable:
    return HubTable("somewhere", pa.table(columns), [], "en", "de")


def read(table: HubTable) -> list[tuple[str | None, str | None]]:
    return [(row["source"], row["target"]) for chunk in table.chunks() for row in chunk.to_pylist()]


def test_a_translation_that_is_missing_altogether_is_two_null_sides() -> None:
    kind = pa.struct([("de", pa.string()), ("en", pa.string())])
    column = pa.array([{"de": "a", "en": "b"}, None, {"de": "c\r\nd\ne", "en": None}], kind)
    assert read(table_of(translation=column)) == [("b", "a"), (None, None), (None, "c d e")]
    hidden = pa.StructArray.from_arrays([["x", "y"], ["u", "v"]], ["de", "en"], mask=pa.array([False, True]))
    assert read(table_of(translation=hidden)) == [("u", "x"), (None, None)], "what lies below a null does not count"


def test_chosen_rows_come_in_chunks_as_they_stand_in_the_table() -> None:
    numbers = [str(i) for i in range(3 * CHUNK_ROWS + 5)]
    rows = np.array([0, 7, CHUNK_ROWS - 1, CHUNK_ROWS, 3 * CHUNK_ROWS + 4])
    table = HubTable("x", pa.table({"en": numbers, "de": numbers}), [], "en", "de", rows)
    assert read(table) == [(str(i), str(i)) for i in rows]
    assert len(table) == 5


def test_a_column_that_is_no_text_is_named() -> None:
    with pytest.raises(DataError, match=r"somewhere has list<.*> where the text of 'de' should be"):
        table_of(en=["a"], de=[[1]])


# -- what tells one text from another -------------------------------------------------------------------------------


@pytest.mark.shared
def test_the_fingerprint_changes_with_whatever_changes_the_text(answers: dict[str, Any], parts: dict[str, Any]) -> None:
    def fingerprint(answer: dict[str, Any]) -> str:
        return str(answer[""]["fingerprint"])

    assert fingerprint(parts["subset"]) == fingerprint(parts["subset again"])
    different = [answers["whole"], answers["half and more"], *(parts[name] for name in PARTS if name[-5:] != "again")]
    different += [answers["held out, training"], answers["more than all"]]
    assert len({fingerprint(answer) for answer in different}) == len(different)


def test_the_fingerprint_notices_an_edit_in_place_that_keeps_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "cached.arrow"
    path.write_bytes(b"the old text")
    table = HubTable("x", pa.table({"en": ["a"], "de": ["b"]}), [path], "en", "de")
    before, stamp = table.fingerprint(), path.stat()
    path.write_bytes(b"the new text")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    assert table.fingerprint() != before


# -- parts of files ------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_a_small_subset_is_spread_and_downloads_no_whole_file(parts: dict[str, Any], shared: Path) -> None:
    subset = pairs_of(parts["subset"])
    assert_spread_subset(subset, rows_of(shared, "train"), 900)
    assert pairs_of(parts["subset again"]) == subset
    assert pairs_of(parts["subset, other direction"]) == [(target, source) for source, target in subset]
    assert not set(pairs_of(parts["subset of another seed"])) >= set(subset)
    assert pairs_of(parts["validation beside a subset"]) == rows_of(shared, "validation")
    assert not [r for r in parts["requests"] if ".parquet" in r["path"] and not r["range"]]
    assert any(re.search(r"train: read \d.* of .* MB, 32 of 45 row groups", said) for said in parts["subset"]["said"])


@pytest.mark.shared
def test_the_parts_are_kept_and_need_no_network_afterwards(parts: dict[str, Any], parts_home: Path) -> None:
    later = ask(UNREACHABLE, parts_home, **{name: PARTS[name] for name in ("subset", "validation beside a subset")})
    for name, answer in later.items():
        assert pairs_of(answer) == pairs_of(parts[name])
        assert answer["seconds"] < 5
        assert len(answer["said"]) == 1, "one line says that the hub does not answer"
        assert "does not answer; wmt/wmt14 (de-en) is read from the cache" in answer["said"][0]
    assert not list(parts_home.rglob("*.unfinished"))


@pytest.mark.shared
def test_with_a_pinned_commit_what_is_kept_needs_no_request_at_all(shared: Path, parts_home: Path) -> None:
    """`parts` asked without a revision; the same commit, named, finds the same file."""
    with HubServer(shared / "hub" / "hub") as hub:
        commit = hub.repo("wmt", "wmt14").sha
        ask(hub.endpoint, parts_home, subset=(SMALL | {"revision": commit}, "training_pairs"))
        hub.requests.clear()
        again = ask(hub.endpoint, parts_home, subset=(SMALL | {"revision": commit}, "training_pairs"))["subset"]
        assert len(pairs_of(again)) == 900
        assert hub.requests == []


@pytest.mark.shared
def test_a_new_state_of_the_repository_is_read_anew(tmp_path: Path) -> None:
    folder = tmp_path / "hub/datasets/some/pairs"
    folder.mkdir(parents=True)
    settings = SMALL | {"repository": "some/pairs", "config_name": None, "train_size": 20}
    with HubServer(tmp_path / "hub") as hub:
        for word in ("old", "new"):
            texts = [f"{word} {i}" for i in range(400)]
            pq.write_table(pa.table({"en": texts, "de": texts}), folder / "train.parquet", row_group_size=10)
            found = ask(hub.endpoint, tmp_path / "home", train=(settings, "training_pairs"))["train"]
            assert {source.split()[0] for source, _ in pairs_of(found)} == {word}


@pytest.mark.shared
def test_of_a_data_set_with_images_only_the_text_is_read(tmp_path: Path, shared: Path) -> None:
    """As in romrawinjp/multi30k: four languages and an image in one row, in small row groups."""
    folder = tmp_path / "hub/datasets/some/captions"
    (folder / "data").mkdir(parents=True)
    lines = {
        lang: (shared / f"data/multi30k/val.{lang}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for lang in ("en", "de", "fr")
    }
    noise = np.random.default_rng(0)
    images = [{"bytes": noise.bytes(5000), "path": None} for _ in lines["en"]]
    table = pa.table({**lines, "image": images})
    pq.write_table(table, folder / "data/train-00000-of-00001.parquet", row_group_size=100)
    features = (
        "".join(f"  - name: {lang}\n    dtype: string\n" for lang in lines) + "  - name: image\n    dtype: image\n"
    )
    (folder / "README.md").write_text(f"---\ndataset_info:\n  features:\n{features}---\n")
    settings = WMT14 | {"repository": "some/captions", "config_name": None, "target_lang": "fr"}
    with HubServer(tmp_path / "hub") as hub:
        found = ask(hub.endpoint, tmp_path / "home", train=(settings, "training_pairs"))["train"]
        sent = sum(request["sent"] for request in hub.requests)
    assert pairs_of(found) == list(zip(lines["en"], lines["fr"], strict=True))
    assert sent < 0.1 * 5000 * len(images)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("count", "size"), [(45, 900), (45, 22_000), (4509, 200_000), (3, 10), (1, 5)])
def test_row_groups_are_drawn_from_everywhere_and_hold_enough_rows(seed: int, count: int, size: int) -> None:
    rows = [1000] * (count - 1) + [300]
    drawn = draw_groups(rows, size, seed)
    assert drawn == sorted(set(drawn))
    assert sum(rows[i] for i in drawn) >= size
    assert len(drawn) <= max(32, 1.6 * size / 1000)
    gaps = np.diff([-1, *drawn, count])
    assert gaps.max() <= 2 * count / len(drawn) + 1, "no two strata wide is left out"
    assert seed == 0 or count < 45 or drawn != draw_groups(rows, size, 0)


def test_row_groups_of_very_different_size_still_hold_enough_rows() -> None:
    rows = [10] * 99 + [100_000]
    for seed in range(5):
        assert sum(rows[i] for i in draw_groups(rows, 5000, seed)) >= 5000


# -- what fails ----------------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize(
    ("request_name", "parts_of_it"),
    [
        ("unknown dataset", ["data.repository", "wmt/wmt99", "does not exist", "HF_TOKEN"]),
        ("no dataset name", ["data.repository", "a/b/c", "ORGANISATION/NAME"]),
        ("unknown config", ["data.config_name", "wmt/wmt14", "'en-de'", "cs-en, de-en, fr-en", "either direction"]),
        ("no config", ["data.config_name", "wmt/wmt14", "cs-en, de-en, fr-en"]),
        ("unknown revision", ["data.revision", "wmt/wmt14", "'deadbeef'", "data.revision=main"]),
        ("unknown split", ["data.validation_split", "wmt/wmt14 (de-en)", "'dev'", "train, validation, test"]),
        ("unknown training split", ["data.train_split", "'training'", "train, validation, test"]),
        ("unknown test split", ["data.test_splits.mine", "'testing'", "train, validation, test"]),
        ("wrong test set", ["data.test_splits.mine", "'repo': 'a/b'", "`split`", "repository, config_name"]),
        ("unknown language", ["data.source_lang", "'fr'", "de, en"]),
        ("unknown language of a subset", ["data.source_lang", "'fr'", "de, en"]),
        ("unknown column", ["data.target_lang", "bentrevett/multi30k", "'nl'", "en, de"]),
    ],
)
def test_what_the_hub_does_not_have_is_one_sentence_that_names_it(
    answers: dict[str, Any], request_name: str, parts_of_it: list[str]
) -> None:
    message = answers[request_name]["error"]
    assert [part for part in parts_of_it if part not in message] == [], message
    assert "\n" not in message
    assert "does not answer" not in message
    assert ".." not in message


def test_without_a_name_the_setting_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"data\.repository: no data set; give data\.repository=ORGANISATION/NAME"):
        HubPairs(**MULTI30K | {"repository": None, "cache": "nowhere"}).training_pairs()


@pytest.mark.parametrize("path", sorted((CONF / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_data_set_of_the_hub_is_pinned_or_says_why_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    data = yaml.safe_load(text).get("data", {})
    places = [data, *(where for where in (data.get("test_splits") or {}).values() if isinstance(where, dict))]
    for place in places:
        if place.get("repository"):
            assert is_commit(place.get("revision")) or "`revision: main`" in text
    if "test_splits" in data:  # a mapping is merged with what the file inherits
        assert set(compose([f"data={path.stem}"]).data.test_splits) == set(data["test_splits"])


@pytest.mark.shared
def test_a_split_or_language_that_does_not_exist_is_found_before_the_download(tmp_path: Path, shared: Path) -> None:
    wrong = {name: REQUESTS[name] for name in ("unknown split", "unknown language", "unknown config")}
    with HubServer(shared / "hub" / "hub") as hub:
        found = ask(hub.endpoint, tmp_path, **wrong)
        assert all("error" in answer for answer in found.values())
        assert not [request for request in hub.requests if ".parquet" in request["path"]]


@pytest.mark.shared
def test_a_mirror_without_history_gives_its_newest_state_and_says_so(answers: dict[str, Any], shared: Path) -> None:
    found = answers["commit that a mirror lacks"]
    assert pairs_of(found) == rows_of(shared, "validation")
    assert len(found["said"]) == 1
    assert re.search(rf"does not have commit {MISSING_COMMIT} of wmt/wmt14; taking its main", found["said"][0])


@pytest.mark.shared
@pytest.mark.parametrize("settings", [WMT14, SMALL], ids=["whole", "parts"])
@pytest.mark.parametrize("broken", ["refused", "slow", "error 503"])
def test_without_an_answer_and_a_cache_it_fails_at_once_with_two_ways_out(
    tmp_path: Path, shared: Path, broken: str, settings: dict[str, Any]
) -> None:
    with HubServer(shared / "hub" / "hub", delay=30 * (broken == "slow"), fail=503) as hub:
        endpoint = UNREACHABLE if broken == "refused" else hub.endpoint
        answer = ask(endpoint, tmp_path, request=(settings, "training_pairs"))["request"]
    assert answer["seconds"] < 5
    message = answer["error"]
    for part in ("wmt/wmt14 (de-en)", endpoint, "does not answer", str(tmp_path), "data=text_files", "HF_ENDPOINT"):
        assert part in message
    assert "\n" not in message
    assert answer["said"] == []


@pytest.mark.shared
def test_a_filled_cache_needs_no_network_and_one_line_says_so(answers: dict[str, Any], home: Path) -> None:
    names = ("half and more", "flat columns", "validation", "commit that a mirror lacks")
    later = ask(UNREACHABLE, home, **{name: REQUESTS[name] for name in names})
    for name in names:
        assert {k: later[name][k] for k in later[name] if k not in ("said", "seconds")} == {
            k: answers[name][k] for k in answers[name] if k not in ("said", "seconds")
        }
        assert later[name]["seconds"] < 5
        assert len(later[name]["said"]) == 1
        assert "does not answer" in later[name]["said"][0]
    assert f"not data.revision={MISSING_COMMIT}" in later["commit that a mirror lacks"]["said"][0]


@contextmanager
def broken_hub(root: Path, path: str, how: Callable[[Handler], None]) -> Iterator[HubServer]:
    """A hub that answers every GET and HEAD of a matching path wrongly, and all else as it should."""

    class Broken(Handler):
        def handle_request(self) -> None:
            if re.search(path, self.path):
                how(self)
            else:
                super().handle_request()

        do_GET = do_HEAD = handle_request  # noqa: N815

    with HubServer(root) as hub:
        hub.RequestHandlerClass = Broken
        yield hub


def unavailable(handler: Handler) -> None:
    handler.send_json({"error": "injected"}, 503)


def cut(handler: Handler) -> None:
    """The answer that the hub gives, but the connection ends in the middle of the body."""
    whole = handler.wfile

    class Half:
        def write(self, data: bytes) -> int:
            if data.startswith(b"HTTP/"):
                return whole.write(data)
            whole.write(data[: len(data) // 2])
            whole.flush()
            handler.close_connection = True
            return len(data)

        def flush(self) -> None:
            whole.flush()

    handler.wfile = Half()  # type: ignore[assignment]
    Handler.handle_request(handler)
    handler.wfile = whole


def without_ranges(handler: Handler) -> None:
    del handler.headers["Range"]
    Handler.handle_request(handler)


@pytest.mark.shared
@pytest.mark.parametrize("settings", [WMT14, SMALL], ids=["whole", "parts"])
@pytest.mark.parametrize(
    ("path", "how"),
    [
        (r"train.*\.parquet", unavailable),
        (r"train.*\.parquet", cut),
        (r"README", unavailable),
        (r"/tree/", unavailable),
    ],
    ids=["file 503", "file cut", "card 503", "list of files 503"],
)
def test_a_failure_in_the_middle_is_one_sentence_within_seconds(
    tmp_path: Path, shared: Path, settings: dict[str, Any], path: str, how: Callable[[Handler], None]
) -> None:
    with broken_hub(shared / "hub" / "hub", path, how) as hub:
        answer = ask(hub.endpoint, tmp_path, request=(settings, "training_pairs"))["request"]
        endpoint = hub.endpoint
    assert "error" in answer, answer
    for part in ("data: wmt/wmt14 (de-en)", endpoint, "data=text_files", "HF_ENDPOINT", "try again"):
        assert part in answer["error"], answer["error"]
    assert ("503" if how is unavailable else "closed") in answer["error"]
    assert "\n" not in answer["error"]
    assert answer["seconds"] < 12
    assert not list(tmp_path.rglob("*.unfinished"))


@pytest.mark.shared
def test_a_server_that_gives_only_whole_files_is_asked_for_those(tmp_path: Path, shared: Path) -> None:
    with broken_hub(shared / "hub" / "hub", r"\.parquet", without_ranges) as hub:
        answer = ask(hub.endpoint, tmp_path, request=(SMALL, "training_pairs"))["request"]
    assert_spread_subset(pairs_of(answer), rows_of(shared, "train"), 900)


@pytest.mark.shared
def test_a_folder_of_files_without_a_card_is_a_data_set_too(tmp_path: Path) -> None:
    """As in the branch refs/convert/parquet of IWSLT/iwslt2017: one folder a configuration, splits by file name."""
    for config in ("one-en-de", "two-en-fr"):
        folder = tmp_path / "hub/datasets/some/scripted" / config
        folder.mkdir(parents=True)
        for split, count in (("train", 30), ("validation", 4), ("test", 5)):
            rows = [{"en": f"{config} {split} {i}", "de": "x"} for i in range(count)]
            pq.write_table(pa.table({"translation": rows}), folder / f"scripted-{split}.parquet")
    settings = WMT14 | {"repository": "some/scripted", "config_name": None, "data_dir": "one-en-de"}
    with HubServer(tmp_path / "hub") as hub:
        calls = {"train": (settings, "training_pairs"), "test": (settings, "test_pairs")}
        found = ask(hub.endpoint, tmp_path / "home", **calls)
    assert pairs_of(found["train"]) == [(f"one-en-de train {i}", "x") for i in range(30)]
    assert pairs_of(found["test"], "newstest2014") == [(f"one-en-de test {i}", "x") for i in range(5)]
    later = ask(UNREACHABLE, tmp_path / "home", **calls)
    assert pairs_of(later["train"]) == pairs_of(found["train"])


@pytest.mark.shared
def test_a_damaged_file_of_kept_parts_is_named(tmp_path: Path, shared: Path) -> None:
    with HubServer(shared / "hub" / "hub") as hub:
        ask(hub.endpoint, tmp_path, subset=(SMALL, "training_pairs"))
        (kept,) = (tmp_path / "crosslight").rglob("*.arrow")
        kept.write_bytes(kept.read_bytes()[:1000])
        message = ask(hub.endpoint, tmp_path, subset=(SMALL, "training_pairs"))["subset"]["error"]
    assert str(kept) in message
    assert "delete it" in message
