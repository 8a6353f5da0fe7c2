"""What a long run holds does not grow: descriptors, threads, memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for

STEPS = 600
GROWTH_MIB_MAX = 24.0


class Watch:
    """Looks at this process every 50 ms while a run goes on."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            mib = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
            self.seen.append((len(os.listdir("/proc/self/fd")), threading.active_count(), mib))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_descriptors_threads_and_memory_are_after_many_steps_what_they_were(
    threads: Runner, out: Path, scheme: str
) -> None:
    with Watch() as watch:
        summary = threads(config_for(out, steps=STEPS, scheme=scheme, workers=3, servers=2))
    assert [worker.steps for worker in summary.workers] == [STEPS] * 3
    assert len(watch.seen) >= 12, "too few looks to tell"
    third = len(watch.seen) // 3
    early, late = watch.seen[third : 2 * third], watch.seen[2 * third : -2]
    for what in (0, 1):
        assert min(look[what] for look in late) <= max(look[what] for look in early)
    assert max(look[2] for look in late) - max(look[2] for look in early) < GROWTH_MIB_MAX
