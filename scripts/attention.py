"""Draw where a run's decoder looks: `python scripts/attention.py run=outputs/… text="twenty-one" output=map.png`.

Translates the text, prints the translation and writes a picture: one panel a decoder layer (heads averaged), one row
for each piece of the translation. Arguments are `key=value`: `run` (a run folder), `checkpoint`, `text`, `output`
(.png, .svg or .pdf), `target_lang` (for a model of several target languages), `decode.<setting>`.
"""

from crosslight.config.arguments import checked_output, run_script, script_arguments


def main() -> None:
    keys = dict.fromkeys(["run", "checkpoint", "text", "output", "target_lang"], str)
    arguments = script_arguments(__doc__, keys, needed=["run", "text", "output"])
    from crosslight.data.lines import one_line
    from crosslight.inference import draw_attention, load_run

    output = checked_output(arguments["output"])
    run = load_run(arguments["run"], checkpoint=arguments.get("checkpoint"), decode=arguments["decode"])
    line, lang = one_line(arguments["text"]), arguments.get("target_lang")
    print(draw_attention(run, line, str(output), target_lang=lang))


if __name__ == "__main__":
    run_script(main)
