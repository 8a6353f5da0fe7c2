"""Messages that arrive before their party has a role are kept for it."""

from __future__ import annotations

import numpy as np

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import worker
from paceline.core.sharding import NOWHERE
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.control.test_handlers import Hears, session_of, tell
from tests.live.node_fixture import Ask


def test_what_reaches_a_newcomer_before_its_role_is_heard_by_the_role_in_that_order() -> None:
    session = session_of(worker(0))
    tell(session, control.Roster(addresses={}, hosts={}, incarnations=(1, 0)))
    for n in (1, 2):
        session.handlers.deliver(worker(1), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=n)))
    role = Hears()
    session.enter(role, NOWHERE)
    session.handlers.deliver(worker(1), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=3)))
    assert role.heard == [1, 2, 3]


def test_a_role_that_is_told_of_a_loss_hears_nothing_of_the_lost_worker() -> None:
    session = session_of(worker(0))
    tell(session, control.Roster(addresses={}, hosts={}, incarnations=(1, 0, 0)))
    for rank in (1, 2):
        session.handlers.deliver(worker(rank), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=rank)))
    tell(session, control.WorkerLeft(rank=1, lost=True, incarnation=0))
    role = Hears()
    session.enter(role, NOWHERE)
    assert role.heard == [2]
