"""Makes the plan of a run from what workers and servers reported of themselves.

The functions are pure: they take the reports and return the plan, so tests need no coordinator.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.collective import Choice
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunRules, StopRule
from paceline.core.coordination.same_model import other_model, other_moment
from paceline.core.coordinator.bring_up import PlanRequest
from paceline.core.errors import ConfigError
from paceline.core.role import Role, RoleContext
from paceline.core.sharding import Layout
from paceline.core.trace import Record
from paceline.live.protocol.transport import SHARED, TCP

LayOut = Callable[[Sequence[control.Ready], Sequence[control.Hello]], tuple[Layout, str]]
"""Chooses which server holds what, and says why, from the reports of the workers and the servers."""
ChooseAllreduce = Callable[[Sequence[control.Ready], Sequence[control.Hello], int], Choice]
"""Chooses who carries means, from the reports of the workers and the number of servers."""


@dataclass(frozen=True, slots=True)
class RunChoices:
    """Holds the decisions that depend on the scheme and the configuration, as functions of the reports.

    make_role          makes the coordinator's role
    lay_out            says which server holds what, and why
    choose_allreduce   says who carries means
    check              raises ConfigError for a plan that the scheme cannot follow
    batch_limits       of all workers, as the configuration has them, for those that may join later
    """

    make_role: Callable[[control.Plan, RoleContext], Role]
    lay_out: LayOut
    choose_allreduce: ChooseAllreduce
    check: Callable[[control.Plan], None] = lambda plan: None
    batch_limits: tuple[int, ...] = ()


def transport_of(ways: Collection[str]) -> str:
    """Describes how vectors travel in a run whose parties use these ways; empty if none have to travel."""
    if SHARED in ways:
        return f"{SHARED} on one host, {TCP} between hosts" if TCP in ways else f"{SHARED} (same host)"
    return ", ".join(sorted(ways))


def crowded(workers: Sequence[control.Hello], servers: Sequence[control.Hello], ways: Collection[str] = ()) -> str:
    """Says why no core is free to communicate while others compute; empty where one may be.

    Only processes that all share one host can be crowded: over a link bytes take time and no processor. Where vectors
    travel by TCP what looks like one host may be several (containers, network namespaces), so nobody is crowded. A
    worker on a GPU is not counted, since its core is idle while the GPU computes. `ways`: how vectors travel.
    """
    everybody = (*workers, *servers)
    cores = min(hello.cores for hello in everybody)
    if all(hello.cpus for hello in everybody):  # workers may be bound to a part of them each
        cores = len({cpu for hello in everybody for cpu in hello.cpus})
    busy = sum(not hello.device.startswith(("cuda", "xpu", "mps")) for hello in workers) + len(servers)
    if TCP in ways or len({hello.host for hello in everybody}) > 1 or not 0 < cores < busy:
        return ""
    return f"{busy} processes of {everybody[0].host} share {cores} core{'s' * (cores > 1)}"


class LivePlanner:
    """Makes the plan of a live run and the coordinator's role. `note` takes the trace records of that role."""

    def __init__(self, choices: RunChoices, rules: RunRules, workers: int, note: Callable[[Record], None]) -> None:
        self._choices, self._rules, self._workers, self._note = choices, rules, workers, note

    def plan(self, request: PlanRequest) -> control.Plan:
        plan = make_plan(request, self._choices, self._rules.stop)
        self._choices.check(plan)
        return plan

    def role(self, plan: control.Plan) -> Role:
        return self._choices.make_role(plan, role_context(plan, self._workers, self._rules.seed, self._note))


def make_plan(request: PlanRequest, choices: RunChoices, stop: StopRule) -> control.Plan:
    """Makes the plan that all processes follow. Workers that may join later count as fast as the median of the others.

    Raises ConfigError if workers train different models, or go on from different rounds.
    """
    ready, workers, servers = request.ready, request.workers, request.servers
    not_started = request.not_started
    for rank, answer in enumerate(ready):
        if other := other_model(rank, answer, ready[0]) or other_moment(rank, answer, ready[0]):
            raise ConfigError(other)
    seconds = [answer.seconds_per_step for answer in ready]
    seconds += [statistics.median(seconds)] * not_started
    known = choices.batch_limits or (0,) * (len(ready) + not_started)
    limits = (*(answer.batch_limit for answer in ready), *known[len(ready) :])
    layout, why = choices.lay_out(ready, servers)
    mean = choices.choose_allreduce(ready, workers, len(servers))
    ways = {way for answer in ready for way in answer.ways}
    transport = transport_of(ways)
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
        replaced=request.replaced,
        copied=request.copied,
        crowded=crowded(workers, servers, ways),
        samples=stop.samples or 0,
        epochs=stop.epochs or 0.0,
        resumed=stop.behind > 0,
        batch_limits=limits if any(limits) else (),
        contribution=stop.contribution,
        epoch_samples=stop.epoch_samples,
    )


def role_context(plan: control.Plan, workers: int, seed: int, note: Callable[[Record], None]) -> RoleContext:
    """Returns the context of the coordinator's role, which holds no model and so no weights."""
    return RoleContext(
        me=0,
        workers=tuple(range(workers)),
        w=None,
        update=no_update,
        seed=seed,
        seconds_per_step=plan.seconds_per_step,
        most_samples=plan.contribution,
        batch_limits=plan.batch_limits,
        note=note,
        hosts=plan.hosts,
    )


def no_update(w: Any, g: Any, samples: int) -> Any:
    """Raises AssertionError: the coordinator holds no model, so its role may not update one."""
    raise AssertionError("the coordinator holds no model")
