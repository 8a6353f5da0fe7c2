"""`paceline plot`: what is on the figures' axes, for any number of seeds and workers, and what the report holds."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.core.errors import PacelineError
from paceline.core.trace import Applied, Record, Span
from paceline.observe.plots import bars, curves, staleness, time_shares
from paceline.observe.plots.catalogue import PLATES, ROWS_MAX, chosen, timelines
from paceline.observe.plots.digest import RunDigest, digest, entries
from paceline.observe.plots.html_report import DARK, inlined, report
from paceline.observe.plots.style import spread_out, svg
from paceline.observe.runs.run_folders import RunFolder, groups
from paceline.observe.runs.summary import write_summary
from paceline.observe.trace.trace_file import TraceWriter
from tests.observe.fake_runs import evaluations, summary, worker


def spans(workers: int) -> list[Record]:
    """One step and one exchange a second, for ten seconds."""
    return [
        Span(at=at + 1.0, rank=rank, activity="computing", seconds=1.0, steps=1, samples=32, exchanges=1)
        for at in range(10)
        for rank in range(workers)
    ]


def run(scheme: str, seed: int = 0, records: list[Record] | None = None, **changed: Any) -> RunFolder:
    facts = changed.pop("facts", {})
    kept = [*evaluations(), *spans(4)] if records is None else records
    s = summary(scheme, seed=seed, **changed)
    return RunFolder(path=Path(f"{scheme}{seed}"), summary=s, facts=facts, records=lambda: kept)


def drawn(*runs: RunFolder) -> list[RunDigest]:
    return entries(groups(runs))[0]


def words(figure: Any) -> list[str]:
    texts = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [text.get_text() for text in texts if text.get_text()]


def test_the_mean_over_seeds_goes_as_far_as_all_of_them_do() -> None:
    xs, means, deviations = curves.mean_line([[(0.0, 0.0), (10.0, 1.0)], [(2.0, 0.4), (6.0, 0.8)]])
    assert (xs[0], xs[-1]) == (2.0, 6.0)
    assert (means[0], means[-1]) == (pytest.approx(0.3), pytest.approx(0.7))
    assert deviations[0] == pytest.approx(0.1 * 2**0.5)


def test_several_seeds_are_one_thick_line_a_band_and_a_thin_line_each() -> None:
    figure = curves.accuracy(drawn(run("bsp", 0), run("bsp", 1), run("esync", 0)), by="time")
    assert figure is not None
    [axes] = figure.axes
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert (len(thin), len(axes.collections)) == (2, 1)
    assert {"bsp", "esync"} <= set(words(figure))


def test_accuracy_by_exchange_counts_those_of_a_worker_and_by_samples_those_of_all() -> None:
    [entry] = drawn(run("bsp"))
    by_exchange, by_samples = (curves.accuracy([entry], by=by).axes[0].lines[0] for by in ("exchange", "samples"))
    assert list(by_exchange.get_xdata()) == list(range(11))
    assert list(by_samples.get_xdata()) == [1000 * n for n in range(11)]


def test_data_dealt_out_in_another_way_have_a_panel_of_their_own() -> None:
    by_class = {"facts": {"data.partition": "class"}}
    figure = curves.accuracy(drawn(run("bsp"), run("bsp", **by_class)), by="time")
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "partition uniform: i.i.d.",
        "partition class: not i.i.d.",
    ]


def test_what_the_runs_do_not_have_is_no_figure() -> None:
    bare = drawn(run("bsp", records=[], bytes_up=0, bytes_down=0, seconds_to_target=None, test_accuracy=None))
    assert {p.name for p in PLATES if p.draw(bare) is None} == {
        "accuracy-time", "accuracy-exchange", "accuracy-samples", "target", "traffic", "staleness"
    }  # fmt: skip


def test_the_time_to_the_target_says_how_many_times_sooner_and_how_many_missed_it() -> None:
    figure = bars.to_target(
        drawn(
            run("bsp", 0, seconds_to_target=20.0),
            run("esync", 0, seconds_to_target=5.0),
            run("esync", 1, seconds_to_target=None),
        )
    )
    assert {"20.0 s  baseline", "5.0 s  ×4.0  (1 of 2 missed it)"} <= set(words(figure))


def test_traffic_is_shown_both_ways() -> None:
    figure = bars.traffic(drawn(run("bsp", seconds=10.0, bytes_up=20_000_000, bytes_down=30_000_000)))
    assert {"2.0 MB/s, 20.0 MB in all", "3.0 MB/s, 30.0 MB in all"} <= set(words(figure))


def test_staleness_is_a_share_of_the_contributions_to_one_shard() -> None:
    updates = [
        Applied(at=1.0, shard=shard, ranks=ranks, version=1, staleness=late, weight=1.0, samples=1)
        for shard in (0, 1)
        for ranks, late in (((0, 1, 2), 0), ((0,), 4))
    ]
    figure = staleness.staleness(drawn(run("asp", records=[*updates])))
    assert figure is not None
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in figure.axes[0].patches}
    assert heights == {0: 75.0, 4: 25.0}
    assert "mean 1.0, largest 4" in words(figure)


def test_a_thousand_workers_become_a_line_and_the_ends_of_a_timeline() -> None:
    many = tuple(worker(rank, rank % 10 / 20, steps=1 + rank, seconds_computing=5.0) for rank in range(1000))
    [entry] = drawn(RunFolder(path=Path("k"), summary=replace(summary(), workers=many), records=lambda: spans(1000)))
    figure = time_shares.computing([entry])
    assert figure is not None
    ys = list(figure.axes[0].lines[0].get_ydata())
    assert len(ys) == 1000
    assert ys == sorted(ys)
    ranks = chosen(entry.digests[0])
    assert len(ranks) == ROWS_MAX
    assert ranks == [*range(ROWS_MAX // 2), *range(1000 - ROWS_MAX // 2, 1000)]
    [plate] = timelines([entry])
    assert plate.draw([entry]) is not None


def test_labels_keep_their_order_and_lie_on_nobody() -> None:
    moved = spread_out([0.5, 0.5, 0.5, 0.98, 0.99], 0.05)
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(moved))
    assert moved[-1] == 1.0


def test_a_trace_that_is_missing_costs_its_curves_only() -> None:
    def gone() -> list[Record]:
        raise PacelineError("a/trace.jsonl: the trace cannot be read (No such file or directory)")

    [entry], notes = entries(groups([RunFolder(path=Path("a"), summary=summary(), records=gone)]))
    assert notes == ["a/trace.jsonl: the trace cannot be read (No such file or directory); in tables and bars only"]
    assert curves.accuracy([entry], by="time") is None
    assert bars.throughput([entry]) is not None


# ---- the report ----------------------------------------------------------------------------------------------
class Page(HTMLParser):
    """Which elements there are, and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.refers += [v for k, v in attrs if v and k in ("src", "href", "xlink:href", "srcset", "action", "data")]
        self.names += [v for k, v in attrs if v and k == "id"]


