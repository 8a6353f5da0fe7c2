"""A server: one shard of the model, its optimizer, and the boxes of the scheme that belong there.

The shard is cut into slices. Each has a box, a rule and means of its own, so that one is updated and answered while
the next is still coming in; for the scheme each is a shard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

from paceline.core.clocked import ClockedServer
from paceline.core.mean import Averaged, MeanServer
from paceline.core.role import Place
from paceline.core.trace import Applied, Decision, Record
from paceline.engine.vector import FlatMemory, norm
from paceline.job.capturing import Captures, load_rule
from paceline.job.kvstore.table import open_table
from paceline.job.recipe import Recipe
from paceline.job.resuming import OPTIMIZER, Start, parts_of
from paceline.job.seat import Seat
from paceline.live import control
from paceline.live.hosted import Hosted
from paceline.live.session import Session

INITIAL = "initial weights"


class _Means(MeanServer):
    """Carries every `Mean`; the first one gives the initial weights."""

    def __init__(self, scheme: Any, place: Place, initial: Callable[[Any], None]) -> None:
        super().__init__(scheme, place)
        self._initial = initial

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        if tag == INITIAL:
            self._initial(result.v)


def serve(seat: Seat, session: Session, start: Start | None = None) -> None:
    """Until the coordinator says Exit. Raises PeerLost when it vanishes."""
    session.connect(())
    plan = session.expect(control.Plan)
    store = Recipe.from_json(plan.optimizer).store
    captures = None
    if store:
        session.node.host(open_table(session.node, store, plan.workers))
    else:
        hosted, captures = _take_up(seat.who.index, session, plan, start)
        session.node.host(hosted)
    session.tell(control.Prepared())
    session.expect(control.Go)
    session.node.forget(INITIAL)  # everybody has them; they would take as much room as the shard
    session.begin()
    if captures:
        session.serve(captures.end)
    else:
        session.serve()


def _take_up(server: int, session: Session, plan: control.Plan, start: Start | None) -> tuple[list[Hosted], Captures]:
    """The slices of this server; their boxes come with the initial weights."""
    recipe = Recipe.from_json(plan.optimizer)
    scheme = recipe.make_scheme()
    session.node.stage = recipe.codecs.stage(FlatMemory(), scheme, of_server=True)
    parts, slices = plan.layout.slices, plan.layout.of(server)
    tensors = _tensors_by_slice(plan)
    rules = {number: recipe.make_rule(tensors[number]) for number in slices}

    if start is not None and start.optimizer_fits:
        vectors = start.tensors(OPTIMIZER)
        for number, rule in rules.items():
            load_rule(rule, start.facts["numbers"], parts_of(vectors, parts[number]))

    elif start is not None:
        for rule in rules.values():
            rule.samples_seen = start.samples

    def set_rate(lr: float) -> None:
        for rule in rules.values():
            rule.set_lr(lr)

    session.on_rate = set_rate
    gates = {number: recipe.gate.gate(norm, plan.workers, server, session.note) for number in slices}

    def place(number: int, w: Any) -> Place:
        return Place(
            me=number,
            workers=tuple(range(plan.workers)),
            w=w,
            update=rules[number],
            seed=recipe.seed,
            seconds_per_step=plan.seconds_per_step,
            # What happens to a shard happens to all its slices; one of them is enough to tell of it.
            note=(lambda record: session.note(_of_server(record, server))) if number == slices[0] else None,
            gate=gates[number],
        )

    def hosted(number: int) -> Hosted:
        def initial(w: Any) -> None:
            box = scheme.server(len(plan.layout.holders))
            mine.role = box(scheme, place(number, w)) if box else None
            if start is not None and isinstance(mine.role, ClockedServer):
                mine.role.resume(start.version)

        mine = Hosted(
            parts[number].stop - parts[number].start, mean_server=_Means(scheme, place(number, None), initial)
        )
        return mine

    all_hosted = [hosted(number) for number in slices]
    captures = Captures(session.node, all_hosted, list(rules.values()))
    session.on_capture = captures.want
    return all_hosted, captures


def _tensors_by_slice(plan: control.Plan) -> list[list[int]]:
    """The lengths of the tensors in each slice, where the optimizer needs them."""
    found: list[list[int]] = [[] for _ in plan.layout.holders]
    at, number = 0, 0
    for length in plan.tensors:
        number += at == plan.layout.edges[number + 1]
        found[number].append(length)
        at += length
    return found


def _of_server(record: Record, server: int) -> Record:
    """In the trace a shard is known by its server."""
    match record:
        case Applied():
            return dataclasses.replace(record, shard=server)
        case Decision():
            return dataclasses.replace(record, party=f"server {server}")
    return record
