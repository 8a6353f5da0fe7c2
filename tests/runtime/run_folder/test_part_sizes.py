"""What a run's folder keeps of memory that was exhausted: for restarts, and for a run that goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.core.trace import Decided, in_parts_of
from paceline.runtime.run_folder.part_sizes import PartSizes, read
from paceline.runtime.run_folder.result_files import PART_SIZES

HUGE, DEEP = '{"' + "9" * 5000 + '": 48, "1": ' + "9" * 30 + "}", "[" * 100_000


def sizes(out: Path, resume: str = "auto") -> PartSizes:
    def write(name: str, write: Callable[[Path], None]) -> bool:
        write(out / name)
        return True

    return PartSizes(out, resume, write)


def found(rank: int, samples: int) -> Decided:
    return Decided(at=1.0, party=f"worker {rank}", rank=rank, verdict=in_parts_of(samples), reason="out of memory")


def test_the_latest_size_of_each_worker_is_kept(tmp_path: Path) -> None:
    first = sizes(tmp_path)
    first.begin()
    assert list(tmp_path.iterdir()) == [], "no file where no memory was exhausted"
    for record in (found(1, 48), found(0, 1), found(1, 24)):
        first.recorded(record)
    first.recorded(Decided(at=1.0, party="worker 0", rank=0, verdict="waits", reason="why"))
    assert [first.of(rank) for rank in range(3)] == [1, 24, 0]
    assert read(tmp_path) == {0: 1, 1: 24}


@pytest.mark.parametrize(("resume", "size"), [("auto", 48), ("never", 0), ("redis://host:1/0/run", 0)])
def test_a_run_that_goes_on_begins_with_it_and_another_does_not(tmp_path: Path, resume: str, size: int) -> None:
    sizes(tmp_path).recorded(found(1, 48))
    later = sizes(tmp_path, resume)
    later.begin()
    assert later.of(1) == size
    assert (tmp_path / PART_SIZES).exists() == (size > 0), "a file of another run is removed"


def test_a_run_that_goes_on_elsewhere_has_a_file_of_its_own(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    sizes(there).recorded(found(1, 48))
    sizes(here, str(there)).begin()
    assert read(here) == read(there) == {1: 48}


@pytest.mark.parametrize(
    "text",
    ["", "[", "[48]", "7", '{"1": 0}', '{"1": -4}', '{"1": "48"}', '{"1": true}', '{"one": 48}', HUGE, DEEP],
)
def test_a_file_that_says_nothing_ends_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / PART_SIZES).write_text(text)
    assert read(tmp_path) == {}
