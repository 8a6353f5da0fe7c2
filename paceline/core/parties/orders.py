"""What a party does when the coordinator tells it that others have left, joined, failed or been replaced.

    order                         actions, in this order
    WorkerLeft, lost              RefuseIncarnation, RolesHearLeft
    WorkerLeft                    ReleaseBeforeLeave, RolesHearLeft; ConfirmChange where it has a view
    WorkerLeft, lost, after that  ReleaseBeforeLeave, RefuseIncarnation: its process has ended before the run; what it
                                  had sent is good
    NewcomerLost                  RefuseIncarnation: no role has ever heard of it
    WorkerJoined                  RolesHearJoined, ConfirmChange
    Fence, at a server            ReportPending
    Resume, at a server           BeginCopies
    Resume, from a copy           RepeatRate, RepeatCalls: the calls of a worker are still good; ReportNotUnderWay
                                  before them, if the first server was replaced
    Resume, all went back         RepeatRate, VoidCalls: they are not, and a worker starts anew
    Resume, at the evaluator      RepeatRate, VoidCalls
    (a newcomer has its role)     what it heard before, and what was held for it (`enter`): PassHeld of those that left
                                  since, RolesHearLeft, RolesHearJoined, PassHeld of all others

A loss comes first: from then on nothing of that incarnation may reach a role, which is told that it is gone. A newcomer
is confirmed last, when everything here knows it, and so is a leave: what any role sends that worker came before.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.core.coordination.sample_leases import FIRST
from paceline.core.parties.known_workers import KnownWorkers


@dataclass(frozen=True, slots=True)
class RefuseIncarnation:
    """Lets nothing more of that incarnation of worker `rank` reach this party: it may still run, cut off or stopped."""

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReleaseBeforeLeave:
    """Passes on what is held of that incarnation of worker `rank` before the role hears that it has left.

    The worker said all that before it left. This concerns a newcomer without a role; elsewhere nothing is held.
    """

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PassHeld:
    """Passes on what was held for a role that exists now. `of_leavers`: of those that have left since; else the rest,
    with what comes meanwhile, until nothing is held any more."""

    of_leavers: bool


@dataclass(frozen=True, slots=True)
class RolesHearLeft:
    rank: int


@dataclass(frozen=True, slots=True)
class RolesHearJoined:
    rank: int


@dataclass(frozen=True, slots=True)
class ConfirmChange:
    """Sends Aware of a join or a leave, once the copy of this party's state knows what the party knows."""

    view: int


@dataclass(frozen=True, slots=True)
class ReportPending:
    """Sends Fenced: which samples of that incarnation wait in an open round here.

    What is resolved goes before it, since the coordinator gives the samples of all others to somebody else.
    """

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReportNotUnderWay:
    """Sends Past: which samples of this worker will not be handed over any more."""


@dataclass(frozen=True, slots=True)
class BeginCopies:
    """Copies the whole state to the next server again: all are in place. `servers`: those that were replaced."""

    servers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepeatRate:
    """Sends the numbers of this worker's optimizer again, since a restored server has those of an earlier time."""


@dataclass(frozen=True, slots=True)
class RepeatCalls:
    """Sends the calls again that these servers had not answered when they were lost."""

    servers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VoidCalls:
    """Fails all calls to servers. `rolled_back`: the servers are in an earlier state, from which the loop starts
    anew."""

    server_view: int
    rolled_back: bool
    servers: tuple[int, ...]


Order = control.WorkerLeft | control.WorkerJoined | control.NewcomerLost | control.Fence | control.Resume
"""What the coordinator tells a party about others, while training goes on."""
OrderAction = (
    RefuseIncarnation
    | ReleaseBeforeLeave
    | PassHeld
    | RolesHearLeft
    | RolesHearJoined
    | ConfirmChange
    | ReportPending
    | ReportNotUnderWay
    | BeginCopies
    | RepeatRate
    | RepeatCalls
    | VoidCalls
)


class PartyOrders:
    """Decides what party `me` does with an order. `known`: which workers take part, as far as it was told."""

    def __init__(self, me: Party, known: KnownWorkers) -> None:
        self._kind, self._known = me.kind, known

    def told(self, order: Order) -> list[OrderAction]:
        """Returns what follows from `order`."""
        match order:
            case control.WorkerLeft(rank=rank, lost=lost, incarnation=incarnation, view=view):
                left_before = rank in self._known.departed
                self._known.gone(rank, lost=lost)
                return [
                    *([ReleaseBeforeLeave(rank, incarnation)] if left_before or not lost else []),
                    *([RefuseIncarnation(rank, incarnation)] if lost else []),
                    *([] if left_before else [RolesHearLeft(rank)]),
                    *([ConfirmChange(view)] if view else []),
                ]
            case control.WorkerJoined() as came:
                self._known.came(came)
                return [RolesHearJoined(came.rank), ConfirmChange(came.view)]
            case control.NewcomerLost(rank=rank, incarnation=incarnation):
                return [RefuseIncarnation(rank, incarnation)]
            case control.Fence(rank=rank, incarnation=incarnation):
                return [ReportPending(rank, incarnation)]
            case control.Resume() as resume:
                return self._resume(resume)

    def _resume(self, resume: control.Resume) -> list[OrderAction]:
        if self._kind == "server":
            return [BeginCopies(resume.replaced)]
        if self._kind == "worker" and not resume.rolled_back:
            # A first server that stays reports every contribution itself. What it resolved a moment ago may not be told
            # yet, and would be given to somebody else.
            past = [ReportNotUnderWay()] if FIRST.index in resume.replaced else []
            return [RepeatRate(), *past, RepeatCalls(resume.replaced)]
        return [RepeatRate(), VoidCalls(resume.server_view, resume.rolled_back, resume.replaced)]

    def enter(self) -> list[OrderAction]:
        """Returns what the role of a newcomer hears first: what its process was told since the roster, and messages.

        The state that it was made of may be older than that. A message of a worker reaches the role when that knows of
        its coming, and before it knows that it has left.
        """
        known = self._known
        known.entered()
        return [
            *(RolesHearJoined(rank) for rank in sorted(known.joined & known.departed)),
            PassHeld(of_leavers=True),
            *(RolesHearLeft(rank) for rank in sorted(known.departed)),
            *(RolesHearJoined(rank) for rank in sorted(known.joined - known.departed)),
            PassHeld(of_leavers=False),
        ]
