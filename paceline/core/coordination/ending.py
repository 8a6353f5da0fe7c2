"""How a run ends: a stop rule holds or somebody asks for it; the workers leave; the last model is evaluated and saved.

phase        input                                      then                                next
TRAINING     a stop rule holds, or `stop` is called     Stop to the workers, once           TRAINING, stopping
TRAINING     a loop asks for the end (`asked`)          the same, if it decides or most do  TRAINING, stopping
TRAINING     all epochs are done, while servers are     waits until they are restored       TRAINING
             replaced, and may undo some
TRAINING     Left of the last worker (`left`)           Finish to everybody                 FINISHING
TRAINING     the same, while servers are replaced       waits until they are restored       TRAINING
FINISHING    Saved of everybody that is not lost        Exit to everybody, RunFinished      OVER
"""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import ModelEvaluated, RunFinished, Timer
from paceline.core.coordination.lifecycle import EPOCHS, TARGET_REACHED, RunContext, RunPhase, StopRule
from paceline.core.coordination.party import Party
from paceline.core.coordination.sample_leases import Leasing
from paceline.core.coordination.server_recovery import Recovery
from paceline.core.trace import ASKS_FOR_END, Decided, Ended, Evaluated
from paceline.core.validation.majority import Majority


class RunEnding:
    """Ends a run, on the coordinator's thread."""

    def __init__(self, run: RunContext, rule: StopRule, recovery: Recovery, leasing: Leasing) -> None:
        self._run, self._rule, self._recovery, self._leasing = run, rule, recovery, leasing
        self._saved: set[Party] = set()
        self._asks_for_end: Majority[bool] = Majority()
        self._looks_again = False  # whether all epochs are done, when the servers are back

    def begin(self) -> None:
        """Starts the timer of a run that ends after so many seconds; called when training starts."""
        if self._rule.seconds is not None:
            self._run.decide.start_timer(self._rule.seconds, Timer.TIME_LIMIT)

    def time_is_over(self) -> None:
        """Handles the end of that timer."""
        self.stop("seconds")

    def asked(self, who: Party, reason: str) -> None:
        """Handles that the loop of worker `who` asks for the end of the run."""
        if self._may_end(who, reason):
            self.stop(f"{reason} ({who})")

    def _may_end(self, who: Party, reason: str) -> bool:
        """Returns True if the run ends since worker `who` asks for it.

        Worker 0 decides, or the lowest rank that is neither lost nor drained; so do more than half of the workers.
        """
        roster, now = self._run.roster, self._run.now()
        away = roster.lost | roster.drained
        decides = all(other in away for other in roster.workers[: who.index])
        self._asks_for_end.report(who.index, True)
        if decides or self._asks_for_end.agreed(True, roster.ranks()):
            return True
        why = f"{who} asks for the end of the run ({reason}); it goes on until worker 0 does, or most workers do"
        self._run.decide.record(Decided(at=now, party="coordinator", rank=who.index, verdict=ASKS_FOR_END, reason=why))
        return False

    def stop(self, reason: str, *, target_reached: bool = False) -> None:
        """Tells the workers to stop, once; what follows waits until the last of them has left."""
        run = self._run
        if run.state.stopping or not run.state.training:
            return
        if reason == EPOCHS and self._by_samples:
            reason = self._rule.counted
        run.state.reason, run.state.seconds = reason, run.now()
        run.state.target_reached = target_reached
        run.decide.record(Ended(at=run.state.seconds, reason=reason))
        run.decide.send([*sorted(run.roster.training), *run.roster.joining], control.Stop(reason=reason))

    @property
    def _by_samples(self) -> bool:
        """Returns True if a run without further samples to train ends by the user's number of samples.

        A script has epochs of its own, of a length that only it knows: there the samples that were trained decide.
        """
        rule = self._rule
        known = rule.epoch_samples > 0 or self._run.totals.samples >= (rule.samples or 0)
        return rule.counted != EPOCHS and known

    def stop_at_epochs(self) -> None:
        """Stops a run of leased data when all its epochs are done.

        While servers are replaced it waits: they may return to a state without some of these samples. Without leases
        the workers count for themselves (`paceline.runtime.worker.sample_counts`).
        """
        if not self._leasing.reached(self._rule):
            return
        if not self._recovery.under_way:
            self.stop(EPOCHS)
        elif not self._looks_again:
            self._looks_again = True
            self._recovery.afterwards(self._servers_are_back)

    def _servers_are_back(self) -> None:
        self._looks_again = False
        self.stop_at_epochs()

    def evaluated(self, judged: control.EvaluationReport, worker: Party | None = None) -> None:
        """Records an evaluation, and stops the run if the model has reached its target accuracy.

        worker: whose loop has evaluated; None: the evaluator
        """
        run = self._run
        record = Evaluated(
            # An evaluation of the last model counts at the moment the run was stopped, not when it was done.
            at=min(judged.at, run.state.seconds) if run.state.seconds else judged.at,
            accuracy=judged.accuracy,
            loss=judged.loss,
            samples=judged.samples,
            seconds=judged.seconds,
            chance=judged.chance,
        )
        run.decide.record(record)
        if run.state.training:
            run.decide.add(ModelEvaluated(judged.accuracy))
        reached = self._rule.target_accuracy is not None and judged.accuracy >= self._rule.target_accuracy
        if reached and (worker is None or self._may_end(worker, TARGET_REACHED)):
            self.stop(TARGET_REACHED, target_reached=True)

    def left(self, reason: str) -> None:
        """Ends the run when the last worker has left for `reason`, whether it was told to or not."""
        if not self._run.roster.training:
            self.stop(reason)
            self.finish()

    def finish(self) -> None:
        """Asks everybody for the last model, once no worker trains any more; nothing happens the second time.

        A drained worker that may exit already is not asked.
        """
        if not self._run.state.training:
            return  # a newcomer that came too late was lost, too
        if self._recovery.under_way:  # the last model is not whole yet
            self._recovery.afterwards(self.finish)
            return
        self._run.state.phase = RunPhase.FINISHING
        roster = self._run.roster
        exiting = roster.drained & roster.lost
        self._run.decide.send([who for who in roster.everybody() if who not in exiting], self.finish_order())

    def finish_order(self) -> control.Finish:
        state = self._run.state
        assert state.holder is not None
        return control.Finish(
            holder=state.holder.index,
            reason=state.reason,
            target_reached=state.target_reached,
            samples=self._run.totals.samples,
        )

    # ---- FINISHING ---------------------------------------------------------------------------------------
    def saved(self, who: Party) -> None:
        """Notes that `who` has the last model and needs nobody any more."""
        self._saved.add(who)
        self.go_on()

    def has_saved(self, who: Party) -> bool:
        return who in self._saved

    def not_saved(self) -> list[Party]:
        """Returns who has not answered Finish yet, and is not lost."""
        roster = self._run.roster
        return [who for who in roster.everybody() if who not in roster.lost and who not in self._saved]

    def go_on(self) -> None:
        """Ends the run if everybody who is not lost has saved the last model: all may exit."""
        run = self._run
        if run.state.phase is RunPhase.FINISHING and not self.not_saved():
            run.state.phase = RunPhase.OVER
            run.decide.send(run.roster.everybody(), control.Exit())
            self._leasing.record()
            run.decide.add(RunFinished(run.state.reason, run.state.seconds))
