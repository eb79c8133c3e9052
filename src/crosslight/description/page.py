"""A data description for people: as text for a terminal, and as one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from crosslight.description import plots, tables
from crosslight.description.measure import Description
from crosslight.description.tables import Table


@dataclass(frozen=True)
class Figure:
    """A plot, what it shows in a sentence for who does not see it, and its numbers."""

    svg: str
    alt: str
    table: Table


def as_text(description: Description) -> str:
    """All tables, one under the other."""
    found = [
        tables.sizes(description),
        tables.parts(description),
        tables.lengths(description),
        tables.length_histogram(description.train),
        tables.ratio_histogram(description.train),
        tables.batches(description),
        tables.cleaning(description),
        tables.examples(description),
        tables.leaks(description),
        tables.vocabulary(description),
        *map(tables.pieces, description.vocabularies),
        *tables.facts(description),
    ]
    return "\n\n".join([f"{_title(description)}: {_summary(description)}", *(t.as_text() for t in found if t)])


def as_html(description: Description) -> str:
    """A page with plots, each beside its numbers, in light or dark as the reader's system has it."""
    body = "\n".join(
        f'<section aria-labelledby="s{number}"><h2 id="s{number}">{escape(heading)}</h2>{content}</section>'
        for number, (heading, content) in enumerate(_sections(description))
    )
    return document(_title(description), f"<p>{escape(_summary(description))}</p>\n{_cards(description)}\n{body}")


def document(title: str, body: str) -> str:
    """A page of that title and style around an HTML body."""
    heading = escape(title)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{heading}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{heading}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _title(description: Description) -> str:
    return f"{description.name}: {description.source_lang} → {description.target_lang}"


def _summary(description: Description) -> str:
    report, chosen = description.report, description.chosen
    text = (
        f"{report['kept']:,} of {report['read']:,} training pairs are kept; batches of at most "
        f"{description.max_tokens:,} tokens a side make {chosen.updates:,} updates an epoch, "
        f"{tables.percent(chosen.padding)} of their tokens being padding."
    )
    if report["leaks"] and report["leaks"]["training_pairs"]:
        text += f" Training pairs that share a side with sentences to be scored: {report['leaks']['training_pairs']:,}."
    return text


def _cards(description: Description) -> str:
    train, used = description.train, description.vocabularies
    cards = {
        "training pairs": f"{train.pairs:,}",
        "words, both sides": f"{train.source.words + train.target.words:,}",
        "pieces a word": f"{train.source.pieces_per_word:.2f} → {train.target.pieces_per_word:.2f}",
        "pieces a line": f"{train.source.mean:.1f} → {train.target.mean:.1f}",
        "vocabulary": " + ".join(f"{vocabulary.size:,}" for vocabulary in used),
        "updates an epoch": f"{description.chosen.updates:,}",
        "padding": tables.percent(description.chosen.padding),
    }
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in cards.items())
    return f'<dl class="cards">{items}</dl>'


def _sections(description: Description) -> Iterator[tuple[str, str]]:
    train, langs = description.train, (description.source_lang, description.target_lang)
    mixture = tables.parts(description)
    yield (
        "Sizes",
        (_table(mixture) if mixture else "")
        + _table(tables.sizes(description))
        + "<p>Words are what white space separates; pieces are counted without EOS, tags and subword sampling.</p>",
    )
    lengths = "Two histograms of training lines by their number of pieces, source and target."
    joint = "Source length against target length of training pairs as a density, with the line of equal lengths."
    ratio = "A histogram of target pieces over source pieces of training pairs, on a logarithmic scale around 1."
    yield (
        "Lengths",
        _table(tables.lengths(description))
        + figure(Figure(plots.lengths_plot(train), lengths, tables.length_histogram(train)))
        + figure(Figure(plots.ratio_plot(train), ratio, tables.ratio_histogram(train)))
        + figure(Figure(plots.joint_plot(train), joint, tables.joint_lengths(train))),
    )
    padding = "Bars of the share of padding on each side for several budgets of tokens."
    yield "Batches", figure(Figure(plots.batches_plot(description), padding, tables.batches(description)), "pair wide")
    examples, leaks = tables.examples(description), tables.leaks(description)
    yield (
        "Cleaning",
        _table(tables.cleaning(description))
        + (_table(examples, langs) if examples else "<p>Nothing was left out.</p>"),
    )
    yield "Leaks", _table(leaks) if leaks else "<p>Not looked for: data.leaks=ignore.</p>"
    frequency = "The number of times that a piece occurs against its rank, both on logarithmic scales."
    yield (
        "Vocabulary",
        figure(Figure(plots.frequency_plot(description), frequency, tables.vocabulary(description)))
        + _side_by_side(map(tables.pieces, description.vocabularies)),
    )
    yield "Settings", _side_by_side(tables.facts(description))


