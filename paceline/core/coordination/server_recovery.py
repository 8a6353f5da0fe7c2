"""Servers that are lost and replaced while training goes on.

    state of a server   input                               then                                        next
    IN PLACE            lost, and it can be replaced        Restore to those concerned                  AWAY
    IN PLACE            lost, and it cannot                 the run fails (`elasticity.py`)
    AWAY                Hello of a later incarnation        Roster, Plan, Restore to it                 RESTORING
    RESTORING           Prepared, of the last order         when all concerned are prepared:            IN PLACE
                                                            Go to those that were away, Resume to all others
    RESTORING           Prepared, failed                    a new order, by the snapshot                RESTORING
    RESTORING, AWAY     another server is lost              a new order, with a new number              as it was
    RESTORING, AWAY     `_patience_s` after the last order  the run fails

Which servers are concerned:

    --ack replica    the lost server alone; it is restored from its copy on the next server
                     (`paceline.live.state.replication`), and no acknowledged update is lost
    else             all servers; they are restored from one snapshot together, so that no shard is newer than another

The second begins a new server view: messages of an earlier view are ignored, since they belong to updates that were
undone. `paceline.core.fault_tolerance.server_recovery` decides which of the two it is, and which answers count. Workers
then repeat the calls that were not answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.decisions import (
    FailCallsTo,
    FailureKind,
    SnapshotKeeper,
    SnapshotOrder,
    Timer,
    VoidCallsToServers,
)
from paceline.core.coordination.lifecycle import RunContext, moving_seconds
from paceline.core.coordination.party import Party
from paceline.core.fault_tolerance.membership import MembershipState
from paceline.core.fault_tolerance.server_recovery import Replacing
from paceline.core.trace import Applied, MemberChange, Record

PATIENCE_SECONDS = 60.0
INCARNATIONS_MAX = 4  # of one server, each of them short
SHORT_SECONDS = 5.0
"""An incarnation that lasted longer does not count towards INCARNATIONS_MAX, and the count starts again after it."""


class Snapshots(SnapshotKeeper, Protocol):
    """Holds the snapshots and copies from which lost servers are restored."""

    @property
    def copies(self) -> bool:
        """Returns True if each server copies its updates to the next one before it answers."""

    def refuses(self, ready: control.Ready, servers: int) -> str:
        """Returns why such a run cannot be snapshotted, so that a lost server ends it; empty if it can."""

    @property
    def available(self) -> bool:
        """Returns True once there is a snapshot to restore from."""


class Recovery:
    """Replaces lost servers, on the coordinator's thread.

    departed    ranks of workers that take no part; a restored server is told of them
    """

    def __init__(self, run: RunContext, snapshots: Snapshots | None) -> None:
        self._run, self._members, self._decide = run, run.members, run.decide
        self._servers, self._snapshots = run.roster.servers, snapshots
        self._incarnations = dict.fromkeys(self._servers, 1)  # each server's short ones in a row, with the present one
        self._began = dict.fromkeys(self._servers, 0.0)  # when that one began to train; none has while it is lost
        self._replacing = Replacing(len(self._servers))
        self._prepared: dict[Party, control.Prepared] = {}
        self._versions: dict[int, int] = {}  # the newest version that each shard has reported
        self._afterwards: list[Callable[[], None]] = []
        self.departed = {who.index for who in run.roster.not_started}  # ranks
        self._returned: set[int] = set()  # ranks of workers that are in a later incarnation

    @property
    def under_way(self) -> bool:
        return bool(self._replacing.away)

    @property
    def server_view(self) -> int:
        return self._replacing.server_view

    @property
    def number(self) -> int:
        """Returns the number of the last order."""
        return self._replacing.number

    def afterwards(self, act: Callable[[], None]) -> None:
        """Calls `act` once all servers are restored."""
        self._afterwards.append(act)

    def can_replace(self, who: Party) -> bool:
        """Returns True if that server can be replaced when it is lost now, or is being replaced already."""
        plan = self._run.state.agreed
        if who not in self._incarnations or self._snapshots is None or plan is None or not plan.replaced:
            return False
        if who.index in self._replacing.away and self._members.state(who) is MembershipState.LOST:
            return True
        return not self.exhausted(who) and (plan.copied or self._snapshots.available)

    def exhausted(self, who: Party) -> str:
        """Returns why that server is not restarted again; empty while it may be."""
        if self._incarnations.get(who, 0) < INCARNATIONS_MAX or self._short_incarnations(who) < INCARNATIONS_MAX:
            return ""
        return f"it has died {INCARNATIONS_MAX} times in a row within {SHORT_SECONDS:g} s"

    def _short_incarnations(self, who: Party) -> int:
        """Returns the number of short incarnations in a row if the present one ends now; 1 if that was long."""
        return self._incarnations[who] if self._run.now() - self._began[who] < SHORT_SECONDS else 1

    # ---- lost --------------------------------------------------------------------------------------------
    def lost(self, who: Party, incarnation: int, why: str) -> None:
        """Begins to replace a server that the membership has evicted.

        The newest snapshot is held until all are restored, so that all of them restore the same one.
        """
        if exhausted := self.exhausted(who):  # it fell silent while it was restored; `survives` was not asked
            self._decide.fail(who, f"lost {who}: {why}; {exhausted}", FailureKind.WAS_LOST)
            return
        self._decide.add(SnapshotOrder.HOLD)
        self._incarnations[who], self._began[who] = self._short_incarnations(who) + 1, math.inf
        self._decide.record(MemberChange(at=self._run.now(), party=str(who), event="lost", reason=why))
        self._decide.add(FailCallsTo(who, why))
        self._decide.add(VoidCallsToServers())  # what was being kept for a later snapshot is no more
        self._decide.close_connection(who, incarnation, why)
        self._replacing.lost(who.index, copied=self._run.state.plan.copied)
        self._order_all()

    def _order_all(self) -> None:
        """Sends Restore to all servers concerned, with a new number.

        Answers and deadlines of an earlier order carry its number, so they no longer count.
        """
        assert self._snapshots is not None
        replacing = self._replacing
        if replacing.rolled_back and not self._snapshots.available:
            who = self._servers[min(replacing.away)]
            cause = f"lost {who} and the copies of what it held, before the first snapshot"
            self._decide.fail(who, cause, FailureKind.WAS_LOST)
            return
        self._members.view += 1
        number = self._members.view
        replacing.order(number)
        self._prepared = {}
        for server in map(self._servers.__getitem__, replacing.concerned()):
            if self._members.state(server) is not MembershipState.LOST:
                self._decide.send([server], self._order(server))
        self._decide.start_timer(self._patience_s, Timer.SERVERS_BACK, number)

    @property
    def _patience_s(self) -> float:
        return PATIENCE_SECONDS + moving_seconds(self._run.state.plan.layout.length)

    def _order(self, server: Party) -> control.Restore:
        replacing = self._replacing
        keeper = replacing.source(server.index)
        source = str(party.COORDINATOR if keeper is None else self._servers[keeper])
        departed = tuple(sorted(self.departed))
        returned = tuple(sorted(self._returned - self.departed)) if replacing.rolled_back else ()  # a copy knows them
        return control.Restore(
            number=replacing.number,
            server_view=replacing.server_view,
            source=source,
            departed=departed,
            returned=returned,
        )

    def still_waiting(self, number: int) -> None:
        if self._replacing.counts(number):
            who = self._servers[self._replacing.missing()[0]]
            self._decide.fail(who, f"waited {self._patience_s:.0f} s for {who} to be restored")

    def came_back(self, rank: int) -> None:
        """Notes that a later incarnation of that worker has been announced."""
        self.departed.discard(rank)
        self._returned.add(rank)

    def recorded(self, record: Record) -> None:
        if isinstance(record, Applied):
            self._versions[record.shard] = max(record.version, self._versions.get(record.shard, 0))

    # ---- restored ----------------------------------------------------------------------------------------
    def hello(self, who: Party, incarnation: int, roster: control.Roster) -> None:
        """Takes in a new incarnation of a lost server: it gets the roster, the plan and the order to restore.

        Its number may exceed the last one by more than 1, since incarnations in between may have died before Hello.
        """
        self._members.hello(self._run.now(), who, max(incarnation, self._members.incarnation(who) + 1))
        for message in (roster, self._run.state.plan, self._order(who)):
            self._decide.send([who], message)

    def prepared(self, who: Party, prepared: control.Prepared) -> None:
        """Handles the answer to Restore; when the last one concerned has answered, training continues."""
        if prepared.failed:  # the server that held its copy was itself replaced a moment ago
            if self._replacing.failed(prepared.number):
                self._order_all()
            return
        if self._replacing.counts(prepared.number):
            self._prepared[who] = prepared
        if self._replacing.prepared(who.index, prepared.number):
            self._go_on()

    def _go_on(self) -> None:
        now, rolled_back = self._run.now(), self._replacing.rolled_back
        back = [self._servers[server] for server in sorted(self._replacing.away)]
        self._replacing.done()
        for who in back:
            self._decide.send([who], control.Go(at=now))
            self._members.ready(now, who)
            self._began[who] = now
        for other in self._members.here():  # Resume, sent below, reaches them before anything of it
            self._members.acknowledged(now, other, self._members.view)
        reason = self._reason(back, rolled_back)
        self._versions.clear()
        for who in back:
            self._decide.record(MemberChange(at=now, party=str(who), event="replaced", reason=reason))
        self._decide.add(SnapshotOrder.RELEASE)
        replaced = tuple(who.index for who in back)
        resume = control.Resume(server_view=self.server_view, rolled_back=rolled_back, replaced=replaced)
        self._decide.send([who for who in self._run.roster.everybody() if who not in back], resume)
        waiting, self._afterwards = self._afterwards, []
        for act in waiting:
            act()

    def _reason(self, back: Sequence[Party], rolled_back: bool) -> str:
        """Says in one line what became of the updates, for the trace."""
        version = max(prepared.version for prepared in self._prepared.values())
        if not rolled_back:
            return (
                f"restored from its copy, version {self._prepared[back[0]].version:,}; no acknowledged update is lost"
            )
        most = max(prepared.undone for prepared in self._prepared.values())
        most = max(most, *(self._versions.get(who.index, version) - version for who in back))
        return f"all shards were restored to version {version:,} ({most:,} update{'s' * (most != 1)} undone)"
