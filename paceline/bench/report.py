"""Figures as a table to read and as JSON to keep."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.bench.result import Figure
from paceline.core.errors import ConfigError

WIDTH = 100
"""Columns of a table, also where it goes to a file."""


def conditions() -> str:
    """Returns the line above every table: date, cores, and versions of Python and torch."""
    return ", ".join(str(value) for value in _machine().values())


def _machine() -> dict[str, str]:
    """Returns by what a figure was measured, as texts by name."""
    import torch

    return {
        "date": str(datetime.date.today()),
        "cores": f"{os.cpu_count()} cores ({platform.machine()})",
        "python": f"Python {platform.python_version()}",
        "torch": f"torch {torch.__version__}",
    }


def table(figures: Sequence[Figure], *, speed: bool = True) -> str:
    """Returns a table with one line a figure. speed: adds a column of bytes a second."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    rows.add_column("what", no_wrap=True)
    for name in ("reached", "limit", "ratio", *(["GB/s"] if speed else [])):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("the limit is")
    for figure in figures:
        cells = [duration(figure.seconds_median), duration(figure.seconds_limit), f"{figure.ratio:.2f}"]
        if speed:
            cells.append(f"{figure.nbytes / figure.seconds_median / 1e9:.2f}" if figure.nbytes else "")
        rows.add_row(figure.what, *cells, figure.limit)
    console = Console(width=WIDTH, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(rows)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def duration(seconds: float) -> str:
    """Returns seconds for people to read: `1.23 s`, `54.4 ms`, `25.1 us`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def write(path: str, subject: str, figures: Sequence[Figure]) -> None:
    """Writes the figures as JSON. Raises ConfigError when the file cannot be written."""
    whole: dict[str, Any] = {"subject": subject, **_machine(), "figures": [figure.row() for figure in figures]}
    try:
        Path(path).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror}") from None
