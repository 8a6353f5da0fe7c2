"""Writes CSV for spreadsheets and pandas: a file for each kind of record, with the record's fields as columns."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paceline.core.trace import NAMES, Record


def write(folder: Path, records: Iterable[Record]) -> list[str]:
    """Writes `span.csv`, `applied.csv`, ... of the kinds that occur into `folder`; returns their names.

    Several ranks of one record are written as `0 1 2`. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sheets: dict[str, Any] = {}
    with ExitStack() as files:
        for record in records:
            kind = NAMES[type(record)]
            if kind not in sheets:
                file = files.enter_context((folder / f"{kind}.csv").open("w", newline="", encoding="utf-8"))
                sheets[kind] = csv.writer(file)
                sheets[kind].writerow([field.name for field in dataclasses.fields(record)])
            values = (getattr(record, field.name) for field in dataclasses.fields(record))
            sheets[kind].writerow([" ".join(map(str, v)) if isinstance(v, tuple) else v for v in values])
    return [f"{kind}.csv" for kind in sheets]
