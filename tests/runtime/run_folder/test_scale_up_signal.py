"""Which signal asks a run for one worker more, and when it is another program's."""

from __future__ import annotations

import os
import signal

from paceline.runtime.run_folder.scale_up_signal import asked_to_grow, grows


def test_each_signal_asks_for_one_and_what_a_program_does_with_it_itself_is_its_own() -> None:
    asked: list[int] = []
    with asked_to_grow(lambda: asked.append(1)):
        assert grows()
        os.kill(os.getpid(), signal.SIGUSR1)
    assert asked == [1]
    assert not grows()
    before = signal.signal(signal.SIGUSR1, lambda *_: asked.append(2))
    try:
        with asked_to_grow(lambda: asked.append(3)):
            assert not grows()  # a launcher in a job of Slurm: its end is near
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert asked == [1, 2]
