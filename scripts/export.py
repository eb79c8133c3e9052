"""Export a run for CTranslate2: `python scripts/export.py run=outputs/… format=ctranslate2`.

Then `python scripts/translate.py run=outputs/… engine=ctranslate2 < in.txt > out.txt` translates with it. Arguments are
`key=value`: `run` (a run folder), `format` (ctranslate2), `checkpoint` (a file in its checkpoints/; default best.ckpt),
`output` (a folder; default exported/ctranslate2 in the run folder, where translate.py looks). Needs `pip install
ctranslate2`. The folder is all that CTranslate2 needs; an export that is there is replaced.
"""

from pathlib import Path

from crosslight.config.arguments import run_script, script_arguments


def main() -> None:
    keys = dict.fromkeys(["run", "format", "checkpoint", "output"], str)
    arguments = script_arguments(__doc__, keys, needed=["run", "format"])
    from crosslight.export.folder import check_format, write_export
    from crosslight.inference import load_run
    from crosslight.runs.folder import RunFolder

    check_format("format", arguments["format"])
    folder = RunFolder(arguments["run"])
    run = load_run(arguments["run"], checkpoint=arguments.get("checkpoint"))
    checkpoint = folder.checkpoints / arguments.get("checkpoint", folder.best.name)
    output = Path(arguments["output"]) if "output" in arguments else folder.exported / arguments["format"]
    write_export(run.model.cpu(), run.tokenizers, checkpoint, output)
    print(output)


if __name__ == "__main__":
    run_script(main)
