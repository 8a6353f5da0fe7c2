"""Which messages count after servers went back to an earlier state: those of the present server view.

    between a worker, or the coordinator, and a server     sent in another view: dropped
    between servers, such as their copies                  the same
    between workers                                        counts: their states have not gone back by themselves
    past the roles, such as a state that is asked for      counts: it speaks of no state that was undone

The view grows whenever servers go back together. A server enters it when it has become what it was
(`server_restore.py`), all others when they are told that training goes on (`orders.py`, `VoidCalls`).
"""

from __future__ import annotations

from paceline.core.coordination.party import Party


def is_undone(sent_in: int, present: int, src: Party, dst: Party) -> bool:
    """Returns True for a message of a role that `dst`, which is in view `present`, must not hear.

    `sent_in`: the view of `src` when it sent it. The receiver may be the one that is behind.
    """
    return sent_in != present and "server" in (src.kind, dst.kind)
