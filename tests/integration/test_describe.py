"""`scripts/describe.py` as a user would type it: text files, a run, what training finds in the cache, and mistakes."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import SMALL

Command = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = "scripts/describe.py"
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


def cells(text: str, row: str) -> list[list[str]]:
    """The cells of all rows that begin with the given one."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if line.startswith(f"  {row} ")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments for a corpus of 200 pairs, with an empty side in line 7, a copied validation source in line 9."""
    folder = tmp_path_factory.mktemp("text")
    source = [" ".join(WORDS[i % 7 :] + WORDS[: i % 5]) for i in range(200)]
    target = [line.upper() for line in source]
    target[6], source[8], target[8] = "", "only <here> & there", "NUR <HIER> & DA"
    held_out = ["two three one", "only <here> & there"]
    for name, lines in {"a.en": source, "a.de": target, "v.en": held_out, "v.de": ["ZWEI", "ANDERS"]}.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [
        "data=text_files",
        *(f"data.train.{side}={folder}/a.{lang}" for side, lang in (("source", "en"), ("target", "de"))),
        *(f"data.validation.{side}={folder}/v.{lang}" for side, lang in (("source", "en"), ("target", "de"))),
        "tokenizer.vocab_size=120",
        "tokenizer.hard_vocab_limit=false",
        "batching.max_tokens=100",
    ]


@pytest.fixture(scope="module")
def described(command: Command, files: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the command prints for these files, and the page that it writes."""
    page = tmp_path_factory.mktemp("page") / "new folder" / "page.html"
    done = command(SCRIPT, *files, "cleaning.max_len=30", f"output={page}", real=True)
    assert done.stdout.splitlines()[-1] == str(page)
    return done.stdout, page.read_text(encoding="utf-8")


def test_text_files_are_counted_cleaned_and_searched_for_leaks(described: tuple[str, str]) -> None:
    text, page = described
    assert cells(text, "read")[0] == ["read", "200", "100.00 %"]
    assert cells(text, "left out: empty")[0][1] == "1"
    assert cells(text, "kept")[0][1] == "199"
    assert cells(text, "empty")[0][:2] == ["empty", "train 7"]
    assert cells(text, "validation")[-1] == ["validation", "2", "1", "1", "0", "0"]
    sides = cells(text, "train")
    assert [row[:3] for row in sides[:2]] == [["train", "source", "199"], ["train", "target", "199"]]
    assert "share a side with sentences to be scored: 1." in page


def test_each_budget_has_its_batches_and_the_configured_one_an_arrow(described: tuple[str, str]) -> None:
    text, page = described
    table = text[text.index("Batches of the first epoch") :].splitlines()[2:6]
    rows = [re.split(r"  +", line.strip()) for line in table]
    assert [row[0] for row in rows] == ["50", "→ 100", "200", "400"]
    numbers = [int(row[1]) for row in rows]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == 4
    assert f"<td>{numbers[1]}</td>" in page


def test_what_has_been_described_is_not_prepared_again_by_training(
    command: Command, train: Callable[..., Path], tmp_path: Path
) -> None:
    arguments = [*SMALL, "trainer.max_steps=2", "name=described"]
    cache = tmp_path / "cache"
    done = command(SCRIPT, *arguments, cwd=tmp_path, CROSSLIGHT_CACHE=str(cache))
    assert done.stdout.splitlines()[-1] == "outputs/described.html"
    assert (tmp_path / "outputs" / "described.html").is_file()
    prepared = {path: path.stat().st_mtime_ns for path in (cache / "data").rglob("*.arrow")}
    assert len(prepared) == 1
    run = train(*arguments, CROSSLIGHT_CACHE=str(cache))
    assert {path: path.stat().st_mtime_ns for path in (cache / "data").rglob("*.arrow")} == prepared
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert cells(done.stdout, "sha256 of the text")[0][1] == record["data"]["train"]["sha256"]


def test_a_run_is_described_with_its_own_config_and_tokenizer(command: Command, copy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "moved"
    shutil.copytree(copy_run, run)
    done = command(SCRIPT, f"run={run}", "batching.max_tokens=500")
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert done.stdout.splitlines()[-1] == str(run / "description.html")
    assert (run / "description.html").is_file()
    assert cells(done.stdout, "train")[0][2] == str(record["data"]["train"]["pairs"])
    hashes = [row[1] for row in cells(done.stdout, "sha256")]
    assert {record["tokenizer_sha256"], record["data"]["train"]["sha256"]} <= {hash_.split()[-1] for hash_ in hashes}
    assert "→ 500 " in done.stdout
    assert cells(done.stdout, "kind")[0][1] == "integers, one for both sides"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dtaa=copy"], "dtaa: there is no such setting; did you mean 'data'?"),
        (
            ["data.num_trian=5"],
            "data.num_trian: SyntheticPairs has no parameter 'num_trian'; did you mean 'num_train'?",
        ),
        (["batching.shuffle_buffer=100"], "describe it with batching.shuffle_buffer=null"),
        (["run=nowhere"], "run=nowhere: there is no such folder"),
        (["data.num_train=50", "output=/dev/null/page.html"], "output: /dev/null/page.html cannot be written"),
    ],
)
def test_a_mistake_is_one_sentence(command: Command, arguments: list[str], message: str) -> None:
    done = command(SCRIPT, *arguments, status=2)
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_run_keeps_its_model_and_tokenizer(command: Command, copy_run: Path) -> None:
    done = command(SCRIPT, f"run={copy_run}", "tokenizer.num_symbols=9", status=2)
    assert "with run=… only values of data, cleaning, batching can be changed" in done.stderr


def test_schedules_are_drawn_without_data(command: Command, tmp_path: Path) -> None:
    options = ["scheduler.warmup_steps=50", "trainer.max_steps=400", "optimizer.lr=0.25"]
    done = command(SCRIPT, "scheduler=[cosine,wsd]", *options, "output=new/rates.png", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "new/rates.png"
    assert (tmp_path / "new" / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^ +50  end of warm-up  2.500e-01  2.500e-01$", done.stdout, flags=re.MULTILINE)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]


def test_help_says_how_it_is_called(command: Command) -> None:
    assert "python scripts/describe.py data=…" in command(SCRIPT, "--help").stdout


@pytest.mark.parametrize("value", ["os.system", "${oc.env:HOME}"])
def test_the_config_of_a_run_cannot_run_code(command: Command, copy_run: Path, tmp_path: Path, value: str) -> None:
    run = tmp_path / "foreign"
    shutil.copytree(copy_run, run)
    config = run / "config.yaml"
    changed = config.read_text().replace("crosslight.data.synthetic.SyntheticPairs", value)
    assert value in changed
    config.write_text(changed)
    for more in ([], ["batching.max_tokens=300"]):
        done = command(SCRIPT, f"run={run}", *more, status=2)
        assert "is refused" in done.stderr
        assert "Traceback" not in done.stderr
