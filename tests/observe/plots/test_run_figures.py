"""The figures, by what is on their axes; and that a PNG of the promised size comes out."""

from __future__ import annotations

import functools
import io
import itertools
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import paceline.schemes  # noqa: F401  registers them
from paceline.core.errors import PacelineError
from paceline.core.trace import Ended, MemberChange
from paceline.observe.plots import style as canvas
from paceline.observe.plots.curves import accuracy
from paceline.observe.plots.digest import entries
from paceline.observe.plots.run_figures import curve, curve_figure, race, race_figure
from paceline.observe.plots.style import ACTIVITIES, LINES
from paceline.observe.runs.run_folders import RunFolder, groups
from paceline.observe.runs.summary import Summary, write_summary
from paceline.observe.trace.trace_file import TraceWriter
from tests.observe.fake_runs import evaluations, summary

MISSED = {"seconds_to_target": None, "test_accuracy": 0.85, "reason": "epochs done"}


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])  # type: ignore[return-value]


def five(workers: int) -> list[tuple[Summary, Any]]:
    schemes = ("bsp", "asp", "ssp", "gsp", "esync")
    seconds = (20.0, 8.0, 15.0, 7.0, 4.0)
    return [
        (summary(name, workers=workers, seconds=t, seconds_to_target=t), evaluations(t))
        for name, t in zip(schemes, seconds, strict=True)
    ]


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def boxes(figure: Any, texts: list[Any]) -> list[Any]:
    figure.savefig(io.BytesIO(), format="png")  # only drawing lays the figure out
    return [text.get_window_extent() for text in texts if text.get_text()]


def test_a_finished_run_becomes_a_png_of_1400_by_900(tmp_path: Path) -> None:
    write_summary(summary(), tmp_path / "summary.json")
    with TraceWriter(tmp_path / "trace.jsonl") as writer:
        for record in evaluations():
            writer.append(record)
    curve(tmp_path, tmp_path / "figures" / "curve.png")
    assert png_size(tmp_path / "figures" / "curve.png") == (1400, 900)
    assert [entry.name for entry in (tmp_path / "figures").iterdir()] == ["curve.png"]


