"""Records who takes part: the coordinator's list of incarnations, and what it decides when one ends or begins.

    state                  event                                               decision          next
    not started            hello                                                                 joining
    joining                begin: the run starts with all that are joining                       training
    joining                ready: it has the model; the others must be told    Announce          announced
    announced              acknowledged by all that are here                   Enter             training
    joining                no ready within join_s                              Evict             lost
    training               a newcomer that makes no report for join_s          Evict             lost
    joining, announced,    connection reset, or silence for dead_s             Evict             lost
      training
    training               no step for stuck_s, though it waits for nobody     Evict             lost
    any                    left                                                                  left
    left, and drained      acknowledged by all that are here                   LetExit           left
    left, lost             hello of a later incarnation                                          joining
    any other              hello of a later incarnation                        Evict             joining
    any                    hello of a burnt incarnation                        Refuse            as it was

A member is a worker, a server, or another process; its name is anything hashable. It has an incarnation, a number that
grows with each restart. To evict a member is to burn its incarnation: nothing that it still says is heard, as it may
wake up after its eviction. The view counts the changes that others have to know.

A newcomer goes through `announced` so that nothing begins with it before all others know it. A mean over the workers
would otherwise have one more member for some than for others, and nobody would ever complete it. A member whose process
shall end is let go when all others know that it has left: from then on nobody sends it anything.

The machine has no clock and sends nothing: it is told what happened and when, on one monotonic clock, and returns
decisions with their reasons. `paceline.core.coordination.elasticity` runs it, in live runs and in simulated ones, so
`paceline fuzz` runs this file.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Who = TypeVar("Who", bound=Hashable)

FIRST_STEP = 6.0
"""The first step of an incarnation may take so many times as long: it compiles kernels and fills caches."""


class MembershipState(enum.Enum):
    """A member is in one of these states; the table above says how it changes."""

    NOT_STARTED = "not started"
    JOINING = "joining"  # it said hello; no other member has been told
    ANNOUNCED = "announced"  # the others are being told
    TRAINING = "training"
    LOST = "lost"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits how long a member may be silent, without a step, or on its way in, before it counts as lost.

    dead_s: seconds of silence. stuck_s: seconds that a member that waits for nobody may go without a step, or
    `stuck_steps` of its usual steps, whichever is longer; infinity switches this off. join_s: seconds from hello to
    ready, and from there until a newcomer reports its first progress: all others wait for it meanwhile. A live run has
    300 s and 20 steps (`config/sections.py`).
    """

    dead_s: float = 5.0
    stuck_s: float = 10.0
    stuck_steps: float = 10.0
    join_s: float = 120.0

    @property
    def longest_tick_s(self) -> float:
        """Returns the seconds between two ticks that count as silence, at most."""
        return self.dead_s / 8

    @property
    def tick_s(self) -> float:
        """Returns the seconds after which `Membership.tick` is to be called again."""
        return min(0.25, self.longest_tick_s)


@dataclass(frozen=True, slots=True)
class Evict(Generic[Who]):
    """`incarnation` of `who` is burnt. `known`: the others were told of it, so they have to hear of `view`."""

    who: Who
    incarnation: int
    view: int
    reason: str
    known: bool


@dataclass(frozen=True, slots=True)
class Announce(Generic[Who]):
    """Tells everybody that `who` joins; each of them answers that it has heard (`acknowledged`)."""

    who: Who
    incarnation: int
    view: int


@dataclass(frozen=True, slots=True)
class Enter(Generic[Who]):
    """All members know `who`: whatever begins from now on includes it."""

    who: Who
    incarnation: int
    view: int


@dataclass(frozen=True, slots=True)
class Refuse(Generic[Who]):
    """This incarnation of `who` is not let in."""

    who: Who
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class LetExit(Generic[Who]):
    """All members know that `who` has left: nobody begins to send it anything any more."""

    who: Who


MembershipDecision = Evict[Who] | Announce[Who] | Enter[Who] | Refuse[Who] | LetExit[Who]


@dataclass(slots=True)
class MemberRecord(Generic[Who]):
    """Says what is known of one member. The times are on the caller's clock, in seconds.

    burnt: the highest incarnation that may not come back. view: the view in which it was announced, or left. since:
    when it came into its state. heard: when anything last came from it. progressed: when it last made a step or waited
    for others. steps: of this incarnation. step_s: what a step usually takes it. unaware: who has not heard yet that it
    joins, or has left. begun: it has reported progress, or began with the run.
    """

    state: MembershipState = MembershipState.NOT_STARTED
    incarnation: int = 0
    burnt: int = -1
    view: int = 0
    since: float = 0.0
    heard: float = 0.0
    progressed: float = 0.0
    steps: int = 0
    step_s: float = 0.0
    unaware: set[Who] = field(default_factory=set)
    begun: bool = False


