"""How much memory a server takes, against what it has to hold.

python benchmarks/server_memory.py [--mbytes 100] [--rounds 6] [--workers 1,4,8] [--optimizers sgd,adam-groups]
                                   [--schemes asp,bsp] [--transports tcp,auto]

One server in a process of its own holds a model of 100 MB; its workers are threads of this process that push gradients
as fast as they can. Measured is the memory of the server's process at its largest, as the kernel counts it, less what
a server of the same kind takes for a model of 100,000 parameters (Python, torch, numba). Shared memory counts where it
is made, in full: gradients that the server reads in a worker's memory are the worker's, versions of the weights that
workers read are the server's, however many map them. It has to hold its shard and the
optimizer's state (nothing, v, or m and v); under bsp also the sum of the round that is open, as long as the shard.

Claim: at most 1.3 times that, plus, for each worker that sends, one receive buffer, which is a slice. Where memory is
shared (`auto`) there is no receive buffer, but a worker reads the weights where the server published them until its
module has them: there, plus one shard for each worker that may be reading a version of its own (all under asp, one
under bsp, where all read the same).

Snapshots, from which a lost server could be replaced, are taken all the while (--snapshot-every 0.5, where 30 s are
usual).
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from paceline.config import Config, build
from paceline.core.coordination import party
from paceline.core.vector import cut
from paceline.engine.specs import GroupRecipe, OptimizerRecipe
from paceline.launch.local.train import Silent
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.numpy_memory import PlainMemory
from paceline.runtime.process_main import take_part
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.supervisor.supervisor import RunSupervisor
from paceline.runtime.worker.pace import Pace

FACTOR = 1.3
MIB = 2**20
RECIPES = {
    "sgd": (OptimizerRecipe(lr=0.1), 0),
    "momentum": (OptimizerRecipe(lr=0.1, momentum=0.9), 1),
    "adam": (OptimizerRecipe(name="adam", lr=0.1), 2),
}
"""And how many numbers each remembers of a parameter. The same `-groups` have four parameter groups."""
GROUPED = "-groups"


def recipe_for(name: str, length: int) -> OptimizerRecipe:
    recipe, _ = RECIPES[name.removesuffix(GROUPED)]
    if not name.endswith(GROUPED):
        return recipe
    parts = [part.stop - part.start for part in cut(length, 4)]
    groups = [replace(recipe, lr=0.1 * (k + 1), weight_decay=0.01 * k) for k in range(4)]
    return replace(
        recipe, groups=tuple(GroupRecipe(length=n, optimizer=of) for n, of in zip(parts, groups, strict=True))
    )


def taken(pid: int) -> int:
    """Bytes of memory that are this process's own: not what it reads of others' by a mapping it cannot write."""
    total, counts = 0, True
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            counts = not (words[1] == "r--s" and "memfd" in line)
        elif words[0] == "Rss:" and counts:
            total += int(words[1]) * 1024
    return total


def serve(spec: str) -> None:
    """The server's process."""
    torch.set_num_threads(1)
    own = ProcessSpec.from_json(spec)
    sys.exit(1 if take_part(own, own.open_transport()).why else 0)


