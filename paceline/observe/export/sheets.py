"""CSV: a sheet for each kind of record, with the record's fields as columns, for spreadsheets and pandas."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paceline.core.trace import KINDS, Record, to_dict


def write(folder: Path, records: Iterable[Record]) -> list[str]:
    """`span.csv`, `applied.csv`, ...: of the kinds that occur; their names. Several ranks of a record are `0 1 2`."""
    folder.mkdir(parents=True, exist_ok=True)
    sheets: dict[str, Any] = {}
    with ExitStack() as files:
        for record in records:
            fields = to_dict(record)
            kind = fields.pop("kind")
            if kind not in sheets:
                file = files.enter_context((folder / f"{kind}.csv").open("w", newline="", encoding="utf-8"))
                sheets[kind] = csv.DictWriter(file, [field.name for field in dataclasses.fields(KINDS[kind])])
                sheets[kind].writeheader()
            sheets[kind].writerow({k: " ".join(map(str, v)) if isinstance(v, tuple) else v for k, v in fields.items()})
    return [f"{kind}.csv" for kind in sheets]
