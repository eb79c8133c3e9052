"""Score a run on its test sets: `python scripts/evaluate.py run=outputs/…`.

The numbers equal those that training printed. Arguments are `key=value`: `run` (a run folder), `checkpoint` (a file in
its checkpoints/; default best.ckpt), `split` (`test` or `validation`), `source` and `reference` (files to score
instead), `data` and `data.<setting>` (another data set of conf/data, with the run's tokenizer),
`decode.<setting>` (such as `decode.beam_size=5`), `output` (a file for the hypotheses), `target_lang` (for files and a
model of several target languages).
"""

from crosslight.config.arguments import checked_output, run_script, script_arguments
from crosslight.errors import ConfigError

KEYS = dict.fromkeys(["run", "checkpoint", "split", "source", "reference", "data", "output", "target_lang"], str)


def main() -> None:
    arguments = script_arguments(__doc__, KEYS, needed=["run"])
    from crosslight.data.lines import write_lines
    from crosslight.inference import evaluate, load_run, test_sets
    from crosslight.recording import score_table

    run = load_run(arguments["run"], checkpoint=arguments.get("checkpoint"), decode=arguments["decode"])
    split = "test" if "source" in arguments else arguments.get("split", "test")
    table, sets = {}, test_sets(run, arguments)
    if "output" in arguments and len(sets) > 1:
        raise ConfigError(f"output: one file cannot hold the translations of {', '.join(sets)}")
    output = checked_output(arguments["output"]) if "output" in arguments else None
    for name, pairs in sets.items():
        result = evaluate(run, pairs)
        table[name] = {metric: score._asdict() for metric, score in sorted(result.scores.items())}
        if output:
            write_lines(output, result.hypotheses)
    print(score_table({split: table}))


if __name__ == "__main__":
    run_script(main)
