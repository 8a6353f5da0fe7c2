"""Measures the links between the hosts of `paceline probe`: the workers of a run of its own do so in pairs.

    python -m paceline.bench.peer_links     started by a launcher, as a training script is

Workers keep to one order of pairs of which no two share a worker, so that nobody shares a network card for long. Within
a pair the bytes first flow from the lower rank to the higher one, then back, never both at once (`Turns`). After each
round a worker prints a line for each direction towards it (`PeerLink`), so that what is known counts if time runs out.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Iterator

import msgspec
import torch
from torch import nn

from paceline.core.coordination import party
from paceline.core.errors import ConfigError, TimedOut
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.launch.join import find_spec
from paceline.launch.local.environment import PREFIX
from paceline.live.control.link_probe import measure_link
from paceline.live.node.node import Node
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.pace import Pace

ROUNDS = 3
"""Of each direction the best round counts: a link is what it can be."""
MARK = "PACELINE LINK "
"""Begins the lines that the launcher looks for among what workers print."""
MODULE = "paceline.bench.peer_links"
"""The name by which a launcher starts a worker's process."""
NOTHING = Flat.wrap(torch.empty(0))


class PeerLink(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a link takes from worker `source` to worker `target`: seconds one way, and seconds a byte."""

    source: int
    target: int
    latency_s: float
    seconds_per_byte: float

    def line(self) -> str:
        """Returns the line that a worker prints: MARK and the fields as JSON."""
        return MARK + msgspec.json.encode(self).decode()

    @classmethod
    def of_line(cls, line: str) -> PeerLink | None:
        """Returns the link that a worker has printed, or None for any other line.

        None is also returned where the numbers are none that a link can have, as a worker of another host is not
        trusted.
        """
        if not line.startswith(MARK):
            return None
        try:
            found = msgspec.json.decode(line.removeprefix(MARK), type=cls)
        except msgspec.MsgspecError:
            return None
        return found if 0 <= found.latency_s < 1e3 and 0 < found.seconds_per_byte < 1e3 else None


def rounds(workers: int) -> Iterator[list[tuple[int, int]]]:
    """Yields rounds of pairs, of which none in a round shares a worker, until each two have met (the circle method).

    One worker keeps its place and the others move on by one after each round. With an odd number of workers the partner
    -1 means that a worker rests.
    """
    ring = [*range(workers), *([-1] if workers % 2 else [])]
    for _ in range(len(ring) - 1):
        pairs = zip(ring[: len(ring) // 2], reversed(ring), strict=False)
        yield [(min(pair), max(pair)) for pair in pairs if -1 not in pair]
        ring = [ring[0], ring[-1], *ring[1:-1]]


class Turns:
    """Lets the two workers of a pair measure one after the other: each tells the other when it has finished.

    A worker of lower rank is called by the other one, and cannot know when; so the first turn also says that the
    connection is there.
    """

    def __init__(self, node: Node, workers: int, timeout_s: float) -> None:
        """Prepares the turns of `node`, before others can reach it. A wait lasts `timeout_s` seconds at most."""
        self._node, self._timeout_s = node, timeout_s
        self._given = {rank: threading.Semaphore(0) for rank in range(workers)}
        for rank in self._given:
            node.published[_turn(rank)] = functools.partial(self._take_note, rank)

    def give(self, rank: int) -> None:
        """Tells that worker that it is its turn. Raises PeerLost."""
        self._node.read_state_of(party.worker(rank), _turn(self._node.me.index))

    def take(self, rank: int) -> None:
        """Returns when that worker has given the turn. Raises TimedOut."""
        if not self._given[rank].acquire(timeout=self._timeout_s):
            raise TimedOut(f"worker {rank} did not finish measuring within {self._timeout_s:.0f} s")

    def _take_note(self, rank: int, _slice: int) -> Flat:
        """Answers a worker that gives the turn, on the network thread."""
        self._given[rank].release()
        return NOTHING


def _turn(rank: int) -> str:
    return f"turn given by {rank}"


def measure(node: Node, workers: int, turns: Turns, say: Callable[[PeerLink], None]) -> None:
    """Measures the links to this worker from all others, in both directions of each pair, in ROUNDS rounds.

    `say` is called after each round with the best that is known of each link. Raises PeerLost, TimedOut.
    """
    me, best = node.me.index, dict[int, tuple[float, float]]()
    for _ in range(ROUNDS):
        for source, target in (pair for pairs in rounds(workers) for pair in pairs if me in pair):
            other = source if me == target else target
            if me == source:
                turns.take(other)
            found = measure_link(node, party.worker(other))
            turns.give(other)
            if me == target:
                turns.take(other)
            before = best.get(other, found)
            best[other] = (min(before[0], found[0]), min(before[1], found[1]))
        for source, (latency_s, seconds_per_byte) in sorted(best.items()):
            say(PeerLink(source=source, target=me, latency_s=latency_s, seconds_per_byte=seconds_per_byte))


def main() -> int:
    """Takes part in a run of its own, in which nothing is trained; prints a line for each link that ends here.

    Raises ConfigError where it was not started by a launcher.
    """
    torch.set_num_threads(1)
    spec, _ = find_spec()
    if spec is None:
        raise ConfigError(f"{MODULE} is started by `paceline probe`, not alone")
    spec = dataclasses.replace(spec, device="cpu").overlapping(False)
    session = spec.session(spec.open_transport())
    turns = Turns(session.node, spec.workers, spec.config.cluster.timeout)
    session.hello(spec.coordinator, "cpu", incarnation=spec.incarnation)

    def links() -> float:
        measure(session.node, spec.workers, turns, lambda link: print(link.line(), flush=True))
        return 0.0

    recipe = Recipe(scheme=os.environ[f"{PREFIX}SCHEME"], optimizer=OptimizerRecipe(lr=1e-6))
    # Before training workers show one another what a link is measured by; afterwards just vectors of the model.
    with Pace(nn.Linear(1, 1), recipe, spec, session, measure=links):
        return 0


if __name__ == "__main__":
    main()