EVIL = "</text><script>alert(1)</script>$x$"


def test_the_report_asks_nobody_for_anything_and_escapes_every_name() -> None:
    named = run("bsp", facts={"data.directory": EVIL, "data.partition": "class"}, reason=EVIL)
    there = drawn(named, run("bsp"), run("esync", model=EVIL))
    text = report(there, [*PLATES, *timelines(there)], [EVIL])
    page = Page(text)
    assert "script" not in page.tags
    assert page.tags.count("svg") >= 6
    assert all(reference.startswith("#") for reference in page.refers)
    assert len(page.names) == len(set(page.names))
    assert "url(http" not in text
    assert "@import" not in text
    assert "&lt;script&gt;" in text
    assert "$x$" in text  # as it is written, and not as a formula


def test_what_a_figure_refers_to_is_in_it() -> None:
    text = inlined(svg(curves.accuracy(drawn(run("bsp", 0), run("bsp", 1)), by="time")))
    wanted = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'xlink:href="#([^"]+)"', text))
    assert wanted
    assert wanted <= set(re.findall(r'id="([^"]+)"', text))


def test_words_and_axes_take_their_colours_from_the_page() -> None:
    text = inlined(svg(curves.accuracy(drawn(run("bsp")), by="time")))
    assert not any(re.search(colour, text, re.I) for colour in DARK)
    assert "var(--c222222)" in text


def test_the_command_writes_figures_and_a_report_and_names_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_summary(summary("bsp"), tmp_path / "a" / "summary.json")
    with TraceWriter(tmp_path / "a" / "trace.jsonl") as trace:
        for record in [*evaluations(), *spans(4)]:
            trace.append(record)
    only = ["--only", "accuracy-time,staleness", "--format", "png,svg", "--out", str(tmp_path / "f")]
    assert main(["plot", str(tmp_path / "a"), *only, "--report", str(tmp_path / "r.html")]) == 0
    assert {path.name for path in (tmp_path / "f").iterdir()} == {"accuracy-time.png", "accuracy-time.svg"}
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "there is nothing to draw in staleness" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "a"), "--only", "trafic"]) == 2
    assert "did you mean 'traffic'?" in capsys.readouterr().err


def test_a_digest_keeps_of_the_spans_those_of_the_first_steps_only() -> None:
    kept = digest(run("bsp", records=spans(4), seconds=10.0)).begin
    assert 0 < len(kept) < len(spans(4))
