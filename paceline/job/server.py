"""A server: one shard of the model, its optimizer, and the boxes of the scheme that belong there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from paceline.core.mean import Averaged, MeanServer
from paceline.core.role import Place
from paceline.core.trace import Record
from paceline.core.vector import cut
from paceline.job.recipe import Recipe
from paceline.job.seat import Seat
from paceline.live import control
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


def serve(seat: Seat, session: Session) -> None:
    """Until the coordinator says Exit. Raises PeerLost when it vanishes."""
    session.connect(())
    plan = session.expect(control.Plan)
    _take_up(seat, session, plan)
    session.tell(control.Prepared())
    session.expect(control.Go)
    session.begin()
    session.serve()


def _take_up(seat: Seat, session: Session, plan: control.Plan) -> None:
    recipe = Recipe.from_json(plan.optimizer)
    scheme = recipe.make_scheme()
    shard = seat.who.index
    part = cut(plan.length, plan.servers)[shard]
    mine = (slice(0, part.stop - part.start),)

    rule = recipe.make_rule()
    session.on_rate = rule.set_lr

    def place(w: Any, note: Callable[[Record], None] | None) -> Place:
        return Place(
            me=shard,
            workers=tuple(range(plan.workers)),
            w=w,
            update=rule,
            seed=recipe.seed,
            seconds_per_step=plan.seconds_per_step,
            note=note,
        )

    def initial(w: Any) -> None:
        box = scheme.server(plan.servers)
        session.node.place(box(scheme, place(w, session.note)) if box else None, mine)

    session.node.place(None, mine)
    session.node.serve_mean(_Means(scheme, place(None, None), initial))