def figure(shown: Figure, style: str = "pair") -> str:
    """A plot with its sentence, beside its numbers."""
    svg = shown.svg.replace("<svg ", f'<svg role="img" aria-label="{escape(shown.alt)}" ', 1)
    caption = f"<figcaption>{escape(shown.alt)}</figcaption>"
    return f'<div class="{style}"><figure>{svg}{caption}</figure>{_table(shown.table)}</div>'


def _side_by_side(several: Iterable[Table]) -> str:
    return f'<div class="tables">{"".join(map(_table, several))}</div>'


def _table(table: Table, langs: tuple[str, str] | None = None) -> str:
    """An HTML table; `langs` are those of its last two columns, where they hold sentences."""
    spoken = dict(zip(range(len(table.header) - 2, len(table.header)), langs or (), strict=False))

    def cell(kind: str, number: int, text: str) -> str:
        name = ' class="text"' if number in table.texts else ""
        scope = ' scope="col"' if kind == "th" else ""
        content = escape(text)
        if kind == "td" and number in spoken:
            content = f'<bdi lang="{escape(spoken[number])}">{content}</bdi>'
        return f"<{kind}{scope}{name}>{content}</{kind}>"

    def line(kind: str, cells: list[str]) -> str:
        return f"<tr>{''.join(cell(kind, number, text) for number, text in enumerate(cells))}</tr>"

    head, rows = line("th", list(table.header)), "".join(line("td", list(row)) for row in table.rows)
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{escape(table.caption)}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead>{head}</thead><tbody>{rows}</tbody></table></div>"
    )


STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --paper: #fdfdfc; --soft: #5d656d; --line: #d9dcdf;
  --card: #f2f4f5; --source: #1f6fb2; --target: #b54f08; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --paper: #16191c; --soft: #a3abb3; --line: #3a4046; --card: #20252a;
    --source: #6cb2f0; --target: #f0984e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.75rem; padding-top: 0.75rem; border-top: 1px solid var(--line); }
p, figcaption { color: var(--soft); max-width: 46rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 0.6rem; margin: 1.25rem 0; }
.cards div { background: var(--card); border-radius: 0.5rem; padding: 0.6rem 0.8rem;
  display: flex; flex-direction: column; justify-content: space-between; }
.cards dt { color: var(--soft); font-size: 0.85rem; }
.cards dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.5rem; margin: 1.5rem 0;
  align-items: start; }
.wide { grid-template-columns: minmax(0, 40rem); }
@media (max-width: 50rem) { .pair { grid-template-columns: minmax(0, 1fr); } }
figure { margin: 0; }
figcaption { font-size: 0.85rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif !important; }
.tables { display: flex; flex-wrap: wrap; gap: 0.5rem 3rem; align-items: start; }
.table { overflow: auto; margin: 0.75rem 0; }
.pair .table { max-height: 26rem; margin: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; white-space: nowrap; font-weight: 600; padding: 0.25rem 0; }
th, td { padding: 0.2rem 0.7rem 0.2rem 0; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
.text { text-align: left; overflow-wrap: anywhere; }
td { white-space: nowrap; }
td.text { white-space: pre-wrap; min-width: 6rem; }
@media print { .pair .table { max-height: none; } }
"""
"""The colours of the two sides differ in lightness from the paper by more than 4.5 to 1, in light and in dark."""
