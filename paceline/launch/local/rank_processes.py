"""Starts the ranks of one worker: the same command several times on this machine, as one process of the run.

    python -m paceline.launch.local.rank_processes 4 python train.py

Each finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR (the loopback address) and MASTER_PORT, by which
`torch.distributed.init_process_group` brings them together. The worker is lost when any of them is:

all ranks end with 0      exit code 0
a rank fails              the others are killed; its exit code, 128 + N after signal N
SIGTERM                   goes to rank 0, which lets the worker leave the run in order
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from paceline.launch.local.fork_server import die_with_parent

LOOPBACK = "127.0.0.1"
LAST_LINES_SECONDS = 1.0
"""Seconds that are waited for the last lines of a rank that has ended."""


def variables_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Returns the place of a rank in its worker, as torch's `env://` reads it."""
    return variables_of_group(rank, ranks, (rank, ranks), (LOOPBACK, port))


def variables_of_group(rank: int, ranks: int, on_host: tuple[int, int], master: tuple[str, int]) -> dict[str, str]:
    """Returns the place of a process in a group of torch.distributed.

    on_host: its number among those of its host, and how many there are. master: host of rank 0, and a port there.
    """
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(on_host[0]),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(on_host[1]),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
    }


class RankProcesses:
    """Holds the processes of one worker's ranks."""

    def __init__(self, command: Sequence[str], ranks: int, environment: Mapping[str, str]) -> None:
        """Starts them. Raises OSError where the command cannot be executed."""
        port = free_port()
        self._ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()  # rank and exit code
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(ranks):
            process = subprocess.Popen(
                list(command),
                env={**environment, **variables_of(rank, ranks, port)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
            self._processes.append(process)
        # Once all are there: `die_with_parent` goes by the thread that has started a process.
        self._readers = [threading.Thread(target=_pass_on, args=(one,), daemon=True) for one in self._processes]
        followers = [
            threading.Thread(target=self._follow, args=(rank, one), daemon=True)
            for rank, one in enumerate(self._processes)
        ]
        for thread in (*self._readers, *followers):
            thread.start()

    def _follow(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end of one rank, on a thread of its own."""
        self._ended.put((rank, process.wait()))

    def forward(self, number: int) -> None:
        """Passes a signal on to rank 0, which speaks for the worker."""
        self._processes[0].send_signal(number)

    def wait(self) -> int:
        """Returns the worker's exit code, when no rank runs any more; the first failure decides it.

        It is told at once: whoever has lost the connection to a dead rank may kill this process next.
        """
        code = 0
        for _ in self._processes:
            rank, ended = self._ended.get()
            if ended and not code:
                code = ended if ended > 0 else 128 - ended
                how = f"exit code {ended}" if ended > 0 else signal.Signals(-ended).name
                print(f"rank {rank} of {len(self._processes)} of this worker ended with {how}", file=sys.stderr)
                sys.stderr.flush()
                for process in self._processes:
                    process.kill()  # without the others they would only wait
        for reader in self._readers:
            reader.join(LAST_LINES_SECONDS)  # children of a rank may hold its output open for ever
        return code


def _pass_on(process: subprocess.Popen[bytes]) -> None:
    """Prints what a rank prints, by whole lines, so that the ranks' lines do not mix."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            os.write(1, line)


def free_port() -> int:
    """Returns a port of the loopback address that nobody listens on now."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def main(arguments: Sequence[str]) -> int:
    """Runs the command once for each rank; returns the worker's exit code."""
    ranks, command = int(arguments[0]), arguments[1:]
    early: list[int] = []  # signals that come while ranks are being started
    before = signal.signal(signal.SIGTERM, lambda number, _: early.append(number))
    try:
        processes = RankProcesses(command, ranks, os.environ)
    except OSError as error:
        signal.signal(signal.SIGTERM, before)
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    signal.signal(signal.SIGTERM, lambda number, _: processes.forward(number))
    for number in early:
        processes.forward(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever has started us decides what Ctrl-C means
    return processes.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
