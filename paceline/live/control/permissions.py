"""Who may send what to whom; whatever is not allowed here is rejected.

    control plane    a row for each message, below
    scheme           TELL, CALL and REPLY of messages of schemes, among workers, servers and the coordinator
    state            CALL of ReadState, and its REPLY, as LOOKS below says; copies of slices, TELL among servers
    collective       MEAN, among workers; CALL of a question about a key, and its REPLY, from and to the coordinator
    connection       nothing: these messages belong to the two ends of a connection

The class of a message declares its plane (`paceline.core.message.Plane`). Certificate and token prove which party a
sender is; this file says what that party may do. A server or the coordinator that gets such a message of a worker has
the worker expelled (`handlers.py`); from anybody else the message ends the connection.
"""

from __future__ import annotations

import functools

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.replication import Complete, Copied, Kept
from paceline.core.message import plane_of
from paceline.live.collectives.store import ANSWERS, QUESTIONS
from paceline.live.node.hosted_slice import Declined
from paceline.live.node.node import Node
from paceline.live.node.published_state import PublishedState, ReadState, StateGone
from paceline.live.protocol.transport import Envelope, Kind

WORKER, SERVER, EVALUATOR, COORDINATOR = "worker", "server", "evaluator", "coordinator"
MEMBERS = frozenset({WORKER, SERVER, EVALUATOR})
"""Kinds of party that take part, besides the coordinator."""
_TRAINING = frozenset({WORKER, SERVER, COORDINATOR})

CONTROL: dict[type, tuple[frozenset[str], frozenset[str]]] = {
    **{
        cls: (MEMBERS, frozenset({COORDINATOR}))
        for cls in (control.Hello, control.Beat, control.Records, control.Aware, control.Saved, control.Failed)
    },
    control.Prepared: (frozenset({WORKER, SERVER}), frozenset({COORDINATOR})),
    **{
        cls: (frozenset({WORKER}), frozenset({COORDINATOR}))
        for cls in (
            *(control.Ready, control.Progress, control.Left),
            *(control.Ask, loop_messages.Draw, control.Want, control.Past, loop_messages.OwnResult),
            *(loop_messages.Reported, loop_messages.EndRun, loop_messages.ShareTrained, loop_messages.TakeShare),
            loop_messages.ShareValue,
        )
    },
    **{
        cls: (frozenset({SERVER}), frozenset({COORDINATOR}))
        for cls in (control.SamplesResolved, control.Fenced, control.Restored)
    },
    control.Fence: (frozenset({COORDINATOR}), frozenset({SERVER})),
    control.EvaluationReport: (frozenset({EVALUATOR}), frozenset({COORDINATOR})),
    control.Unfit: (frozenset({SERVER}), frozenset({COORDINATOR})),
    control.Rate: (frozenset({WORKER}), frozenset({SERVER})),
    control.Capture: (frozenset({EVALUATOR, COORDINATOR}), frozenset({SERVER, WORKER})),
    control.Restore: (frozenset({COORDINATOR}), frozenset({SERVER})),
    control.Resume: (frozenset({COORDINATOR}), MEMBERS),
    **{
        cls: (frozenset({COORDINATOR}), MEMBERS)
        for cls in (
            *(control.Roster, control.Plan, control.Go, control.WorkerLeft, control.WorkerJoined),
            *(control.Finish, control.Exit),
        )
    },
    **{
        cls: (frozenset({COORDINATOR}), frozenset({WORKER}))
        for cls in (
            *(
                control.Stop,
                control.Explain,
                control.Quota,
                loop_messages.Drawn,
                control.Lease,
                loop_messages.ShareTaken,
            ),
            *(loop_messages.Drain, loop_messages.ScaleRate, control.NewcomerLost, loop_messages.SharedValue),
        )
    },
    loop_messages.SaveNow: (frozenset({COORDINATOR}), frozenset({EVALUATOR})),
    loop_messages.SharesLeft: (frozenset({COORDINATOR}), frozenset({EVALUATOR})),
    control.Total: (frozenset({COORDINATOR}), frozenset({WORKER, EVALUATOR})),
}
"""For each message of the control plane: the kinds of party that send it, and that receive it."""

LOOKS: dict[str, frozenset[str]] = {
    WORKER: frozenset({WORKER, SERVER}),
    EVALUATOR: frozenset({WORKER, SERVER}),
    COORDINATOR: frozenset({SERVER}),
    SERVER: frozenset({WORKER, EVALUATOR, COORDINATOR, SERVER}),  # one that takes another's place
}
"""For each kind of party: whose published state it may read."""

COPIES = (Copied, Complete, Kept)
"""Messages by which servers keep copies of one another's slices."""


@functools.cache
def may_send(sender: str, receiver: str, kind: Kind, cls: type) -> bool:
    """Returns True if a party of kind `sender` may send such a message to one of kind `receiver`; False by default."""
    match plane_of(cls):
        case "control":
            return kind == Kind.CONTROL and _may_control(sender, receiver, cls)
        case "scheme":
            return kind in (Kind.TELL, Kind.CALL, Kind.REPLY) and sender in _TRAINING and receiver in _TRAINING
        case "state":
            return _may_read_state(sender, receiver, kind, cls)
        case "collective":
            return _may_take_part(sender, receiver, kind, cls)
        case "connection":
            return False


def _may_control(sender: str, receiver: str, cls: type) -> bool:
    """Returns True if the table allows it. A message without a row must go to or come from the coordinator."""
    if cls in CONTROL:
        senders, receivers = CONTROL[cls]
        return sender in senders and receiver in receivers
    # A message without a row: it must go to or come from the coordinator.
    return (sender == COORDINATOR) != (receiver == COORDINATOR)


def _may_read_state(sender: str, receiver: str, kind: Kind, cls: type) -> bool:
    """Returns True for who may look at whom, and for copies among servers."""
    match kind:
        case Kind.TELL:
            return cls in COPIES and sender == receiver == SERVER
        case Kind.CALL:
            return cls is ReadState and receiver in LOOKS.get(sender, ())
        case Kind.REPLY if cls is Declined:  # a reply of who has left, to whatever was asked
            return sender == WORKER and receiver in MEMBERS | {COORDINATOR}
        case Kind.REPLY:
            return cls in (PublishedState, StateGone) and sender in LOOKS.get(receiver, ())
    return False


def _may_take_part(sender: str, receiver: str, kind: Kind, cls: type) -> bool:
    """Returns True for pieces of means among workers, and for their questions to the coordinator."""
    if cls in QUESTIONS:
        return kind == Kind.CALL and (sender, receiver) == (WORKER, COORDINATOR)
    if cls in ANSWERS:
        return kind == Kind.REPLY and (sender, receiver) == (COORDINATOR, WORKER)
    return kind == Kind.MEAN and sender == receiver == WORKER


def admits(node: Node, src: Party, envelope: Envelope) -> bool:
    """Returns True if the message is to be handled; brings it to its bounds where it is beyond them.

    Every receiver asks here and nowhere else: once for each message, and once for the message packed in it.
    Raises ProtocolError for what `src` may not send.
    """
    check_class(src, node.me, envelope.kind, type(envelope.message))
    return node.admits(src, envelope)


def check_class(src: Party, me: Party, kind: Kind, cls: type) -> None:
    """Raises ProtocolError for what `src` may not send to `me`; also before there is a message to make room for."""
    if not may_send(src.kind, me.kind, kind, cls):
        raise ProtocolError(f"{src} may not send {cls.__name__} as {kind.name} to {me}")
