"""Hooks hear of everything, in order, and no fault of theirs is one of the run."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.errors import ConfigError
from paceline.core.trace import Ended, Record
from paceline.observe.trace.hooks import Hooks, load

RECORDS = [Ended(at=float(n), reason="") for n in range(500)]


def test_every_hook_hears_of_every_record_in_order_and_not_on_the_caller_s_thread() -> None:
    heard: list[tuple[Record, str]] = []
    others: list[Record] = []
    with Hooks([lambda r: heard.append((r, threading.current_thread().name)), others.append]) as hooks:
        for record in RECORDS:
            hooks.append(record)
    assert [record for record, _ in heard] == RECORDS == others
    assert {name for _, name in heard} == {"hooks"}


def test_a_hook_that_raises_is_told_of_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Record] = []
    heard: list[Record] = []

    def broken(record: Record) -> None:
        calls.append(record)
        raise OSError("no route to host")

    with caplog.at_level(logging.WARNING, "paceline"), Hooks([broken, heard.append]) as hooks:
        for record in RECORDS:
            hooks.append(record)
    assert calls == RECORDS[:1]
    assert heard == RECORDS
    [line] = caplog.messages
    assert line.endswith("broken raised OSError: no route to host; it is not called again")


def test_a_slow_hook_holds_up_nobody_and_what_it_misses_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    free, heard = threading.Event(), []

    def slow(record: Record) -> None:
        heard.append(record)
        free.wait(30)

    hooks = Hooks([slow], waiting_max=10, close_seconds=0.01)
    for record in RECORDS:
        hooks.append(record)  # would never come back if it waited
    with caplog.at_level(logging.WARNING, "paceline"):
        hooks.close()
    free.set()
    # one is with the hook, at most, and 10 wait; whether they count as missed depends on when it took the first
    [line] = caplog.messages
    assert line.startswith("hooks were too slow: ")
    assert 489 <= int(line.split()[4]) <= 500


def test_what_cannot_be_loaded_is_named() -> None:
    for name, told in {
        "os": "say module:function",
        "no_such_module:f": "ModuleNotFoundError: No module named 'no_such_module'",
        "os:no_such_name": "no_such_name",
        "os:name": "nothing that can be called, but a str",
    }.items():
        with pytest.raises(ConfigError, match=f"--hook {name}: .*{told}"):
            load(name, "")


def test_a_class_is_made_for_the_run_and_closed_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paceline_test_hook.py").write_text(
        "import pathlib\n"
        "class Log:\n"
        "    def __init__(self, out): self.lines = [out]\n"
        "    def __call__(self, record): self.lines.append(type(record).__name__)\n"
        "    def close(self): pathlib.Path('heard').write_text('\\n'.join(self.lines))\n"
    )
    words = ["simulate", "--scheme", "bsp", "--workers", "2", "--step-ms", "10", "--timing-only", "--seconds", "0.1"]
    assert main([*words, "--out", "run", "--hook", "paceline_test_hook:Log"]) == 0
    heard = (tmp_path / "heard").read_text().splitlines()
    assert heard[0] == "run"
    assert heard.count("Ended") == 1
    assert len(heard) - 1 == len((tmp_path / "run" / "trace.jsonl").read_text().splitlines())
