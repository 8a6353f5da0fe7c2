"""Checks how a run ends: once, for the right reason, and with everybody.

It hears what reaches the parties (Stop, Finish, Exit), what they say (Saved), and the coordinator's records. What may
end the run it reads from the drawn `StopWish`, not from the coordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline.core.coordination.lifecycle import EPOCHS, TARGET_REACHED, StopRule
from paceline.core.trace import Ended, MemberChange, Record
from paceline.sim.checking.oracles.bring_up import Starts
from paceline.sim.checking.oracles.upgrades import Upgrades
from paceline.sim.kernel.host_clock import TRUE, HostClock

ASKED = "interrupted"
"""The reason of a run that somebody ends by hand."""
STUCK = ("no step for", "did not begin to train")
"""Stand in the reason of a worker that is lost though it is heard."""
ROUNDED_S = 1e-6
"""What is lost by rounding when times of a clock that drifts, jumps or begins later are told on another."""
Process = tuple[str, int]
"""A party's name and its incarnation."""


@dataclass(frozen=True)
class StopWish:
    """Says what ends a run, and what happens to it before.

    rule          limits of the coordinator
    asked_at_s    when somebody asks for the end, at the earliest first
    evaluations   time and accuracy of each
    hangs         rank and time: from then on one step of this worker takes very long, though its process is heard; one
                  that joins just then does not begin
    stuck_s       seconds without a step after which a worker counts as lost
    clock         of the coordinator; all other times are virtual times
    starts        when the processes of the run start; None: it begins with training
    upgrades      versions, and which processes end; the run has a supervisor then
    """

    rule: StopRule
    asked_at_s: tuple[float, ...] = ()
    evaluations: tuple[tuple[float, float], ...] = ()
    hangs: tuple[tuple[int, float], ...] = ()
    stuck_s: float = float("inf")
    clock: HostClock = TRUE
    starts: Starts | None = None
    upgrades: Upgrades | None = None

    @property
    def due_s(self) -> dict[str, float]:
        """Returns when the run must have ended at the latest, on the coordinator's clock and by the reason."""
        due = {} if self.rule.seconds is None else {"seconds": self.rule.seconds}
        target = self.rule.target_accuracy
        reached = [at for at, accuracy in self.evaluations if target is not None and accuracy >= target]
        due |= {TARGET_REACHED: self.clock.reads(reached[0])} if reached else {}
        return due | ({ASKED: self.clock.reads(self.asked_at_s[0])} if self.asked_at_s else {})


class EndOfRun:
    """Notes what the parties of one run hear of its end. `done`: returns how many samples the model is made of."""

    def __init__(self, broken: Callable[[str], AssertionError], wish: StopWish, done: Callable[[], int]) -> None:
        self._broken, self._wish, self._done = broken, wish, done
        self.ended: Ended | None = None
        self.over = False
        self._told: Counter[tuple[Process, str]] = Counter()
        self._saved: set[Process] = set()
        self._gone: set[Process] = set()

    def recorded(self, record: Record) -> None:
        """Takes a record of the coordinator."""
        returned = record.party if isinstance(record, MemberChange) and record.event == "returned" else "evaluator"
        if returned != "evaluator" and self.ended:  # which saves the last model
            raise self._broken(f"{returned} joins a run that has been told to stop")
        if isinstance(record, MemberChange) and any(words in record.reason for words in STUCK):
            self._look_at_the_stuck(record)
        if isinstance(record, Ended):
            if self.ended:
                raise self._broken(f"the run ends twice: {self.ended.reason}, then {record.reason}")
            self.ended = record
            self._look_at_the_reason(record)

    def _look_at_the_stuck(self, lost: MemberChange) -> None:
        if lost.party not in [
            f"worker {rank}" for rank, at in self._wish.hangs if self._wish.clock.reads(at) < lost.at
        ]:
            raise self._broken(f"{lost.party} is lost as stuck ({lost.reason}), though it does not hang")

    def _look_at_the_reason(self, ended: Ended) -> None:
        due, clock = self._wish.due_s, self._wish.clock
        rounded = 0.0 if clock == TRUE and self._wish.starts is None else ROUNDED_S
        late = [reason for reason, at in due.items() if clock.shows(at) + rounded < clock.shows(ended.at)]
        if late:
            raise self._broken(f"the run ends at {ended.at:.3f} s by {ended.reason}; {late[0]} was due before")
        if ended.reason in due and due[ended.reason] > ended.at + rounded:
            raise self._broken(f"the run ends by {ended.reason} at {ended.at:.3f} s, {due[ended.reason]:.3f} s is due")
        wanted = self._wish.rule.samples
        if ended.reason in (EPOCHS, self._wish.rule.counted) and (wanted is None or self._done() < wanted):
            raise self._broken(f"the run ends after {self._done()} samples are in the model; {wanted} are wanted")

    def told(self, process: Process, what: str, training: Iterable[str]) -> None:
        """Notes that Stop, Finish or Exit has reached a process. `training`: the workers that have not left."""
        self._told[process, what] += 1
        if self._told[process, what] > 1:
            raise self._broken(f"{process[0]} is told {what} twice")
        if not self.ended:
            raise self._broken(f"{process[0]} is told {what}, and the run has not ended")
        if what != "Stop" and (still := sorted(training)):
            raise self._broken(f"{process[0]} is told {what}, and {still[0]} still trains")
        if what == "Exit" and (waits := self.unsaved()):
            raise self._broken(f"{process[0]} may exit, and {waits[0][0]} has not saved the model")

    def saved(self, process: Process) -> None:
        """Notes that a process needs nobody any more."""
        self._saved.add(process)

    def gone(self, process: Process) -> None:
        """Notes that a process has failed, or ended: nobody waits for it."""
        self._gone.add(process)

    def unsaved(self) -> list[Process]:
        """Returns who was asked for the last model, has not answered, and lives."""
        asked = {process for process, what in self._told if what == "Finish"}
        return sorted(asked - self._saved - self._gone)

    def finished(self) -> None:
        """Notes that the coordinator declares the run over."""
        if self.over:
            raise self._broken("the run is over twice")
        self.over = True
