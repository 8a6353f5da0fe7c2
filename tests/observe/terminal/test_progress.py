"""What is seen on terminals of all kinds while a run goes on."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

import pytest
from rich.console import Console

from paceline.observe.terminal.progress import (
    LINES_MAX,
    Lines,
    LiveView,
    PlainView,
    ProgressSnapshot,
    make_display,
    plain_line,
)
from paceline.observe.terminal.worker_table import cells_of, live_table
from tests.observe.fake_runs import row, snapshot


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def text_of(shown: ProgressSnapshot, width: int = 80, **options: Any) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(live_table(shown, **options))
    return console.export_text()


def test_a_plain_line_says_it_all() -> None:
    assert plain_line(snapshot(2)) == (
        "[esync]  12.0 s  epoch 3.1  accuracy 0.801 (target 0.9)  1520 samples/s  waiting 0:31% 1:31%"
        "  45% done  14.2 s left"
    )


def test_a_plain_line_leaves_out_what_is_not_known() -> None:
    unknown = snapshot(0, accuracy=None, fraction_done=None, seconds_left=None, elapsed_s=0.0)
    assert plain_line(unknown) == "[esync]  0.00 s  epoch 3.1  0 samples/s"


def test_a_plain_line_of_many_workers_gives_the_spread() -> None:
    workers = tuple(row(rank, waiting=rank / 100) for rank in range(32))
    assert "waiting 0% to 31%, median 16%, of 32 workers" in plain_line(snapshot(workers=workers))


def test_plain_lines_come_at_the_readers_pace_and_the_last_one_always() -> None:
    stream, clock = io.StringIO(), Clock()
    display = PlainView(stream, 5.0, clock)
    for second in range(12):
        clock.now = 100.0 + second
        display.show(snapshot(elapsed_s=float(second)))
    display.close()
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["0.00", "5.0", "10.0", "11.0"]
    display.close()
    assert len(stream.getvalue().splitlines()) == 4


@contextlib.contextmanager
def full_pipe() -> Iterator[tuple[TextIO, int]]:
    """Its end for writing, and the other one, of which nobody has read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(1 << 16)):
            pass
    os.set_blocking(writing, True)
    with os.fdopen(writing, "w") as stream:
        yield stream, reading
    os.close(reading)


def test_nobody_waits_for_a_reader_who_takes_nothing_and_what_matters_is_kept_for_it() -> None:
    with full_pipe() as (stream, reading):
        clock = Clock()
        display = PlainView(stream, 5.0, clock)
        display.begin(["one", "two"])
        for second in range(20):
            clock.now += second
            display.show(snapshot(elapsed_s=float(second)))
        display.begin(["worker 1 is lost"])
        os.set_blocking(reading, False)
        with contextlib.suppress(BlockingIOError):
            while os.read(reading, 1 << 20):
                pass
        clock.now += 5.0
        display.show(snapshot(elapsed_s=99.0))
        lines = os.read(reading, 1 << 20).decode().splitlines()
    assert lines[:3] == ["one", "two", "worker 1 is lost"]
    assert [line.split()[1] for line in lines[3:]] == ["99.0"]


def test_of_the_lines_that_nobody_takes_there_are_never_more_than_a_thousand() -> None:
    with full_pipe() as (stream, reading):
        lines = Lines(stream)
        for number in range(3 * LINES_MAX):
            lines.say(str(number))
        os.read(reading, 1 << 24)
        assert not lines.behind
        told = os.read(reading, 1 << 20).decode().split()
    assert (len(told), told[-1]) == (LINES_MAX, str(3 * LINES_MAX - 1))


def test_lines_may_be_said_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    lines, both = Lines(stream), threading.Barrier(2, timeout=10.0)

    def room(of: TextIO) -> bool:  # here another thread may have its turn
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.05)
        return True

    monkeypatch.setattr("paceline.observe.terminal.progress.has_room", room)
    with ThreadPoolExecutor(2) as threads:
        for said in [threads.submit(lines.say, name) for name in "ab"]:
            said.result()
    assert sorted(stream.getvalue().split()) == ["a", "b"]


def test_how_a_run_is_set_up_is_said_first_on_every_kind_of_terminal() -> None:
    lines = ["10 parameters on 2 servers: [70 %], 30 %", "exchange: over TCP"]
    stream = io.StringIO()
    plain = PlainView(stream)
    plain.begin(lines)
    assert stream.getvalue().splitlines() == lines
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    live = LiveView(console)
    live.begin(lines)
    live.close()
    assert console.export_text().splitlines()[:2] == lines


