"""Manages the incarnations of each party of a run: which one runs, and when the next one is started."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping

from paceline.config import Config
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.coordination.server_recovery import INCARNATIONS_MAX
from paceline.runtime.spec.launcher import Launcher
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.supervisor.restart_policy import (
    LATE_RESTARTS,
    LATER_SECONDS,
    EvaluatorRestarts,
    Replacements,
    Restarts,
)


class PartyIncarnations:
    """Starts the processes of a run; `joined` is for the coordinator's thread, all else for the supervisor's."""

    def __init__(
        self,
        config: Config,
        launcher: Launcher,
        say: Callable[[str], None],
        started: Callable[[Party, int], None] = lambda who, incarnation: None,
    ) -> None:
        """say: shows a line to the user. started: is told that a process of a later incarnation runs."""
        self._config, self._launcher, self._say = config, launcher, say
        self._started, self._unreported = started, dict[Party, int]()
        self._specs: dict[Party, ProcessSpec] = {}
        self._restarts = Restarts(config.cluster.restarts)
        self._replacements = Replacements(INCARNATIONS_MAX)
        self._evaluator = EvaluatorRestarts()
        self.up: set[Party] = set()  # whose process is, as far as anybody has heard
        self._newcomers_not = ""  # why no worker can join late

    def begin(self, specs: Mapping[Party, ProcessSpec], not_started: Collection[Party]) -> None:
        """Starts the first incarnation of everybody but `not_started`."""
        self._specs = dict(specs)
        for who in specs:
            if who not in not_started:
                self._start(who)

    def refuse_newcomers(self, why: str) -> None:
        """Starts no lost worker again from now on; `why` is what the user reads."""
        self._newcomers_not = why

    def next(self, who: Party) -> None:
        """Starts the next incarnation of `who`."""
        spec = self._specs[who]
        # Only the first incarnation resumes a checkpoint: later ones take over the state of the run.
        self._specs[who] = dataclasses.replace(spec, incarnation=spec.incarnation + 1, resume="")
        self._unreported[who] = spec.incarnation + 1
        self._start(who)

    def _start(self, who: Party) -> None:
        """Starts the process of `who` by its present spec."""
        self.up.add(who)
        self._launcher.start(self._specs[who])

    def busy(self) -> bool:
        """Returns True while somebody is at work that is no part of the run, such as a script after its training."""
        return self._launcher.busy()

    # ---- what is heard of them ---------------------------------------------------------------------------
    def joined(self, who: Party, incarnation: int) -> None:
        """Notes that an incarnation has joined. Only for servers does it matter."""
        if who.kind == "server":
            self._replacements.joined(who, incarnation)

    def lost(self, who: Party, incarnation: int) -> None:
        """Kills a lost incarnation, whose process may still run, and starts a server's successor if its process has
        ended."""
        if incarnation == self._specs[who].incarnation:  # the next one may be up by now
            self._launcher.kill(who)
        if who.kind == "server" and self._replacements.given_up(who, incarnation):
            self.next(who)

    def hopeless(self, who: Party, *, trains: bool) -> bool:
        """Returns True if no further process may be started for `who`, whose process has ended, though the run needs
        one."""
        if who == EVALUATOR:
            return self._evaluator.exhausted and not trains
        return self._replacements.hopeless(who, self._specs[who].incarnation)

    def has_ended(self, who: Party) -> None:
        """Notes that the process of `who` has ended, whatever follows."""
        self.up.discard(who)
        self._unreported.pop(who, None)

    def ended(self, who: Party, *, trains: bool, banned: Collection[Party]) -> None:
        """Plans the next incarnation of `who`, whose process has ended in a run that goes on: now, later or never."""
        if who.kind == "server":
            if self._replacements.ended(who, self._specs[who].incarnation):
                self.next(who)
            return
        if who in banned:
            return
        if who == EVALUATOR:
            self._evaluator.ended()
        if trains:
            why_not = self._newcomers_not if who.kind == "worker" else ""
            later = LATE_RESTARTS if who == EVALUATOR else 0
            now = time.monotonic()
            why_not = why_not or self._restarts.ended(now, who, later=later)
            if who == EVALUATOR and not why_not and (pause := self._restarts.pause(now, who)) >= LATER_SECONDS:
                self._say(f"evaluator is tried again in {pause:.0f} s; nothing is evaluated or checkpointed until then")
            if why_not and who == EVALUATOR:
                self._say(f"{why_not}; nothing is evaluated or checkpointed now, and one more saves the last model")
            elif why_not and self._config.cluster.restarts:
                self._say(why_not)

    def start_due(self, *, trains: bool, needs_evaluator: bool) -> None:
        """Starts those whose pause is over; the evaluator at once where nobody trains any more. Reports who runs."""
        for who in self._restarts.due(time.monotonic()):
            if trains:
                if who == EVALUATOR:
                    self._evaluator.started()
                self.next(who)
        if not trains and needs_evaluator and self._evaluator.takes_final_restart():
            if self._evaluator.exhausted:
                self._specs[EVALUATOR] = dataclasses.replace(self._specs[EVALUATOR], judges=False)
            self.next(EVALUATOR)
        for who, incarnation in list(self._unreported.items()):
            if not self._launcher.waits(who):  # its host may be away for minutes
                del self._unreported[who]
                self._started(who, incarnation)
