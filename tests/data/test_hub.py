"""The hub through a local mirror: both layouts and directions, subsets, errors in one sentence, no network, the cache.

`datasets` reads HF_ENDPOINT when it is imported, so the loading runs in child processes with a cache of their own.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import HubServer

pytestmark = pytest.mark.shared

CHILD = """
import json, sys
from crosslight.data.hub import HubPairs
from crosslight.errors import DataError
for name, settings, call in json.load(sys.stdin):
    try:
        found = getattr(HubPairs(**settings), call)()
        sets = found if isinstance(found, dict) else {"": found}
        answer = {key: {"name": p.name, "source": p.source, "target": p.target} for key, p in sets.items()}
    except DataError as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"crash": repr(error)}
    print(json.dumps([name, answer]))
"""

WMT14 = {
    "repository": "wmt/wmt14",
    "config_name": "de-en",
    "revision": None,
    "source_lang": "en",
    "target_lang": "de",
    "train_split": "train",
    "validation_split": "validation",
    "test_splits": {"newstest2014": "test"},
    "train_size": None,
    "seed": 1,
    "max_tokens": 100,
    "eval_max_tokens": 100,
    "max_len": 50,
    "num_workers": 0,
}
MULTI30K = {**WMT14, "repository": "bentrevett/multi30k", "config_name": None}
DIRTY = {**WMT14, "repository": "local/dirty-de-en", "config_name": None}
UNREACHABLE = "http://127.0.0.1:9"

REQUESTS = {
    "subset": (WMT14 | {"train_size": 900}, "training_pairs"),
    "subset again": (WMT14 | {"train_size": 900}, "training_pairs"),
    "subset of another seed": (WMT14 | {"train_size": 900, "seed": 2}, "training_pairs"),
    "more than all": (MULTI30K | {"train_size": 10**9}, "training_pairs"),
    "validation": (WMT14, "validation_pairs"),
    "other direction": (WMT14 | {"source_lang": "de", "target_lang": "en"}, "validation_pairs"),
    "test": (WMT14, "test_pairs"),
    "flat columns": (MULTI30K | {"test_splits": {"test2016": "test", "val": "validation"}}, "test_pairs"),
    "null sides": (DIRTY, "training_pairs"),
    "unknown dataset": (WMT14 | {"repository": "wmt/wmt99"}, "training_pairs"),
    "unknown config": (WMT14 | {"config_name": "en-de"}, "training_pairs"),
    "no config": (WMT14 | {"config_name": None}, "training_pairs"),
    "unknown revision": (WMT14 | {"revision": "deadbeef"}, "training_pairs"),
    "unknown split": (WMT14 | {"validation_split": "dev"}, "validation_pairs"),
    "unknown language": (WMT14 | {"source_lang": "fr"}, "validation_pairs"),
    "unknown column": (MULTI30K | {"target_lang": "nl"}, "validation_pairs"),
}


def ask(endpoint: str, home: Path, **requests: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """What a child process gets for each request."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
    result = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([[name, *request] for name, request in requests.items()]),
        env={**env, "HF_ENDPOINT": endpoint, "HF_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return dict(json.loads(line) for line in result.stdout.splitlines())


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


def parquet(shared: Path, split: str) -> list[dict[str, str]]:
    """The rows of a split, read without the library under test."""
    from pyarrow.parquet import read_table

    files = sorted((shared / "hub/hub/datasets/wmt/wmt14/de-en").glob(f"{split}-*.parquet"))
    return [row for file in files for row in read_table(file)["translation"].to_pylist()]


def test_either_direction_reads_the_same_pairs(answers: dict[str, Any], shared: Path) -> None:
    rows = parquet(shared, "validation")
    assert len(rows) == 3000
    forth, back = answers["validation"][""], answers["other direction"][""]
    assert forth["source"] == back["target"] == [row["en"] for row in rows]
    assert forth["target"] == back["source"] == [row["de"] for row in rows]
    assert forth["name"] == "wmt/wmt14 (de-en) validation"
    assert list(answers["test"]) == ["newstest2014"]
    assert answers["test"]["newstest2014"]["source"] == [row["en"] for row in parquet(shared, "test")]


def test_a_training_subset_is_seeded_of_the_right_size_and_spread_over_the_file(
    answers: dict[str, Any], shared: Path
) -> None:
    where: dict[tuple[str, str], list[int]] = {}
    rows = parquet(shared, "train")
    for number, row in enumerate(rows):
        where.setdefault((row["en"], row["de"]), []).append(number)
    subset = answers["subset"][""]
    places = [where[pair] for pair in zip(subset["source"], subset["target"], strict=True)]
    assert len(places) == 900
    assert answers["subset again"] == answers["subset"]
    assert answers["subset of another seed"][""]["source"] != subset["source"]
    thirds = np.histogram([place[0] for place in places], bins=3, range=(0, len(rows)))[0]
    assert (thirds > 240).all(), "the file begins with one domain, so its head would be no sample"
    unique = [place[0] for place in places if len(place) == 1]
    assert unique == sorted(set(unique)), "no pair twice, in the file's order"


def test_flat_columns_are_read_like_the_raw_files(answers: dict[str, Any], shared: Path) -> None:
    test = answers["flat columns"]["test2016"]
    for side, lang in (("source", "en"), ("target", "de")):
        raw = (shared / "data" / "multi30k" / f"test_2016_flickr.{lang}").read_text(encoding="utf-8")
        assert [line.strip() for line in test[side]] == [line.strip() for line in raw.removesuffix("\n").split("\n")]
    assert len(answers["flat columns"]["val"]["source"]) == 1014
    assert len(answers["more than all"][""]["source"]) == 29000


def test_null_sides_are_empty_and_every_pair_stays_one_line(answers: dict[str, Any]) -> None:
    pairs = answers["null sides"][""]
    assert len(pairs["source"]) == len(pairs["target"]) == 20
    assert (pairs["source"][18], pairs["target"][18]) == ("null on the source side", "")
    assert (pairs["source"][19], pairs["target"][19]) == ("", "Null auf der Zielseite")
    assert not any("\n" in line for line in pairs["source"] + pairs["target"])
    assert any("\u2028" in line for line in pairs["source"] + pairs["target"])


@pytest.mark.parametrize(
    ("request_name", "parts"),
    [
        ("unknown dataset", ["wmt/wmt99", "exist"]),
        ("unknown config", ["wmt/wmt14 (en-de)", "'cs-en', 'de-en', 'fr-en'"]),
        ("no config", ["wmt/wmt14", "'cs-en', 'de-en', 'fr-en'"]),
        ("unknown revision", ["wmt/wmt14", "deadbeef"]),
        ("unknown split", ["wmt/wmt14 (de-en)", "'dev'", "train, validation, test"]),
        ("unknown language", ["data.source_lang", "'fr'", "de, en"]),
        ("unknown column", ["data.target_lang", "bentrevett/multi30k", "'nl'"]),
    ],
)
def test_what_the_hub_does_not_have_is_one_sentence_that_names_it(
    answers: dict[str, Any], request_name: str, parts: list[str]
) -> None:
    message = answers[request_name]["error"]
    assert [part for part in parts if part not in message] == [], message
    assert "\n" not in message
    assert "did not answer" not in message
    assert ".." not in message


@pytest.mark.parametrize("broken", ["refused", "slow", "error 503"])
def test_without_an_answer_and_a_cache_it_fails_at_once_with_two_ways_out(
    tmp_path: Path, shared: Path, broken: str
) -> None:
    with HubServer(shared / "hub" / "hub", delay=5 * (broken == "slow"), fail=503) as hub:
        endpoint = UNREACHABLE if broken == "refused" else hub.endpoint
        start = time.monotonic()
        message = ask(endpoint, tmp_path, request=(WMT14, "training_pairs"))["request"]["error"]
        assert time.monotonic() - start < 10
    for part in ("wmt/wmt14 (de-en)", endpoint, "did not answer", str(tmp_path), "data=text_files", "HF_ENDPOINT"):
        assert part in message
    assert "\n" not in message


def test_a_filled_cache_needs_no_network(answers: dict[str, Any], home: Path) -> None:
    start = time.monotonic()
    requests = {"subset": REQUESTS["subset"], "flat columns": REQUESTS["flat columns"]}
    assert ask(UNREACHABLE, home, **requests) == {name: answers[name] for name in requests}
    assert time.monotonic() - start < 10
