"""Starts the parties of a run as threads of this process, connected by a hub. Tests run whole jobs in this way."""

from __future__ import annotations

import queue
import threading
import time

from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.live.net.inprocess_transport import Hub
from paceline.runtime.collectives.torch_distributed import check_built
from paceline.runtime.process_main import take_part
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.train_loop import load_data

END_SECONDS_MIN = 60.0
"""Seconds that threads have to end, even where processes would be killed sooner."""


class ThreadLauncher:
    """Starts the parties as threads on a hub. Threads cannot be killed: `end` waits for them, and says who is left."""

    def __init__(self, hub: Hub) -> None:
        self.ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()
        self._hub = hub
        self._threads: dict[str, threading.Thread] = {}

    def prepare(self, config: Config) -> int:
        """Returns the number of training samples. Raises ConfigError where the carrier of means is not built into
        torch."""
        check_built(config.cluster.allreduce)
        return len(load_data(config).train)

    def start(self, spec: ProcessSpec) -> None:
        """Starts the thread of one party on the hub; its end is put into `ended`."""
        transport = self._hub.transport(spec.who, incarnation=spec.incarnation)

        def run() -> None:
            self.ended.put(take_part(spec, transport))

        thread = threading.Thread(target=run, name=spec.party, daemon=True)
        self._threads[spec.party] = thread
        thread.start()

    def waits(self, who: Party) -> bool:
        """Returns False: who is started here begins at once."""
        return False

    def busy(self) -> bool:
        """Returns False: nothing but the parties runs here."""
        return False

    def kill(self, who: Party) -> None:
        """Does nothing: the coordinator closes the connections of a party that was given up, and that ends it."""

    def end(self, seconds: float) -> None:
        """Waits for all threads together, END_SECONDS_MIN where `seconds` are fewer. Raises RuntimeError with the names
        of those that still run."""
        deadline = time.monotonic() + max(seconds, END_SECONDS_MIN)
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        left = [name for name, thread in self._threads.items() if thread.is_alive()]
        if left:
            raise RuntimeError(f"still running: {', '.join(left)}")
