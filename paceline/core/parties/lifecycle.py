"""What a process does with what the coordinator tells it of the course of the run, from its Roster to Exit.

    told      at once, in this order                                its own thread then       and says
    Roster    HoldMessages, at a newcomer that is to have a role;   meets the others          Ready, of a worker
              BeginServerView
    Plan      CheckByPlan                                           takes the plan up         Prepared (`took_up`)
    Go        StartClock                                            begins to train, or to serve
    Stop      EndLoop                                               leaves (`leaves`)         Left (`has_left`)
    Restore                                                         `server_restore.py`
    Finish                                                          takes the last model      Saved (`saved`)
    Exit      MayExit                                               ends; while others train, when all that they
                                                                    sent is handled (`ends_early`)

At once means: before the next message of the coordinator, and before any message of another party that may follow from
it. So a message that is sent in a server view, or with the plan's bounds, is never judged by those of before. All else
takes time, and is left to the party's own thread (`OwnThread`); in a simulation it is an event.

The order of leaving matters. A worker says Left when all that it told others has been taken: once the coordinator has
told them that it is gone, they drop what still comes. And no record of a party may come after the run is over. A worker
that is drained gets Exit when all others know that it has left. What they had sent before may still be on its way: its
role sends that back, or passes it on, before the process ends.

`orders.py` has what the coordinator tells of others meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.core.parties.known_workers import KnownWorkers


@dataclass(frozen=True, slots=True)
class HoldMessages:
    """Holds what others send to the role until that exists (`early_messages.py`)."""


@dataclass(frozen=True, slots=True)
class BeginServerView:
    """Ignores messages between this process and servers that are of another view than this."""

    server_view: int


@dataclass(frozen=True, slots=True)
class CheckByPlan:
    """Checks messages by the bounds of `plan` from now on. `late`: clocks do not begin with 1."""

    plan: control.Plan
    late: bool


@dataclass(frozen=True, slots=True)
class StartClock:
    """Starts the clock of the run."""

    go: control.Go


@dataclass(frozen=True, slots=True)
class EndLoop:
    """Ends the loop for `reason`. It makes the step that it is at and its last exchange, and then it leaves."""

    reason: str


@dataclass(frozen=True, slots=True)
class MayExit:
    """Lets the process end; from now on it is no failure that the coordinator is gone."""


@dataclass(frozen=True, slots=True)
class OwnThread:
    """Gives the party's own thread `message`, which takes its time."""

    message: Any


@dataclass(frozen=True, slots=True)
class SendLast:
    """Lets the role send its last messages, and declines what others still ask it."""


@dataclass(frozen=True, slots=True)
class AwaitTaken:
    """Waits until all that this worker sent others has been taken (`delivery_confirmation.py`).

    by_servers: servers are to have all else, too, since its process ends before theirs.
    """

    by_servers: bool


@dataclass(frozen=True, slots=True)
class FlushRecords:
    """Reports what there is to report, now."""


@dataclass(frozen=True, slots=True)
class Say:
    """Sends a message to the coordinator."""

    message: control.Prepared | control.Left | control.Saved


StepAction = SendLast | AwaitTaken | FlushRecords | Say
"""What the party's own thread does, and may wait for."""
LifecycleAction = HoldMessages | BeginServerView | CheckByPlan | StartClock | EndLoop | MayExit | OwnThread


class PartyLifecycle:
    """Decides for party `me`. `known`: which workers take part, as far as it was told."""

    def __init__(self, me: Party, known: KnownWorkers) -> None:
        self._me, self._known = me, known

    def told(self, message: Any) -> list[LifecycleAction]:
        """Returns what follows from a message of the coordinator."""
        match message:
            case control.Roster() as roster:
                self._known.learn(roster)
                # Workers that come late take their role from others, who may send it something as soon as they know it.
                hold = [HoldMessages()] if self._comes_late else []
                return [*hold, BeginServerView(roster.server_view), OwnThread(roster)]
            case control.Plan() as plan:
                return [CheckByPlan(plan, self._known.late), OwnThread(plan)]
            case control.Go() as go:
                return [StartClock(go), OwnThread(go)]
            case control.Stop(reason=reason):
                return [EndLoop(reason)]
            case control.Exit():
                return [MayExit()]
            case other:
                return [OwnThread(other)]

    @property
    def _comes_late(self) -> bool:
        return self._me.kind == "worker" and self._known.late

    def took_up(self) -> list[Say]:
        """Returns what to say when this party has taken up its plan.

        Training begins when all have said so. Nobody waits for the evaluator, and a worker that comes late is told Go
        with its plan.
        """
        return [] if self._me.kind == "evaluator" or self._comes_late else [Say(control.Prepared())]

    def leaves(self, *, drained: bool = False) -> list[StepAction]:
        """Returns what a worker does when its part is over. `drained`: its process ends before the run does."""
        return [SendLast(), AwaitTaken(by_servers=drained)]

    def has_left(self, reason: str, *, drained: bool = False) -> list[StepAction]:
        """Returns what a worker does when all that was carried out: it takes no further part, for `reason`."""
        return [FlushRecords(), Say(control.Left(reason=reason, drained=drained))]

    def ends_early(self) -> list[StepAction]:
        """Returns what a worker does that may exit while others train: what they sent before they knew that it has left
        is on this side of their answers."""
        return [AwaitTaken(by_servers=False)]

    def saved(self, *, flushed: bool = False) -> list[StepAction]:
        """Returns what a party does when it has the last model, and needs nobody any more.

        flushed: it has reported all since, as a worker does when it leaves.
        """
        return [*([] if flushed else [FlushRecords()]), Say(control.Saved())]
