"""The last lines of a run's logs, and of nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.observe.watch.panels.log_tail import BYTES_MAX, LINE_MAX, LINES_MAX, log_tail


def run_of(folder: Path, **texts: str) -> Path:
    (folder / "logs").mkdir()
    for at, (name, text) in enumerate(texts.items()):
        path = folder / "logs" / f"{name.replace('_', '-')}.log"
        path.write_text(text)
        os.utime(path, (1000 + at, 1000 + at))
    return folder


def test_it_is_the_log_that_was_written_to_last_unless_another_is_asked_for(tmp_path: Path) -> None:
    run = run_of(tmp_path, worker_0="a\nb\nc\n", worker_1="x\n", server_0="")
    assert log_tail(run, "", 2) == {"names": ["worker-0", "worker-1"], "name": "worker-1", "lines": ["x"]}
    assert log_tail(run, "worker-0", 2)["lines"] == ["b", "c"]
    assert log_tail(run, "server-0", 2)["name"] == "worker-1", "it is empty"


def test_no_other_file_is_read_whatever_the_name(tmp_path: Path) -> None:
    run = run_of(tmp_path, worker_0="mine\n")
    (tmp_path / "secret.log").write_text("secret\n")
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "secret.log")
    for name in ("../secret", "logs/../secret", "/etc/passwd", "secret", "link"):
        assert log_tail(run, name, 5)["lines"] == ["mine"]
    assert log_tail(tmp_path / "nowhere", "", 5) == {"names": [], "name": "", "lines": []}


def test_a_long_log_costs_no_more_than_its_end(tmp_path: Path) -> None:
    line = "z" * (LINE_MAX + 10)
    run = run_of(tmp_path, worker_0="first\n" + f"{line}\n" * 1000 + "\rhalf\rwhole\n\xff")
    lines = log_tail(run, "", 10**6)["lines"]
    assert len(lines) <= min(LINES_MAX, BYTES_MAX // LINE_MAX + 2)
    assert lines[0] == "z" * LINE_MAX, "no line that is cut in two"
    assert lines[-2:] == ["whole", "\xff"]
