"""Servers go back together to states that were kept at one version, of different contributions: nobody waits for ever.

Workers and servers are the roles of each scheme whose servers can return. Every message goes through a queue from its
worker to its server, and a seeded draw says which queue moves next. So servers take contributions in different orders.
"""

from __future__ import annotations

import json
from collections import deque
from random import Random
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Call, Compute, Computed, Reply, Trained
from paceline.core.fault_tolerance.replication import mark_of
from paceline.core.fault_tolerance.server_replacement import why_not_replaced
from paceline.core.paramserver.clocks import among_others
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.role import RoleContext
from paceline.core.scheme import Scheme, make, names

STRICT: dict[str, dict[str, Any]] = {
    "ssp": {"staleness": 0},
    "dssp": {"low": 0, "high": 1},
    "partial": {"max_advance": 1},
    "ksync": {"k": 2},
}
"""The parameters under which a scheme holds workers back soonest; the defaults where none are given."""
WORKERS, FURTHER, RETURNS = 4, 8, 3


def goes_back(own: Scheme) -> bool:
    """Returns True for a scheme of clock-gated servers that can go back, without a coordinator of its own."""
    box = own.server(2)
    gated = box is not None and issubclass(box, ClockedServer)
    return gated and own.Coordinator is None and not why_not_replaced(own, 2)


GATED = [name for name in names() if goes_back(make(name, {}))]


class Run:
    """Is a run of one scheme. calls: by worker, the servers that have not answered. queues: by worker and server."""

    def __init__(self, scheme: Scheme, servers: int, seed: int) -> None:
        self.scheme, self.random = scheme, Random(seed)
        self.workers = [scheme.worker(servers)(scheme, self.place(rank)) for rank in range(WORKERS)]
        self.servers = [self.server(me, servers) for me in range(servers)]
        self.slow = [self.random.choice((1, 1, 4)) for _ in range(WORKERS)]
        self.kept: dict[int, str] = {}  # by server: the tables that it goes back to, as JSON
        self.copies = [self.copy(me) for me in range(servers)]  # a mark, and the tables as JSON
        self.begin_anew()

    def place(self, me: int) -> RoleContext:
        return RoleContext(me=me, workers=tuple(range(WORKERS)), w=np.zeros(1), update=lambda w, g, samples: w - g)

    def server(self, me: int, servers: int) -> Any:
        box: Any = self.scheme.server(servers)
        return box(self.scheme, self.place(me))

    def copy(self, me: int) -> tuple[Any, str]:
        return mark_of(self.servers[me]), json.dumps(self.servers[me].state_dict())

    def begin_anew(self) -> None:
        """Starts the loops of all workers."""
        self.steps = [0] * WORKERS
        self.queues: dict[tuple[int, int], deque[Any]] = {}
        self.calls: list[dict[int, Any]] = [{} for _ in range(WORKERS)]
        self.asked: list[Any] = [None] * WORKERS
        self.working: dict[int, Any] = {}
        self.loops = [worker.run() for worker in self.workers]
        for rank in range(WORKERS):
            self.resume(rank, None)

    def resume(self, rank: int, result: Any) -> None:
        """Gives a worker the result that it waits for, and begins what it asks for next."""
        effect = self.loops[rank].send(result)
        if isinstance(effect, Call):
            self.calls[rank], self.asked[rank] = dict.fromkeys(range(len(self.servers))), effect.message
            for me in range(len(self.servers)):
                self.queues.setdefault((rank, me), deque()).append(effect.message)
        else:
            self.working[rank] = effect

    def moves(self) -> list[tuple[int, int | None]]:
        """Returns what may happen next: a worker and the server that hears of it, or None for the end of its work."""
        heard: list[tuple[int, int | None]] = [place for place, queue in self.queues.items() if queue]
        return heard + [(rank, None) for rank in self.working]

    def move(self) -> bool:
        """Lets one thing happen. Returns False if nothing is left that could."""
        moves = self.moves()
        if not moves:
            return False
        rank, me = self.random.choices(moves, [1 / self.slow[rank] for rank, _ in moves])[0]
        if me is None:
            effect, self.steps[rank] = self.working.pop(rank), self.steps[rank] + 1
            done = Computed(np.ones(1), 1, 0.1) if isinstance(effect, Compute) else Trained(np.ones(1), 1, 0.1)
            self.resume(rank, done)
            return True
        replies = list(self.servers[me].on(0.0, rank, self.queues[rank, me].popleft()))
        if mark_of(self.servers[me]) != self.copies[me][0]:
            self.copies[me] = self.copy(me)  # before anybody is answered
        for reply in replies:
            assert isinstance(reply, Reply)
            assert isinstance(reply.to, int)
            self.calls[reply.to][me] = reply.message
            if None not in self.calls[reply.to].values():
                self.resume(reply.to, self.calls[reply.to][0])
        return True

    def keep(self, version: int) -> None:
        """Goes on until every server has kept the state in which it came to that version."""
        self.kept = {}
        while len(self.kept) < len(self.servers):
            for me, server in enumerate(self.servers):
                if server.version >= version and me not in self.kept:
                    self.kept[me] = json.dumps(server.state_dict())
            assert self.move()

    def go_back(self) -> None:
        """All servers return to what they have kept, and all workers begin anew."""
        for me, tables in self.kept.items():
            self.servers[me] = self.server(me, len(self.kept))
            self.servers[me].load_state_dict(among_others(json.loads(tables)))
            self.copies[me] = self.copy(me)
        for worker in self.workers:
            worker.on_rollback()
        self.begin_anew()

    def lose(self, me: int) -> None:
        """A server is lost. The one in its place is made of its copy, and workers ask it again."""
        self.servers[me] = self.server(me, len(self.servers))
        self.servers[me].load_state_dict(json.loads(self.copies[me][1]))
        for rank, asked in enumerate(self.asked):
            if me in self.calls[rank] and self.calls[rank][me] is None:
                self.queues[rank, me] = deque([asked])

    def go_on(self) -> None:
        """Goes on until every worker has made FURTHER steps."""
        while min(self.steps) < FURTHER:
            assert self.move(), f"nobody goes on after {self.steps} steps; clocks {[s.clocks for s in self.servers]}"


def returned(name: str, servers: int, seed: int) -> Run:
    """Returns a run whose servers have returned together, for the last time to what they kept at one version."""
    run = Run(make(name, STRICT.get(name, {})), servers, seed)
    run.keep(version=0)
    for _ in range(RETURNS):  # what is undone counts in the workers' clocks, which go on
        for _ in range(run.random.randrange(40)):
            assert run.move()
        run.go_back()
    run.keep(version=run.random.randrange(1, 4))
    run.go_back()
    return run


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("name", GATED)
def test_after_a_return_to_torn_clocks_everybody_goes_on(name: str, servers: int) -> None:
    torn = 0
    for seed in range(100):
        run = returned(name, servers, seed)
        clocks = [dict(json.loads(tables)["clocks"]) for tables in run.kept.values()]
        torn += any(other != clocks[0] for other in clocks)
        run.go_on()
    assert torn >= 5 or make(name, {}).lock_step


@pytest.mark.parametrize("name", ["ssp", "dssp"])
def test_servers_lost_soon_after_a_return_know_the_clocks_that_they_were_told(name: str) -> None:
    """A worker that has its answer tells its clock no second time. Another would wait for it, and it for another."""
    for seed in range(500):
        run = returned(name, 4, seed)
        for _ in range(run.random.randrange(17)):
            assert run.move()
        for me in (0, 2):  # the servers that keep their copies go on
            run.lose(me)
        run.go_on()
