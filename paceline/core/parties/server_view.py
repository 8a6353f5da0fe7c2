"""Which messages count after servers went back to an earlier state: those of the present server view.

    between a worker, or the coordinator, and a server     sent in another view: dropped
    between servers, such as their copies                  the same
    between workers                                        counts: their states have not gone back by themselves
    past the roles, such as a state that is asked for      counts: it speaks of no state that was undone

The view grows whenever servers go back together. A server enters it when it has become what it was
(`server_restore.py`), all others when they are told that training goes on (`orders.py`, `VoidCalls`).

Then the loop of every worker starts anew, since its role holds what servers do not know any more (`loop_anew`). What it
is at ends first; nothing is broken off:

    the loop is at        it is resumed                       with                                      and then
    a question to         at once, since that call is void    PeerLost (`outgoing_calls.py`, `void`)    starts anew
    servers
    a question to others  when they answer, or are lost       the answer, or PeerLost                   starts anew
    local work            when that is done                   its result, which nobody gets             starts anew
    nothing yet           when it begins                      nothing                                   starts

What others have asked this worker stays open: only servers forget whom they owe an answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.effects import Effect
from paceline.core.errors import PeerLost
from paceline.core.role import Role


def is_undone(sent_in: int, present: int, src: Party, dst: Party) -> bool:
    """Returns True for a message of a role that `dst`, which is in view `present`, must not hear.

    `sent_in`: the view of `src` when it sent it. The receiver may be the one that is behind.
    """
    return sent_in != present and "server" in (src.kind, dst.kind)


def loop_anew(role: Role, begins: Callable[[], object]) -> Generator[Effect, Any, None]:
    """Returns the loop that takes the place of that of `role`, since servers went back.

    With whatever it is resumed first, `run` starts from the beginning then, behind a call of `begins`.
    """
    loop = _loop_anew(role, begins)
    next(loop)
    return loop


def _loop_anew(role: Role, begins: Callable[[], object]) -> Generator[Any, Any, None]:
    with contextlib.suppress(PeerLost):
        yield  # what it gets here belongs to what was undone
    begins()
    yield from role.run()