class Big(nn.Module):
    """A model that is nothing but its parameters."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(length))


class ServerLauncher:
    """The server as a process that is watched, the workers as threads."""

    def __init__(self, scheme: str, optimizer: OptimizerRecipe, length: int, rounds: int) -> None:
        self.ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()
        self.peak = 0
        self._recipe = Recipe(scheme=scheme, optimizer=optimizer)
        self._length, self._rounds = length, rounds
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def prepare(self, config: Config) -> int:
        return 1

    def start(self, spec: ProcessSpec) -> None:
        if spec.who.kind == "server":
            self._server = multiprocessing.get_context("spawn").Process(target=serve, args=(spec.to_json(),))
            self._server.start()
        else:
            self._threads.append(threading.Thread(target=self._work, args=(spec,), daemon=True))
            self._threads[-1].start()

    def _work(self, spec: ProcessSpec) -> None:
        session = spec.session(spec.open_transport())
        session.hello(spec.coordinator, "cpu")
        model = Big(self._length)
        with Pace(model, self._recipe, spec, session) as pace:
            for _ in range(self._rounds):
                model.w.sum().backward()
                pace.step(1)
        self.ended.put(ProcessEnded(who=spec.who, why=""))

    def watch(self) -> None:
        """From when the server is there."""
        assert self._server.pid is not None
        self._threads.append(threading.Thread(target=self._sample, args=(self._server.pid,), daemon=True))
        self._threads[-1].start()

    def _sample(self, pid: int) -> None:
        while not self._over.wait(0.01):
            try:
                self.peak = max(self.peak, taken(pid))
            except OSError:  # it has ended
                return

    def busy(self) -> bool:
        return False

    def end(self, seconds: float) -> None:
        self._over.set()
        self._server.join(5.0)
        self._server.kill()
        for thread in self._threads:
            thread.join(5.0)


class Watched(RunSupervisor):
    """Has the memory of the server looked at as soon as it says hello."""

    def joined(self, who: party.Party, hello: object) -> None:
        super().joined(who, hello)  # type: ignore[arg-type]
        if who.kind == "server":
            self._launcher.watch()  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Case:
    scheme: str
    optimizer: str
    workers: int
    transport: str


def measured(case: Case, length: int, rounds: int, slice_mb: float, snapshot_every: float) -> int:
    """Bytes that the server took at its largest. Its workers have a process of their own, which ends with them."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
        return alone.submit(_measured, case, length, rounds, slice_mb, snapshot_every).result()


def _measured(case: Case, length: int, rounds: int, slice_mb: float, snapshot_every: float) -> int:
    torch.set_num_threads(1)
    launcher = ServerLauncher(case.scheme, recipe_for(case.optimizer, length), length, rounds)
    with tempfile.TemporaryDirectory() as folder:
        config = build(
            {
                "run": {"scheme": case.scheme, "out": str(Path(folder) / "run")},
                "cluster": {
                    "workers": case.workers,
                    "servers": 1,
                    "slice_mb": slice_mb,
                    "transport": case.transport,
                    "device": "cpu",
                    "snapshot_every": snapshot_every,
                },
            }
        )
        supervisor = Watched(
            config,
            lambda token, failed: TcpTransport(party.COORDINATOR, token, PlainMemory(), failed=failed),
            launcher,
            Silent(),
            evaluator=False,
        )
        supervisor.run()
    return launcher.peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the model")
    parser.add_argument("--slice-mb", type=float, default=4.0, help="MiB of a slice")
    parser.add_argument("--rounds", type=int, default=6, help="pushes of each worker")
    parser.add_argument("--workers", default="1,4,8")
    parser.add_argument("--optimizers", default="sgd,momentum,adam")
    parser.add_argument("--schemes", default="asp,bsp")
    parser.add_argument("--transports", default="tcp,auto")
    parser.add_argument("--snapshot-every", type=float, default=0.5, help="seconds between two snapshots; 0: none")
    options = parser.parse_args()
    shard = round(options.mbytes * 1e6 / 4) * 4
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, a shard of {shard / 1e6:.0f} MB")
    print(
        f"{'scheme':<8}{'optimizer':<17}{'over':<6}{'workers':>8}{'to hold MB':>12}{'taken MB':>10}{'allowed MB':>12}"
    )
    worst = 0.0
    for case in (
        Case(scheme, optimizer, int(workers), transport)
        for transport in options.transports.split(",")
        for scheme in options.schemes.split(",")
        for optimizer in options.optimizers.split(",")
        for workers in options.workers.split(",")
    ):
        hold = shard * (1 + RECIPES[case.optimizer.removesuffix(GROUPED)][1] + (case.scheme == "bsp"))
        lent = shard if case.transport != "tcp" else min(options.slice_mb * MIB, shard)
        allowed = FACTOR * hold + lent * (1 if case.transport != "tcp" and case.scheme == "bsp" else case.workers)
        base = measured(replace(case, workers=1), 100_000, 2, options.slice_mb, options.snapshot_every)
        took = measured(case, shard // 4, options.rounds, options.slice_mb, options.snapshot_every) - base
        worst = max(worst, took / allowed)
        row = f"{case.scheme:<8}{case.optimizer:<17}{case.transport:<6}{case.workers:>8}"
        print(f"{row}{hold / 1e6:>12.0f}{took / 1e6:>10.0f}{allowed / 1e6:>12.0f}", flush=True)
    print(f"taken / allowed at most {worst:.2f}, claimed at most 1: {'holds' if worst <= 1 else 'DOES NOT HOLD'}")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
