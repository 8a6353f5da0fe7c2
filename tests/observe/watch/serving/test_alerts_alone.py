"""Alerts without a page, until whoever asked for them has gone."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from paceline.core.trace import Evaluated, Span
from paceline.observe.trace.trace_file import TraceWriter
from paceline.observe.watch.serving import alerts_alone
from tests.launch.process_tree import within

PATIENCE_SECONDS = 60.0


def test_alerts_are_told_until_the_owner_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts_alone, "LINGER_S", 0.1)
    heard = tmp_path / "heard"
    script = f"import pathlib, sys; pathlib.Path({str(heard)!r}).write_text(sys.stdin.read())"
    with TraceWriter(tmp_path / "trace.jsonl") as writer:
        writer.append(Span(at=1.0, rank=0, activity="computing", seconds=1.0, steps=1, samples=8))
        writer.append(Evaluated(at=1.0, accuracy=0.1, loss=float("nan"), samples=8, seconds=0.0))
    owned, owner = os.pipe()
    with os.fdopen(owned, "rb", buffering=0) as pipe:
        words = [sys.executable, "-c", script]
        thread = threading.Thread(target=alerts_alone.watch_alerts, args=(tmp_path, words), kwargs={"owner": pipe})
        thread.start()
        assert within(PATIENCE_SECONDS, lambda: heard.exists() and bool(heard.read_text()))
        os.close(owner)
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    told = json.loads(heard.read_text())
    assert (told["kind"], told["state"], told["run"]) == ("loss", "begins", str(tmp_path))


def test_a_trace_that_cannot_be_read_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace.jsonl").write_text('{"kind":"nothing"}\n')
    owned, owner = os.pipe()
    with os.fdopen(owned, "rb", buffering=0) as pipe:
        words = (tmp_path, [sys.executable])
        thread = threading.Thread(target=alerts_alone.watch_alerts, args=words, kwargs={"owner": pipe})
        thread.start()
        said: list[str] = []

        def is_told() -> bool:
            said.append(capfd.readouterr().err)
            return "\n" in "".join(said)

        assert within(PATIENCE_SECONDS, is_told)
        os.close(owner)
        thread.join(PATIENCE_SECONDS)
    (line,) = ("".join(said) + capfd.readouterr().err).splitlines()
    assert line.startswith("--alert-hook: ")
    assert "trace.jsonl, line 1: not a trace record" in line