def test_a_race_becomes_a_png_of_1400_by_900_and_leaves_pyplot_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # to import it is an error from here on
    race(five(4), tmp_path / "race.png")
    assert png_size(tmp_path / "race.png") == (1400, 900)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="summary cannot be read"):
        curve(tmp_path, tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()


def test_the_curve_shows_every_evaluation_the_target_and_the_moment_it_was_reached() -> None:
    records = evaluations()
    at = records[8].at
    top, _ = curve_figure(summary(seconds_to_target=at, target_accuracy=records[8].accuracy), records).axes
    line, mark, target = top.lines
    assert list(line.get_xdata()) == [e.at for e in records]
    assert list(line.get_ydata()) == [e.accuracy for e in records]
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([at], [records[8].accuracy])
    assert set(target.get_ydata()) == {records[8].accuracy}
    assert top.get_xlim()[1] >= 10


def test_a_missed_target_has_a_line_and_no_mark() -> None:
    figure = curve_figure(summary(**MISSED), evaluations(top=0.85))
    top = figure.axes[0]
    assert len(top.lines) == 2
    assert legend(top) == ["bsp  missed, 0.850", "target 0.9"]
    assert top.get_ylim()[1] > 0.9


def test_a_race_in_which_nothing_was_evaluated_has_no_empty_panel() -> None:
    runs = [(summary(name, test_accuracy=None, seconds_to_target=None), []) for name in ("bsp", "asp")]
    (bars,) = race_figure(runs).axes
    assert len(bars.patches) == 3 * 4 * 2


def test_a_second_run_in_one_trace_is_drawn_alone() -> None:
    between = [Ended(at=5.0, reason="epochs"), MemberChange(at=0.0, party="worker 0", event="joined")]
    top = curve_figure(summary(), [*evaluations(5.0), *between, *evaluations(10.0)]).axes[0]
    assert list(top.lines[0].get_xdata()) == [e.at for e in evaluations(10.0)]


def test_evaluations_are_drawn_by_their_moment_in_whatever_order_they_were_made() -> None:
    records = evaluations(5.0)
    top = curve_figure(summary(), [*records[::-1][:3], Ended(at=5.0, reason="target"), *records[:-3]]).axes[0]
    assert list(top.lines[0].get_xdata()) == [e.at for e in records]


@pytest.mark.parametrize("workers", [1, 4, 32])
def test_there_is_one_full_bar_per_worker(workers: int) -> None:
    _, bottom = curve_figure(summary(workers=workers), evaluations()).axes
    assert len(bottom.patches) == 3 * workers
    widths = [sum(p.get_width() for p in bottom.patches[i::workers]) for i in range(workers)]
    assert widths == pytest.approx([100.0] * workers)
    assert legend(bottom) == list(ACTIVITIES)
    assert sum(bool(label.get_text()) for label in bottom.get_yticklabels()) <= 12


def test_the_race_draws_one_line_a_scheme_and_ranks_them_in_the_legend() -> None:
    top, bottom = race_figure(five(4)).axes
    assert legend(top) == ["esync  4.0 s", "gsp  7.0 s", "asp  8.0 s", "ssp  15.0 s", "bsp  20.0 s", "target 0.9"]
    curves = [line for line in top.lines if len(line.get_xdata()) > 2]
    assert len({line.get_color() for line in curves}) == 5
    assert [label.get_text() for label in bottom.get_xticklabels()] == ["esync", "gsp", "asp", "ssp", "bsp"]
    assert len(bottom.patches) == 3 * 4 * 5


def test_a_scheme_has_its_colour_in_every_race_whoever_wins() -> None:
    def colours(runs: list[tuple[Summary, Any]]) -> list[str]:
        return [line.get_color() for line in race_figure(runs).axes[0].lines if len(line.get_xdata()) > 2]

    slower = [(summary("bsp", seconds_to_target=1.0), evaluations(1.0)), *five(4)[1:]]
    assert colours(five(4)) == colours(slower) == colours(five(4)[::-1])[::-1]
    assert colours(five(4)[3:]) == colours(five(4))[3:]


def test_a_race_and_plot_give_a_scheme_the_same_colour_dashes_and_mark() -> None:
    names = ("esync", "weedout", "bsp", "lbbsp", "a-scheme-of-their-own")
    runs = [(summary(name, parameters={"p": name}), evaluations()) for name in names]
    race_lines = [line for line in race_figure(runs).axes[0].lines if len(line.get_xdata()) > 2]
    found = [RunFolder(path=Path(s.scheme), summary=s, records=functools.partial(list, e)) for s, e in reversed(runs)]
    drawn, _ = entries(groups(found))
    plot = accuracy(drawn, "time")
    assert plot is not None
    plot_lines = [line for line in plot.axes[0].lines if len(line.get_xdata()) > 2]

    def look(line: Any) -> tuple[str, str]:
        return line.get_color(), line.get_linestyle()

    assert [look(line) for line in race_lines] == [look(line) for line in plot_lines[::-1]]
    assert (
        len({canvas.mark(entry.look)["marker"] for entry in drawn if canvas.look(entry.look)["color"] == LINES[0]}) == 2
    )


@pytest.mark.parametrize("workers", [1, 3, 4, 32])
def test_no_label_under_the_bars_covers_another_or_leaves_the_figure(workers: int) -> None:
    figure = race_figure(five(workers))
    bottom = figure.axes[1]
    texts = [*bottom.get_xticklabels(), *bottom.get_xticklabels(minor=True)]
    extents = boxes(figure, texts)
    assert len(extents) == 5 + (5 * workers if workers < 32 else 0)
    assert not [pair for pair in itertools.combinations(extents, 2) if pair[0].overlaps(pair[1])]
    assert all(box.x0 >= 0 and box.x1 <= 1400 and box.y0 >= 0 for box in extents)


def test_ten_runs_of_one_scheme_are_told_apart_by_their_parameters_within_the_figure() -> None:
    runs = [(summary("ssp", parameters={"staleness": s, "weighting": "inverse"}), evaluations()) for s in range(10)]
    figure = race_figure(runs)
    top, bottom = figure.axes
    assert legend(top)[1].startswith("ssp staleness=1 ")
    extents = boxes(figure, [*bottom.get_xticklabels(), *top.get_legend().get_texts(), top.texts[0]])
    assert all(box.x0 >= 0 and box.x1 <= 1400 and box.y0 >= 0 and box.y1 <= 900 for box in extents)


def test_a_race_of_one_and_of_none_can_be_drawn(tmp_path: Path) -> None:
    race([(summary(workers=1, target_accuracy=None, seconds_to_target=None), evaluations())], tmp_path / "one.png")
    race([], tmp_path / "none.png")
    assert png_size(tmp_path / "one.png") == png_size(tmp_path / "none.png") == (1400, 900)
