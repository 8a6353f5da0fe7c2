"""Writes all figures and tables of several runs into one HTML file without scripts and without links to elsewhere.

Words and lines take their colours from the page, so that the figures are light or dark as the reader's screen is.
Whatever comes from a run (names, settings, reasons, paths) is escaped, and the page's policy forbids scripts
besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from paceline.observe.formatting.number_format import counted
from paceline.observe.plots import style as canvas
from paceline.observe.plots.bars import DOWN, UP
from paceline.observe.plots.catalogue import Plate
from paceline.observe.plots.digest import RunDigest
from paceline.observe.plots.figure_numbers import Numbers
from paceline.observe.plots.style import ACTIVITIES, FAINT, INK, LINES
from paceline.observe.runs.run_folders import Group
from paceline.observe.runs.seed_statistics import standings
from paceline.observe.terminal.comparison import COSTS, RESULTS, cost, result, sentence

DARK = {
    INK: "#e8e6e1",
    FAINT: "#a3a09a",
    "#aaaaaa": "#6d6b67",
    "#e6e6e6": "#34373d",
    LINES[0]: "#4aa8e0",
    LINES[1]: "#f08035",
    LINES[2]: "#2fbf8f",
    LINES[3]: "#e39ac6",
    LINES[6]: "#f5f5f5",
    LINES[7]: "#c09a55",
    ACTIVITIES["waiting"]: "#e0a04a",
    DOWN: "#8fd0f5",
    UP: "#4aa8e0",
}
"""By colour of the figures, the colour that replaces it on a dark page."""
NAME = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(url\(#|href="#)([^)"]+)')
METADATA = re.compile(r"<metadata>.*?</metadata>", re.S)
WHITE_EDGE = re.compile(r"stroke: #ffffff", re.I)

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --card: #ffffff; --line: #d9d7d2; %(light)s }
@media (prefers-color-scheme: dark) { :root { --paper: #17191d; --card: #1f2227; --line: #3a3d44; %(dark)s } }
body { margin: 0 auto; padding: 2rem 1.2rem 4rem; max-width: 68rem; background: var(--paper); color: var(%(ink)s);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; }
.lead { font-size: 1.15rem; max-width: 46rem; } .note, figcaption { color: var(%(faint)s); font-size: .9rem; }
figure { margin: 0; } figcaption { max-width: 46rem; margin-bottom: .5rem; }
.drawn, .table { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem; } svg { display: block; max-width: 100%%; min-width: 38rem; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, td:last-child.words { text-align: left; } th { font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; } nav a { color: inherit; margin-right: 1rem; }
details { margin-top: .5rem; } summary { cursor: pointer; }
@media print { .drawn, .table { break-inside: avoid; } }
"""


def report(entries: Sequence[RunDigest], plates: Sequence[Plate], notes: Sequence[str] = ()) -> str:
    """Returns the whole document: sentence, tables, and every figure that has something to show."""
    groups = [entry.group for entry in entries]
    order = standings(groups)
    drawn = [(plate, figure) for plate in plates if (figure := plate.draw(entries)) is not None]
    links = "".join(f'<a href="#{escape(p.name)}">{escape(p.title)}</a> ' for p, _ in drawn)
    parts = [
        f"<h1>{escape(title(groups))}</h1>",
        f'<p class="lead">{escape(sentence(groups, order))}</p>',
        *(f'<p class="note">Note: {escape(note)}</p>' for note in notes),
        f'<nav aria-label="figures">{links}</nav>',
        section("results", "Results", table(RESULTS, [result(s) for s in order])),
        section("costs", "Time and bytes", table(COSTS, [cost(s.group) for s in order])),
        *(_plate(plate, canvas.svg(figure, transparent=True), plate.numbers(entries)) for plate, figure in drawn),
        section("runs", "Runs", table(("folder", "group", "seed", "driver", "seconds"), _rows(groups))),
    ]
    return _page(title(groups), "\n".join(parts))


def title(groups: Sequence[Group]) -> str:
    """Returns the heading of the page: what was trained, by which schemes, with how many workers."""
    settings = dict.fromkeys(g.first.task for g in groups)
    workers = dict.fromkeys(counted(len(g.first.workers), "worker") for g in groups)
    return f"{', '.join(settings)}: {', '.join(dict.fromkeys(g.first.scheme for g in groups))} ({', '.join(workers)})"


def _rows(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """Returns a row for each run, with its folder."""
    return [
        (str(run.path), group.name, str(run.summary.seed), run.summary.driver, f"{run.summary.seconds:.2f}")
        for group in groups
        for run in group.runs
    ]


def section(name: str, heading: str, inside: str) -> str:
    """Returns a section with a heading; `inside` is HTML."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(heading)}</h2>{inside}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns an HTML table. The first cell of a row is its heading."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(cells[0])}</th>' + "".join(f"<td>{escape(c)}</td>" for c in cells[1:]) + "</tr>"
        for cells in rows
    )
    return f'<div class="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _plate(plate: Plate, svg: str, numbers: Numbers) -> str:
    """Returns a figure with its caption and its numbers, as HTML.

    A screen reader gets the figure as one picture, whose description is the caption; what it shows is the table below.
    """
    name, label = escape(plate.name), escape(plate.title)
    caption = f'<figcaption id="{name}-caption">{escape(plate.caption)}</figcaption>'
    told = f'role="img" aria-label="{label}; its numbers are in the table below" aria-describedby="{name}-caption"'
    picture = f'<div class="drawn" tabindex="0" {told}>{inlined(svg, name)}</div>'
    head, rows = numbers
    below = f"<details><summary>{label}: the numbers</summary>{table(head, rows)}</details>" if rows else ""
    figure = f'<h2 id="{name}">{label}</h2><figure>{caption}{picture}</figure>{below}'
    return f'<section aria-labelledby="{name}">{figure}</section>'


def inlined(svg: str, prefix: str = "f") -> str:
    """Returns an SVG as one of several in a page: without what belongs to a file, with the page's colours and its own
    names.

    `prefix` goes before every name, since two figures in a page may not share one.
    """
    svg = METADATA.sub("", svg[svg.index("<svg") :])
    referred = {name for _, name in REFERENCE.findall(svg)}
    svg = NAME.sub(lambda name: f' id="{prefix}-{name[1]}"' if name[1] in referred else "", svg)
    svg = REFERENCE.sub(rf"\1{prefix}-\2", svg)
    svg = WHITE_EDGE.sub("stroke: var(--card)", svg)
    for colour in DARK:
        svg = re.sub(re.escape(colour), f"var({variable(colour)})", svg, flags=re.I)
    return svg


def variable(colour: str) -> str:
    """Returns the name of the CSS variable that stands for a colour."""
    return f"--c{colour[1:].lower()}"


def _page(heading: str, body: str) -> str:
    """Returns the document around `body`."""
    style = STYLE % {
        "light": " ".join(f"{variable(colour)}: {colour};" for colour in DARK),
        "dark": " ".join(f"{variable(colour)}: {dark};" for colour, dark in DARK.items()),
        "ink": variable(INK),
        "faint": variable(FAINT),
    }
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
