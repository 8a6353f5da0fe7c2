"""What the coordinator decides when everybody has said who it is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.collective import Choice
from paceline.core.errors import ConfigError
from paceline.core.role import Role, RoleContext
from paceline.core.sharding import Layout
from paceline.core.trace import Record
from paceline.live.coordinator.lifecycle import StopRule
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import SHARED, TCP

LayOut = Callable[[Sequence[control.Ready], Sequence[control.Hello]], tuple[Layout, str]]
"""Which server holds what, and why, from what the workers and the servers said of themselves."""
ChooseAllreduce = Callable[[Sequence[control.Ready], Sequence[control.Hello], int], Choice]
"""Who carries means, from what the workers said, and how many servers there are."""


@dataclass(frozen=True, slots=True)
class RunChoices:
    """What is decided by the scheme and the configuration, once the workers and servers have said what they are.

    make_role          makes the coordinator's role
    lay_out            says which server holds what, and why
    choose_allreduce   says who carries means
    """

    make_role: Callable[[control.Plan, RoleContext], Role]
    lay_out: LayOut
    choose_allreduce: ChooseAllreduce


def transport_of(ways: Collection[str]) -> str:
    """How vectors travel in a run whose parties have these ways; nothing when none of them have to."""
    if SHARED in ways:
        return f"{SHARED} on one host, {TCP} between hosts" if TCP in ways else f"{SHARED} (same host)"
    return ", ".join(sorted(ways))


def crowded(workers: Sequence[control.Hello], servers: Sequence[control.Hello]) -> str:
    """Why no core is idle in which to communicate while others compute; nothing where one may be.

    Over a link bytes take time and no processor, and a worker's GPU computes while its core is idle.
    """
    everybody = (*workers, *servers)
    cores = min(hello.cores for hello in everybody)
    busy = sum(not hello.device.startswith("cuda") for hello in workers) + len(servers)
    if len({hello.host for hello in everybody}) > 1 or not 0 < cores < busy:
        return ""
    return f"{busy} processes of {everybody[0].host} share {cores} core{'s' * (cores > 1)}"


def other_model(rank: int, ready: control.Ready, first: control.Ready) -> str:
    """What to say if this worker trains another model than worker 0 did at first."""
    if (ready.fingerprint, ready.length) == (first.fingerprint, first.length):
        return ""
    return (
        f"worker {rank} trains another model than worker 0 "
        f"({ready.length} against {first.length} parameters, or other names or shapes)"
    )


def make_plan(
    ready: Sequence[control.Ready],
    workers: Sequence[control.Hello],
    servers: Sequence[control.Hello],
    *,
    choices: RunChoices,
    replaced: bool,
    copied: bool,
    not_started: int,
    stop: StopRule,
) -> control.Plan:
    """`replaced`: are servers that are lost; `copied`: from the copy that the next one has?

    not_started: how many workers may come besides these; they are taken to be as fast as the usual one of these.

    Raises ConfigError where workers train different models.
    """
    for rank, answer in enumerate(ready):
        if other := other_model(rank, answer, ready[0]):
            raise ConfigError(other)
    seconds = [answer.seconds_per_step for answer in ready]
    seconds += [statistics.median(seconds)] * not_started
    layout, why = choices.lay_out(ready, servers)
    mean = choices.choose_allreduce(ready, workers, len(servers))
    transport = transport_of({way for answer in ready for way in answer.ways})
    return control.Plan(
        workers=len(workers) + not_started,
        servers=len(servers),
        length=ready[0].length,
        layout=layout,
        seconds_per_step=tuple(seconds) if all(s > 0 for s in seconds) else (),
        optimizer=ready[0].optimizer,
        devices=(*(hello.device for hello in workers), *[""] * not_started),
        hosts=(*(hello.host for hello in workers), *[""] * not_started),
        allreduce=mean.name,
        transport=transport,
        notes=tuple(filter(None, (why, mean.reason, transport and f"transport: {transport}"))),
        tensors=ready[0].tensors,
        replaced=replaced,
        copied=copied,
        crowded=crowded(workers, servers),
        samples=stop.samples or 0,
        epochs=stop.epochs or 0.0,
        resumed=stop.behind > 0,
        contribution=stop.contribution,
        epoch_samples=stop.epoch_samples,
    )


def role_context(plan: control.Plan, workers: int, seed: int, note: Callable[[Record], None]) -> RoleContext:
    """What the coordinator's role is given."""
    return RoleContext(
        me=0,
        workers=tuple(range(workers)),
        w=None,
        update=no_update,
        seed=seed,
        seconds_per_step=plan.seconds_per_step,
        most_samples=plan.contribution,
        note=note,
    )


def no_update(w: Any, g: Any, samples: int) -> Any:
    """The rule of one that holds no model."""
    raise AssertionError("the coordinator holds no model")
