"""Who may send what to whom: roles in rows, verbs in columns; whatever has no place in it is refused.

    control plane    a row for each message, below
    schemes          TELL, CALL and REPLY of messages of schemes, among workers, servers and the coordinator
    looks            CALL of a Peek, and its REPLY, as LOOKS below says
    means            MEAN, among workers
    where they meet  CALL of a question about a key, and its REPLY, between workers and the coordinator

A party is what its certificate or its token lets it be; this says what it may do as that.
"""

from __future__ import annotations

import functools

from paceline.core.copies import Complete, Copied, Kept
from paceline.core.errors import ProtocolError
from paceline.live import control
from paceline.live.exhibits import Exhibit, Peek, Withdrawn
from paceline.live.meetings import Take
from paceline.live.party import Party
from paceline.live.peers import Away, Piece
from paceline.live.rendezvous import ANSWERS, QUESTIONS
from paceline.live.transport import Envelope, Kind

WORKER, SERVER, EVALUATOR, COORDINATOR = "worker", "server", "evaluator", "coordinator"
MEMBERS = frozenset({WORKER, SERVER, EVALUATOR})
_TRAINING = frozenset({WORKER, SERVER, COORDINATOR})

CONTROL: dict[type, tuple[frozenset[str], frozenset[str]]] = {
    **{
        cls: (MEMBERS, frozenset({COORDINATOR}))
        for cls in (control.Hello, control.Beat, control.Records, control.Aware, control.Saved, control.Failed)
    },
    control.Prepared: (frozenset({WORKER, SERVER}), frozenset({COORDINATOR})),
    **{
        cls: (frozenset({WORKER}), frozenset({COORDINATOR}))
        for cls in (control.Ready, control.Progress, control.Left, control.Ask, control.Want, control.Past)
    },
    **{
        cls: (frozenset({SERVER}), frozenset({COORDINATOR}))
        for cls in (control.Settled, control.Fenced, control.Restored)
    },
    control.Fence: (frozenset({COORDINATOR}), frozenset({SERVER})),
    control.Judged: (frozenset({EVALUATOR}), frozenset({COORDINATOR})),
    control.Unfit: (frozenset({SERVER}), frozenset({COORDINATOR})),
    control.Rate: (frozenset({WORKER}), frozenset({SERVER})),
    control.Capture: (frozenset({EVALUATOR, COORDINATOR}), frozenset({SERVER, WORKER})),
    control.Restore: (frozenset({COORDINATOR}), frozenset({SERVER})),
    control.Resume: (frozenset({COORDINATOR}), MEMBERS),
    **{
        cls: (frozenset({COORDINATOR}), MEMBERS)
        for cls in (
            *(control.Roster, control.Plan, control.Go, control.Gone, control.Came),
            *(control.Finish, control.Exit),
        )
    },
    **{
        cls: (frozenset({COORDINATOR}), frozenset({WORKER}))
        for cls in (control.Stop, control.Explain, control.Quota, control.Lease)
    },
    control.Total: (frozenset({COORDINATOR}), frozenset({WORKER, EVALUATOR})),
}
"""Of each message of the control plane: who sends it, and to whom."""

LOOKS: dict[str, frozenset[str]] = {
    WORKER: frozenset({WORKER, SERVER}),
    EVALUATOR: frozenset({WORKER, SERVER}),
    COORDINATOR: frozenset({SERVER}),
    SERVER: frozenset({WORKER, EVALUATOR, COORDINATOR, SERVER}),  # one that takes another's place
}
"""At whom each may look."""

COPIES = (Copied, Complete, Kept)
_MEANS = (Piece, Away, Take)
_DECLINED = "paceline.live.hosted"  # a reply of who has left to whatever was asked


@functools.cache
def may_send(sender: str, receiver: str, kind: Kind, cls: type) -> bool:
    """May a party of kind `sender` send one of kind `receiver` such a message? Default: no."""
    if cls in CONTROL:
        senders, receivers = CONTROL[cls]
        return kind == Kind.CONTROL and sender in senders and receiver in receivers
    match kind:
        case Kind.CONTROL:
            # One that is new, until it has a row: nobody but the coordinator gives orders, or is told of anything.
            return cls.__module__ == control.__name__ and (sender == COORDINATOR) != (receiver == COORDINATOR)
        case Kind.MEAN:
            return sender == receiver == WORKER and cls in _MEANS
        case Kind.TELL if cls in COPIES:
            return sender == receiver == SERVER
        case Kind.CALL if cls in QUESTIONS:
            return (sender, receiver) == (WORKER, COORDINATOR)
        case Kind.REPLY if cls in ANSWERS:
            return (sender, receiver) == (COORDINATOR, WORKER)
        case Kind.CALL if cls is Peek:
            return receiver in LOOKS.get(sender, ())
        case Kind.REPLY if cls in (Exhibit, Withdrawn):
            return sender in LOOKS.get(receiver, ())
        case Kind.REPLY if cls.__module__ == _DECLINED:
            return sender == WORKER and receiver in MEMBERS | {COORDINATOR}
    return sender in _TRAINING and receiver in _TRAINING and not _is_ours(cls)


def _is_ours(cls: type) -> bool:
    """Is it a message of the driver, and so none of a scheme? What is packed is one that another carries."""
    ours = cls.__module__.startswith("paceline.live.") and cls.__module__ != "paceline.live.packing"
    return ours or cls in COPIES


def check(src: Party, me: Party, envelope: Envelope) -> None:
    """Raises ProtocolError for what `src` may not send to `me`."""
    check_class(src, me, envelope.kind, type(envelope.message))


def check_class(src: Party, me: Party, kind: Kind, cls: type) -> None:
    """The same, before there is a message."""
    if not may_send(src.kind, me.kind, kind, cls):
        raise ProtocolError(f"{src} may not send {cls.__name__} as {kind.name} to {me}")
