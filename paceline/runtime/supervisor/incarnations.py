"""Starts and kills the processes of a run, as `paceline.core.supervisor.processes` decides."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.core.supervisor.processes import (
    KillIncarnation,
    ProcessAction,
    ProcessSupervision,
    ShowLine,
    StartIncarnation,
)
from paceline.runtime.spec.launcher import Launcher, ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec


class PartyIncarnations:
    """Starts the processes of a run; `joined` is for the coordinator's thread, all else for the supervisor's."""

    def __init__(
        self,
        config: Config,
        launcher: Launcher,
        say: Callable[[str], None],
        started: Callable[[Party, int], None] = lambda who, incarnation: None,
        part_size: Callable[[int], int] = lambda rank: 0,
    ) -> None:
        """say: shows a line to the user. started: is told that a process of a later incarnation runs. part_size:
        returns the samples that a worker's memory holds at once, as far as it has found out."""
        self._launcher, self._say, self._part_size = launcher, say, part_size
        self._started, self._unreported = started, dict[Party, int]()
        self._specs: dict[Party, ProcessSpec] = {}
        self._decides = ProcessSupervision(config.cluster.restarts)

    @property
    def up(self) -> set[Party]:
        """Returns whose process runs, as far as anybody has heard."""
        return self._decides.up

    def begin(self, specs: Mapping[Party, ProcessSpec], not_started: Collection[Party]) -> None:
        """Starts the first incarnation of everybody but `not_started`."""
        self._specs = dict(specs)
        self._carry_out(self._decides.begin(specs, not_started))

    def refuse_newcomers(self, why: str) -> None:
        """Starts no lost worker again from now on; `why` is what the user reads."""
        self._decides.refuse_newcomers(why)

    def next(self, who: Party) -> None:
        """Starts the next incarnation of `who`."""
        self._carry_out([self._decides.next(who)])

    def _carry_out(self, actions: Iterable[ProcessAction]) -> None:
        for action in actions:
            match action:
                case StartIncarnation():
                    self._start(action)
                case KillIncarnation(who=who):
                    self._launcher.kill(who)
                case ShowLine(line=line):
                    self._say(line)

    def _start(self, action: StartIncarnation) -> None:
        """Starts a process. Only the first incarnation resumes a checkpoint: later ones take over the run's state."""
        spec = self._specs[action.who]
        if action.incarnation:
            spec = dataclasses.replace(spec, incarnation=action.incarnation, resume="", judges=action.judges)
            self._unreported[action.who] = action.incarnation
        if action.who.kind == "worker":
            spec = dataclasses.replace(spec, part_size=self._part_size(action.who.index))
        self._specs[action.who] = spec
        self._launcher.start(spec)

    def busy(self) -> bool:
        """Returns True while somebody is at work that is no part of the run, such as a script after its training."""
        return self._launcher.busy()

    # ---- what is heard of them ---------------------------------------------------------------------------
    def joined(self, who: Party, incarnation: int) -> None:
        """Notes that an incarnation has joined."""
        self._decides.joined(who, incarnation)

    def lost(self, who: Party, incarnation: int) -> None:
        """Kills a lost incarnation, whose process may still run, and starts a server's successor if its process has
        ended."""
        self._carry_out(self._decides.lost(who, incarnation))

    def hopeless(self, who: Party, *, trains: bool) -> bool:
        """Returns True if no further process may be started for `who`, whose process has ended, though the run needs
        one."""
        return self._decides.hopeless(who, trains=trains)

    def has_ended(self, ended: ProcessEnded) -> None:
        """Notes that a process has ended, whatever follows."""
        self._decides.has_ended(ended.who)
        self._unreported.pop(ended.who, None)
        if ended.other_version:
            self._decides.refused(ended.who, ended.why)

    def why_absent(self, who: Party) -> str:
        """Returns, as the end of a line, why the last process of `who` was refused; "" if it was not."""
        why = self._decides.refusal_of(who)
        return f"; its last process was refused: {why}" if why else ""

    def ended(self, who: Party, *, trains: bool, banned: Collection[Party]) -> None:
        """Plans the next incarnation of `who`, whose process has ended in a run that goes on: now, later or never."""
        self._carry_out(self._decides.ended(time.monotonic(), who, trains=trains, banned=banned))

    def start_due(self, *, trains: bool, needs_evaluator: bool) -> None:
        """Starts those whose pause is over; the evaluator at once where nobody trains any more. Reports who runs."""
        self._carry_out(self._decides.due(time.monotonic(), trains=trains, needs_evaluator=needs_evaluator))
        for who, incarnation in list(self._unreported.items()):
            if not self._launcher.waits(who):  # its host may be away for minutes
                del self._unreported[who]
                self._started(who, incarnation)
