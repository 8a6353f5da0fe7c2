from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.runtime.worker.ranks import common_memory
from paceline.runtime.worker.ranks.common_memory import attached, offered

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd")
ATTACH = """
import sys
from paceline.runtime.worker.ranks.common_memory import attached
memory = attached(sys.argv[1], 3)
memory += 1
"""


def test_another_process_writes_to_it_and_nothing_has_a_name() -> None:
    with offered(3) as found:
        assert found is not None
        memory, path = found
        memory.copy_(memory.new_tensor([1.0, 2.0, 3.0]))
        subprocess.run([sys.executable, "-c", ATTACH, path], check=True, timeout=60)
    assert memory.tolist() == [2.0, 3.0, 4.0]
    assert not Path(path).exists(), "the descriptor is closed, and the mapping stays"
    assert attached(path, 3) is None


def test_a_vector_of_another_length_is_not_attached() -> None:
    with offered(3) as found:
        assert found is not None
        assert attached(found[1], 4) is None
        same = attached(found[1], 3)
        assert same is not None
        same.fill_(7.0)
        assert found[0].tolist() == [7.0] * 3


def test_where_there_is_no_such_memory_none_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(common_memory.os, "memfd_create")
    with offered(3) as found:
        assert found is None
