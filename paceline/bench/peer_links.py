"""How long the way between each two hosts is: the workers of a run of its own measure it in turn, for `paceline probe`.

    python -m paceline.bench.peer_links     started by a launcher, as a training script is

They keep to one order of pairs of which no two share a worker, so that nobody shares a network card for long. A worker
prints a line for each way that it has measured (`PeerLink`); the bytes come from the worker of lower rank to it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import msgspec
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.specs import OptimizerRecipe
from paceline.launch.join import find_spec
from paceline.launch.local.environment import PREFIX
from paceline.live import party
from paceline.live.control.link_probe import measure_link
from paceline.live.node.node import Node
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.pace import Pace

ROUNDS = 3
"""Of each way the best counts: a link is what it can be."""
MARK = "PACELINE LINK "
"""Begins the lines that the launcher looks for among what workers print."""
MODULE = "paceline.bench.peer_links"
"""The name by which a launcher starts a worker's process."""


class PeerLink(msgspec.Struct, frozen=True, kw_only=True):
    """From worker `source` to worker `target`: seconds one way, and seconds a byte."""

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


def measure(node: Node, workers: int) -> list[PeerLink]:
    """Returns the links to this worker from those of lower rank, to which it is connected; the best of ROUNDS each."""
    me, best = node.me.index, dict[int, tuple[float, float]]()
    for pairs in [*rounds(workers)] * ROUNDS:
        for source, target in pairs:
            if target == me:
                found = measure_link(node, party.worker(source))
                before = best.get(source, found)
                best[source] = (min(before[0], found[0]), min(before[1], found[1]))
    return [
        PeerLink(source=source, target=me, latency_s=latency_s, seconds_per_byte=seconds_per_byte)
        for source, (latency_s, seconds_per_byte) in sorted(best.items())
    ]


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
    session.hello(spec.coordinator, "cpu", incarnation=spec.incarnation)

    def links() -> float:
        for link in measure(session.node, spec.workers):
            print(link.line(), flush=True)
        return 0.0

    recipe = Recipe(scheme=os.environ[f"{PREFIX}SCHEME"], optimizer=OptimizerRecipe(lr=1e-6))
    # Before training workers show one another what a link is measured by; afterwards just vectors of the model.
    with Pace(nn.Linear(1, 1), recipe, spec, session, measure=links):
        return 0


if __name__ == "__main__":
    main()
