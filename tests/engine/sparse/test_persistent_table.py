"""A table of which older versions stay readable while the newest changes in place."""

from __future__ import annotations

import threading
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.engine.sparse.persistent_table import PersistentTable
from tests.engine.sparse.row_numbers import at


def table_of(height: int = 8, width: int = 2) -> tuple[PersistentTable, Tensor]:
    numbers = torch.randn(height, width, generator=torch.Generator().manual_seed(3))
    return PersistentTable.owning(numbers.clone()), numbers


@given(st.lists(st.sets(st.integers(0, 7), min_size=1), max_size=12), st.randoms())
@settings(max_examples=100)
def test_every_version_keeps_its_numbers_whatever_comes_after_it(changes: list[set[int]], random: Any) -> None:
    table, numbers = table_of()
    versions = [(table, numbers)]
    for n, rows in enumerate(changes):
        table, numbers = versions[random.randrange(len(versions))]  # a branch, unless it is the newest
        rows = at(*sorted(rows))
        new = numbers.clone()
        new[rows] = float(n)
        versions.append((table.replaced(rows, new[rows]), new))
    for table, numbers in versions:
        assert torch.equal(table.whole(), numbers)
        assert torch.equal(table.gather(at(0, 2, 3, 7)), numbers[[0, 2, 3, 7]])
    for table, numbers in versions:
        for other, others in versions:
            rows = table.changed_since(other.mark)
            if rows is not None:
                out = others.clone()
                table.copy_into(out, other)
                assert torch.equal(out, numbers)


def test_changing_the_newest_version_writes_in_place() -> None:
    table, _ = table_of()
    new = table.replaced(at(1), torch.ones(1, 2)).replaced(at(2), torch.ones(1, 2))
    assert new._numbers is table._numbers


def test_an_older_version_is_branched_off_not_changed() -> None:
    table, numbers = table_of()
    new = table.replaced(at(1), torch.ones(1, 2))
    branch = table.replaced(at(1), torch.zeros(1, 2))
    assert new.changed_since(branch.mark) is None
    assert new.gather(at(1)).tolist() == [[1.0, 1.0]]
    assert torch.equal(table.whole(), numbers)


def test_what_changed_is_forgotten_before_it_costs_more_than_the_table() -> None:
    first, _ = table_of(height=8)
    table = first
    for row in (0, 1, 2, 3, 4, 5, 6, 7):
        table = table.replaced(at(row), torch.zeros(1, 2))
    rows = table.changed_since(first.mark)
    assert rows is not None
    assert torch.equal(rows, torch.arange(8))
    last = table.replaced(at(5), torch.ones(1, 2))
    assert last.changed_since(first.mark) is None
    assert last.changed_since(table.mark) is not None
    assert torch.equal(last.whole()[5], torch.ones(2))


def test_a_long_row_of_versions_is_dropped_at_once() -> None:
    first, _ = table_of()
    table = first
    for n in range(20_000):
        table = table.replaced(at(n % 8), torch.zeros(1, 2))
    del first  # each version holds the next: freeing them must not recurse once a version
    assert table.stamp == 20_000


def test_reading_an_old_version_while_another_thread_changes_the_newest_is_safe() -> None:
    first, numbers = table_of(height=64)
    wrong = []

    def read() -> None:
        for _ in range(300):
            if not torch.equal(first.whole(), numbers):
                wrong.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    table = first
    for n in range(300):
        table = table.replaced(at(n % 64), torch.full((1, 2), float(n)))
    reader.join(30)
    assert not reader.is_alive()
    assert not wrong