HERE = (MembershipState.ANNOUNCED, MembershipState.TRAINING)
UNHEARD = (MembershipState.LOST, MembershipState.NOT_STARTED)


class Membership(Generic[Who]):
    """Holds a record of every member. `view` numbers the present generation; it grows with every change that others
    hear of.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self.view = 0
        self._members: dict[Who, MemberRecord[Who]] = {}
        self._announced: dict[Who, MemberRecord[Who]] = {}  # those of them in that state, in their order
        self._drained: dict[Who, MemberRecord[Who]] = {}  # those that have left, and are not let go yet
        self._ticked: float | None = None

    # ---- looking at it -----------------------------------------------------------------------------------
    def state(self, who: Who) -> MembershipState:
        return self._members[who].state if who in self._members else MembershipState.NOT_STARTED

    def incarnation(self, who: Who) -> int:
        """Returns its present incarnation, or its last one; 0 for a member that was never there."""
        return self._members[who].incarnation if who in self._members else 0

    def hears(self, who: Who, incarnation: int) -> bool:
        """Returns True if what that incarnation says counts: it is the present one, and is not lost."""
        member = self._members.get(who)
        return member is not None and member.incarnation == incarnation and member.state not in UNHEARD

    def burnt(self, who: Who, incarnation: int) -> bool:
        """Returns True if that incarnation is over for good."""
        return who in self._members and incarnation <= self._members[who].burnt

    def here(self) -> list[Who]:
        """Returns the members that the others know to take part, in the order of their first hello."""
        return [who for who, member in self._members.items() if member.state in HERE]

    # ---- joining -----------------------------------------------------------------------------------------
    def hello(self, now: float, who: Who, incarnation: int) -> list[MembershipDecision[Who]]:
        """Takes the first message of an incarnation.

        An earlier one that is still here is evicted; a burnt one is refused.
        """
        member = self._members.setdefault(who, MemberRecord())
        if incarnation <= member.burnt:
            return [Refuse(who, incarnation, f"incarnation {incarnation} of {who} is over: {member.burnt} are burnt")]
        decisions: list[MembershipDecision[Who]] = []
        if incarnation > member.incarnation and member.state is not MembershipState.LEFT:
            decisions = self.lost(now, who, member.incarnation, "came back")
        member.burnt = max(member.burnt, incarnation - 1)
        member.state, member.incarnation, member.since = MembershipState.JOINING, incarnation, now
        member.heard = member.progressed = now
        member.steps, member.step_s, member.begun = 0, 0.0, False
        return decisions

    def begin(self, now: float) -> None:
        """Starts the run with all that are joining; nobody has to be told of anybody."""
        self.view += 1
        for member in self._members.values():
            if member.state is MembershipState.JOINING:
                self._enters(now, member)
                member.begun = True  # it is ready, and has the model

    def ready(self, now: float, who: Who) -> list[MembershipDecision[Who]]:
        """A newcomer has the model and its connections. It enters when all that are here have acknowledged it."""
        member = self._members[who]
        if member.state is not MembershipState.JOINING:
            return []
        self.view += 1
        # Taken before the newcomer itself counts as here: it need not acknowledge itself.
        member.unaware = set(self.here())
        member.state, member.view = MembershipState.ANNOUNCED, self.view
        self._announced[who] = member
        return [Announce(who, member.incarnation, self.view), *self._known_to_all(now)]

    def acknowledged(self, now: float, who: Who, view: int) -> list[MembershipDecision[Who]]:
        """`who` has heard of every change up to `view`."""
        for member in (*self._announced.values(), *self._drained.values()):
            if member.view <= view:
                member.unaware.discard(who)
        return self._known_to_all(now)

    def _known_to_all(self, now: float) -> list[MembershipDecision[Who]]:
        """Lets those enter, and those exit, of whom all others have heard."""
        decisions: list[MembershipDecision[Who]] = []
        for who, member in list(self._announced.items()):
            if not member.unaware:
                del self._announced[who]
                self._enters(now, member)
                decisions.append(Enter(who, member.incarnation, member.view))
        known = [who for who, member in self._drained.items() if not member.unaware]
        for who in known:
            del self._drained[who]
        return [*decisions, *map(LetExit, known)]

    def _enters(self, now: float, member: MemberRecord[Who]) -> None:
        member.state, member.since, member.heard, member.progressed = MembershipState.TRAINING, now, now, now

    # ---- staying -----------------------------------------------------------------------------------------
    def heard(self, now: float, who: Who) -> None:
        """Notes that a message came from `who`."""
        if who in self._members:
            self._members[who].heard = now

    def progressed(self, now: float, who: Who, steps: int, *, waits: bool, step_s: float = 0.0) -> None:
        """`who` has made `steps` steps in this incarnation, of `step_s` seconds each. `waits`: it waits for others just
        now.

        Waiting counts as progress: a worker that is held back at a barrier is not stuck, the one it waits for may be.
        """
        self.heard(now, who)
        member = self._members[who]
        if waits or steps != member.steps:
            member.progressed = now
        member.steps, member.step_s, member.begun = steps, step_s, True

    # ---- going -------------------------------------------------------------------------------------------
    def left(self, now: float, who: Who, *, drained: bool = False) -> list[MembershipDecision[Who]]:
        """`who` has left cleanly and takes no further part; nobody waits for what it would still acknowledge.

        drained: its process shall end as soon as all others have acknowledged that.
        """
        member = self._members[who]
        member.state, member.since = MembershipState.LEFT, now
        self._announced.pop(who, None)
        self.view += 1
        if drained:
            member.unaware, member.view = set(self.here()), self.view
            self._drained[who] = member
        return self._known_without(now, who)

    def lost(self, now: float, who: Who, incarnation: int, reason: str) -> list[MembershipDecision[Who]]:
        """Ends that incarnation of `who`, after a reset connection or a failed call; a second report of the same is
        ignored.
        """
        member = self._members.get(who)
        if (
            member is None
            or incarnation != member.incarnation
            or member.state in (MembershipState.LOST, MembershipState.NOT_STARTED)
        ):
            return []
        # Nobody else was told of a member that is still joining, so its loss is no change of the view.
        known = member.state is not MembershipState.JOINING
        self.view += known
        member.state, member.burnt, member.since = MembershipState.LOST, incarnation, now
        self._announced.pop(who, None)
        self._drained.pop(who, None)
        evicted: MembershipDecision[Who] = Evict(who, incarnation, self.view, reason, known)
        return [evicted, *self._known_without(now, who)]

    def _known_without(self, now: float, who: Who) -> list[MembershipDecision[Who]]:
        """Lets those enter, and those exit, that only `who` had not acknowledged, which never will."""
        for other in (*self._announced.values(), *self._drained.values()):
            other.unaware.discard(who)
        return self._known_to_all(now)

    def tick(self, now: float) -> list[MembershipDecision[Who]]:
        """Evicts the members whose time is up. It is to be called every `Patience.tick_s` seconds.

        A longer pause means that the coordinator itself was suspended, or that its clock has jumped. Nobody could be
        heard meanwhile, so the rest of a pause counts against nobody, however many pauses there are. After a long one
        all members' times start afresh.
        """
        pause = now - self._ticked if self._ticked is not None else 0.0
        self._ticked = now
        if pause > self.patience.dead_s / 2:
            self._forgive(now, pause=math.inf)
        elif pause > self.patience.longest_tick_s:
            self._forgive(now, pause - self.patience.longest_tick_s)
        found = [(who, member, self._overdue(now, member)) for who, member in self._members.items()]
        decisions: list[MembershipDecision[Who]] = []
        for who, member, reason in found:
            if reason:
                decisions += self.lost(now, who, member.incarnation, reason)
        return decisions

    def _forgive(self, now: float, pause: float) -> None:
        """Makes all that members did last so many seconds younger."""
        for member in self._members.values():
            member.heard = min(now, member.heard + pause)
            member.progressed = min(now, member.progressed + pause)
            member.since = min(now, member.since + pause)

    def half_stuck(self, now: float) -> list[Who]:
        """Returns who has been without a step, or has not begun, for half the time after which it counts as lost."""
        return [
            who
            for who, member in self._members.items()
            if self._hangs_at_start(now, member, 0.5) or self._stuck(now, member, 0.5)
        ]

    def _hangs_at_start(self, now: float, member: MemberRecord[Who], part: float = 1.0) -> bool:
        begins = member.state is MembershipState.TRAINING and not member.begun
        return begins and now - member.since > part * self.patience.join_s

    def _stuck(self, now: float, member: MemberRecord[Who], part: float = 1.0) -> bool:
        patience = self.patience
        if member.state is not MembershipState.TRAINING or math.isinf(patience.stuck_s):
            return False
        # A slow model is not a stuck worker, so the limit follows what a step usually takes this member.
        limit = max(patience.stuck_s, patience.stuck_steps * member.step_s)
        return now - member.progressed > part * limit * (1.0 if member.steps else FIRST_STEP)

    def _overdue(self, now: float, member: MemberRecord[Who]) -> str:
        """Returns why this member counts as lost by now; the text is empty while it does not."""
        patience = self.patience
        if member.state in (*HERE, MembershipState.JOINING) and now - member.heard > patience.dead_s:
            return f"silent for {now - member.heard:.1f} s"
        if member.state is MembershipState.JOINING and now - member.since > patience.join_s:
            return f"did not get ready within {patience.join_s:g} s"
        if self._hangs_at_start(now, member):
            return f"joined, and did not begin to train within {patience.join_s:g} s"
        if not self._stuck(now, member):
            return ""
        usual = f", a step takes it {member.step_s:.2g} s" if member.step_s else ""
        return f"alive, but no step for {now - member.progressed:.1f} s{usual}"
