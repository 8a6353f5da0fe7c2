"""`paceline plot RUN...` draws figures of runs, or writes a report as one HTML file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.commands.summary import found
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.observe.plots import style
from paceline.observe.plots.catalogue import PLATES, Plate, timelines, titled
from paceline.observe.plots.digest import RunDigest, entries

FORMATS = ("png", "svg")
TIMELINE = "timeline"
TIMELINES_MAX = 8
"""At most so many figures of single schemes are drawn, since there is one a run."""
OF_EVALUATIONS = {"accuracy-time", "accuracy-exchange", "accuracy-samples", "target"}
"""Figures that show nothing where nobody evaluated the model."""
EPILOG = """figures:
{figures}
  timeline           what each worker was at in the first steps, a figure for each scheme

examples:
  paceline plot runs/race                              all figures, as PNG, in figures/
  paceline plot seed0 seed1 seed2 --out figures        of several seeds, mean and spread
  paceline plot runs/race --only target,traffic --format svg
  paceline plot runs/race --report report.html         one file to send around; nothing in it is from elsewhere

RUN is as for `paceline summary`. A figure for which the runs have nothing to show is left out, and a line says so. A
scheme has the same colour in all figures.
"""


def main(arguments: list[str]) -> int:
    """Draws figures or the report, and prints the name of each file; returns 0.

    Figures of which the runs have nothing to show are named on stderr. Raises ConfigError for an unknown figure or
    format, for folders without runs, and where a file cannot be written.
    """
    figures = "\n".join(f"  {plate.name:<18} {plate.title}" for plate in PLATES)
    parser = Parser(
        prog="paceline plot",
        usage="paceline plot RUN... [options]",
        description=__doc__,
        epilog=EPILOG.format(figures=figures),
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or of several")
    parser.add_argument("--out", default=None, metavar="DIR", help="folder for the figures (default: figures)")
    parser.add_argument("--format", default="png", metavar="F", help="png, svg or both: png,svg (default: png)")
    parser.add_argument("--only", metavar="NAMES", help="figures to draw, separated by commas (default: all)")
    parser.add_argument("--report", metavar="FILE", help="an HTML report, instead of figures unless --out is given")
    options = parser.parse_all(arguments)
    formats = _words("--format", options.format, FORMATS)
    names = [plate.name for plate in PLATES]
    only = _words("--only", options.only, [*names, TIMELINE]) if options.only else [*names, TIMELINE]
    groups, notes = found(options.runs)
    drawn, more = entries(groups)
    for note in more:
        print(f"paceline: {note}", file=sys.stderr)
    plates = [plate for plate in PLATES if plate.name in only]
    plates += list(timelines(drawn))[:TIMELINES_MAX] if TIMELINE in only else []
    try:
        if options.report:
            from paceline.observe.plots.html_report import report

            # Names of files may hold bytes that are no UTF-8; the page shows them escaped.
            html = report(drawn, plates, [*notes, *more]).encode("utf-8", errors="backslashreplace")
            Path(options.report).write_bytes(html)
            print(options.report)
        if options.out or not options.report:
            _save(drawn, plates, Path(options.out or "figures"), formats)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written ({error.strerror})") from None
    return 0


def _words(flag: str, text: str, known: Sequence[str]) -> list[str]:
    """Returns the words of a list with commas. Raises ConfigError for one that is not `known`."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise ConfigError(f"{flag} {word}: no such thing{nearest(word, known)}")
    return words


def _save(drawn: Sequence[RunDigest], plates: Sequence[Plate], out: Path, formats: Sequence[str]) -> None:
    """Writes each figure in each format, and says on stderr which ones have nothing to show."""
    empty = []
    for plate in plates:
        figure = plate.draw(drawn)
        if figure is None:
            empty.append(plate.name)
            continue
        titled(plate, figure)
        for kind in formats:
            path = out / f"{plate.name}.{kind}"
            style.save(figure, path)
            print(path)
    if empty:
        evaluated = any(digest.evaluations for entry in drawn for digest in entry.digests)
        why = ": nothing was evaluated" if set(empty) <= OF_EVALUATIONS and not evaluated else ""
        print(f"paceline: there is nothing to draw in {', '.join(empty)}{why}", file=sys.stderr)
