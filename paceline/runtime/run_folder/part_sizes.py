"""Keeps in a run's folder how many samples at once each worker's memory holds, where that is less than a mini-batch.

    {"1": 48}

Workers find it out (`runtime/worker/steps/split_backward.py`). Their next incarnations, and a run that goes on, begin
with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from paceline.checkpoint import atomic_file
from paceline.core.files.regular_file import read_regular
from paceline.core.trace import IN_PARTS, Decided, Record
from paceline.runtime.run_folder.result_files import PART_SIZES

BYTES_MAX = 2**22
SAMPLES_MAX = 2**31


class PartSizes:
    """Knows the sizes of one run. `resume`: of the configuration. `write`: writes a file of the run."""

    def __init__(self, out: Path, resume: str, write: Callable[[str, Callable[[Path], None]], bool]) -> None:
        self._out, self._write = out, write
        self._sizes = {} if resume == "never" or "://" in resume else read(out if resume == "auto" else Path(resume))

    def of(self, rank: int) -> int:
        """Returns the samples that the memory of worker `rank` holds at once; 0 where nobody has found an end."""
        return self._sizes.get(rank, 0)

    def begin(self) -> None:
        """Begins the run: the file of an earlier one is no longer there. Raises OSError."""
        (self._out / PART_SIZES).unlink(missing_ok=True)
        self._save()

    def recorded(self, record: Record) -> None:
        """Keeps the size that a worker has found."""
        if isinstance(record, Decided) and (found := IN_PARTS.fullmatch(record.verdict)):
            self._sizes[record.rank] = int(found[1])
            self._save()

    def _save(self) -> None:
        text = json.dumps({str(rank): size for rank, size in sorted(self._sizes.items())})
        if self._sizes:
            self._write(PART_SIZES, lambda path: _put(path, text))


def _put(path: Path, text: str) -> None:
    """Writes a text to a file, all or nothing."""
    atomic_file.write(path, [text.encode()])


def _is_rank(text: str) -> bool:
    """Returns True for the number of a worker."""
    return text.isdecimal() and len(text) < 10


def read(folder: Path) -> dict[int, int]:
    """Returns the sizes in a run's folder, by rank; none where no file has any that can be."""
    try:
        found = json.loads(read_regular(folder / PART_SIZES, BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {int(rank): size for rank, size in pairs if _is_rank(rank) and type(size) is int and 0 < size < SAMPLES_MAX}