def test_every_worker_has_a_row_that_fits_80_columns_uncut() -> None:
    lines = text_of(snapshot(16)).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert not [line for line in lines if "…" in line]
    first = next(line for line in lines if line.startswith("   0"))
    assert first.split() == [
        "0",
        "cuda:0",
        "x1",
        "12.3k",
        "1500",
        "███████▓░░░░",
        "60%",
        "9%",
        "31%",
        "1.2/7",
        "waiting",
    ]
    assert len([line for line in lines if "cuda:0" in line]) == 16


def test_the_header_tells_scheme_time_accuracy_and_what_is_left() -> None:
    lines = text_of(snapshot()).splitlines()
    assert lines[0].rstrip() == "esync  12.0 s  epoch 3.1  accuracy 0.801 of 0.9  1520 samples/s"
    assert lines[1].split()[-4:] == ["45%", "14.2", "s", "left"]
    assert "target 0.9" in text_of(snapshot(accuracy=None))
    assert "%" not in text_of(snapshot(0, fraction_done=None))


def test_columns_that_say_nothing_are_left_out() -> None:
    plain = tuple(row(rank, slowdown=1.0, staleness_mean=None, staleness_max=None, state="") for rank in range(2))
    shown = text_of(snapshot(workers=plain))
    assert not [head for head in ("slow", "hidden", "stale", "state") if head in shown]
    assert all(head in text_of(snapshot(2)) for head in ("slow", "stale", "state"))


def test_a_worker_that_communicates_while_it_computes_shows_how_much() -> None:
    lines = text_of(snapshot(workers=(row(0, hidden=0.83), row(1, hidden=None)))).splitlines()
    assert any("hidden" in line.split() for line in lines)
    assert "83%" in next(line for line in lines if line.startswith("   0"))
    assert max(len(line) for line in lines) <= 80


def test_of_many_workers_the_slowest_the_fastest_and_all_together_are_shown() -> None:
    lines = text_of(snapshot(32)).splitlines()
    ranks = [line.split()[0] for line in lines if "cuda:0" in line]
    assert ranks == ["31", "30", "29", "28", "27", "4", "3", "2", "1", "0"]
    assert [line for line in lines if line.strip() == "22 more"]
    everyone = next(line for line in lines if line.split()[:1] == ["all"]).split()
    assert everyone[1] == "32"
    assert everyone[-4:] == ["60%", "9%", "31%", "1.2/7"]


def test_without_unicode_the_bar_is_of_letters() -> None:
    shown = text_of(snapshot(32, fraction_done=None), ascii_only=True)
    assert "#######=...." in shown
    assert not [c for line in shown.splitlines() for c in line if ord(c) > 127 and c != "─"]


@pytest.mark.parametrize(
    ("shares", "cells"),
    [([1.0, 0, 0], [12, 0, 0]), ([1 / 3] * 3, [4, 4, 4]), ([0.98, 0.01, 0.01], [12, 0, 0]), ([0, 0, 0], [0, 0, 0])],
)
def test_a_bar_has_as_many_cells_as_its_shares_fill(shares: list[float], cells: list[int]) -> None:
    assert cells_of(shares, 12) == cells


def test_a_pipe_gets_lines_and_a_terminal_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(make_display(io.StringIO(), 1.0), PlainView)
    leader, follower = os.openpty()
    with open(leader, "rb"), open(follower, "w") as terminal:
        assert isinstance(make_display(terminal, 1.0), LiveView)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(make_display(terminal, 1.0), PlainView)


def test_the_live_view_draws_and_leaves_the_last_snapshot_on_the_screen() -> None:
    stream, clock = io.StringIO(), Clock()
    display = LiveView(Console(file=stream, force_terminal=True, width=80, height=40, _environ={}), clock=clock)
    display.show(snapshot(elapsed_s=1.0))
    display.show(snapshot(elapsed_s=77.0))
    assert "77.0 s" not in stream.getvalue()
    display.close()
    assert "77.0 s" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[?25h"), "the cursor is visible again"


def test_a_view_closed_before_anything_was_shown_shows_nothing() -> None:
    stream = io.StringIO()
    LiveView(Console(file=stream, force_terminal=True, width=80, _environ={})).close()
    PlainView(stream).close()
    assert stream.getvalue() == ""
