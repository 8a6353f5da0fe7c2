"""A simulated run as a story: one line for each thing that happens, in the order of the virtual clock.

Two kinds of line, as a paper has two kinds of box. A worker's loop goes on: what it got, and what it asks for next.
A party receives a message: what it is, what that made it decide, and whom it answers. Names of messages are those of
the source, so that a line can be looked up there.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import (
    COORDINATOR,
    SERVERS,
    Call,
    Compute,
    Computed,
    Effect,
    Mean,
    Reply,
    Start,
    Tell,
    Train,
    Trained,
    Wait,
)
from paceline.core.message import scalar_fields
from paceline.core.scheme import make
from paceline.core.trace import Applied, Decided, Record
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, uniform
from paceline.sim.kernel.processes import SimulatedProcess

COLUMNS = 120
LATENCY_S = 0.1
TRIVIAL = {"samples": (1,), "current": (True, False), "round": (0,), "ahead": (0,)}
"""Scalars that say nothing here: messages have them for other cases than those told."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """`scheme` with `parameters` on workers whose steps take `seconds`, told for `until` seconds.

    look: what to look for, two or three sentences. leave: a worker and the moment it is asked to leave.
    """

    name: str
    scheme: str
    look: str
    seconds: tuple[float, ...]
    until: float
    parameters: dict[str, Any] = field(default_factory=dict)
    servers: int = 1
    samples: int = 1
    leave: tuple[int, float] | None = None

    def __str__(self) -> str:
        return self.name


class Story:
    """Watches every party of a simulation and writes down what it sees."""

    def __init__(self, scene: Scene) -> None:
        self.lines: list[str] = []
        self.noted: list[str] = []  # by the box that runs right now
        work = LocalSteps(lambda rank, rng: scene.seconds[rank], samples=lambda rank: scene.samples)
        cluster = uniform(len(scene.seconds), scene.servers, latency_s=LATENCY_S, bandwidth_gbps=1e6)
        scheme = make(scene.scheme, scene.parameters)
        self.sim = Simulation(scheme, Ghost(64), work, cluster=cluster, trace=self.note)
        world = self.sim.world
        for party in [*world.workers, *world.servers, *([world.coordinator] if world.coordinator else [])]:
            party.on = self.hearing(party, party.on)
            party.role.on_worker_left = self.missing(party, party.role.on_worker_left)  # type: ignore[method-assign]
        for party in world.workers:
            party.role.run = self.watched(party, party.role.run)  # type: ignore[method-assign]
            self.sim.restart(party.me)

    def tell(self, who: str, *what: str, at: float | None = None) -> None:
        head = f"{self.sim.now if at is None else at:6.2f} s  {who:<11}  "
        text = "; ".join(filter(None, what))
        self.lines.append(textwrap.fill(head + text, COLUMNS, subsequent_indent=" " * (len(head) + 2)))

    # ---- a worker's loop -------------------------------------------------------------------------------------
    def watched(self, party: SimulatedProcess, run: Callable[[], Generator[Effect, Any, None]]) -> Any:
        def running() -> Generator[Effect, Any, None]:
            box, value, said = run(), None, list[str]()
            while True:
                said.append(got(value))
                effect = box.send(value)
                said.append(asked(effect))
                if not isinstance(effect, Tell | Start | Reply):
                    self.tell(party.name, *said)
                    said = []
                try:
                    value = yield effect
                except GeneratorExit:
                    self.tell(party.name, "leaves")
                    raise

        return running

    # ---- a message arrives -----------------------------------------------------------------------------------
    def hearing(self, party: SimulatedProcess, on: Callable[[float, int, Any], Iterator[Tell | Reply]]) -> Any:
        def hear(now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            self.noted.clear()
            effects = list(on(now, src, message))
            self.tell(party.name, f"upon {named(message)} of worker {src}", *self.noted, *answers(effects))
            self.noted.clear()
            yield from effects

        return hear

    def missing(self, party: SimulatedProcess, gone: Callable[[float, int], Iterator[Tell | Reply]]) -> Any:
        def miss(now: float, rank: int) -> Iterator[Tell | Reply]:
            self.noted.clear()
            effects = list(gone(now, rank))
            self.tell(party.name, f"hears that worker {rank} has left", *self.noted, *answers(effects))
            yield from effects

        return miss

    def note(self, record: Record) -> None:
        match record:
            case Applied(weight=0.0):
                pass  # the decision to drop it says why
            case Applied(ranks=ranks, version=version, staleness=staleness, weight=weight):
                counts = f", counts {weight:.3g}" if weight != 1 else ""
                self.noted.append(f"update {version} is of {many(ranks)}, staleness {staleness}{counts}")
            case Decided(rank=rank, verdict="wait", reason=reason) if reason.startswith("waits "):
                self.noted.append(f"worker {rank} {reason}")
            case Decided(rank=rank, verdict="wait", reason=reason):
                self.noted.append(f"worker {rank} waits: {reason}")
            case Decided(rank=rank, verdict="dropped", reason=reason):
                self.noted.append(f"dropped: {reason}")
            case Decided(rank=rank, verdict=verdict, reason=reason):
                self.noted.append(f"worker {rank}: {verdict}, because {reason}")


def told(scene: Scene) -> str:
    """The whole file: what to look for, the cluster, the events."""
    story = Story(scene)
    if scene.leave:
        story.sim.run(until=scene.leave[1])
        story.tell(f"worker {scene.leave[0]}", "is asked to leave", at=scene.leave[1])
        story.sim.leave(scene.leave[0])
    story.sim.run(until=scene.until)
    steps = ", ".join(f"{seconds:g} s" for seconds in scene.seconds)
    what = " ".join([scene.scheme, *(f"{key}={value}" for key, value in scene.parameters.items())])
    head = f"{what}. A step takes {steps}; a message {LATENCY_S:g} s."
    return "\n".join([textwrap.fill(scene.look, COLUMNS), "", head, "", *story.lines]) + "\n"


# ---- words -------------------------------------------------------------------------------------------------------
def got(value: Any) -> str:
    match value:
        case Computed():
            return "has a gradient"
        case Trained():
            return "has trained"
        case Averaged(weight=weight):
            return f"gets the mean, which counts {weight:.3g}"
        case _ if value is None or not hasattr(value, "__dataclass_fields__"):
            return ""  # nothing, or a ticket
        case _:
            return f"gets {named(value)}"


def asked(effect: Effect) -> str:
    match effect:
        case Compute(steps=steps, samples=samples):
            return "computes" + (f" {steps} steps" if steps > 1 else "") + (f" on {samples} samples" if samples else "")
        case Train(steps=steps):
            return f"trains {steps} step{'s' * (steps > 1)}"
        case Call(to=to, message=message):
            return f"asks {party(to)}: {named(message)}"
        case Tell(to=to, message=message):
            return f"tells {party(to)}: {named(message)}"
        case Mean(among=among, tag=tag, weight=weight):
            return f"meets {many(among)} for the mean {tag}, weight {weight:.3g}"
        case Start(effect=inner):
            return f"{asked(inner)}, in the background"
        case Wait():
            return "waits for what is under way"
        case Reply(to=to, message=message):
            return f"answers worker {to}: {named(message)}"


def answers(effects: list[Tell | Reply]) -> Iterator[str]:
    """Those who are answered alike together."""
    alike: dict[str, list[int]] = {}
    for effect in effects:
        if isinstance(effect, Reply):
            alike.setdefault(named(effect.message), []).append(effect.to)
        else:
            yield asked(effect)
    for message, ranks in alike.items():
        yield f"answers {many(ranks)}: {message}"


def party(to: Any) -> str:
    return {SERVERS: "the servers", COORDINATOR: "the coordinator"}.get(to, f"worker {to}")


def many(ranks: Any) -> str:
    ordered = [str(rank) for rank in sorted(ranks)]
    return f"worker {ordered[0]}" if len(ordered) == 1 else f"workers {', '.join(ordered[:-1])} and {ordered[-1]}"


def named(message: Any) -> str:
    """`Push(clock=2)`: what it is, and its numbers."""
    scalars = {name: getattr(message, name) for name in scalar_fields(type(message))}
    scalars.pop("samples_seen", None)  # the clock of schedules, of which these stories have none
    for name in ("data", "unused"):  # in these stories nothing is leased, and every parameter is used
        if not scalars.get(name, True):
            del scalars[name]
    shown = [
        f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
        for k, v in scalars.items()
        if v not in TRIVIAL.get(k, ())
    ]
    return f"{type(message).__name__}({', '.join(shown)})" if shown else type(message).__name__
