"""Counts the vectors that the role of a worker computes under a scheme, in a short simulation where nothing else takes
time.

A run's trace says how many core seconds an exchange took a worker. What the scheme itself computes is in them, such as
x - w before a mean and w + d after it, and another scheme computes something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.core.errors import ConfigError
from paceline.core.scheme import Scheme, make
from paceline.core.trace import Record, Span
from paceline.observe.runs.summary import Summary
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host, MessageCosts
from paceline.sim.kernel.vectors import CountedGhost, PassCounter

LENGTH_MIN, EVENTS_PER_WORKER = 4096, 1000
"""Parameters of the model in that simulation, at least, and events until it ends."""


@dataclass(frozen=True, slots=True)
class RoleVectors:
    """Says what a scheme lets a worker compute besides gradients.

    per_exchange  vectors of the model's length that the role computes for an exchange, on average
    local_steps   True if the worker's own optimizer makes local steps
    """

    per_exchange: float = 0.0
    local_steps: bool = False

    @classmethod
    def of(cls, summary: Summary) -> RoleVectors:
        """Returns what the scheme of a run computes; nothing where the scheme is not in the catalogue."""
        try:
            scheme = make(summary.scheme, summary.parameters)
        except ConfigError:
            return cls()
        slowdowns = [worker.slowdown for worker in summary.workers]
        return cls(vectors_per_exchange(scheme, slowdowns, summary.servers), scheme.trains_locally)


def vectors_per_exchange(scheme: Scheme, slowdowns: list[float], servers: int) -> float:
    """Returns the vectors of the model's length that a worker's role computes for an exchange; 0 if it makes none."""
    length, spans = max(LENGTH_MIN, 64 * servers), list[Span]()
    hosts = [Host(name=f"worker-{n}", devices=(Device(factor=factor),)) for n, factor in enumerate(slowdowns)]
    hosts += [Host(name="servers", count=servers, servers=1)] if servers else []

    def note(record: Record) -> None:
        if isinstance(record, Span):
            spans.append(record)

    sim = Simulation(
        scheme,
        CountedGhost(length, PassCounter()),
        LocalSteps(lambda rank, rng: 1.0),
        cluster=Cluster(hosts=tuple(hosts), step_s=1.0, messages=MessageCosts()),
        trace=note,
        watched=False,
        mean="ring",
    )
    sim.run(max_events=EVENTS_PER_WORKER * len(slowdowns))
    exchanges = sum(span.exchanges for span in spans)
    assert sim.sharing is not None
    return sim.sharing.arithmetic_bytes / (4 * length * exchanges) if exchanges else 0.0
