"""What is prepared: the right pairs and a true report, whatever the chunks and threads, in bounded memory."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from preparing_texts import THOROUGH, Lines, Source, built, counted, dirty, lasting, rows, text
from texts import numbers

from crosslight.data.cleaning import REASONS
from crosslight.data.corpus import SCHEMA, LazyPairs, Pairs, arrow_text
from crosslight.data.leaks import LeakGuard
from crosslight.data.preparation import prepare
from crosslight.data.sieve import EXAMPLE_CHARACTERS, EXAMPLES, Sieve, Sifted


def test_chunks_and_threads_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = dirty(250)
    results = []
    for chunk_rows, threads in ((1, 3), (13, 1), (13, 5), (249, 2), (10_000, 1)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, threads=threads: set(range(threads)))
        corpus = text(Source(pairs, chunk_rows), Source(pairs[:50] + counted(20), chunk_rows), **THOROUGH)
        guard = LeakGuard({"test": Pairs("test", ["1 2 3", "0 9"], ["2 2", "8 8"])})
        cache = tmp_path / f"{chunk_rows} {threads}"
        data, report = prepare(corpus, numbers(10), guard, drop_leaks=True, cache=cache)
        results.append((rows(data), data.parts, data.content_hash, lasting(report)))
    assert all(result == results[0] for result in results)
    assert min(results[0][3]["left_out"][reason] for reason in REASONS if reason != "wrong script") > 0


def plain(pairs: Lines, held: tuple[set[str], set[str]]) -> list[str | None]:
    """Why each pair leaves, by a loop over text; None: it stays."""
    seen, fates = set(), []
    for pair in pairs:
        source, target = (side or "" for side in pair)
        short, long = sorted(len(side.replace("\x02", "").split()) for side in (source, target))
        fate = (
            ("empty" if not short else None)
            or ("control characters" if "\x02" in source + target else None)
            or ("identical" if source.strip() == target.strip() else None)
            or ("too long" if long > 9 else None)
            or ("ratio" if long > 3 * short else None)
        )
        if not fate:
            fate = "duplicate" if (source, target) in seen else None
            seen.add((source, target))
        fates.append(fate or ("leak" if source in held[0] or target in held[1] else None))
    return fates


def test_what_is_kept_is_what_a_plain_loop_keeps(tmp_path: Path) -> None:
    pairs = dirty(3000, seed=4)
    held = Pairs("test", ["1 2 3", "0 3"], ["2 2", "3 3 3"])
    fates = plain(pairs, (set(held.source), set(held.target)))
    corpus = text(Source(pairs, 101), **THOROUGH)
    data, report = prepare(corpus, numbers(10), LeakGuard({"test": held}), drop_leaks=True, cache=tmp_path)
    assert [data.row[i] for i in range(len(data))] == [row for row, fate in enumerate(fates) if fate is None]
    assert report["left_out"] == {reason: fates.count(reason) for reason in REASONS}
    assert report["leaks"]["training_pairs"] >= fates.count("leak") > 0
    for i in range(len(data)):
        assert (data.source_text[i], data.target_text[i]) == pairs[data.row[i]]
        assert data.source[i].tolist() == [int(word) + 3 for word in data.source_text[i].split()] + [2]


def test_the_numbers_of_the_report_add_up(tmp_path: Path) -> None:
    sources = [Source(dirty(size, seed=size), 37) for size in (300, 1, 500)]
    data, report = prepare(text(*sources, **THOROUGH), numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert report["read"] == 801
    assert report["kept"] == len(data) == sum(data.parts) == sum(report["parts"].values())
    assert report["read"] == report["kept"] + sum(report["left_out"].values())
    assert list(report["parts"]) == ["part 0", "part 1", "part 2"]
    assert list(report["parts"].values()) == data.parts
    assert report["leaks"] is None
    (folder,) = built(tmp_path)
    assert {**json.loads((folder / "report.json").read_text()), "folder": str(folder)} == report
    assert report["bytes"] == (folder / "pairs.arrow").stat().st_size


def test_examples_name_part_and_line_truly(tmp_path: Path) -> None:
    sources = [Source(dirty(200, seed=1), 7), Source([("é" * 300, ""), *dirty(60, seed=2)], 7)]
    _, report = prepare(text(*sources, **THOROUGH), numbers(10), None, drop_leaks=False, cache=tmp_path)
    for reason, count in report["left_out"].items():
        examples = report["examples"].get(reason, [])
        assert len(examples) == min(count, EXAMPLES), reason
        for example in examples:
            pair = sources[int(example["part"].removeprefix("part "))].pairs[example["line"] - 1]
            shown = tuple((side or "")[:EXAMPLE_CHARACTERS] for side in pair)
            assert (example["source"], example["target"]) == shown
    assert report["left_out"]["empty"] > EXAMPLES
    _, report = prepare(
        text(sources[1], drop_control_characters=True), numbers(10), None, drop_leaks=False, cache=tmp_path
    )
    assert report["examples"]["empty"][0] == {"part": "part 0", "line": 1, "source": "é" * 200, "target": ""}


def test_empty_chunks_and_empty_parts_are_nothing(tmp_path: Path) -> None:
    nothing = Source([])
    gap = LazyPairs("gap", "gap", lambda: Pairs("gap", [], []))
    data, report = prepare(
        text(nothing, Source(counted(3)), gap), numbers(10), None, drop_leaks=False, cache=tmp_path / "a"
    )
    assert data.parts == [0, 3, 0]
    assert report["name"] == "toy, toy, gap"

    class Gaps(Source):
        def chunks(self) -> Iterator[pa.RecordBatch]:
            for chunk in super().chunks():
                yield chunk.slice(0, 0)
                yield chunk

    again, _ = prepare(text(Gaps(counted(30), 7)), numbers(10), None, drop_leaks=False, cache=tmp_path / "b")
    assert [again.row[i] for i in range(30)] == list(range(30))


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300,000 pairs in 60 chunks: few chunks are read ahead of what is written, and Arrow holds few at any time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    settled, ahead, held = 0, [], []
    settle = Sieve.settle

    def counting(sieve: Sieve, sifted: Sifted) -> pa.RecordBatch:
        nonlocal settled
        settled += 1
        return settle(sieve, sifted)

    class Generated(Source):
        def chunks(self) -> Iterator[pa.RecordBatch]:
            for number in range(60):
                ahead.append(number - settled)
                held.append(pa.total_allocated_bytes())
                first = number * 5_000
                source = [
                    f"{i % 10} {i // 10 % 10} {i // 1000 % 10} {'0 ' * (i % 5)}" for i in range(first, first + 5_000)
                ]
                yield pa.record_batch([arrow_text(source), arrow_text(source)], schema=SCHEMA)

    monkeypatch.setattr(Sieve, "settle", counting)
    corpus = text(Generated([]), max_len=99)
    data, report = prepare(corpus, numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert len(data) == report["read"] == 300_000
    assert max(ahead) <= 2 + 2, "one for each thread, one in waiting, one that was asked for"
    a_chunk = report["bytes"] / 60
    assert max(held) - held[0] < 12 * a_chunk, "of 60"
