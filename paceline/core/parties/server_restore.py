"""What a server does with an order to restore: it becomes what a snapshot or its copy says, and reports.

    state       input                                       actions                                     next
    SERVING     Restore                                     FetchState                                  FETCHING
    FETCHING    the source has no complete state            Prepared, failed                            SERVING
    FETCHING    the source is lost (nothing is reported)    none: there will be another order           SERVING
    FETCHING    the state, of an order that is overtaken    none                                        as it was
    FETCHING    the state                                   BecomeState                                 BECOMING
    BECOMING    (between two messages: `BecomeState.steps`) ForgetCaptures, ForgetResolved,             BECOMING
                                                            ReplaceRoles, ForgetCopies, EnterServerView
    BECOMING    it has become that (`became`)               the first server: Restored; who has left    SERVING
                                                            and joined; MeetEverybody, by a later
                                                            incarnation; Prepared

No message sees half of the old state: the steps are one. What was kept of the old state is forgotten before the roles
are replaced, since a capture takes what it finds; and the server view comes last, from when on the server is heard.

Several orders may be under way: each loss of a server is followed by one with a higher number. No answer to an order
counts once a later one was carried out. `paceline.core.coordination.server_recovery` gives the orders.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR
from paceline.core.effects import Data
from paceline.core.parties.orders import RolesHearJoined, RolesHearLeft


@dataclass(frozen=True, slots=True)
class FetchState:
    """Fetches the state that the order names: of the coordinator's snapshot, or of the server that has the copy."""

    order: control.Restore


@dataclass(frozen=True, slots=True)
class ForgetCaptures:
    """Drops what is kept for snapshots and checkpoints, and wants no more."""


@dataclass(frozen=True, slots=True)
class ForgetResolved:
    """Drops what was not told of leased samples. What a copy lacks comes again; Restored tells the rest."""


@dataclass(frozen=True, slots=True)
class ReplaceRoles:
    """Replaces all roles by roles in the state that was fetched; from `rolled_back` on workers start anew."""

    rolled_back: bool


@dataclass(frozen=True, slots=True)
class ForgetCopies:
    """Drops what is held for copies, and what is held of them."""


@dataclass(frozen=True, slots=True)
class EnterServerView:
    """Ignores messages of another server view than this from now on."""

    server_view: int


BecomeStep = ForgetCaptures | ForgetResolved | ReplaceRoles | ForgetCopies | EnterServerView


@dataclass(frozen=True, slots=True)
class BecomeState:
    """Makes the server what was fetched for this order, and drops all that was under way: `steps`, between two
    messages."""

    order: control.Restore

    @property
    def rolled_back(self) -> bool:
        """Returns True if all servers return to a snapshot, so that workers start anew; from a copy they go on."""
        return self.order.source == str(COORDINATOR)

    @property
    def steps(self) -> tuple[BecomeStep, ...]:
        """Returns what is done then, in this order."""
        before, view = (ForgetCaptures(), ForgetResolved()), EnterServerView(self.order.server_view)
        return *before, ReplaceRoles(self.rolled_back), ForgetCopies(), view


@dataclass(frozen=True, slots=True)
class MeetEverybody:
    """Connects to the workers, the evaluator and the neighbours, none of which knows this incarnation."""


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """Sends a message to the coordinator."""

    message: control.Prepared | control.Restored


RestoreAction = FetchState | BecomeState | MeetEverybody | ToCoordinator | RolesHearLeft | RolesHearJoined


class ServerRestore:
    """Decides for one server. `later`: it is an incarnation after the first, so the others do not know it."""

    def __init__(self, *, later: bool) -> None:
        self._later = later
        self._carried_out = 0  # number of the last order

    def ordered(self, order: control.Restore) -> list[RestoreAction]:
        """Handles an order."""
        return [FetchState(order)]

    def fetched(self, order: control.Restore, *, complete: bool) -> list[RestoreAction]:
        """Handles the answer of the source of `order`: all of the state, or not `complete`."""
        if not complete:
            return [ToCoordinator(control.Prepared(number=order.number, failed=True))]
        if order.number < self._carried_out:
            return []
        self._carried_out = order.number
        return [BecomeState(order)]

    def became(
        self, order: control.Restore, departed: Collection[int], *, before: int, version: int, done: Data | None
    ) -> list[RestoreAction]:
        """Reports that the server has become what `order` names.

        departed         workers of which the server has been told that they are gone
        before, version  updates that it had applied before, and has applied now
        done             leased samples in its state, if it is the first server and settles them; else None
        """
        actions: list[RestoreAction] = []
        if done is not None:
            actions += [ToCoordinator(control.Restored(done=done))]
        gone = {*order.departed, *departed}
        # Later incarnations of workers begin where the others are, whatever the state knows of former ones.
        actions += [RolesHearLeft(rank) for rank in sorted({*gone, *order.returned})]
        actions += [RolesHearJoined(rank) for rank in order.returned if rank not in gone]
        if self._later:
            actions.append(MeetEverybody())
        undone = max(0, before - version)
        return [*actions, ToCoordinator(control.Prepared(number=order.number, version=version, undone=undone))]
